// SPDX-License-Identifier: Apache-2.0
#include "gemm/sums_along_k.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/unpack.hpp"
#include "fp8lab/reference/operators/row_sums.hpp"

namespace fp8lab {

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
  const auto write = [&](auto elements) {
    std::vector<typename decltype(elements)::value_type> turned;
    if (!a.transposed) {
      turned.resize(elements.size());
      for (std::size_t i = 0; i < a.rows; ++i) {
        for (std::size_t k = 0; k < a.depth; ++k) turned[k * a.rows + i] = elements[i * a.depth + k];
      }
      elements = turned;
    }
    std::ranges::copy(cublaslt_row_sums(MatrixView(elements, a.depth, a.rows)), out.begin());
  };
  if (const auto* floats = std::get_if<std::span<const float>>(&a.elements)) return write(*floats);
  const auto words = std::get<std::span<const std::uint16_t>>(a.elements);
  write(std::span(reinterpret_cast<const BFloat16*>(words.data()), words.size()));
}

}  // namespace fp8lab
