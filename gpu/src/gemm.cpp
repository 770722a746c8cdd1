// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/gpu/gemm.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/gpu/device.hpp"
#include "fp8lab/gpu/ptx/host_mma.hpp"
#include "fp8lab/gpu/ptx/host_mma_scaled.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "gemm_kernels.hpp"

namespace fp8lab::gpu {
namespace {

constexpr std::array named_kernels{Named{"wgmma_fast", GemmKernel::wgmma_fast},
                                   Named{"wgmma_promoted", GemmKernel::wgmma_promoted},
                                   Named{"wgmma_scaled_1d2d", GemmKernel::wgmma_scaled_1d2d},
                                   Named{"wgmma_scaled_1d1d", GemmKernel::wgmma_scaled_1d1d},
                                   Named{"mma_sync", GemmKernel::mma_sync},
                                   Named{"mma_sync_float16", GemmKernel::mma_sync_float16},
                                   Named{"blackwell_f8f6f4", GemmKernel::blackwell_f8f6f4},
                                   Named{"blackwell_mxf8f6f4", GemmKernel::blackwell_mxf8f6f4},
                                   Named{"blackwell_mxf4", GemmKernel::blackwell_mxf4},
                                   Named{"blackwell_mxf4nvf4_ue8m0", GemmKernel::blackwell_mxf4nvf4_ue8m0},
                                   Named{"blackwell_mxf4nvf4", GemmKernel::blackwell_mxf4nvf4}};
static_assert(is_in_order(named_kernels));

bool is_wgmma(GemmKernel kernel) { return kernel <= GemmKernel::wgmma_scaled_1d1d; }
/// Kinds that mma.sync does not have.
bool is_of_tcgen05_alone(MmaKind kind) { return kind == MmaKind::f8f6f4 || kind == MmaKind::mxf4nvf4_ue8m0; }
bool is_scaled(GemmKernel kernel) {
  return kernel == GemmKernel::wgmma_scaled_1d2d || kernel == GemmKernel::wgmma_scaled_1d1d;
}

/// Requires an array of rows x columns elements, at a multiple of `alignment` bytes.
template <typename T>
void check_array(const std::string& name, std::span<T> array, std::size_t rows, std::size_t columns,
                 std::size_t alignment) {
  if (array.size() != rows * columns) {
    throw std::invalid_argument(name + " must have " + std::to_string(rows) + " * " + std::to_string(columns) +
                                " elements, not " + std::to_string(array.size()));
  }
  if (reinterpret_cast<std::uintptr_t>(array.data()) % alignment != 0) {
    throw std::invalid_argument(name + " must begin at a multiple of " + std::to_string(alignment) + " bytes");
  }
}
/// Requires `size` numbers, or none.
void check_numbers(const std::string& name, std::span<const float> numbers, std::size_t size, const char* which) {
  if (numbers.empty()) return;
  if (numbers.size() != size) {
    throw std::invalid_argument(name + " must have " + std::to_string(size) + " elements, " + which +
                                ", or none, not " + std::to_string(numbers.size()));
  }
  check_array(name, numbers, 1, size, sizeof(float));
}

/// Elements of K in a byte, and what K must be a multiple of: 16 bytes of codes, and whole blocks.
std::size_t packed_elements(GemmKernel kernel) {
  const auto kind = kind_of(kernel);
  return kind && is_packed(*kind) ? 2 : 1;
}
std::size_t step_of_k(GemmKernel kernel) {
  return kind_of(kernel).value_or(MmaKind::f8f6f4) == MmaKind::f8f6f4 ? 16 : 32;
}

void check_shape(GemmKernel kernel, const GemmArguments& arguments) {
  constexpr std::size_t largest = std::numeric_limits<std::int32_t>::max() - 256;  // tiles end below 2^31
  for (const auto& [name, size] : {std::pair{"M", arguments.m}, {"N", arguments.n}, {"K", arguments.k}}) {
    if (size <= largest) continue;
    throw std::invalid_argument(std::string(name) + " must be at most " + std::to_string(largest) + ", not " +
                                std::to_string(size));
  }
  if (arguments.k == 0 || arguments.k % step_of_k(kernel) != 0) {
    throw std::invalid_argument("K must be a positive multiple of " + std::to_string(step_of_k(kernel)) + ", not " +
                                std::to_string(arguments.k));
  }
  for (const auto& [name, type] : {std::pair{"a", arguments.type_a}, {"b", arguments.type_b}}) {
    if (bytes_of(type) == 1) continue;
    throw std::invalid_argument(std::string(name) + " must be e4m3 or e5m2");
  }
}

void check_tile_scales(GemmKernel kernel, const GemmArguments& arguments) {
  if (!is_scaled(kernel)) {
    if (arguments.tile_scales_a.empty() && arguments.tile_scales_b.empty()) return;
    throw std::invalid_argument("tile scales are for wgmma_scaled_1d2d and wgmma_scaled_1d1d, not for " +
                                std::string(name_of(kernel)));
  }
  const std::size_t blocks = ceil_div(arguments.k, 128);
  const std::size_t rows_b = kernel == GemmKernel::wgmma_scaled_1d2d ? ceil_div(arguments.n, 128) : arguments.n;
  check_array("tile_scales_a", arguments.tile_scales_a, arguments.m, blocks, sizeof(float));
  check_array("tile_scales_b", arguments.tile_scales_b, rows_b, blocks, sizeof(float));
}

void check_block_scales(GemmKernel kernel, const GemmArguments& arguments) {
  const MmaKind kind = kind_of(kernel).value_or(MmaKind::f8f6f4);
  const unsigned scales = scales_of(kind);
  for (const auto& [name, rows, given] : {std::tuple{"block_scales_a", arguments.m, arguments.block_scales_a},
                                          {"block_scales_b", arguments.n, arguments.block_scales_b}}) {
    if (scales == 0 && !given.codes.empty()) {
      throw std::invalid_argument(std::string(name) + " are for blackwell_mxf8f6f4, blackwell_mxf4, " +
                                  "blackwell_mxf4nvf4_ue8m0 and blackwell_mxf4nvf4, not for " +
                                  std::string(name_of(kernel)));
    }
    if (scales == 0) continue;
    const bool is_e8m0 = kind != MmaKind::mxf4nvf4;
    const int block = static_cast<int>(block_of(kind));
    if (given.type && ((given.type->format == e8m0) != is_e8m0 || given.type->block != block)) {
      throw std::invalid_argument(std::string(name) + " must be " + (is_e8m0 ? "E8M0" : "E4M3") + " codes of " +
                                  std::to_string(block) + " elements for " + std::string(name_of(kernel)));
    }
    const std::size_t columns = arguments.k / block_of(kind);
    if (given.layout == ScaleLayout::compact) {
      check_array(name, given.codes, rows, columns, 1);
    } else {
      check_array(std::string(name) + ", swizzled,", given.codes, 1, swizzled_size(rows, columns), 16);
    }
  }
}

/// Requires that a device's kernel can use all arrays.
void check_buffers(const GemmArguments& arguments) {
  const auto check = [](const char* name, auto array) {
    check_device_buffer({.argument = name,
                         .address = reinterpret_cast<std::uintptr_t>(array.data()),
                         .bytes = array.size_bytes(),
                         .alignment = alignof(typename decltype(array)::value_type)});
  };
  check("a", arguments.a);
  check("b", arguments.b);
  check("scale_a", arguments.scale_a);
  check("scale_b", arguments.scale_b);
  check("block_scales_a", arguments.block_scales_a.codes);
  check("block_scales_b", arguments.block_scales_b.codes);
  check("tile_scales_a", arguments.tile_scales_a);
  check("tile_scales_b", arguments.tile_scales_b);
  check("bias", arguments.bias);
  std::visit([&](auto out) { check("out", out); }, arguments.out);
}

}  // namespace

std::span<const Named<GemmKernel>> named_values(GemmKernel /*any*/) { return named_kernels; }

std::span<const GemmKernel> gemm_kernels() {
  static constexpr auto all = [] {
    std::array<GemmKernel, named_kernels.size()> kernels{};
    for (std::size_t i = 0; i < kernels.size(); ++i) kernels[i] = named_kernels[i].value;
    return kernels;
  }();
  return all;
}

std::optional<MmaKind> kind_of(GemmKernel kernel) {
  switch (kernel) {
    case GemmKernel::blackwell_f8f6f4: return MmaKind::f8f6f4;
    case GemmKernel::blackwell_mxf8f6f4: return MmaKind::mxf8f6f4;
    case GemmKernel::blackwell_mxf4: return MmaKind::mxf4;
    case GemmKernel::blackwell_mxf4nvf4_ue8m0: return MmaKind::mxf4nvf4_ue8m0;
    case GemmKernel::blackwell_mxf4nvf4: return MmaKind::mxf4nvf4;
    case GemmKernel::wgmma_fast:
    case GemmKernel::wgmma_promoted:
    case GemmKernel::wgmma_scaled_1d2d:
    case GemmKernel::wgmma_scaled_1d1d:
    case GemmKernel::mma_sync:
    case GemmKernel::mma_sync_float16: return {};
  }
  return {};
}

const MmaModel& model_of(GemmKernel kernel, std::optional<HostChip> chip) {
  const HostChip own = chip.value_or(kind_of(kernel) ? HostChip::blackwell : HostChip::hopper);
  if (const auto kind = kind_of(kernel)) {
    const bool is_tcgen05 = own == HostChip::blackwell;
    if (!is_tcgen05 && (own != HostChip::rtx_blackwell || is_of_tcgen05_alone(*kind))) {
      throw std::invalid_argument(std::string(name_of(kernel)) + (is_of_tcgen05_alone(*kind)
                                                                      ? " is for blackwell alone"
                                                                      : " is for blackwell and rtx_blackwell"));
    }
    return model_of(*kind);
  }
  if (!is_wgmma(kernel)) {
    const bool is_half = kernel == GemmKernel::mma_sync_float16;
    return mma_sync_model(own, MmaType::e4m3, is_half ? MmaAccumulator::float16 : MmaAccumulator::float32, 32);
  }
  if (own != HostChip::hopper) throw std::invalid_argument(std::string(name_of(kernel)) + " is for Hopper alone");
  return wgmma_model(MmaType::e4m3, MmaAccumulator::float32);
}

void check_gemm(GemmKernel kernel, const GemmArguments& arguments) {
  const auto [m, n, k] = std::array{arguments.m, arguments.n, arguments.k};
  check_shape(kernel, arguments);
  check_array("a", arguments.a, m, k / packed_elements(kernel), 16);
  check_array("b", arguments.b, n, k / packed_elements(kernel), 16);
  std::visit([&](auto out) { check_array("out", out, m, n, 2 * sizeof(out[0])); }, arguments.out);
  check_numbers("scale_a", arguments.scale_a, 1, "the scale of the tensor");
  check_numbers("scale_b", arguments.scale_b, 1, "the scale of the tensor");
  check_numbers("bias", arguments.bias, n, "one a column");
  check_tile_scales(kernel, arguments);
  check_block_scales(kernel, arguments);
  if (kernel == GemmKernel::wgmma_promoted && (arguments.promote_k == 0 || arguments.promote_k % 32 != 0)) {
    throw std::invalid_argument("promote_k must be a positive multiple of 32, not " +
                                std::to_string(arguments.promote_k));
  }
}

void gemm_on_device(GemmKernel kernel, const GemmArguments& arguments, void* stream) {
  const DefaultEnvironment environment;
  check_gemm(kernel, arguments);
  require_device();
  check_buffers(arguments);
  if (arguments.m == 0 || arguments.n == 0) return;
  if (const auto kind = kind_of(kernel)) {
    start_blackwell_gemm(kernel, *kind, arguments, stream);
  } else if (is_wgmma(kernel)) {
    start_wgmma_gemm(kernel, arguments, stream);
  } else {
    start_mma_sync_gemm(kernel, arguments, stream);
  }
}

void gemm_on_host(GemmKernel kernel, const GemmArguments& arguments, HostOrder order, std::optional<HostChip> chip) {
  const DefaultEnvironment environment;
  check_gemm(kernel, arguments);
  static_cast<void>(model_of(kernel, chip));
  const auto run = [&](const auto& one) { run_on_host(one, order, chip.value_or(HostChip::hopper)); };
  const auto map = [](const std::uint8_t* data, std::size_t rows, std::size_t columns, unsigned box_rows) {
    return HostTensorMap{.data = data, .rows = rows, .columns = columns, .box_rows = box_rows};
  };
  if (const auto kind = kind_of(kernel)) {
    run_blackwell_gemm(*kind, arguments, order, chip.value_or(HostChip::blackwell));
  } else if (is_wgmma(kernel)) {
    with_wgmma_kernel(kernel, arguments, map, run);
  } else {
    with_mma_sync_kernel(kernel, arguments, run);
  }
}

}  // namespace fp8lab::gpu
