// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/widen.hpp"
#include "fp8lab/gpu/recorder/functions.hpp"
#include "fp8lab/gpu/team.hpp"
#include "fp8lab/reference/units/rounded_functions.hpp"

namespace fp8lab::gpu {
namespace {

using Unit = UnitInstruction;

constexpr std::uint32_t unit_nan = 0x7FFFFFFFU;

/// The operation of an instruction that only stand-ins compute.
enum class StandIn : std::uint8_t { ex2, tanh, rcp, rsqrt };

float exact_to_float(StandIn operation, float x) {
  switch (operation) {
    case StandIn::ex2: return rounded_exp2(x);
    case StandIn::tanh: return rounded_tanh(x);
    case StandIn::rcp: return 1 / x;
    case StandIn::rsqrt: return rounded_rsqrt(x);
  }
  return x;
}

std::uint32_t flushed_word(std::uint32_t word) {
  return (word & 0x7FFFFFFFU) < 0x00800000U ? word & 0x80000000U : word;
}

std::uint32_t stand_in_32(StandIn operation, bool flushes, std::uint32_t word) {
  const float value = exact_to_float(operation, std::bit_cast<float>(flushes ? flushed_word(word) : word));
  if (value != value) return unit_nan;
  const auto result = std::bit_cast<std::uint32_t>(value);
  return flushes ? flushed_word(result) : result;
}

/// The result for an element of 16 bits: the nearest float32, rounded to the type.
std::uint32_t stand_in_16(StandIn operation, bool is_bfloat16, std::uint32_t element) {
  const auto bits = static_cast<std::uint16_t>(element);
  const float value = exact_to_float(operation, is_bfloat16 ? widened(BFloat16{bits}) : widened(Half{bits}));
  if (value != value) return 0x7FFFU;
  return static_cast<std::uint32_t>(encode(is_bfloat16 ? bfloat16 : binary16, cuda_nosat_policy, value));
}
std::uint32_t stand_in_pair(StandIn operation, bool is_bfloat16, std::uint32_t word) {
  return stand_in_16(operation, is_bfloat16, word & 0xFFFFU) | stand_in_16(operation, is_bfloat16, word >> 16) << 16;
}

/// The upper half of a float64 whose upper half is given; subnormal numbers are zeros.
std::uint32_t stand_in_64(StandIn operation, std::uint32_t high) {
  const bool is_tiny = (high & 0x7FF00000U) == 0;
  const auto x = std::bit_cast<double>(std::uint64_t{is_tiny ? high & 0x80000000U : high} << 32);
  const double value = operation == StandIn::rcp ? 1 / x : 1 / std::sqrt(x);
  if (value != value) return unit_nan;
  const auto result = static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(value) >> 32);
  return (result & 0x7FF00000U) == 0 ? result & 0x80000000U : result;
}

/// The instruction as a special_function(); nothing where that is none.
struct SpecialForm {
  SpecialFunction function;
  Subnormals subnormals;
};
std::optional<SpecialForm> special_form(Unit unit) {
  if (unit == Unit::tanh || unit > Unit::cos) return {};
  static constexpr std::array functions{SpecialFunction::ex2,   SpecialFunction::lg2,  SpecialFunction::rcp,
                                        SpecialFunction::rsqrt, SpecialFunction::sqrt, SpecialFunction::sin,
                                        SpecialFunction::cos};
  const std::size_t number = static_cast<std::size_t>(unit) - (unit > Unit::tanh ? 1 : 0);
  return SpecialForm{functions.at(number / 2), number % 2 == 0 ? Subnormals::flushed : Subnormals::kept};
}

std::uint32_t stand_in_word(Unit unit, std::uint32_t word) {
  switch (unit) {
    case Unit::tanh: return stand_in_32(StandIn::tanh, false, word);
    case Unit::ex2_f16: return stand_in_16(StandIn::ex2, false, word);
    case Unit::ex2_bf16: return stand_in_16(StandIn::ex2, true, word);
    case Unit::tanh_f16: return stand_in_16(StandIn::tanh, false, word);
    case Unit::tanh_bf16: return stand_in_16(StandIn::tanh, true, word);
    case Unit::ex2_f16x2: return stand_in_pair(StandIn::ex2, false, word);
    case Unit::ex2_bf16x2: return stand_in_pair(StandIn::ex2, true, word);
    case Unit::tanh_f16x2: return stand_in_pair(StandIn::tanh, false, word);
    case Unit::tanh_bf16x2: return stand_in_pair(StandIn::tanh, true, word);
    case Unit::rcp64h: return stand_in_64(StandIn::rcp, word);
    case Unit::rsqrt64h: return stand_in_64(StandIn::rsqrt, word);
    default: break;
  }
  throw std::logic_error("special_form() has the others");
}

constexpr bool is_packed_unit(Unit unit) { return unit >= Unit::ex2_f16x2 && unit <= Unit::tanh_bf16x2; }
constexpr bool is_of_16_bits(Unit unit) { return unit >= Unit::ex2_f16 && unit <= Unit::tanh_bf16x2; }

/// The operand of an input, as the kernel makes it.
std::uint32_t swept_operand(const RecordedFunction& function, std::uint64_t input) {
  const auto word = static_cast<std::uint32_t>(input);
  const bool is_packed =
      function.variant == FunctionVariant::units && is_packed_unit(static_cast<Unit>(function.number));
  return is_packed ? word | (word ^ 0x5A5AU) << 16 : word;
}

void unit_words(const RecordedFunction& function, SpecialUnits units, std::uint64_t first, std::span<std::uint32_t> out,
                int threads) {
  const auto unit = static_cast<Unit>(function.number);
  if (const auto form = special_form(unit)) {
    std::vector<float> x(out.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(first + i));
    apply_special_function(units, form->function, form->subnormals, x, x, threads);
    std::ranges::transform(x, out.begin(), [](float value) { return std::bit_cast<std::uint32_t>(value); });
    return;
  }
  parallel_for(out.size(), threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) out[i] = stand_in_word(unit, swept_operand(function, first + i));
  });
}

