// SPDX-License-Identifier: Apache-2.0
#include "operators/norm_row_order.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <variant>

#include "fp8lab/formats/refuse.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t warp_size = 32;
constexpr std::size_t columns_of_one_warp = 2048;

/// A kernel of layernorm for rows of so many columns alone. Blocks of a row: `blocks`, or where x and out are float32
/// `blocks_of_floats`.
struct TunedRow {
  std::size_t columns, blocks, blocks_of_floats, warps, bytes_of_lane;
};
constexpr std::array long_tuned_layernorms{
    TunedRow{2304, 1, 1, 1, 16}, TunedRow{3072, 1, 1, 4, 16},  TunedRow{3840, 1, 1, 4, 4},
    TunedRow{4096, 1, 1, 4, 16}, TunedRow{5120, 1, 1, 4, 16},  TunedRow{6144, 1, 1, 4, 16},
    TunedRow{8192, 1, 1, 4, 16}, TunedRow{10240, 1, 2, 4, 16}, TunedRow{12288, 2, 2, 4, 16},
    TunedRow{12800, 2, 2, 4, 4}, TunedRow{15360, 2, 2, 4, 8},  TunedRow{16384, 2, 2, 4, 16},
};
constexpr std::array long_tuned_rmsnorms{TunedRow{4096, 1, 1, 4, 16}, TunedRow{8192, 1, 1, 4, 16}};
constexpr std::array<std::size_t, 4> short_tuned_rmsnorms{512, 768, 1024, 2048};

const TunedRow* long_tuned_row(NormRowOrder::Norm norm, std::size_t columns) {
  const std::span<const TunedRow> rows = norm == NormRowOrder::Norm::layernorm
                                             ? std::span<const TunedRow>(long_tuned_layernorms)
                                             : std::span<const TunedRow>(long_tuned_rmsnorms);
  const auto found = std::ranges::find(rows, columns, &TunedRow::columns);
  return found == rows.end() ? nullptr : &*found;
}

bool has_float_elements(const MatrixView& x) {
  return x.visit([]<typename T>(std::span<const T> /*of_type*/) { return std::is_same_v<T, float>; });
}

