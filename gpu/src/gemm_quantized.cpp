// SPDX-License-Identifier: Apache-2.0
// GEMM kernels on what quantize() made.
#include <array>
#include <stdexcept>
#include <string>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/gpu/gemm.hpp"
#include "fp8lab/reference/tensor_core/operand.hpp"
#include "gemm_kernels.hpp"

namespace fp8lab::gpu {
namespace {

[[noreturn]] void refuse_operand(GemmKernel kernel, const char* name, const std::string& why) {
  throw std::invalid_argument(std::string(name_of(kernel)) + " does not take " + name + ": " + why);
}

/// Requires the layout, formats and scales that the kernel reads.
void check_operand(GemmKernel kernel, const char* name, const Operand& operand) {
  const auto kind = kind_of(kernel);
  const unsigned scales = scales_of(kind.value_or(MmaKind::f8f6f4));
  const bool takes_tiles = kernel == GemmKernel::wgmma_scaled_1d1d || kernel == GemmKernel::wgmma_scaled_1d2d;
  if (operand.transposed) {
    refuse_operand(kernel, name, "its codes do not have K along rows, as rowwise and transposed ones have");
  }
  const bool is_fp8 = operand.format == e4m3 || operand.format == e5m2;
  const bool wants_pairs = kind && is_packed(*kind);
  if (wants_pairs ? operand.format != e2m1 : !is_fp8) {
    refuse_operand(kernel, name, wants_pairs ? "its format is not e2m1" : "its format is neither e4m3 nor e5m2");
  }
  if (!operand.row_scales.empty()) refuse_operand(kernel, name, "each row has a scale");
  if (operand.tile_scales.values.empty() == takes_tiles) {
    refuse_operand(kernel, name, takes_tiles ? "it has no float32 scales of tiles" : "it has float32 scales of tiles");
  }
  if (takes_tiles) {
    const std::size_t rows = kernel == GemmKernel::wgmma_scaled_1d2d && name[0] == 'b' ? 128 : 1;
    if (operand.tile_scales.depth == 128 && operand.tile_scales.rows == rows) return;
    refuse_operand(kernel, name, "its tiles are not " + std::to_string(rows) + " x 128");
  }
  if (operand.scales.codes.empty() != (scales == 0)) {
    refuse_operand(kernel, name, scales == 0 ? "it has block scales" : "it has no block scales");
  }
}

std::span<const std::uint8_t> codes_of(const Operand& operand) {
  return std::get<std::span<const std::uint8_t>>(operand.elements);
}
MmaType type_of(const Operand& operand) { return operand.format == e5m2 ? MmaType::e5m2 : MmaType::e4m3; }

}  // namespace

void gemm_on_host(GemmKernel kernel, const Quantized& a, const Quantized& b, const GemmArguments& others,
                  HostOrder order, std::optional<HostChip> chip) {
  const DefaultEnvironment environment;
  const Operand left = operand_of(a);
  const Operand right = operand_of(b);
  check_operand(kernel, "a", left);
  check_operand(kernel, "b", right);
  if (left.depth != right.depth) {
    throw std::invalid_argument("b must have a's K, " + std::to_string(left.depth) + ", not " +
                                std::to_string(right.depth));
  }
  const bool takes_tiles = !left.tile_scales.values.empty();
  // Member by member: g++ 13 ends with an internal error where the call has the braces of these in it.
  GemmArguments arguments;
  arguments.m = left.rows;
  arguments.n = right.rows;
  arguments.k = left.depth;
  arguments.type_a = type_of(left);
  arguments.type_b = type_of(right);
  arguments.a = codes_of(left);
  arguments.b = codes_of(right);
  arguments.block_scales_a = left.scales;
  arguments.block_scales_b = right.scales;
  if (!takes_tiles) {
    arguments.scale_a = std::span(&left.tensor_scale.factor, 1);
    arguments.scale_b = std::span(&right.tensor_scale.factor, 1);
  }
  arguments.divisor_a = left.tensor_scale.divisor;
  arguments.divisor_b = right.tensor_scale.divisor;
  arguments.tile_scales_a = left.tile_scales.values;
  arguments.tile_scales_b = right.tile_scales.values;
  arguments.bias = others.bias;
  arguments.promote_k = others.promote_k;
  arguments.out = others.out;
  gemm_on_host(kernel, arguments, order, chip);
}

}  // namespace fp8lab::gpu
