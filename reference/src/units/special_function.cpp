// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/units/special_function.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/widen.hpp"
#include "fp8lab/reference/units/rounded_functions.hpp"
#include "units/hopper_tables.hpp"
#include "units/special_word.hpp"

namespace fp8lab {
namespace {

constexpr std::uint32_t sign_bit = 0x80000000U;
constexpr std::uint32_t infinity_word = 0x7F800000U;
constexpr std::uint32_t nan_word = 0x7FFFFFFFU;
constexpr int mantissa_bits = 23;
constexpr std::uint32_t mantissa_mask = (1U << mantissa_bits) - 1;
constexpr int fraction_bits = 18;  // of interpolated(): no term has more

/// S(t) of all t of `bits` bits, in units of the lowest column that the squarer has.
std::vector<std::int32_t> truncated_squares(int bits) {
  const int lowest = 2 * bits - 15;
  std::vector<std::int32_t> squares(std::size_t{1} << bits);
  for (std::size_t t = 0; t < squares.size(); ++t) {
    std::uint64_t sum = 0;
    for (int i = 0; i < bits; ++i) {
      if ((t >> i & 1U) == 0) continue;
      if (2 * i >= lowest) sum += std::uint64_t{1} << (2 * i);
      for (int j = i + 1; j < bits; ++j) {
        if (i + j + 1 >= lowest) sum += std::uint64_t{t >> j & 1U} << (i + j + 1);
      }
    }
    squares[t] = static_cast<std::int32_t>(sum >> lowest);
  }
  return squares;
}
const std::vector<std::int32_t>& squares_of(int bits) {
  static const std::vector<std::int32_t> of_16 = truncated_squares(16);
  static const std::vector<std::int32_t> of_17 = truncated_squares(17);
  return bits == 16 ? of_16 : of_17;
}

/// The mantissa of the result, in units of 2^-fraction_bits of its last place.
std::int64_t interpolated(const hopper::Table& table, std::uint32_t mantissa) {
  const hopper::Segment& segment = table.segments[mantissa >> table.rest_bits];
  const std::uint32_t rest = mantissa & ((1U << table.rest_bits) - 1);
  const int linear_shift = fraction_bits - table.rest_bits - table.halvings;
  return (std::int64_t{segment.constant} << (fraction_bits - 3)) + table.constant +
         (std::int64_t{segment.linear} * rest << linear_shift) +
         (std::int64_t{segment.quadratic} * squares_of(table.rest_bits)[rest] << (3 - table.halvings));
}
std::uint32_t interpolated_mantissa(const hopper::Table& table, std::uint32_t mantissa) {
  return static_cast<std::uint32_t>(interpolated(table, mantissa) >> fraction_bits);
}

/// A finite number: 2^exponent (1 + mantissa / 2^23), or zero.
struct Number {
  bool is_zero;
  int exponent;
  std::uint32_t mantissa;
};
Number number_of(std::uint32_t magnitude, Subnormals subnormals) {
  if (magnitude > mantissa_mask) {
    return {false, static_cast<int>(magnitude >> mantissa_bits) - 127, magnitude & mantissa_mask};
  }
  if (magnitude == 0 || subnormals == Subnormals::flushed) return {true, 0, 0};
  const int shift = std::countl_zero(magnitude) - (31 - mantissa_bits);
  return {false, -126 - shift, magnitude << shift & mantissa_mask};
}

/// 2^exponent (1 + mantissa / 2^23). A subnormal result is that of a product with a power of two: rounded to even.
std::uint32_t word_of(int exponent, std::uint32_t mantissa, Subnormals subnormals) {
  if (exponent > 127) return infinity_word;
  if (exponent >= -126) return (static_cast<std::uint32_t>(exponent + 127) << mantissa_bits) + mantissa;
  if (subnormals == Subnormals::flushed) return 0;
  const float scaled = std::bit_cast<float>((std::uint32_t{127} << mantissa_bits) + mantissa) * 0x1p-126F;
  return std::bit_cast<std::uint32_t>(
      scaled * std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 126 + 127) << mantissa_bits));
}

/// 1 / x of what is not zero.
Number inverse(const Number& x) {
  if (x.mantissa == 0) return {false, -x.exponent, 0};
  return {false, -x.exponent - 1, interpolated_mantissa(hopper::rcp, x.mantissa)};
}
Number inverse_root(const Number& x) {
  const bool is_odd = (x.exponent & 1) != 0;
  const int half = x.exponent >> 1;
  if (!is_odd && x.mantissa == 0) return {false, -half, 0};
  const hopper::Table& table = is_odd ? hopper::rsqrt_of_odd : hopper::rsqrt_of_even;
  return {false, -half - 1, interpolated_mantissa(table, x.mantissa)};
}