/// Each lane adds its partner's sum, at a distance of 1, 2, 4, 8 and 16.
float sum_of_partners(std::span<float> lanes) {
  for (std::size_t step = 1; step < lanes.size(); step *= 2) {
    for (std::size_t i = 0; i < lanes.size(); i += 2 * step) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}
/// The first half adds the second, and so on.
float sum_of_halves(std::span<float> lanes) {
  for (std::size_t half = lanes.size() / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

/// Moments of `count` columns each, of which the first half takes the second's, and so on: Chan, Golub and LeVeque
/// 1979.
RowMoments merged(std::span<RowMoments> parts, float count) {
  for (std::size_t half = parts.size() / 2; half > 0; half /= 2, count += count) {
    const float share = 1 / (count + count);
    for (std::size_t i = 0; i < half; ++i) {
      RowMoments& a = parts[i];
      const RowMoments& b = parts[i + half];
      const float distance = a.mean - b.mean;
      a.squares = std::fma(distance * distance * count * count, share, a.squares + b.squares);
      a.mean = std::fma(count, a.mean, count * b.mean) * share;
    }
  }
  return parts[0];
}

}  // namespace

NormRowOrder::NormRowOrder(Norm norm, const MatrixView& x, const FloatOutput& out)
    : inverse_(1 / static_cast<float>(x.columns())) {
  const std::size_t columns = x.columns();
  if (columns > most_columns) {
    refuse("functions of hopper are known for at most ", most_columns, " columns, not ", columns);
  }
  const bool are_floats = has_float_elements(x) && std::holds_alternative<std::span<float>>(out);
  const std::size_t element_size = has_float_elements(x) ? sizeof(float) : sizeof(std::uint16_t);
  per_lane_ = (columns <= 128 && !are_floats ? 8 : 16) / element_size;
  if (columns > columns_of_one_warp) {
    lay_out_long_rows(norm, x, are_floats);
  } else {
    is_tuned_ = norm == Norm::rmsnorm && x.rows() % 4 == 0 &&
                std::ranges::find(short_tuned_rmsnorms, columns) != short_tuned_rmsnorms.end();
  }
}

void NormRowOrder::lay_out_long_rows(Norm norm, const MatrixView& x, bool are_floats) {
  constexpr std::size_t columns_of_block = 8192;
  const TunedRow* tuned = x.rows() % 4 == 0 ? long_tuned_row(norm, x.columns()) : nullptr;
  is_tuned_ = tuned != nullptr;
  if (tuned == nullptr) {
    warps_ = 4;
    blocks_ = (x.columns() + columns_of_block - 1) / columns_of_block;
    return;
  }
  warps_ = tuned->warps;
  blocks_ = are_floats ? tuned->blocks_of_floats : tuned->blocks;
  per_lane_ = tuned->bytes_of_lane / (has_float_elements(x) ? sizeof(float) : sizeof(std::uint16_t));
}

template <typename Add>
std::vector<float> NormRowOrder::lanes(std::size_t columns, const Add& add) const {
  std::vector<float> sums(warp_size * warps_ * blocks_);
  for (std::size_t first = 0, lane = 0; first < columns;
       first += per_lane_, lane = lane + 1 == sums.size() ? 0 : lane + 1) {
    float sum = sums[lane];
    const std::size_t last = std::min(first + per_lane_, columns);
    for (std::size_t i = first; i < last; ++i) sum = add(i, sum);
    sums[lane] = sum;
  }
  return sums;
}

/// The sum in a kernel that is not tuned: the warps of a block follow each other, and so do blocks.
float NormRowOrder::total(std::vector<float> lanes) const {
  if (warps_ == 1) return sum_of_partners(lanes);
  float all = 0;
  for (std::size_t block = 0; block < blocks_; ++block) {
    float sum = 0;
    for (std::size_t warp = 0; warp < warps_; ++warp) {
      sum += sum_of_halves(std::span(lanes).subspan((warp * blocks_ + block) * warp_size, warp_size));
    }
    all += sum;
  }
  return all;
}

/// The moments in a tuned kernel with several warps, of which each has its own.
RowMoments NormRowOrder::moments_of_warps(std::span<const float> row) const {
  const std::size_t count = warps_ * blocks_;
  const std::size_t of_warp = row.size() / count;
  const auto count_of_warp = static_cast<float>(of_warp);
  const auto warp_of = [&](std::size_t i) { return i / (per_lane_ * warp_size) % count; };
  const auto sums = [&](std::vector<float> all, std::size_t warp) {
    return sum_of_partners(std::span(all).subspan(warp * warp_size, warp_size));
  };
  std::array<RowMoments, 8> parts{};
  const std::vector<float> first = lanes(row.size(), [&](std::size_t i, float sum) { return sum + row[i]; });
  for (std::size_t warp = 0; warp < count; ++warp) parts.at(warp).mean = sums(first, warp) * (1 / count_of_warp);
  const std::vector<float> second = lanes(row.size(), [&](std::size_t i, float sum) {
    const float distance = row[i] - parts.at(warp_of(i)).mean;
    return std::fma(distance, distance, sum);
  });
  for (std::size_t warp = 0; warp < count; ++warp) parts.at(warp).squares = sums(second, warp);
  std::array<RowMoments, 2> of_blocks{};
  for (std::size_t block = 0; block < blocks_; ++block) {
    of_blocks.at(block) = merged(std::span(parts).subspan(block * warps_, warps_), count_of_warp);
  }
  return merged(std::span(of_blocks).first(blocks_), count_of_warp * static_cast<float>(warps_));
}

RowMoments NormRowOrder::moments(std::span<const float> row) const {
  if (is_tuned_ && warps_ > 1) return moments_of_warps(row);
  const float mean = total(lanes(row.size(), [&](std::size_t i, float sum) { return sum + row[i]; })) * inverse_;
  return {mean, total(lanes(row.size(), [&](std::size_t i, float sum) {
            const float distance = row[i] - mean;
            return std::fma(distance, distance, sum);
          }))};
}

float NormRowOrder::sum_of_squares(std::span<const float> row) const {
  return total(lanes(row.size(), [&](std::size_t i, float sum) { return std::fma(row[i], row[i], sum); }));
}

}  // namespace fp8lab