void compiled_words(const RecordedFunction& function, SpecialUnits units, std::uint64_t seed, std::uint64_t first,
                    std::span<std::uint32_t> out, int threads) {
  const auto number = static_cast<DeviceFunction>(function.number);
  const DeviceFlags flags = flags_of(function.variant);
  if (!missing_unit(number, flags).empty()) {  // of tanhf alone: an instruction without a model
    return unit_words({FunctionVariant::units, static_cast<std::size_t>(Unit::tanh)}, units, first, out, threads);
  }
  std::vector<float> x(out.size());
  std::vector<float> y(function.has_pairs() ? out.size() : 0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint64_t word = y.empty() ? first + i : random_word(seed, first + i);
    x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(word));
    if (!y.empty()) y[i] = std::bit_cast<float>(static_cast<std::uint32_t>(word >> 32));
  }
  device_function(number, {.flags = flags, .units = units}, x, y, x, threads);
  std::ranges::transform(x, out.begin(), [](float value) { return std::bit_cast<std::uint32_t>(value); });
}

std::vector<RecordedFunction> all_recorded_functions() {
  std::vector<RecordedFunction> all;
  for (std::size_t i = 0; i < unit_instructions.size(); ++i) all.push_back({FunctionVariant::units, i});
  for (std::size_t v = 1; v < function_variants.size(); ++v) {
    for (std::size_t i = 0; i < device_functions.size(); ++i) all.push_back({function_variants.at(v).value, i});
  }
  return all;
}

constexpr std::uint64_t binade_inputs = std::uint64_t{1} << 23;
constexpr std::uint64_t all_of_16_bits = std::uint64_t{1} << 16;

}  // namespace

DeviceFlags flags_of(FunctionVariant variant) {
  return {.ftz = variant == FunctionVariant::ftz,
          .prec_div = variant != FunctionVariant::precdiv,
          .prec_sqrt = variant != FunctionVariant::precsqrt,
          .fast_math = variant == FunctionVariant::fast};
}

