// SPDX-License-Identifier: Apache-2.0
#include "operators/norm_gradient_order.hpp"

#include <algorithm>
#include <cstdint>
#include <variant>

#include "fp8lab/formats/refuse.hpp"
#include "simd/operators_rows.hpp"

namespace fp8lab {

namespace {

/// The multiprocessors of an H100 SXM and of an H200.
constexpr std::size_t hopper_multiprocessors = 132;

/// The types of x and of gamma and grad, for which there are kernels.
enum class NormTypes : std::uint8_t { floats, halves, bfloats, halves_of_floats, bfloats_of_floats };

/// The kernels of rows of `columns`, or of at most so many, and how many blocks of each a multiprocessor holds at once:
/// as many as its 65,536 registers allow, by what NVRTC 13.0 gives the package's source for sm_90. 0 where there is
/// none.
struct NormGradientKernels {
  std::size_t columns;
  std::array<std::uint8_t, 5> blocks_at_once;  ///< by NormTypes
};
using KernelTable = std::array<NormGradientKernels, 4>;
constexpr KernelTable layernorm_general{
    {{128, {10, 10, 10, 10, 10}}, {512, {4, 4, 4, 4, 4}}, {1024, {2, 2, 2, 2, 2}}, {2048, {4, 4, 4, 4, 4}}}};
constexpr KernelTable layernorm_tuned{
    {{768, {3, 3, 3, 3, 3}}, {1024, {2, 2, 2, 2, 2}}, {1536, {5, 5, 5, 5, 5}}, {2048, {4, 4, 4, 4, 4}}}};
constexpr KernelTable rmsnorm_general{
    {{128, {12, 12, 12, 10, 10}}, {512, {5, 4, 4, 5, 5}}, {1024, {3, 3, 3, 3, 3}}, {2048, {4, 5, 5, 5, 5}}}};
constexpr KernelTable rmsnorm_tuned{
    {{512, {5, 5, 6, 0, 0}}, {768, {4, 4, 4, 0, 0}}, {1024, {3, 3, 3, 0, 0}}, {2048, {5, 5, 5, 0, 0}}}};
constexpr KernelTable rmsnorm_add_general{
    {{128, {16, 12, 12, 10, 10}}, {512, {5, 5, 5, 4, 4}}, {1024, {3, 3, 3, 3, 3}}, {2048, {4, 4, 4, 4, 4}}}};
constexpr KernelTable rmsnorm_add_tuned{
    {{512, {4, 5, 5, 0, 0}}, {768, {3, 4, 4, 0, 0}}, {1024, {2, 3, 3, 0, 0}}, {2048, {5, 5, 5, 0, 0}}}};

const KernelTable& general_kernels(NormGradientKind kind) {
  switch (kind) {
    case NormGradientKind::layernorm: return layernorm_general;
    case NormGradientKind::rmsnorm: return rmsnorm_general;
    case NormGradientKind::rmsnorm_add: return rmsnorm_add_general;
  }
  return layernorm_general;
}
const KernelTable& tuned_kernels(NormGradientKind kind) {
  switch (kind) {
    case NormGradientKind::layernorm: return layernorm_tuned;
    case NormGradientKind::rmsnorm: return rmsnorm_tuned;
    case NormGradientKind::rmsnorm_add: return rmsnorm_add_tuned;
  }
  return layernorm_tuned;
}

template <typename T>
bool has_type(const MatrixView& x) {
  return std::holds_alternative<std::span<const T>>(x.values());
}

NormTypes types_of(const MatrixView& x, const MatrixView& gamma, const MatrixView& grad) {
  if (gamma.values().index() == grad.values().index()) {
    if (has_type<float>(x) && has_type<Half>(gamma)) return NormTypes::halves_of_floats;
    if (has_type<float>(x) && has_type<BFloat16>(gamma)) return NormTypes::bfloats_of_floats;
    if (has_type<float>(x) && has_type<float>(gamma)) return NormTypes::floats;
    if (has_type<Half>(x) && has_type<Half>(gamma)) return NormTypes::halves;
    if (has_type<BFloat16>(x) && has_type<BFloat16>(gamma)) return NormTypes::bfloats;
  }
  refuse("functions of hopper take gamma and grad of x's type, or both of one type of 16 bits beside x of float32");
}

bool are_one_type(NormTypes types) { return types <= NormTypes::bfloats; }

/// The kernel for rows of exactly these columns, which takes rows in fours; null where there is none.
const NormGradientKernels* tuned_kernel(NormGradientKind kind, const MatrixView& x, NormTypes types) {
  const KernelTable& table = tuned_kernels(kind);
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const NormGradientKernels& row) { return row.columns == x.columns(); });
  const bool is_there =
      x.rows() % 4 == 0 && found != table.end() && found->blocks_at_once[static_cast<std::size_t>(types)] != 0;
  return is_there ? &*found : nullptr;
}
const NormGradientKernels& general_kernel(NormGradientKind kind, std::size_t columns) {
  const KernelTable& table = general_kernels(kind);
  return *std::find_if(table.begin(), table.end(),
                       [&](const NormGradientKernels& row) { return columns <= row.columns; });
}

