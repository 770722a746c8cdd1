// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/gpu/gemm.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/gpu/device.hpp"
#include "fp8lab/gpu/ptx/host_mma.hpp"
#include "gemm_kernels.hpp"

namespace fp8lab::gpu {
namespace {

constexpr std::array gemm_kernels{Named{"wgmma_fast", GemmKernel::wgmma_fast},
                                  Named{"wgmma_promoted", GemmKernel::wgmma_promoted},
                                  Named{"wgmma_scaled_1d2d", GemmKernel::wgmma_scaled_1d2d},
                                  Named{"wgmma_scaled_1d1d", GemmKernel::wgmma_scaled_1d1d},
                                  Named{"mma_sync", GemmKernel::mma_sync},
                                  Named{"mma_sync_float16", GemmKernel::mma_sync_float16}};

bool is_wgmma(GemmKernel kernel) { return kernel != GemmKernel::mma_sync && kernel != GemmKernel::mma_sync_float16; }
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

void check_shape(const GemmArguments& arguments) {
  constexpr std::size_t largest = std::numeric_limits<std::int32_t>::max() - 256;  // tiles end below 2^31
  for (const auto& [name, size] : {std::pair{"M", arguments.m}, {"N", arguments.n}, {"K", arguments.k}}) {
    if (size <= largest) continue;
    throw std::invalid_argument(std::string(name) + " must be at most " + std::to_string(largest) + ", not " +
                                std::to_string(size));
  }
  if (arguments.k == 0 || arguments.k % 16 != 0) {
    throw std::invalid_argument("K must be a positive multiple of 16, not " + std::to_string(arguments.k));
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
  check("tile_scales_a", arguments.tile_scales_a);
  check("tile_scales_b", arguments.tile_scales_b);
  check("bias", arguments.bias);
  std::visit([&](auto out) { check("out", out); }, arguments.out);
}

}  // namespace

std::string_view name_of(GemmKernel kernel) { return gemm_kernels[static_cast<std::size_t>(kernel)].name; }
GemmKernel find_gemm_kernel(std::string_view name) { return find_named(gemm_kernels, "kernel", name).value; }

const MmaModel& model_of(GemmKernel kernel, HostChip chip) {
  if (!is_wgmma(kernel)) {
    const bool is_half = kernel == GemmKernel::mma_sync_float16;
    return mma_sync_model(chip, MmaType::e4m3, is_half ? MmaAccumulator::float16 : MmaAccumulator::float32, 32);
  }
  if (chip != HostChip::hopper) throw std::invalid_argument(std::string(name_of(kernel)) + " is for Hopper alone");
  return wgmma_model(MmaType::e4m3, MmaAccumulator::float32);
}

void check_gemm(GemmKernel kernel, const GemmArguments& arguments) {
  const auto [m, n, k] = std::array{arguments.m, arguments.n, arguments.k};
  check_shape(arguments);
  check_array("a", arguments.a, m, k, 16);
  check_array("b", arguments.b, n, k, 16);
  std::visit([&](auto out) { check_array("out", out, m, n, 2 * sizeof(out[0])); }, arguments.out);
  check_numbers("scale_a", arguments.scale_a, 1, "the scale of the tensor");
  check_numbers("scale_b", arguments.scale_b, 1, "the scale of the tensor");
  check_numbers("bias", arguments.bias, n, "one a column");
  check_tile_scales(kernel, arguments);
  if (kernel == GemmKernel::wgmma_promoted && (arguments.promote_k == 0 || arguments.promote_k % 128 != 0)) {
    throw std::invalid_argument("promote_k must be a positive multiple of 128, not " +
                                std::to_string(arguments.promote_k));
  }
}

void gemm_on_device(GemmKernel kernel, const GemmArguments& arguments, void* stream) {
  const DefaultEnvironment environment;
  check_gemm(kernel, arguments);
  require_device();
  check_buffers(arguments);
  if (arguments.m == 0 || arguments.n == 0) return;
  if (is_wgmma(kernel)) {
    start_wgmma_gemm(kernel, arguments, stream);
  } else {
    start_mma_sync_gemm(kernel, arguments, stream);
  }
}

void gemm_on_host(GemmKernel kernel, const GemmArguments& arguments, HostOrder order, HostChip chip) {
  const DefaultEnvironment environment;
  check_gemm(kernel, arguments);
  static_cast<void>(model_of(kernel, chip));
  const auto run = [&](const auto& one) { run_on_host(one, order, chip); };
  const auto map = [](const std::uint8_t* data, std::size_t rows, std::size_t columns, unsigned box_rows) {
    return HostTensorMap{.data = data, .rows = rows, .columns = columns, .box_rows = box_rows};
  };
  if (is_wgmma(kernel)) {
    with_wgmma_kernel(kernel, arguments, map, run);
  } else {
    with_mma_sync_kernel(kernel, arguments, run);
  }
}

}  // namespace fp8lab::gpu