std::string RecordedFunction::name() const {
  if (variant == FunctionVariant::units) return std::string(unit_instructions.at(number).name);
  const std::string called(device_functions.at(number).name);
  if (called == "x / y") return called;
  if (called == "1 / x") return "1.0f / x";
  return called + (has_pairs() ? "(x, y)" : "(x)");
}

bool RecordedFunction::has_pairs() const {
  return variant != FunctionVariant::units && has_two_arguments(static_cast<DeviceFunction>(number));
}

std::uint64_t RecordedFunction::inputs() const {
  const bool is_small = variant == FunctionVariant::units && is_of_16_bits(static_cast<Unit>(number));
  return is_small ? all_of_16_bits : std::uint64_t{1} << 32;
}

bool RecordedFunction::is_for(int capability) const {
  if (variant != FunctionVariant::units) return capability >= 80;
  const std::string_view called = unit_instructions.at(number).name;
  return capability >= (called.find("bf16") == std::string_view::npos ? 80 : 90);
}

bool RecordedFunction::has_model(SpecialUnits units) const {
  if (units == SpecialUnits::correctly_rounded) return true;
  if (variant == FunctionVariant::units) return special_form(static_cast<Unit>(number)).has_value();
  return missing_unit(static_cast<DeviceFunction>(number), flags_of(variant)).empty();
}

const std::vector<RecordedFunction>& recorded_functions() {
  static const std::vector<RecordedFunction> all = all_recorded_functions();
  return all;
}

std::size_t function_number(FunctionVariant variant, const std::string& name) {
  const auto& all = recorded_functions();
  const auto found = std::ranges::find_if(
      all, [&](const RecordedFunction& one) { return one.variant == variant && one.name() == name; });
  if (found == all.end()) refuse("unknown function ", name, " of ", name_of(variant));
  return static_cast<std::size_t>(found - all.begin());
}

std::optional<SpecialUnits> units_of_record(const RecordedFunction& function, int capability, const std::string& cuda,
                                            bool is_host_team) {
  if (capability == 90 && function.has_model(SpecialUnits::hopper)) {
    const bool is_known = is_host_team || function.variant == FunctionVariant::units || cuda == "13.0";
    return is_known ? std::optional(SpecialUnits::hopper) : std::nullopt;
  }
  return is_host_team ? std::optional(SpecialUnits::correctly_rounded) : std::nullopt;
}

void model_function_words(const RecordedFunction& function, SpecialUnits units, std::uint64_t seed, std::uint64_t first,
                          std::span<std::uint32_t> out, int threads) {
  if (!function.has_model(units)) refuse("units of ", name_of(units), " have no ", function.name());
  const DefaultEnvironment environment;
  if (function.variant == FunctionVariant::units) return unit_words(function, units, first, out, threads);
  compiled_words(function, units, seed, first, out, threads);
}

std::vector<std::uint64_t> model_function_digests(const RecordedFunction& function, SpecialUnits units,
                                                  std::uint64_t seed, std::uint64_t first, std::uint64_t count,
                                                  std::uint64_t inputs_per_chunk, int threads) {
  const std::uint64_t pieces = ceil_div(inputs_per_chunk, all_of_16_bits);  // of a chunk; the last one may be smaller
  std::vector<std::uint64_t> digests(count / inputs_per_chunk);
  parallel_for(
      digests.size() * pieces, threads,
      [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
          const std::uint64_t before = i % pieces * all_of_16_bits;
          const std::uint64_t at = first + i / pieces * inputs_per_chunk + before;
          std::vector<std::uint32_t> words(std::min(all_of_16_bits, inputs_per_chunk - before));
          model_function_words(function, units, seed, at, words);
          std::uint64_t digest = 0;
          for (std::uint64_t j = 0; j < words.size(); ++j) digest += digest_term(at + j, words[j]);
          atomic_add(&digests[i / pieces], digest);
        }
      },
      1);
  return digests;
}