std::uint32_t reciprocal(std::uint32_t word, Subnormals subnormals) {
  const std::uint32_t sign = word & sign_bit;
  const std::uint32_t magnitude = word & ~sign_bit;
  if (magnitude == infinity_word) return sign;
  const Number x = number_of(magnitude, subnormals);
  if (x.is_zero) return sign | infinity_word;
  const Number y = inverse(x);
  return sign | word_of(y.exponent, y.mantissa, subnormals);
}

std::uint32_t reciprocal_root(std::uint32_t word, Subnormals subnormals) {
  const std::uint32_t magnitude = word & ~sign_bit;
  const Number x = number_of(magnitude, subnormals);
  if (x.is_zero) return (word & sign_bit) | infinity_word;
  if (word != magnitude) return nan_word;
  if (magnitude == infinity_word) return 0;
  const Number y = inverse_root(x);
  return word_of(y.exponent, y.mantissa, subnormals);
}
/// The upper half of a float64's result, for that of x: subnormal numbers are zeros, and the mantissa of a result is
/// float32's, cut to 20 bits.
std::uint32_t upper_half(SpecialFunction function, std::uint32_t high) {
  constexpr int high_bits = 20;
  constexpr std::uint32_t high_infinity = 0x7FF00000U;
  const std::uint32_t sign = high & sign_bit;
  const std::uint32_t magnitude = high & ~sign_bit;
  const bool is_root = function == SpecialFunction::rsqrt;
  if (magnitude > high_infinity) return nan_word;
  if (magnitude < (1U << high_bits)) return sign | high_infinity;
  if (is_root && sign != 0) return nan_word;
  if (magnitude == high_infinity) return sign;
  constexpr int dropped = mantissa_bits - high_bits;
  const Number x{false, static_cast<int>(magnitude >> high_bits) - 1023, magnitude << dropped & mantissa_mask};
  const Number y = is_root ? inverse_root(x) : inverse(x);
  if (y.exponent < -1022) return sign;
  return sign | static_cast<std::uint32_t>(y.exponent + 1023) << high_bits | y.mantissa >> dropped;
}

std::uint32_t root(std::uint32_t word, Subnormals subnormals) {
  const std::uint32_t magnitude = word & ~sign_bit;
  const Number x = number_of(magnitude, subnormals);
  if (x.is_zero) return word & sign_bit;
  if (word != magnitude) return nan_word;
  if (magnitude == infinity_word) return infinity_word;
  const hopper::Table& table = (x.exponent & 1) != 0 ? hopper::sqrt_of_odd : hopper::sqrt_of_even;
  return word_of(x.exponent >> 1, interpolated_mantissa(table, x.mantissa), subnormals);
}

/// A positive fixed-point number with `bits` bits of fraction, cut to 24 significant bits.
std::uint32_t cut_word(std::int64_t fixed, int bits) {
  const int leading = 63 - std::countl_zero(static_cast<std::uint64_t>(fixed));
  const auto cut = static_cast<std::uint32_t>(leading >= mantissa_bits ? fixed >> (leading - mantissa_bits)
                                                                       : fixed << (mantissa_bits - leading));
  return word_of(leading - bits, cut & mantissa_mask, Subnormals::flushed);
}

/// The logarithm is a fixed-point number with 36 bits of fraction, negative ones the complement of one, and is cut to
/// 24 significant bits. Only that of 1 is exact.
std::uint32_t flushed_logarithm(std::uint32_t word) {
  constexpr int bits = 36;
  const std::uint32_t magnitude = word & ~sign_bit;
  const Number x = number_of(magnitude, Subnormals::flushed);
  if (x.is_zero) return sign_bit | infinity_word;
  if (word != magnitude) return nan_word;
  if (magnitude == infinity_word) return infinity_word;
  if (x.exponent == 0 && x.mantissa == 0) return 0;
  const std::int64_t fraction = interpolated(hopper::lg2, x.mantissa) >> (mantissa_bits + fraction_bits - bits);
  std::int64_t fixed = (static_cast<std::int64_t>(x.exponent) << bits) + fraction;
  std::uint32_t sign = 0;
  if (fixed < 0) {
    sign = sign_bit;
    fixed = ~fixed;
  }
  return sign | cut_word(fixed, bits);
}
/// Without .ftz a subnormal number is multiplied by 2^24 first.
std::uint32_t logarithm(std::uint32_t word, Subnormals subnormals) {
  const std::uint32_t magnitude = word & ~sign_bit;
  const bool is_subnormal = magnitude != 0 && magnitude <= mantissa_mask;
  if (!is_subnormal || subnormals == Subnormals::flushed) return flushed_logarithm(word);
  if (word != magnitude) return nan_word;
  const auto scaled = std::bit_cast<std::uint32_t>(std::bit_cast<float>(word) * 0x1p24F);
  return std::bit_cast<std::uint32_t>(std::bit_cast<float>(flushed_logarithm(scaled)) - 24.0F);
}

