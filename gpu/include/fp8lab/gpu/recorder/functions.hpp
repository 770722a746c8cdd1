// SPDX-License-Identifier: Apache-2.0
// Functions that the recorder sweeps: instructions of the special function unit, and what nvcc makes of CUDA's float32
// functions under its options.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/formats/host_device.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/gpu/recorder/digest.hpp"
#include "fp8lab/reference/units/device_function.hpp"
#include "fp8lab/reference/units/special_function.hpp"

namespace fp8lab::gpu {

/// How the code of a function was compiled; `units`: single instructions.
enum class FunctionVariant : std::uint8_t { units, plain, ftz, fast, precdiv, precsqrt };
inline constexpr std::array function_variants{
    Named{"units", FunctionVariant::units, "an instruction of the special function unit"},
    Named{"default", FunctionVariant::plain, "nvcc without options"},
    Named{"ftz", FunctionVariant::ftz, "-ftz=true"},
    Named{"fast", FunctionVariant::fast, "-use_fast_math"},
    Named{"precdiv", FunctionVariant::precdiv, "-prec-div=false"},
    Named{"precsqrt", FunctionVariant::precsqrt, "-prec-sqrt=false"},
};
static_assert(is_in_order(function_variants));
[[nodiscard]] constexpr std::span<const Named<FunctionVariant>> named_values(FunctionVariant /*of_type*/) {
  return function_variants;
}
[[nodiscard]] DeviceFlags flags_of(FunctionVariant variant);

/// Instructions NAME of PTX that are swept.
enum class UnitInstruction : std::uint8_t {
  ex2_ftz,
  ex2,
  lg2_ftz,
  lg2,
  rcp_ftz,
  rcp,
  rsqrt_ftz,
  rsqrt,
  sqrt_ftz,
  sqrt,
  tanh,
  sin_ftz,
  sin,
  cos_ftz,
  cos,
  ex2_f16,
  ex2_bf16,
  tanh_f16,
  tanh_bf16,
  ex2_f16x2,
  ex2_bf16x2,
  tanh_f16x2,
  tanh_bf16x2,
  rcp64h,
  rsqrt64h,
};
inline constexpr std::array unit_instructions{
    Named{"ex2.approx.ftz.f32", UnitInstruction::ex2_ftz},
    Named{"ex2.approx.f32", UnitInstruction::ex2},
    Named{"lg2.approx.ftz.f32", UnitInstruction::lg2_ftz},
    Named{"lg2.approx.f32", UnitInstruction::lg2},
    Named{"rcp.approx.ftz.f32", UnitInstruction::rcp_ftz},
    Named{"rcp.approx.f32", UnitInstruction::rcp},
    Named{"rsqrt.approx.ftz.f32", UnitInstruction::rsqrt_ftz},
    Named{"rsqrt.approx.f32", UnitInstruction::rsqrt},
    Named{"sqrt.approx.ftz.f32", UnitInstruction::sqrt_ftz},
    Named{"sqrt.approx.f32", UnitInstruction::sqrt},
    Named{"tanh.approx.f32", UnitInstruction::tanh},
    Named{"sin.approx.ftz.f32", UnitInstruction::sin_ftz},
    Named{"sin.approx.f32", UnitInstruction::sin},
    Named{"cos.approx.ftz.f32", UnitInstruction::cos_ftz},
    Named{"cos.approx.f32", UnitInstruction::cos},
    Named{"ex2.approx.f16", UnitInstruction::ex2_f16},
    Named{"ex2.approx.ftz.bf16", UnitInstruction::ex2_bf16},
    Named{"tanh.approx.f16", UnitInstruction::tanh_f16},
    Named{"tanh.approx.bf16", UnitInstruction::tanh_bf16},
    Named{"ex2.approx.f16x2", UnitInstruction::ex2_f16x2},
    Named{"ex2.approx.ftz.bf16x2", UnitInstruction::ex2_bf16x2},
    Named{"tanh.approx.f16x2", UnitInstruction::tanh_f16x2},
    Named{"tanh.approx.bf16x2", UnitInstruction::tanh_bf16x2},
    Named{"rcp.approx.ftz.f64", UnitInstruction::rcp64h},
    Named{"rsqrt.approx.ftz.f64", UnitInstruction::rsqrt64h},
};
static_assert(is_in_order(unit_instructions));
[[nodiscard]] constexpr std::span<const Named<UnitInstruction>> named_values(UnitInstruction /*of_type*/) {
  return unit_instructions;
}

/// A function under nvcc's options, or an instruction, as data.
///
/// Input i is the word i. Of instructions of 16 bits it is the element, and packed ones take i | (i ^ 0x5A5A) << 16; of
/// those of 64 bits it is the upper half of the operand, whose lower half is 0, and the result's upper half is the
/// word. Functions of two arguments take random words: the lower half of random_word(seed, i) is x, the upper one y.
struct RecordedFunction {
  FunctionVariant variant;
  std::size_t number;  ///< of a DeviceFunction, or of a UnitInstruction

  /// As CUDA C++ or PTX has it: "expf(x)", "x / y", "ex2.approx.ftz.f32".
  [[nodiscard]] std::string name() const;
  /// Whether operands are random pairs; otherwise all inputs() are swept.
  [[nodiscard]] bool has_pairs() const;
  [[nodiscard]] std::uint64_t inputs() const;
  /// Whether a chip of this compute capability (90 is 9.0) has it.
  [[nodiscard]] bool is_for(int capability) const;
};
/// All of them, in a fixed order: their numbers are the recorder's arguments.
[[nodiscard]] const std::vector<RecordedFunction>& recorded_functions();
/// The number of one. Throws std::invalid_argument that names it, where there is none.
[[nodiscard]] std::size_t function_number(FunctionVariant variant, const std::string& name);

/// Units with which fp8lab computes the words of a device, or of the host team in its place; nothing where it has no
/// model: chips other than Hopper, functions of another CUDA than 13.0.
[[nodiscard]] std::optional<SpecialUnits> units_of_record(const RecordedFunction& function, int capability,
                                                          const std::string& cuda, bool is_host_team);

/// The words of inputs [first, first + out.size()) by the model, or over `correctly_rounded` by its stand-in: the
/// exact result rounded once.
void model_function_words(const RecordedFunction& function, SpecialUnits units, std::uint64_t seed, std::uint64_t first,
                          std::span<std::uint32_t> out, int threads = 1);
/// The digests of inputs [first, first + count), one for each chunk.
[[nodiscard]] std::vector<std::uint64_t> model_function_digests(const RecordedFunction& function, SpecialUnits units,
                                                                std::uint64_t seed, std::uint64_t first,
                                                                std::uint64_t count, std::uint64_t inputs_per_chunk,
                                                                int threads);

/// Consecutive inputs whose words determine a function, for a model to be found from them.
struct WordRange {
  UnitInstruction instruction;
  std::uint64_t first, count;
};
/// A binade of rcp, two of rsqrt, sqrt and lg2, those of ex2, tanh, sin and cos that are not the steps of another, and
/// where results are subnormal.
[[nodiscard]] std::span<const WordRange> word_ranges();
}  // namespace fp8lab::gpu