std::span<const WordRange> word_ranges() {
  static constexpr std::array ranges{
      WordRange{Unit::rcp_ftz, 0x3F800000, binade_inputs},   WordRange{Unit::rcp, 0x00000000, binade_inputs},
      WordRange{Unit::rsqrt_ftz, 0x3F800000, binade_inputs}, WordRange{Unit::rsqrt_ftz, 0x40000000, binade_inputs},
      WordRange{Unit::sqrt_ftz, 0x3F800000, binade_inputs},  WordRange{Unit::sqrt_ftz, 0x40000000, binade_inputs},
      WordRange{Unit::lg2_ftz, 0x3F000000, binade_inputs},   WordRange{Unit::lg2_ftz, 0x3F800000, binade_inputs},
      WordRange{Unit::lg2_ftz, 0x40000000, binade_inputs},   WordRange{Unit::ex2, 0xC2F80000, 1U << 20},
      WordRange{Unit::ex2_ftz, 0x3A800000, binade_inputs},   WordRange{Unit::ex2_ftz, 0x3E000000, binade_inputs},
      WordRange{Unit::ex2_ftz, 0x3E800000, binade_inputs},   WordRange{Unit::ex2_ftz, 0x3F000000, binade_inputs},
      WordRange{Unit::ex2_ftz, 0x3F800000, binade_inputs},   WordRange{Unit::ex2_ftz, 0x40000000, binade_inputs},
      WordRange{Unit::ex2_ftz, 0xBF000000, binade_inputs},   WordRange{Unit::ex2_ftz, 0xBF800000, binade_inputs},
      WordRange{Unit::tanh, 0x3B000000, binade_inputs},      WordRange{Unit::tanh, 0x3B800000, binade_inputs},
      WordRange{Unit::tanh, 0x3C000000, binade_inputs},      WordRange{Unit::tanh, 0x3C800000, binade_inputs},
      WordRange{Unit::tanh, 0x3D000000, binade_inputs},      WordRange{Unit::tanh, 0x3D800000, binade_inputs},
      WordRange{Unit::tanh, 0x3E000000, binade_inputs},      WordRange{Unit::tanh, 0x3E800000, binade_inputs},
      WordRange{Unit::tanh, 0x3F000000, binade_inputs},      WordRange{Unit::tanh, 0x3F800000, binade_inputs},
      WordRange{Unit::tanh, 0x40000000, binade_inputs},      WordRange{Unit::tanh, 0x40800000, binade_inputs},
      WordRange{Unit::tanh, 0x41000000, binade_inputs},      WordRange{Unit::sin_ftz, 0x3B000000, binade_inputs},
      WordRange{Unit::sin_ftz, 0x3E000000, binade_inputs},   WordRange{Unit::sin_ftz, 0x3E800000, binade_inputs},
      WordRange{Unit::sin_ftz, 0x3F000000, binade_inputs},   WordRange{Unit::sin_ftz, 0x3F800000, binade_inputs},
      WordRange{Unit::cos_ftz, 0x3E000000, binade_inputs},   WordRange{Unit::cos_ftz, 0x3E800000, binade_inputs},
      WordRange{Unit::cos_ftz, 0x3F000000, binade_inputs},   WordRange{Unit::cos_ftz, 0x3F800000, binade_inputs},
      WordRange{Unit::ex2_f16, 0, all_of_16_bits},           WordRange{Unit::ex2_bf16, 0, all_of_16_bits},
      WordRange{Unit::tanh_f16, 0, all_of_16_bits},          WordRange{Unit::tanh_bf16, 0, all_of_16_bits},
      WordRange{Unit::ex2_f16x2, 0, all_of_16_bits},         WordRange{Unit::ex2_bf16x2, 0, all_of_16_bits},
      WordRange{Unit::tanh_f16x2, 0, all_of_16_bits},        WordRange{Unit::tanh_bf16x2, 0, all_of_16_bits},
      WordRange{Unit::rcp64h, 0x3FF00000, 1U << 20},         WordRange{Unit::rsqrt64h, 0x3FF00000, 1U << 20},
      WordRange{Unit::rsqrt64h, 0x40000000, 1U << 20}};
  return ranges;
}

}  // namespace fp8lab::gpu