/// x is cut to a fixed-point number with 23 bits of fraction, a negative one with a fraction is the complement of one.
std::uint32_t flushed_power(std::uint32_t word) {
  const std::uint32_t magnitude = word & ~sign_bit;
  const bool is_negative = word != magnitude;
  if (magnitude >= std::bit_cast<std::uint32_t>(256.0F)) return is_negative ? 0 : infinity_word;
  const auto cut = static_cast<std::int64_t>(static_cast<double>(std::bit_cast<float>(magnitude)) * 0x1p23);
  const bool has_fraction = (cut & mantissa_mask) != 0;
  std::int64_t fixed = cut;
  if (is_negative) fixed = has_fraction ? ~cut : -cut;
  const auto fraction = static_cast<std::uint32_t>(fixed) & mantissa_mask;
  return word_of(static_cast<int>(fixed >> mantissa_bits), interpolated_mantissa(hopper::ex2, fraction),
                 Subnormals::flushed);
}
/// Without .ftz the power is the square of that of the half, where it may be subnormal.
std::uint32_t power(std::uint32_t word, Subnormals subnormals) {
  const auto x = std::bit_cast<float>(word);
  if (subnormals == Subnormals::flushed || x >= -126.0F) return flushed_power(word);
  const auto of_half = std::bit_cast<float>(flushed_power(std::bit_cast<std::uint32_t>(x * 0.5F)));
  return std::bit_cast<std::uint32_t>(of_half * of_half);
}

/// A magnitude times 1 / (2 pi), toward zero, in units of 2^-25 of a turn, without whole turns.
std::uint32_t part_of_turn(std::uint32_t magnitude) {
  constexpr std::uint32_t turns_of_radians = 0x3E22F983;
  constexpr int turn_bits = 25;
  const double product = static_cast<double>(std::bit_cast<float>(magnitude)) *
                         static_cast<double>(std::bit_cast<float>(turns_of_radians));  // exact
  auto turns = std::bit_cast<std::uint32_t>(static_cast<float>(product));
  if (static_cast<double>(std::bit_cast<float>(turns)) > product) --turns;
  const int shift = static_cast<int>(turns >> mantissa_bits) - 127 - mantissa_bits + turn_bits;
  const std::uint64_t significand =
      (turns & mantissa_mask) | (mantissa_mask + 1);  // of what is subnormal, no bit is left
  std::uint64_t parts = 0;
  if (shift >= 0 && shift < turn_bits) parts = significand << shift;
  if (shift < 0 && shift > -64) parts = significand >> -shift;
  return static_cast<std::uint32_t>(parts & ((1U << turn_bits) - 1));
}
/// The sine, which is negative in the second half of a turn; `quarters` before x for the cosine. In every other quarter
/// the rest of a quarter is the complement of ones of what is past.
std::uint32_t sine(std::uint32_t word, std::uint32_t quarters) {
  const std::uint32_t magnitude = word & ~sign_bit;
  if (magnitude == infinity_word) return nan_word;
  const std::uint32_t parts = part_of_turn(magnitude);
  const std::uint32_t quarter = (parts >> mantissa_bits) + quarters;
  const std::uint32_t past = (quarter & 1U) == 0 ? parts : ~parts;
  const std::uint32_t sign = (quarter << 30 & sign_bit) ^ (quarters == 0 ? word & sign_bit : 0);
  const std::int64_t fixed = interpolated(hopper::sin, past & mantissa_mask);
  return sign | (fixed == 0 ? 0 : cut_word(fixed, fraction_bits + mantissa_bits + 1));
}

