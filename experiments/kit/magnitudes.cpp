// SPDX-License-Identifier: Apache-2.0
#include "kit/magnitudes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/refuse.hpp"

namespace fp8lab::experiments {
namespace {

/// Magnitudes and how many elements have them, for a format: the SQNR of each scale.
class ScaleSearch {
 public:
  ScaleSearch(const Format& format, std::vector<float> values, std::vector<double> counts)
      : format_(format), values_(std::move(values)), counts_(std::move(counts)) {
    for (std::size_t i = 0; i < values_.size(); ++i) energy_ += counts_[i] * square(values_[i]);
  }

  [[nodiscard]] double rms() const {
    double count = 0;
    for (const double one : counts_) count += one;
    return std::sqrt(energy_ / count);
  }
  /// Tries the scale, rounded to float32.
  double sqnr_db(double scale) {
    const auto used = static_cast<float>(scale);
    const float inverse = 1 / used;
    if (!(used > 0) || !std::isfinite(used) || !std::isfinite(inverse)) return -std::numeric_limits<double>::infinity();
    scaled_.resize(values_.size());
    codes_.resize(values_.size());
    back_.resize(values_.size());
    std::ranges::transform(values_, scaled_.begin(), [used](float x) { return x * used; });
    encode(format_, CastPolicy{}, std::span<const float>(scaled_), std::span<std::uint8_t>(codes_));
    decode(format_, std::span<const std::uint8_t>(codes_), std::span<float>(back_));
    double noise = 0;
    for (std::size_t i = 0; i < values_.size(); ++i) noise += counts_[i] * square(back_[i] * inverse - values_[i]);
    const double sqnr = noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(energy_ / noise);
    if (!best_ || sqnr > best_->sqnr_db) best_ = BestScale{static_cast<double>(used), sqnr};
    return sqnr;
  }
  [[nodiscard]] const std::optional<BestScale>& best() const { return best_; }

 private:
  static double square(float x) { return static_cast<double>(x) * static_cast<double>(x); }

  Format format_;
  std::vector<float> values_;
  std::vector<double> counts_;
  double energy_ = 0;
  std::vector<float> scaled_, back_;
  std::vector<std::uint8_t> codes_;
  std::optional<BestScale> best_;
};

}  // namespace

double Magnitudes::lower_end(std::size_t bin) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bin) << dropped_bits));
}

void Magnitudes::count(std::uint32_t word, std::uint64_t elements) {
  const std::uint32_t bin = word >> dropped_bits;
  std::vector<std::uint64_t>& of_binade = counts_[bin / bins_of_binade];
  if (of_binade.empty()) of_binade.resize(bins_of_binade);
  of_binade[bin % bins_of_binade] += elements;
  size_ += elements;
}

template <typename Use>
void Magnitudes::for_bins(const Use& use) const {
  for (std::size_t binade = 0; binade < binades; ++binade) {
    for (std::size_t i = binade == 0 ? 1 : 0; i < counts_[binade].size(); ++i) {
      if (counts_[binade][i] > 0) use(lower_end(binade * bins_of_binade + i), counts_[binade][i]);
    }
  }
}

template <typename Use>
void Magnitudes::for_bins_downward(const Use& use) const {
  for (std::size_t binade = binades; binade-- > 0;) {
    for (std::size_t i = counts_[binade].size(); i-- > (binade == 0 ? 1U : 0U);) {
      if (counts_[binade][i] > 0 && !use(lower_end(binade * bins_of_binade + i), counts_[binade][i])) return;
    }
  }
}

void Magnitudes::add(float x) {
  const float magnitude = std::fabs(x);
  if (!(magnitude <= std::numeric_limits<float>::max())) return;
  count(std::bit_cast<std::uint32_t>(magnitude), 1);
  amax_ = std::max(amax_, magnitude);
}

