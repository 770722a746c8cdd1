// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/tensor_core/mma.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "tensor_core/instruction.hpp"
#include "tensor_core/misfit.hpp"

namespace fp8lab {
namespace {

void check_batch(const MmaModel& model, const Operand& a, const Operand& b, std::size_t c, std::size_t out,
                 const Format& accumulator) {
  const auto text = [](std::size_t number) { return std::to_string(number); };
  for (const Operand* operand : {&a, &b}) {
    if (!operand->tile_scales.values.empty() || !operand->row_scales.empty() ||
        operand->tensor_scale != TensorScale{}) {
      throw std::invalid_argument(
          "scales of tiles, rows and tensors are for gemm: one instruction has neither promotion nor epilogue");
    }
  }
  if (accumulator != model.accumulator()) {
    throw std::invalid_argument("c and out must be " + format_name(model.accumulator()) + ", the accumulator of " +
                                std::string(model.name) + ", not " + format_name(accumulator));
  }
  if (a.rows != b.rows || a.depth != b.depth) {
    throw std::invalid_argument("a and b must have the same shape, not (" + text(a.rows) + ", " + text(a.depth) +
                                ") and (" + text(b.rows) + ", " + text(b.depth) + ")");
  }
  if (c != 0 && c != a.rows) {
    throw std::invalid_argument("c must have " + text(a.rows) + " elements, one a row, not " + text(c));
  }
  if (out != a.rows) {
    throw std::invalid_argument("out must have " + text(a.rows) + " elements, one a row, not " + text(out));
  }
  if (model.k() != 0 && !std::cmp_equal(a.depth, model.k())) {
    const std::string others = names_of_models([&](const MmaModel& other) {
      return (other.k() == 0 || std::cmp_equal(a.depth, other.k())) && takes(other, a) && takes(other, b);
    });
    throw std::invalid_argument("K must be " + std::to_string(model.k()) + ", one instruction of " +
                                std::string(model.name) + ", not " + text(a.depth) + "; gemm takes any K" +
                                (others.empty() ? "" : ". Models with K = " + text(a.depth) + ": " + others));
  }
}

template <typename Value>
using WordOf = std::conditional_t<sizeof(Value) == 2, std::uint16_t,
                                  std::conditional_t<sizeof(Value) == 4, std::uint32_t, std::uint64_t>>;
const Format& own_format(Half /*x*/) { return binary16; }
const Format& own_format(float /*x*/) { return binary32; }
const Format& own_format(double /*x*/) { return binary64; }

template <typename Value>
void mma_batch(const MmaModel& model, const Operand& a, const Operand& b, std::span<const Value> c,
               std::span<Value> out, ZeroRule zero_rule) {
  using Word = WordOf<Value>;
  check_batch(model, a, b, c.size(), out.size(), own_format(Value{}));
  check_apart_operand("a", a, out);
  check_apart_operand("b", b, out);
  check_apart_or_same("c", c, "out", out);
  const DefaultEnvironment environment;
  const FactorReader left(model, a, zero_rule, "a", Rounding::toward_zero);
  const FactorReader right(model, b, zero_rule, "b", Rounding::toward_zero);
  const std::size_t some = rows_in_cache(a.depth);
  for (std::size_t first = 0; first < a.rows; first += some) {
    checkpoint();
    const std::size_t count = std::min(some, a.rows - first);
    const Factors x = left.rows(first, count);
    const Factors y = right.rows(first, count);
    for (std::size_t i = 0; i < count; ++i) {
      const Word accumulator = c.empty() ? Word{0} : std::bit_cast<Word>(c[first + i]);
      const std::uint64_t word = mma_instruction(model, x.row(i), y.row(i), accumulator, zero_rule);
      out[first + i] = std::bit_cast<Value>(static_cast<Word>(word));
    }
  }
}

}  // namespace

void mma(const MmaModel& model, const Operand& a, const Operand& b, std::span<const float> c, std::span<float> out,
         ZeroRule zero_rule) {
  mma_batch(model, a, b, c, out, zero_rule);
}
void mma(const MmaModel& model, const Operand& a, const Operand& b, std::span<const Half> c, std::span<Half> out,
         ZeroRule zero_rule) {
  mma_batch(model, a, b, c, out, zero_rule);
}
void mma(const MmaModel& model, const Operand& a, const Operand& b, std::span<const double> c, std::span<double> out,
         ZeroRule zero_rule) {
  mma_batch(model, a, b, c, out, zero_rule);
}

}  // namespace fp8lab
