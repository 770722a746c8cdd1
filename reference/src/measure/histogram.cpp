// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/measure/histogram.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/measure/errors.hpp"
#include "measure/bin_finder.hpp"
#include "measure/check.hpp"

namespace fp8lab {
namespace {

constexpr int most_bins = 1 << 24;
constexpr std::size_t buffer_size = 4096;  // values that are buffered at a time

void check(bool valid, const std::string& rule) {
  if (!valid) throw std::invalid_argument("histogram bins: " + rule);
}

/// `count` + 1 edges, evenly spaced under `inverse`; the first and the last are exact.
template <typename Inverse>
std::vector<double> even_edges(double low, double high, int count, const Inverse& inverse, double first, double last) {
  std::vector<double> edges(static_cast<std::size_t>(count) + 1);
  for (int i = 0; i <= count; ++i) edges[static_cast<std::size_t>(i)] = inverse(low + (high - low) * i / count);
  edges.front() = first;
  edges.back() = last;
  return edges;
}

struct EdgesOf {
  std::vector<double> operator()(const LinearBins& bins) const {
    check(std::isfinite(bins.high - bins.low) && bins.low < bins.high, "low < high, and a finite range");
    check(bins.count > 0 && bins.count <= most_bins, "count from 1 to 2^24");
    return even_edges(bins.low, bins.high, bins.count, [](double x) { return x; }, bins.low, bins.high);
  }
  std::vector<double> operator()(const LogBins& bins) const {
    check(std::isfinite(bins.high) && bins.low > 0 && bins.low < bins.high, "0 < low < high, both finite");
    check(bins.count > 0 && bins.count <= most_bins, "count from 1 to 2^24");
    const auto power = [](double x) { return std::pow(10.0, x); };
    return even_edges(std::log10(bins.low), std::log10(bins.high), bins.count, power, bins.low, bins.high);
  }
  std::vector<double> operator()(const BinadeBins& bins) const {
    check(bins.lowest <= bins.highest && bins.lowest >= -1074 && bins.highest <= 1023,
          "-1074 <= lowest <= highest <= 1023");
    std::vector<double> edges;
    for (int e = bins.lowest; e <= bins.highest + 1; ++e) edges.push_back(std::ldexp(1.0, e));
    return edges;
  }
  std::vector<double> operator()(const CodeBins& bins) const {
    check(bins.format.bits() <= 16, "a format of at most 16 bits");
    std::vector<double> edges((std::size_t{1} << bins.format.bits()) + 1);
    std::iota(edges.begin(), edges.end(), 0.0);
    return edges;
  }
};

}  // namespace

Histogram::Histogram(const Bins& bins)
    : bins_(bins),
      edges_(in_default_environment([&] { return std::visit(EdgesOf{}, bins); })),
      counts_(edges_.size() - 1) {}

void Histogram::add(double value, Outcome outcome) {
  by_default_arithmetic([&] { ++counter_of(value, outcome); });
}

std::uint64_t& Histogram::counter_of(double value, Outcome outcome) {
  switch (outcome) {
    case Outcome::underflow: return underflows;
    case Outcome::saturated: return saturations;
    case Outcome::rounded: break;
  }
  if (std::isnan(value)) return nans;
  if (std::isinf(value)) return infinities;
  if (value == 0) return zeros;
  if (const auto* codes = std::get_if<CodeBins>(&bins_)) return counts_[encode(codes->format, codes->policy, value)];
  const double x = std::holds_alternative<LinearBins>(bins_) ? value : std::abs(value);
  if (x < edges_.front()) return below;
  if (x >= edges_.back()) return above;
  const auto edge = std::ranges::upper_bound(edges_, x);
  return counts_[static_cast<std::size_t>(edge - edges_.begin()) - 1];
}

void Histogram::add_piece(std::span<const double> values) {
  constexpr std::size_t few = 256;  // a finder is not worth its making
  if (!has_sought_finder_ && values.size() >= few) {
    finder_ = BinFinder::make(bins_, edges_);
    has_sought_finder_ = true;
  }
  if (!finder_) {
    for (const double value : values) ++counter_of(value, Outcome::rounded);
    return;
  }
  std::vector<std::uint64_t> slots(finder_->slots());
  finder_->count(values, slots);
  zeros += slots[0];
  below += slots[1];
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += slots[i + 2];
  above += slots[counts_.size() + 2];
  infinities += slots[counts_.size() + 3];
  nans += slots[counts_.size() + 4];
}

void Histogram::add(std::span<const double> values) {
  const DefaultEnvironment environment;
  for_each_piece(values.size(), [&](std::size_t first, std::size_t count) { add_piece(values.subspan(first, count)); });
}

void Histogram::add(std::span<const float> values) {
  const DefaultEnvironment environment;
  std::vector<double> room(std::min(buffer_size, values.size()));
  for (std::size_t first = 0; first < values.size(); first += buffer_size) {
    checkpoint();
    const std::span<double> some = std::span(room).first(std::min(buffer_size, values.size() - first));
    widen(values.subspan(first, some.size()), some);
    add_piece(some);
  }
}

void Histogram::add(std::span<const double> values, std::span<const Outcome> outcomes) {
  const DefaultEnvironment environment;
  check_same_size("values", values.size(), "outcomes", outcomes.size());
  std::vector<double> rounded;
  for (std::size_t first = 0; first < values.size(); first += buffer_size) {
    checkpoint();
    rounded.clear();
    for (std::size_t i = first; i < std::min(first + buffer_size, values.size()); ++i) {
      switch (outcomes[i]) {
        case Outcome::underflow: ++underflows; break;
        case Outcome::saturated: ++saturations; break;
        case Outcome::rounded: rounded.push_back(values[i]); break;
      }
    }
    add_piece(rounded);
  }
}

void Histogram::add_codes(std::span<const std::uint8_t> codes) {
  for_each_piece(codes.size(), [&](std::size_t first, std::size_t count) {
    count_slots(count, counts_, [&](std::size_t i) { return codes[first + i]; });
  });
}
void Histogram::add_codes(std::span<const std::uint16_t> codes) {
  for_each_piece(codes.size(), [&](std::size_t first, std::size_t count) {
    for (const std::uint16_t code : codes.subspan(first, count)) ++counts_[code];
  });
}

void Histogram::set_counts(std::span<const std::uint64_t> counts) {
  if (counts.size() != counts_.size()) {
    throw std::invalid_argument("there must be " + std::to_string(counts_.size()) + " counts, one a bin, not " +
                                std::to_string(counts.size()));
  }
  counts_.assign(counts.begin(), counts.end());
}

bool operator==(const Histogram& a, const Histogram& b) {
  const auto apart = [](const Histogram& h) {
    return std::array{h.zeros, h.infinities, h.nans, h.below, h.above, h.underflows, h.saturations};
  };
  return a.bins_ == b.bins_ && a.counts_ == b.counts_ && apart(a) == apart(b);
}

void Histogram::merge(const Histogram& other) {
  if (bins_ != other.bins_) {
    throw std::invalid_argument("histograms with different bins cannot be merged");
  }
  std::ranges::transform(counts_, other.counts_, counts_.begin(), std::plus<>{});
  zeros += other.zeros;
  infinities += other.infinities;
  nans += other.nans;
  below += other.below;
  above += other.above;
  underflows += other.underflows;
  saturations += other.saturations;
}

std::uint64_t Histogram::total() const {
  return std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0}) + zeros + infinities + nans + below + above +
         underflows + saturations;
}

std::string to_csv(const Histogram& histogram) {
  const DefaultEnvironment environment;
  TextStream csv;
  csv.precision(std::numeric_limits<double>::max_digits10);
  csv << "low,high,count\n";
  const auto& edges = histogram.edges();
  for (std::size_t i = 0; i < histogram.counts().size(); ++i) {
    csv << edges[i] << ',' << edges[i + 1] << ',' << histogram.counts()[i] << '\n';
  }
  csv << "zeros,," << histogram.zeros << "\ninfinities,," << histogram.infinities << "\nnans,," << histogram.nans
      << "\nbelow,," << histogram.below << "\nabove,," << histogram.above << "\nunderflows,," << histogram.underflows
      << "\nsaturations,," << histogram.saturations << '\n';
  return csv.str();
}

}  // namespace fp8lab