void Magnitudes::add(std::span<const float> values) {
  for (const float x : values) add(x);
}
void Magnitudes::add(std::span<const double> values) {
  for (const double x : values) add(as_float32(x));
}
void Magnitudes::add(std::span<const Half> values) {
  for (const Half x : values) add(as_float32(x));
}
void Magnitudes::add(std::span<const BFloat16> values) {
  // Neighbours are counted in tables of their own: to count the same word twice in a row takes long in one table.
  constexpr std::size_t tables = 2;
  constexpr std::size_t words = std::size_t{1} << 15U;
  constexpr std::size_t piece = std::size_t{1} << 18U;  // whose counts fit in 32 bits
  std::vector<std::uint32_t> counts(tables * words);
  for (std::size_t first = 0; first < values.size(); first += piece) {
    std::ranges::fill(counts, 0U);
    const std::span<const BFloat16> some = values.subspan(first, std::min(piece, values.size() - first));
    for (std::size_t i = 0; i < some.size(); ++i) ++counts[i % tables * words + (some[i].bits & (words - 1))];
    for (std::uint32_t word = 0; word < 0x7F80U; ++word) {
      const std::uint32_t elements = counts[word] + counts[words + word];
      if (elements == 0) continue;
      count(word << 16U, elements);
      amax_ = std::max(amax_, std::bit_cast<float>(word << 16U));
    }
  }
}

void Magnitudes::merge(const Magnitudes& other) {
  for (std::size_t binade = 0; binade < binades; ++binade) {
    const std::vector<std::uint64_t>& theirs = other.counts_[binade];
    if (counts_[binade].size() < theirs.size()) counts_[binade].resize(theirs.size());
    std::ranges::transform(theirs, counts_[binade], counts_[binade].begin(), std::plus<>());
  }
  size_ += other.size_;
  amax_ = std::max(amax_, other.amax_);
}

std::optional<Concentration> Magnitudes::concentration() const {
  constexpr std::uint64_t least_size = 1000;
  constexpr double least_share = 0.5;
  if (size_ < least_size) return std::nullopt;
  double energy = 0;
  for_bins([&](double value, std::uint64_t count) { energy += static_cast<double>(count) * value * value; });
  std::optional<Concentration> widest;
  double widest_gap = 0;
  Concentration above{0, 0};
  double before = 0;
  for_bins_downward([&](double value, std::uint64_t count) {
    // The elements above this bin stand out by the gap before it.
    if (above.elements > 0 && above.share >= least_share && before / value > widest_gap) {
      widest_gap = before / value;
      widest = above;
    }
    above.elements += count;
    above.share += static_cast<double>(count) * value * value / energy;
    before = value;
    return above.elements <= size_ / 1000;
  });
  if (above.elements > size_ / 1000) return widest;
  // All that is not zero is among a thousandth.
  if (above.elements > 0) return above;
  return std::nullopt;
}

std::optional<BestScale> Magnitudes::best_scale(const Format& format) const {
  if (!format.is_signed || format.bits() > 8) refuse("a format with a sign and at most 8 bits is needed");
  if (amax_ == 0) return std::nullopt;
  std::vector<float> values;
  std::vector<double> counts;
  for_bins([&](double value, std::uint64_t count) {
    values.push_back(static_cast<float>(value));
    counts.push_back(static_cast<double>(count));
  });
  if (values.empty()) return std::nullopt;  // all so small that their bin is that of zero
  ScaleSearch search(format, std::move(values), std::move(counts));
  // 1. All binades.
  constexpr double steps = 32;  // a binade
  const double largest = max_value(format);
  const double first = std::log2(largest / static_cast<double>(amax_)) - 1;
  const double last = std::log2(4 * largest / search.rms());
  search.sqnr_db(std::exp2(first + 1));
  for (double at = first; at <= last; at += 1 / steps) {
    checkpoint();
    search.sqnr_db(std::exp2(at));
  }
  if (!search.best()) return std::nullopt;
  // 2. Between the neighbours of the best.
  double low = std::log2(search.best()->scale) - 1 / steps;
  double high = low + 2 / steps;
  constexpr double golden = 0.6180339887498949;
  for (int i = 0; i < 24; ++i) {
    const double lower = high - golden * (high - low);
    const double upper = low + golden * (high - low);
    if (search.sqnr_db(std::exp2(lower)) < search.sqnr_db(std::exp2(upper))) {
      low = lower;
    } else {
      high = upper;
    }
  }
  return search.best();
}

std::string concentration_words(const Concentration& one, std::uint64_t size) {
  return fmt::format("{} of {} elements hold{} {:.1f} % of the energy; the SQNR is {}", one.elements, size,
                     one.elements == 1 ? "s" : "", 100 * one.share, one.elements == 1 ? "its" : "theirs");
}

}  // namespace fp8lab::experiments