/// The result is cut to 24 significant bits, of units in the last place of the binade of x, which is 1/2 at most.
std::uint32_t tangent(std::uint32_t word) {
  const std::uint32_t magnitude = word & ~sign_bit;
  const int binade = static_cast<int>(magnitude >> mantissa_bits) - 127 - hopper::first_tanh_exponent;
  if (binade < 0) return word;  // subnormal numbers, too
  if (std::cmp_greater_equal(binade, hopper::tanh_binades.size())) return (word & sign_bit) | 0x3F800000U;
  const auto [first_segment, segment_bits] = hopper::tanh_binades.at(static_cast<std::size_t>(binade));
  constexpr int rest_bits = 17;
  const hopper::Table table{std::span(hopper::tanh_segments).subspan(static_cast<std::size_t>(first_segment)),
                            rest_bits, 0, 0};
  const std::uint32_t cut = (magnitude & mantissa_mask) >> (mantissa_bits - rest_bits - segment_bits);
  const int exponent = std::min(binade + hopper::first_tanh_exponent, -1);
  return (word & sign_bit) | cut_word(interpolated(table, cut), fraction_bits + mantissa_bits - exponent);
}

/// Where no chip's unit is known.
float rounded_special_value(SpecialFunction function, float x) {
  switch (function) {
    case SpecialFunction::rcp: return 1 / x;
    case SpecialFunction::rsqrt: return rounded_rsqrt(x);
    case SpecialFunction::sqrt: return std::sqrt(x);
    case SpecialFunction::lg2: return rounded_log2(x);
    case SpecialFunction::ex2: return rounded_exp2(x);
    case SpecialFunction::sin: return rounded_sin(x);
    case SpecialFunction::cos: return rounded_cos(x);
    case SpecialFunction::tanh: return rounded_tanh(x);
  }
  return x;
}
std::uint32_t rounded_special_word(SpecialFunction function, Subnormals subnormals, std::uint32_t word) {
  const auto zero_if_flushed = [&](std::uint32_t number) {
    const bool is_tiny = (number & ~sign_bit) <= mantissa_mask;
    return is_tiny && subnormals == Subnormals::flushed ? number & sign_bit : number;
  };
  const float value = rounded_special_value(function, std::bit_cast<float>(zero_if_flushed(word)));
  return value != value ? nan_word : zero_if_flushed(std::bit_cast<std::uint32_t>(value));
}

std::uint32_t hopper_word(SpecialFunction function, Subnormals subnormals, std::uint32_t word) {
  switch (function) {
    case SpecialFunction::rcp: return reciprocal(word, subnormals);
    case SpecialFunction::rsqrt: return reciprocal_root(word, subnormals);
    case SpecialFunction::sqrt: return root(word, subnormals);
    case SpecialFunction::lg2: return logarithm(word, subnormals);
    case SpecialFunction::ex2: return power(word, subnormals);
    case SpecialFunction::sin: return sine(word, 0);  // a subnormal number is no part of a turn, flushed or not
    case SpecialFunction::cos: return sine(word, 1);
    case SpecialFunction::tanh: return tangent(word);
  }
  return nan_word;
}

/// The result of 16 bits: by Hopper's unit float32's, rounded toward zero, otherwise the nearest of the type.
std::uint32_t special_element(SpecialUnits units, const SpecialInstruction& instruction, std::uint32_t element) {
  const auto bits = static_cast<std::uint16_t>(element);
  const bool is_half = instruction.type == SpecialType::f16;
  const float x = is_half ? widened(Half{bits}) : widened(BFloat16{bits});
  const auto y = std::bit_cast<float>(
      special_word(units, instruction.function, instruction.subnormals, std::bit_cast<std::uint32_t>(x)));
  if (y != y) return 0x7FFFU;
  CastPolicy policy = cuda_nosat_policy;
  const bool is_infinite_half = is_half && y >= 65536.0F;
  if (units == SpecialUnits::hopper && !is_infinite_half) policy.rounding = Rounding::toward_zero;
  return static_cast<std::uint32_t>(encode(is_half ? binary16 : bfloat16, policy, y));
}

/// The upper half of a float64's result by correct rounding.
std::uint32_t rounded_upper_half(SpecialFunction function, std::uint32_t high) {
  const bool is_tiny = (high & 0x7FF00000U) == 0;
  const auto x = std::bit_cast<double>(std::uint64_t{is_tiny ? high & sign_bit : high} << 32);
  const double value = function == SpecialFunction::rcp ? 1 / x : 1 / std::sqrt(x);
  if (value != value) return nan_word;
  const auto result = static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(value) >> 32);
  return (result & 0x7FF00000U) == 0 ? result & sign_bit : result;
}

