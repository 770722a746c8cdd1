// SPDX-License-Identifier: Apache-2.0
#include "gemm/sums_along_k.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/operators/row_sums.hpp"

namespace fp8lab {
namespace {

std::vector<float> values_of(const Operand& a) {
  std::vector<float> values(a.rows * a.depth);
  if (const auto* floats = std::get_if<std::span<const float>>(&a.elements)) {
    std::ranges::copy(*floats, values.begin());
  } else {
    std::ranges::transform(std::get<std::span<const std::uint16_t>>(a.elements), values.begin(),
                           [](std::uint16_t word) { return std::bit_cast<float>(std::uint32_t{word} << 16U); });
  }
  return values;
}

}  // namespace

void check_summed_operand(const Operand& a) {
  const bool is_float = std::holds_alternative<std::span<const float>>(a.elements);
  const bool is_brain = std::holds_alternative<std::span<const std::uint16_t>>(a.elements) && a.format == bfloat16;
  if (!is_float && !is_brain) {
    refuse("bias_gradient is known of operands of float32 and bfloat16, not of ", format_name(a.format));
  }
}

void write_sums_along_k(const Operand& a, std::span<float> out) {
  std::ranges::fill(out, 0.0F);
  if (a.rows == 0 || a.depth == 0) return;
  std::vector<float> values = values_of(a);
  if (!a.transposed) {
    std::vector<float> turned(values.size());
    for (std::size_t i = 0; i < a.rows; ++i) {
      for (std::size_t k = 0; k < a.depth; ++k) turned[k * a.rows + i] = values[i * a.depth + k];
    }
    values = std::move(turned);
  }
  std::ranges::copy(cublaslt_row_sums(MatrixView(std::span<const float>(values), a.depth, a.rows)), out.begin());
}

}  // namespace fp8lab
