// SPDX-License-Identifier: Apache-2.0
// What Hopper's special function unit computes at its special values. All words are held against those of an H200 in
// tests/python/test_device_units.py, and against digests of all by the ledger (tests/experiments/gpu/gpu.cpp).
#include "fp8lab/reference/units/special_function.hpp"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "support.hpp"

namespace fp8lab::tests {
namespace {

std::uint32_t special_word_of(SpecialFunction function, Subnormals subnormals, std::uint32_t x) {
  return std::bit_cast<std::uint32_t>(special_function(function, subnormals, std::bit_cast<float>(x)));
}

}  // namespace

TEST_CASE("special functions: special values, as the PTX ISA has them") {
  constexpr std::uint32_t minus = 0x80000000U;
  constexpr std::uint32_t infinite = 0x7F800000U;
  constexpr std::uint32_t no_number = 0x7FFFFFFFU;
  struct Row {
    SpecialFunction function;
    std::uint32_t of_minus_infinity, of_minus_one, of_minus_zero, of_zero, of_one, of_infinity;
  };
  constexpr std::uint32_t one = 0x3F800000U;
  for (const Row& row :
       {Row{SpecialFunction::rcp, minus, minus | one, minus | infinite, infinite, one, 0},
        Row{SpecialFunction::rsqrt, no_number, no_number, minus | infinite, infinite, one, 0},
        Row{SpecialFunction::sqrt, no_number, no_number, minus, 0, one, infinite},
        Row{SpecialFunction::lg2, no_number, no_number, minus | infinite, minus | infinite, 0, infinite},
        Row{SpecialFunction::ex2, 0, 0x3F000000, one, one, 0x40000000, infinite},
        Row{SpecialFunction::sin, no_number, 0xBF576AA3, minus, 0, 0x3F576AA3, no_number},
        Row{SpecialFunction::cos, no_number, 0x3F0A5141, one, one, 0x3F0A5141, no_number},
        Row{SpecialFunction::tanh, minus | one, 0xBF42F848, minus, 0, 0x3F42F848, one}}) {
    const bool has_flushing = row.function != SpecialFunction::tanh;
    for (const Subnormals subnormals : {Subnormals::kept, Subnormals::flushed}) {
      if (subnormals == Subnormals::flushed && !has_flushing) continue;
      CHECK(special_word_of(row.function, subnormals, minus | infinite) == row.of_minus_infinity);
      CHECK(special_word_of(row.function, subnormals, minus | one) == row.of_minus_one);
      CHECK(special_word_of(row.function, subnormals, minus) == row.of_minus_zero);
      CHECK(special_word_of(row.function, subnormals, 0) == row.of_zero);
      CHECK(special_word_of(row.function, subnormals, one) == row.of_one);
      CHECK(special_word_of(row.function, subnormals, infinite) == row.of_infinity);
      for (const std::uint32_t x : {0x7F800001U, 0x7FC00000U, 0xFFFFFFFFU})
        CHECK(special_word_of(row.function, subnormals, x) == no_number);
    }
    if (!has_flushing) continue;
    CHECK(special_word_of(row.function, Subnormals::flushed, 0x007FFFFF) == row.of_zero);
    CHECK(special_word_of(row.function, Subnormals::flushed, 0x807FFFFF) == row.of_minus_zero);
  }
}

TEST_CASE("special functions: the instructions of PTX, by name") {
  std::vector<std::string> names;
  for (const SpecialInstruction& one : special_instructions()) names.push_back(one.name());
  CHECK(names.size() == 21);
  for (const char* name : {"ex2.approx.ftz.f32", "tanh.approx.f32", "tanh.approx.bf16", "ex2.approx.ftz.bf16",
                           "ex2.approx.f16", "rsqrt.approx.ftz.f64"})
    CHECK(std::ranges::count(names, name) == 1);
  CHECK(special_instruction(SpecialFunction::ex2, SpecialType::bf16).subnormals == Subnormals::flushed);
  CHECK(special_instruction(SpecialFunction::ex2, SpecialType::f32).subnormals == Subnormals::kept);
  CHECK_THROWS_WITH(
      special_instruction(SpecialFunction::tanh, SpecialType::f32, Subnormals::flushed),
      Catch::Matchers::StartsWith("PTX has no tanh.approx.ftz.f32; it has rcp.approx.f32, rcp.approx.ftz.f32"));
  CHECK_THROWS_WITH(special_instruction(SpecialFunction::sin, SpecialType::f64),
                    "PTX has no sin.approx.f64; it has rcp.approx.ftz.f64, rsqrt.approx.ftz.f64");
  CHECK_THROWS_AS(special_function(SpecialFunction::tanh, Subnormals::flushed, 1), std::invalid_argument);
}

TEST_CASE("special functions: special values of other types") {
  const auto word = [](SpecialFunction function, SpecialType type, std::uint32_t x,
                       SpecialUnits units = SpecialUnits::hopper) {
    const std::vector<std::uint32_t> of_x{x};
    std::vector<std::uint32_t> out(1);
    apply_special_instruction(units, special_instruction(function, type), of_x, out);
    return out[0];
  };
  CHECK(word(SpecialFunction::ex2, SpecialType::f16, 0x4C00) == 0x7C00);  // 2^16 is infinite
  CHECK(word(SpecialFunction::ex2, SpecialType::f16, 0x7E00) == 0x7FFF);
  CHECK(word(SpecialFunction::ex2, SpecialType::bf16, 0xC2FE) == 0);  // 2^-127, flushed
  CHECK(word(SpecialFunction::ex2, SpecialType::bf16, 0xC2FE, SpecialUnits::correctly_rounded) == 0);
  CHECK(word(SpecialFunction::rcp, SpecialType::f64, 0x80000001) == 0xFFF00000);  // subnormal
  CHECK(word(SpecialFunction::rcp, SpecialType::f64, 0x7FE00001) == 0);           // a subnormal result
  CHECK(word(SpecialFunction::rsqrt, SpecialType::f64, 0xBFF00000) == 0x7FFFFFFF);
  CHECK(word(SpecialFunction::rsqrt, SpecialType::f64, 0x40100000) == 0x3FE00000);
  CHECK(word(SpecialFunction::rsqrt, SpecialType::f64, 0x40100000, SpecialUnits::correctly_rounded) == 0x3FE00000);
  CHECK_THROWS_WITH(word(SpecialFunction::ex2, SpecialType::f16, 0x10000),
                    "x must have words of 16 bits for ex2.approx.f16");
}

TEST_CASE("special functions: arrays that do not fit are refused") {
  const std::vector<float> x(4);
  std::vector<float> out(3);
  CHECK_THROWS_WITH(apply_special_function(SpecialUnits::hopper, SpecialFunction::rcp, Subnormals::kept, x, out),
                    "out must have 4 elements, not 3");
}

}  // namespace fp8lab::tests
