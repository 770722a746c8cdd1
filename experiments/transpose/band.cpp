// SPDX-License-Identifier: Apache-2.0
#include "transpose/band.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/reference/measure/outcome.hpp"
#include "fp8lab/reference/scaling/facts.hpp"

namespace fp8lab::experiments {
namespace {

/// The scales of a band's elements.
void spread_scales(QuantizedBand& band, int threads) {
  const TileShape tile = tile_shape(band.q);
  const std::vector<float> scales = tile_scales_inv(band.q);
  const std::size_t columns = band.q.columns;
  const std::size_t across = (columns + tile.columns - 1) / tile.columns;
  parallel_for(band.q.rows, threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t row = first; row < last; ++row) {
      const float* of_row = &scales[row / tile.rows * across];
      float* out = &band.scales[row * columns];
      if (tile.columns == 1) {
        std::copy_n(of_row, columns, out);
        continue;
      }
      for (std::size_t i = 0; i < columns; i += tile.columns) {
        std::fill_n(out + i, std::min(tile.columns, columns - i), of_row[i / tile.columns]);
      }
    }
  });
}

bool are_same(float a, float b) { return a == b || (a != a && b != b); }

/// How many pairs are not the same: numbers that are equal, or two NaNs. A loop that compilers make vectors of.
std::uint32_t differing(std::span<const float> a, std::span<const float> b) {
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += are_same(a[i], b[i]) ? 0U : 1U;
  return count;
}

/// The larger of two scales over the smaller; 1 where that is no number.
double factor_between(float a, float b) {
  const double factor = static_cast<double>(std::max(a, b)) / static_cast<double>(std::min(a, b));
  return factor > 1 && factor <= std::numeric_limits<double>::max() ? factor : 1;
}

/// The totals of error_block elements.
struct BlockTotals {
  ErrorTotals rowwise;
  ErrorTotals original;
  ErrorTotals requantized;
  ErrorTotals difference;
};

/// Measures elements of a band, at most error_block of them at a time.
class TransposeMeter {
 public:
  TransposeMeter(const Band& band, MeasuredTranspose& into)
      : band_(band), bounds_(cast_bounds(band.original.q.format, Rounding::nearest_even)), into_(into) {}

  /// Adds elements from `first` on, their totals to those of `totals`.
  void add(std::size_t first, std::size_t count, BlockTotals& totals) {
    const auto some = [&](const auto& all) { return std::span<const float>(all).subspan(first, count); };
    const std::span<const double> x = widened(some(band_.x), x_);
    const std::span<const double> rowwise = widened(some(band_.rowwise.values), rowwise_);
    const std::span<const double> original = widened(some(band_.original.values), original_);
    const std::span<const double> requantized = widened(some(band_.requantized.values), requantized_);
    // 1. Errors.
    totals.rowwise.add(rowwise, x);
    totals.original.add(original, x);
    totals.requantized.add(requantized, x);
    totals.difference.add(requantized, original);
    add_errors(original, x, into_.error_original, into_.relative_error_original);
    add_errors(requantized, x, into_.error_requantized, into_.relative_error_requantized);
    // 2. Differences.
    const std::span<const double> scale = widened(some(band_.original.scales), scale_);
    const std::span<double> errors = std::span(errors_).first(count);
    ulp_error(quotients(requantized, scale, a_), quotients(original, scale, b_), band_.original.q.format, errors);
    into_.difference_ulps.add(std::span<const double>(errors));
    TransposeCounts& counts = into_.counts;
    counts.transposed_differ += differing(some(band_.rowwise.values), some(band_.original.values));
    counts.values_differ += differing(some(band_.requantized.values), some(band_.original.values));
    counts.scales_differ += differing(some(band_.requantized.scales), some(band_.original.scales));
    add_scale_factors(some(band_.requantized.scales), some(band_.original.scales));
    // 3. What underflowed and was saturated.
    counts.underflows_original += outcomes(x, x, original).underflows;
    counts.underflows_requantized += outcomes(x, x, requantized).underflows;
    for (std::size_t i = 0; i < count; ++i) {
      counts.extra_underflows += original[i] != 0 && requantized[i] == 0 ? 1U : 0U;
    }
    counts.saturated_original += saturated(x, scale);
    counts.saturated_rowwise += saturated(x, widened(some(band_.rowwise.scales), scale_));
    counts.saturated_requantized += saturated(rowwise, widened(some(band_.requantized.scales), scale_));
  }