/// The bytes that a lane reads at a time.
std::size_t bytes_of_load(bool is_tuned, std::size_t columns, NormTypes types) {
  const bool has_halves = types == NormTypes::halves || types == NormTypes::bfloats;
  const bool is_narrow = is_tuned ? columns == 1536 && has_halves : columns <= 128 && types != NormTypes::floats;
  return is_narrow ? 8 : 16;
}

}  // namespace

NormGradientOrder::NormGradientOrder(NormGradientKind kind, const MatrixView& x, const MatrixView& gamma,
                                     const MatrixView& grad)
    : columns_(x.columns()) {
  if (columns_ > most_columns) {
    refuse("functions of hopper are known for at most ", most_columns, " columns, not ", columns_);
  }
  const NormTypes types = types_of(x, gamma, grad);
  const NormGradientKernels* const tuned = tuned_kernel(kind, x, types);
  is_tuned_ = tuned != nullptr;
  reads_row_at_once_ = columns_ <= 128 && are_one_type(types);
  warps_of_row_ = columns_ <= 1024 ? 1 : 4;
  per_lane_ = bytes_of_load(is_tuned_, columns_, types) / (has_type<float>(x) ? sizeof(float) : sizeof(Half));
  const NormGradientKernels& kernel = is_tuned_ ? *tuned : general_kernel(kind, columns_);
  // A tuned kernel has blocks without rows, too, whose sums are zeros.
  blocks_ = std::min(hopper_multiprocessors * kernel.blocks_at_once[static_cast<std::size_t>(types)],
                     (x.rows() + rows_of_block() - 1) / rows_of_block());
}

float NormGradientOrder::sum_of_warp(float* lanes) {
  for (std::size_t step = 1; step < 32; step *= 2) {
    for (std::size_t i = 0; i < 32; i += 2 * step) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}

float NormGradientOrder::sum_of_warps(std::array<float, 128>& lanes) {
  float sum = 0;
  for (std::size_t warp = 0; warp < 4; ++warp) {
    float* of_warp = lanes.data() + 32 * warp;
    for (std::size_t step = 16; step > 0; step /= 2) {
      for (std::size_t i = 0; i < step; ++i) of_warp[i] += of_warp[i + step];
    }
    sum += of_warp[0];
  }
  return sum;
}

void NormGradientOrder::sum_of_block(std::span<const float> warps, std::span<float> out) const {
  if (rows_of_block() == 1) {
    std::copy_n(warps.begin(), columns_, out.begin());
    return;
  }
  const std::size_t stride = padded(columns_);
  for (std::size_t i = 0; i < columns_; ++i) {
    // A general kernel's warp keeps its own sums of every fourth part of a row and adds those of the other warps.
    const std::size_t own = is_tuned_ ? 0 : i / (32 * per_lane_) % 4;
    float sum = warps[own * stride + i];
    for (std::size_t warp = 0; warp < 4; ++warp) {
      if (warp != own) sum += warps[warp * stride + i];
    }
    out[i] = sum;
  }
}

void NormGradientOrder::sum_of_blocks(std::span<const float> blocks, std::span<float> out) const {
  const std::size_t stride = padded(columns_);
  const std::size_t groups = is_tuned_ ? 32 : 4;
  std::array<float, 32> sums;  // a group's, for each column
  for (std::size_t i = 0; i < columns_; ++i) {
    sums.fill(0);
    for (std::size_t block = 0; block < blocks_; ++block) sums[block % groups] += blocks[block * stride + i];
    out[i] = is_tuned_ ? sum_of_warp(sums.data()) : (sums[0] + sums[2]) + (sums[1] + sums[3]);
  }
}

}  // namespace fp8lab