bool has_instruction(SpecialFunction function, SpecialType type, Subnormals subnormals) {
  const bool is_kept = subnormals == Subnormals::kept;
  switch (type) {
    case SpecialType::f32: return is_kept || function != SpecialFunction::tanh;
    case SpecialType::f16: return is_kept && (function == SpecialFunction::ex2 || function == SpecialFunction::tanh);
    case SpecialType::bf16:
      return (!is_kept && function == SpecialFunction::ex2) || (is_kept && function == SpecialFunction::tanh);
    case SpecialType::f64: return !is_kept && (function == SpecialFunction::rcp || function == SpecialFunction::rsqrt);
  }
  return false;
}
std::vector<SpecialInstruction> all_special_instructions() {
  std::vector<SpecialInstruction> all;
  for (const auto& function : special_functions) {
    for (const auto& type : special_types) {
      for (const Subnormals subnormals : {Subnormals::kept, Subnormals::flushed}) {
        if (has_instruction(function.value, type.value, subnormals))
          all.push_back({function.value, type.value, subnormals});
      }
    }
  }
  return all;
}

std::uint32_t instruction_word(SpecialUnits units, const SpecialInstruction& instruction, std::uint32_t x) {
  switch (instruction.type) {
    case SpecialType::f32: return special_word(units, instruction.function, instruction.subnormals, x);
    case SpecialType::f16:
    case SpecialType::bf16: return special_element(units, instruction, x);
    case SpecialType::f64:
      return units == SpecialUnits::hopper ? upper_half(instruction.function, x)
                                           : rounded_upper_half(instruction.function, x);
  }
  return nan_word;
}

}  // namespace

std::string SpecialInstruction::name() const {
  static constexpr std::array suffixes{".f32", ".f16", ".bf16", ".f64"};
  return std::string(name_of(function)) + ".approx" + (subnormals == Subnormals::flushed ? ".ftz" : "") +
         suffixes.at(static_cast<std::size_t>(type));
}
const std::vector<SpecialInstruction>& special_instructions() {
  static const std::vector<SpecialInstruction> all = all_special_instructions();
  return all;
}
SpecialInstruction special_instruction(SpecialFunction function, SpecialType type,
                                       std::optional<Subnormals> subnormals) {
  for (const Subnormals one : {Subnormals::kept, Subnormals::flushed}) {
    if (subnormals.value_or(one) == one && has_instruction(function, type, one)) return {function, type, one};
  }
  std::string known;
  for (const SpecialInstruction& one : special_instructions()) {
    if (one.type == type) known += (known.empty() ? "" : ", ") + one.name();
  }
  refuse("PTX has no ", SpecialInstruction{function, type, subnormals.value_or(Subnormals::kept)}.name(), "; it has ",
         known);
}

std::uint32_t special_word(SpecialUnits units, SpecialFunction function, Subnormals subnormals, std::uint32_t word) {
  if ((word & ~sign_bit) > infinity_word) return nan_word;
  switch (units) {
    case SpecialUnits::hopper: return hopper_word(function, subnormals, word);
    case SpecialUnits::correctly_rounded: return rounded_special_word(function, subnormals, word);
  }
  return nan_word;
}

float special_function(SpecialFunction function, Subnormals subnormals, float x, SpecialUnits units) {
  (void)special_instruction(function, SpecialType::f32, subnormals);
  return by_default_arithmetic(
      [&] { return std::bit_cast<float>(special_word(units, function, subnormals, std::bit_cast<std::uint32_t>(x))); });
}

void apply_special_function(SpecialUnits units, SpecialFunction function, Subnormals subnormals,
                            std::span<const float> x, std::span<float> out, int threads) {
  (void)special_instruction(function, SpecialType::f32, subnormals);
  if (out.size() != x.size()) refuse("out must have ", x.size(), " elements, not ", out.size());
  check_apart_or_same("x", x, "out", out);
  parallel_for(x.size(), threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      checkpoint(i);
      out[i] = std::bit_cast<float>(special_word(units, function, subnormals, std::bit_cast<std::uint32_t>(x[i])));
    }
  });
}

void apply_special_instruction(SpecialUnits units, const SpecialInstruction& instruction,
                               std::span<const std::uint32_t> x, std::span<std::uint32_t> out, int threads) {
  (void)special_instruction(instruction.function, instruction.type, instruction.subnormals);
  if (out.size() != x.size()) refuse("out must have ", x.size(), " elements, not ", out.size());
  check_apart_or_same("x", x, "out", out);
  const bool is_small = instruction.type == SpecialType::f16 || instruction.type == SpecialType::bf16;
  if (is_small && std::ranges::any_of(x, [](std::uint32_t word) { return word > 0xFFFFU; })) {
    refuse("x must have words of 16 bits for ", instruction.name());
  }
  const DefaultEnvironment environment;
  parallel_for(x.size(), threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      checkpoint(i);
      out[i] = instruction_word(units, instruction, x[i]);
    }
  });
}

}  // namespace fp8lab