 private:
  using Block = std::array<double, error_block>;

  static std::span<const double> widened(std::span<const float> values, Block& room) {
    const std::span<double> out = std::span(room).first(values.size());
    widen(values, out);
    return out;
  }
  static std::span<const double> quotients(std::span<const double> x, std::span<const double> y, Block& room) {
    for (std::size_t i = 0; i < x.size(); ++i) room[i] = x[i] / y[i];
    return std::span<const double>(room).first(x.size());
  }
  void add_errors(std::span<const double> actual, std::span<const double> x, Histogram& error, Histogram& relative) {
    const std::span<double> errors = std::span(errors_).first(x.size());
    absolute_error(actual, x, errors);
    error.add(std::span<const double>(errors));
    relative_error(actual, x, errors);
    relative.add(std::span<const double>(errors));
  }
  [[nodiscard]] OutcomeCounts outcomes(std::span<const double> x, std::span<const double> scaled,
                                       std::span<const double> result) const {
    OutcomeCounts counts;
    count_outcomes(bounds_, x, scaled, result, ScaledRange::finite, counts);
    return counts;
  }
  /// How many values, in units of their scales, round to more than the format's largest value.
  std::uint64_t saturated(std::span<const double> x, std::span<const double> scale) {
    const std::span<const double> scaled = quotients(x, scale, a_);
    return outcomes(x, scaled, scaled).saturated;
  }
  void add_scale_factors(std::span<const float> a, std::span<const float> b) {
    for (std::size_t i = 0; i < a.size(); ++i) errors_[i] = factor_between(a[i], b[i]);
    std::array<double, 8> most{};
    for (std::size_t i = 0; i < a.size(); ++i) most[i % 8] = std::max(most[i % 8], errors_[i]);
    into_.widest_scale_factor = std::max(into_.widest_scale_factor, std::ranges::max(most));
  }

  const Band& band_;
  CastBounds bounds_;
  MeasuredTranspose& into_;
  Block x_, rowwise_, original_, requantized_, scale_, a_, b_, errors_;
};

/// Elements whose codes differ; of formats of 4 bits, two are in a byte.
std::uint64_t differing_codes(const Quantized& a, const Quantized& b) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < a.codes.size(); ++i) {
    checkpoint(i);
    const auto differing = static_cast<unsigned>(a.codes[i] ^ b.codes[i]);
    if (a.format.bits() != 4) {
      count += differing != 0 ? 1 : 0;
      continue;
    }
    count += (differing & 0x0FU) != 0 ? 1 : 0;
    count += (differing & 0xF0U) != 0 ? 1 : 0;
  }
  return count;
}

}  // namespace

void dequantize_band(QuantizedBand& band, int threads) {
  band.values.resize(band.q.rows * band.q.columns);
  band.scales.resize(band.q.rows * band.q.columns);
  dequantize(band.q, band.values, threads);
  spread_scales(band, threads);
}

void measure_band(const Band& band, int threads, MeasuredTranspose& into) {
  const std::size_t size = band.x.size();
  std::vector<BlockTotals> totals((size + error_block - 1) / error_block);
  std::mutex merging;
  parallel_for(totals.size(), threads, [&](std::size_t first, std::size_t last) {
    MeasuredTranspose part(into.recipe);
    const auto meter = std::make_unique<TransposeMeter>(band, part);
    for (std::size_t i = first; i < last; ++i) {
      checkpoint();
      meter->add(i * error_block, std::min(error_block, size - i * error_block), totals[i]);
    }
    const std::scoped_lock lock(merging);
    into.merge(part);
  });
  for (const BlockTotals& block : totals) {
    into.rowwise.merge(block.rowwise);
    into.original.merge(block.original);
    into.requantized.merge(block.requantized);
    into.difference.merge(block.difference);
  }
  into.counts.codes_differ += differing_codes(band.original.q, band.requantized.q);
}

}  // namespace fp8lab::experiments
