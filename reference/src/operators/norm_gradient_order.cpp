// SPDX-License-Identifier: Apache-2.0
#include "operators/norm_gradient_order.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <variant>

#include "fp8lab/formats/refuse.hpp"
#include "simd/operators_rows.hpp"

namespace fp8lab {

namespace {

/// The multiprocessors of an H100 SXM and of an H200.
constexpr std::size_t hopper_multiprocessors = 132;

/// The types of x and of gamma and grad, for which there are kernels.
enum class NormTypes : std::uint8_t { floats, halves, bfloats, halves_of_floats, bfloats_of_floats };

/// Where nvcc 13.0 rounds the products that dgamma is the sum of, and does not fuse them with the sum: in the kernels
/// of no type of x, of float32 or of all. So it compiles the package's source, and so the words of an H200 are.
enum class RoundedProducts : std::uint8_t { none, of_floats, of_all };

/// A kernel for rows of `columns`, or of at most so many, and how many blocks of it a multiprocessor holds at once: as
/// many as its 65,536 registers allow, by what NVRTC 13.0 gives the package's source for sm_90. 0 where there is none.
struct NormGradientKernel {
  std::size_t columns;
  std::array<std::uint8_t, 5> blocks_at_once;  ///< by NormTypes
  std::uint8_t warps_of_row;
  std::uint8_t blocks_of_row = 1;
  std::uint8_t bytes_of_floats = 16;  ///< that a lane reads at a time
  std::uint8_t bytes_of_halves = 16;
  RoundedProducts rounded_products = RoundedProducts::none;
};
using NormGradientKernels = std::span<const NormGradientKernel>;
constexpr std::array layernorm_general{
    NormGradientKernel{128, {10, 10, 10, 10, 10}, 1, 1, 16, 8},
    NormGradientKernel{512, {4, 4, 4, 4, 4}, 1},
    NormGradientKernel{1024, {2, 2, 2, 2, 2}, 1},
    NormGradientKernel{2048, {4, 4, 4, 4, 4}, 4},
    NormGradientKernel{4096, {2, 2, 2, 2, 2}, 4},
};
constexpr std::array layernorm_tuned{
    NormGradientKernel{768, {3, 3, 3, 3, 3}, 1},
    NormGradientKernel{1024, {2, 2, 2, 2, 2}, 1},
    NormGradientKernel{1536, {5, 5, 5, 5, 5}, 4, 1, 16, 8},
    NormGradientKernel{2048, {4, 4, 4, 4, 4}, 4},
    NormGradientKernel{2304, {3, 3, 3, 3, 3}, 4, 1, 8, 4, RoundedProducts::of_all},
    NormGradientKernel{3072, {3, 3, 3, 3, 3}, 4},
    NormGradientKernel{3840, {2, 2, 2, 2, 2}, 4, 1, 8, 4, RoundedProducts::of_all},
    NormGradientKernel{4096, {2, 2, 2, 2, 2}, 4},
    NormGradientKernel{5120, {2, 2, 2, 2, 2}, 4, 1, 16, 16, RoundedProducts::of_floats},
    NormGradientKernel{6144, {1, 1, 1, 1, 1}, 8},
    NormGradientKernel{8192, {2, 2, 2, 2, 2}, 4, 2},
    NormGradientKernel{10240, {2, 2, 2, 2, 2}, 4, 2, 16, 16, RoundedProducts::of_floats},
    NormGradientKernel{12288, {3, 3, 3, 3, 3}, 4, 4},
    NormGradientKernel{12800, {4, 4, 4, 4, 4}, 4, 5, 16, 8},
    NormGradientKernel{15360, {2, 2, 2, 2, 2}, 4, 4, 8, 4, RoundedProducts::of_all},
    NormGradientKernel{16384, {2, 2, 2, 2, 2}, 4, 4},
};
constexpr std::array rmsnorm_general{
    NormGradientKernel{128, {12, 12, 12, 10, 10}, 1, 1, 16, 8},
    NormGradientKernel{512, {5, 4, 4, 5, 5}, 1},
    NormGradientKernel{1024, {3, 3, 3, 3, 3}, 1},
    NormGradientKernel{2048, {4, 5, 5, 5, 5}, 4},
    NormGradientKernel{4096, {3, 3, 3, 3, 3}, 4},
};
constexpr std::array rmsnorm_tuned{
    NormGradientKernel{512, {5, 5, 6, 0, 0}, 1},
    NormGradientKernel{768, {4, 4, 4, 0, 0}, 1},
    NormGradientKernel{1024, {3, 3, 3, 0, 0}, 1},
    NormGradientKernel{2048, {5, 5, 5, 0, 0}, 4},
    NormGradientKernel{4096, {3, 3, 3, 0, 0}, 4},
    NormGradientKernel{8192, {2, 2, 2, 0, 0}, 4, 1, 16, 16, RoundedProducts::of_floats},
};
constexpr std::array rmsnorm_add_general{
    NormGradientKernel{128, {16, 12, 12, 10, 10}, 1, 1, 16, 8},
    NormGradientKernel{512, {5, 5, 5, 4, 4}, 1},
    NormGradientKernel{1024, {3, 3, 3, 3, 3}, 1},
    NormGradientKernel{2048, {4, 4, 4, 4, 4}, 4},
    NormGradientKernel{4096, {2, 3, 3, 2, 2}, 4},
};
constexpr std::array rmsnorm_add_tuned{
    NormGradientKernel{512, {4, 5, 5, 0, 0}, 1},
    NormGradientKernel{768, {3, 4, 4, 0, 0}, 1},
    NormGradientKernel{1024, {2, 3, 3, 0, 0}, 1},
    NormGradientKernel{2048, {5, 5, 5, 0, 0}, 4},
    NormGradientKernel{4096, {2, 3, 3, 0, 0}, 4},
    NormGradientKernel{8192, {2, 2, 2, 0, 0}, 4, 1, 16, 16, RoundedProducts::of_floats},
};

NormGradientKernels general_kernels(NormGradientKind kind) {
  switch (kind) {
    case NormGradientKind::layernorm: return layernorm_general;
    case NormGradientKind::rmsnorm: return rmsnorm_general;
    case NormGradientKind::rmsnorm_add: return rmsnorm_add_general;
  }
  return layernorm_general;
}
NormGradientKernels tuned_kernels(NormGradientKind kind) {
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
const NormGradientKernel* tuned_kernel(NormGradientKind kind, const MatrixView& x, NormTypes types) {
  const NormGradientKernels table = tuned_kernels(kind);
  const auto found = std::ranges::find(table, x.columns(), &NormGradientKernel::columns);
  const bool is_there =
      x.rows() % 4 == 0 && found != table.end() && found->blocks_at_once[static_cast<std::size_t>(types)] != 0;
  return is_there ? &*found : nullptr;
}
/// The last one takes longer rows, too, of which each has several blocks.
const NormGradientKernel& general_kernel(NormGradientKind kind, std::size_t columns) {
  const NormGradientKernels table = general_kernels(kind);
  const auto found = std::ranges::find_if(table, [&](const auto& kernel) { return columns <= kernel.columns; });
  return found == table.end() ? table.back() : *found;
}

/// The bytes that a lane reads at a time. A general kernel of short rows reads half as many where gamma has 16 bits.
std::size_t bytes_of_load(const NormGradientKernel& kernel, bool is_tuned, NormTypes types) {
  if (types == NormTypes::floats) return kernel.bytes_of_floats;
  const bool are_floats_of_halves = types == NormTypes::halves_of_floats || types == NormTypes::bfloats_of_floats;
  return are_floats_of_halves && is_tuned ? kernel.bytes_of_floats : kernel.bytes_of_halves;
}

}  // namespace

NormGradientOrder::NormGradientOrder(NormGradientKind kind, const MatrixView& x, const MatrixView& gamma,
                                     const MatrixView& grad)
    : columns_(x.columns()) {
  if (columns_ > most_columns) {
    refuse("functions of hopper are known for at most ", most_columns, " columns, not ", columns_);
  }
  const NormTypes types = types_of(x, gamma, grad);
  const NormGradientKernel* const tuned = tuned_kernel(kind, x, types);
  is_tuned_ = tuned != nullptr;
  reads_row_at_once_ = columns_ <= 128 && are_one_type(types);
  const NormGradientKernel& kernel = is_tuned_ ? *tuned : general_kernel(kind, columns_);
  warps_of_row_ = kernel.warps_of_row;
  blocks_of_row_ = is_tuned_ ? kernel.blocks_of_row : (columns_ + kernel.columns - 1) / kernel.columns;
  per_lane_ = bytes_of_load(kernel, is_tuned_, types) / (has_type<float>(x) ? sizeof(float) : sizeof(Half));
  rounds_products_ = kernel.rounded_products == RoundedProducts::of_all ||
                     (kernel.rounded_products == RoundedProducts::of_floats && has_type<float>(x));
  // A tuned kernel has blocks without rows, too, whose sums are zeros.
  const std::size_t most = hopper_multiprocessors * kernel.blocks_at_once[static_cast<std::size_t>(types)];
  blocks_ = std::min(most / blocks_of_row_, (x.rows() + rows_of_block() - 1) / rows_of_block());
}

float NormGradientOrder::sum_of_warp(float* lanes) {
  for (std::size_t step = 1; step < 32; step *= 2) {
    for (std::size_t i = 0; i < 32; i += 2 * step) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}

float NormGradientOrder::sum_of_warps(std::array<float, most_lanes>& lanes) const {
  std::array<float, 32> of_blocks{};
  for (std::size_t block = 0; block < blocks_of_row_; ++block) {
    float sum = 0;
    for (std::size_t warp = 0; warp < warps_of_row_; ++warp) {
      // A tuned kernel's blocks have parts of a turn that follow each other, a general kernel's have warps by turns.
      const std::size_t place = is_tuned_ ? block * warps_of_row_ + warp : warp * blocks_of_row_ + block;
      float* of_warp = lanes.data() + 32 * place;
      for (std::size_t step = 16; step > 0; step /= 2) {
        for (std::size_t i = 0; i < step; ++i) of_warp[i] += of_warp[i + step];
      }
      sum += of_warp[0];
    }
    of_blocks[block] = sum;
  }
  return blocks_of_row_ == 1 ? of_blocks[0] : sum_of_warp(of_blocks.data());
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
