// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/gpu/recorder/functions.hpp"
#include "fp8lab/gpu/team.hpp"

namespace fp8lab::gpu {
namespace {

using Unit = UnitInstruction;

/// The instruction, of which packed ones have two.
const SpecialInstruction& instruction_of(Unit unit) {
  std::string name(unit_instructions.at(static_cast<std::size_t>(unit)).name);
  if (name.ends_with("x2")) name.resize(name.size() - 2);
  const auto& all = special_instructions();
  const auto found = std::ranges::find_if(all, [&](const SpecialInstruction& one) { return one.name() == name; });
  if (found == all.end()) throw std::logic_error("special_instructions() has all");
  return *found;
}

constexpr bool is_packed_unit(Unit unit) { return unit >= Unit::ex2_f16x2 && unit <= Unit::tanh_bf16x2; }
constexpr bool is_of_16_bits(Unit unit) { return unit >= Unit::ex2_f16 && unit <= Unit::tanh_bf16x2; }

void unit_words(const RecordedFunction& function, SpecialUnits units, std::uint64_t first, std::span<std::uint32_t> out,
                int threads) {
  const auto unit = static_cast<Unit>(function.number);
  const SpecialInstruction& instruction = instruction_of(unit);
  std::vector<std::uint32_t> x(out.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint32_t>(first + i);
  apply_special_instruction(units, instruction, x, out, threads);
  if (!is_packed_unit(unit)) return;
  for (std::uint32_t& word : x) word ^= 0x5A5AU;  // the upper element, as the kernel makes it
  apply_special_instruction(units, instruction, x, x, threads);
  for (std::size_t i = 0; i < x.size(); ++i) out[i] |= x[i] << 16;
}

void compiled_words(const RecordedFunction& function, SpecialUnits units, std::uint64_t seed, std::uint64_t first,
                    std::span<std::uint32_t> out, int threads) {
  const auto number = static_cast<DeviceFunction>(function.number);
  const DeviceFlags flags = flags_of(function.variant);
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
  if (capability == 90) {
    const bool is_known = is_host_team || function.variant == FunctionVariant::units || cuda == "13.0";
    return is_known ? std::optional(SpecialUnits::hopper) : std::nullopt;
  }
  return is_host_team ? std::optional(SpecialUnits::correctly_rounded) : std::nullopt;
}

void model_function_words(const RecordedFunction& function, SpecialUnits units, std::uint64_t seed, std::uint64_t first,
                          std::span<std::uint32_t> out, int threads) {
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
