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

void Magnitudes::add(float x) {
  const float magnitude = std::fabs(x);
  if (!(magnitude <= std::numeric_limits<float>::max())) return;
  ++counts_[std::bit_cast<std::uint32_t>(magnitude) >> dropped_bits];
  ++size_;
  amax_ = std::max(amax_, magnitude);
}

void Magnitudes::merge(const Magnitudes& other) {
  std::ranges::transform(counts_, other.counts_, counts_.begin(), std::plus<>());
  size_ += other.size_;
  amax_ = std::max(amax_, other.amax_);
}

std::optional<Concentration> Magnitudes::concentration() const {
  constexpr std::uint64_t least_size = 1000;
  constexpr double least_share = 0.5;
  if (size_ < least_size) return std::nullopt;
  const auto value = [](std::size_t bin) {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bin) << dropped_bits));
  };
  double energy = 0;
  for (std::size_t bin = 1; bin < bins; ++bin) {
    if (counts_[bin] > 0) energy += static_cast<double>(counts_[bin]) * value(bin) * value(bin);
  }
  std::optional<Concentration> widest;
  double widest_gap = 0;
  Concentration above{0, 0};
  double before = 0;
  for (std::size_t bin = bins; bin-- > 1;) {
    if (counts_[bin] == 0) continue;
    // The elements above this bin stand out by the gap before it.
    if (above.elements > 0 && above.share >= least_share && before / value(bin) > widest_gap) {
      widest_gap = before / value(bin);
      widest = above;
    }
    above.elements += counts_[bin];
    above.share += static_cast<double>(counts_[bin]) * value(bin) * value(bin) / energy;
    before = value(bin);
    if (above.elements > size_ / 1000) return widest;
  }
  // All that is not zero is among a thousandth.
  if (above.elements > 0) return above;
  return std::nullopt;
}

std::optional<BestScale> Magnitudes::best_scale(const Format& format) const {
  if (!format.is_signed || format.bits() > 8) refuse("a format with a sign and at most 8 bits is needed");
  if (amax_ == 0) return std::nullopt;
  std::vector<float> values;
  std::vector<double> counts;
  for (std::size_t bin = 1; bin < bins; ++bin) {
    if (counts_[bin] == 0) continue;
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bin) << dropped_bits));
    counts.push_back(static_cast<double>(counts_[bin]));
  }
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
