// SPDX-License-Identifier: Apache-2.0
// What a GPU's special function unit computes: its instructions are not correctly rounded, and CUDA's functions, norms,
// softmaxes and activations are made of them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/formats/named.hpp"

namespace fp8lab {

/// Chips whose unit is known bit for bit, and what stands in for those of others.
enum class SpecialUnits : std::uint8_t { hopper, correctly_rounded };
inline constexpr std::array special_units{
    Named{"hopper", SpecialUnits::hopper,
          "measured: an H200 gave the words of the model for all inputs of each instruction (CUDA 13.0)"},
    Named{"correctly_rounded", SpecialUnits::correctly_rounded,
          "no chip's: the float32 nearest to the exact value, which stands in where no chip's unit is known"},
};
static_assert(is_in_order(special_units));
[[nodiscard]] constexpr std::span<const Named<SpecialUnits>> named_values(SpecialUnits /*of_type*/) {
  return special_units;
}

/// What PTX's instructions NAME.approx compute.
enum class SpecialFunction : std::uint8_t { rcp, rsqrt, sqrt, lg2, ex2, sin, cos, tanh };
inline constexpr std::array special_functions{
    Named{"rcp", SpecialFunction::rcp, "1 / x"},
    Named{"rsqrt", SpecialFunction::rsqrt, "1 / sqrt(x), CUDA's rsqrtf()"},
    Named{"sqrt", SpecialFunction::sqrt, "the square root"},
    Named{"lg2", SpecialFunction::lg2, "the binary logarithm"},
    Named{"ex2", SpecialFunction::ex2, "2^x"},
    Named{"sin", SpecialFunction::sin, "the sine of x radians"},
    Named{"cos", SpecialFunction::cos, "the cosine of x radians"},
    Named{"tanh", SpecialFunction::tanh, "the hyperbolic tangent"},
};
[[nodiscard]] constexpr std::span<const Named<SpecialFunction>> named_values(SpecialFunction /*of_type*/) {
  return special_functions;
}

/// The type of an instruction's operand and result.
enum class SpecialType : std::uint8_t { f32, f16, bf16, f64 };
inline constexpr std::array special_types{
    Named{"float32", SpecialType::f32, "all functions"},
    Named{"float16", SpecialType::f16, "ex2 and tanh: of float32's result the upper bits"},
    Named{"bfloat16", SpecialType::bf16, "ex2 (.ftz) and tanh: of float32's result the upper bits"},
    Named{"float64", SpecialType::f64, "rcp and rsqrt (.ftz), of upper halves: the lower half of a result is zero"},
};
static_assert(is_in_order(special_types));
[[nodiscard]] constexpr std::span<const Named<SpecialType>> named_values(SpecialType /*of_type*/) {
  return special_types;
}

/// Whether subnormal inputs and results are zeros: NAME.approx.ftz.f32.
enum class Subnormals : std::uint8_t { kept, flushed };

/// An instruction of the unit. Those of two elements of 16 bits are these of each of them.
struct SpecialInstruction {
  SpecialFunction function;
  SpecialType type;
  Subnormals subnormals;

  [[nodiscard]] std::string name() const;  ///< as PTX has it, such as ex2.approx.ftz.f32
};
/// All that PTX has.
[[nodiscard]] const std::vector<SpecialInstruction>& special_instructions();
/// The instruction of a function and a type; without `subnormals` the one that keeps them, where PTX has both.
/// Throws std::invalid_argument where PTX has none, and names those that it has.
[[nodiscard]] SpecialInstruction special_instruction(SpecialFunction function, SpecialType type,
                                                     std::optional<Subnormals> subnormals = {});

/// The function of x as the units compute it. Every NaN is 7FFFFFFF.
///
/// Hopper divides the mantissa of x into 64 segments of a binade (rcp: 128). In each, with the rest t of the mantissa,
///
///     result = floor(c0 + c1 t + c2 S(t) + a constant of the function)
///
/// in units of the result's last place, with whole numbers c0, c1 and c2 of a table. S(t) is t^2 from a squarer that
/// leaves out the columns below 2^15 of its leading one: of t = sum of t_i 2^i with n bits, it adds t_i 2^2i and
/// t_i t_j 2^(i+j+1) where these are at least 2^(2n-15). Structure: Oberman and Siu, "A High-Performance Area-Efficient
/// Multifunction Interpolator", ARITH 2005. Tables, constants and the squarer's columns: found from the words of an
/// H200, of which none differs.
///
/// Sine and cosine are a product with fl(1 / (2 pi)), rounded toward zero, and the unit's function of that: parts of
/// 2^-25 of a turn, in 64 segments of a quarter. The hyperbolic tangent is x below 2^-8 and 1 from 8 on; the binades
/// between have 1 to 16 segments each.
///
/// Throws std::invalid_argument for tanh with .ftz, which PTX has not.
[[nodiscard]] float special_function(SpecialFunction function, Subnormals subnormals, float x,
                                     SpecialUnits units = SpecialUnits::hopper);

/// out = the function of each element, on `threads` threads.
///
/// Throws std::invalid_argument as special_function() does, for sizes that differ, arrays that overlap otherwise than
/// element by element, and as check_threads() does.
void apply_special_function(SpecialUnits units, SpecialFunction function, Subnormals subnormals,
                            std::span<const float> x, std::span<float> out, int threads = 1);

/// out = the word of the instruction's result for each word of x: of 16 bits for float16 and bfloat16, the upper half
/// for float64. Every NaN has all bits of 1 but the sign. Throws as apply_special_function() does, and for elements of
/// x beyond the type.
void apply_special_instruction(SpecialUnits units, const SpecialInstruction& instruction,
                               std::span<const std::uint32_t> x, std::span<std::uint32_t> out, int threads = 1);

}  // namespace fp8lab
