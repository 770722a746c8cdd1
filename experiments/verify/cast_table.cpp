// SPDX-License-Identifier: Apache-2.0
#include "verify/cast_table.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace fp8lab::experiments {
namespace {

/// The bit pattern of the first float that is at least `bound`, or above it, for a bound of 0 to beyond every float.
std::uint32_t first_pattern(double bound, bool above) {
  if (bound > static_cast<double>(std::numeric_limits<float>::max())) return 0x7F800000;
  const auto x = static_cast<float>(bound);  // the nearest one, or its neighbour
  auto pattern = std::bit_cast<std::uint32_t>(x);
  while (pattern > 0 && static_cast<double>(std::bit_cast<float>(pattern - 1)) >= bound) --pattern;
  while (static_cast<double>(std::bit_cast<float>(pattern)) < bound) ++pattern;
  if (above && static_cast<double>(std::bit_cast<float>(pattern)) == bound) ++pattern;
  return pattern;
}

/// The magnitude of a code; one past the largest finite code, that of the value that would come next.
double magnitude_of(const Format& format, std::uint64_t code) {
  const auto fraction = static_cast<double>(code & ((std::uint64_t{1} << format.mantissa_bits) - 1));
  const auto field = static_cast<int>(code >> format.mantissa_bits);
  if (field == 0 && format.has_subnormals) return std::ldexp(fraction, 1 - format.bias - format.mantissa_bits);
  return std::ldexp(fraction + std::ldexp(1.0, format.mantissa_bits), field - format.bias - format.mantissa_bits);
}

/// The bit pattern of the first float whose code is code + 1 or more.
std::uint32_t beginning_of_next(const Format& format, const CastPolicy& policy, std::uint64_t code, bool negative) {
  const bool like_zero = code == 0 && !format.has_subnormals && policy.smallest == SmallestCode::zero;
  const double value = like_zero ? 0 : magnitude_of(format, code);
  const double next = magnitude_of(format, code + 1);
  const double middle = value + (next - value) / 2;
  // One of two neighbours is even. Significands of one bit are all odd, and ties go up (IEEE 754-2019, 4.3.1).
  const bool is_odd = format.mantissa_bits == 0 ? value != 0 : code % 2 != 0;
  switch (policy.rounding) {
    case Rounding::nearest_even: return first_pattern(middle, !is_odd);
    case Rounding::nearest_away: return first_pattern(middle, false);
    case Rounding::nearest_toward_zero: return first_pattern(middle, true);
    case Rounding::toward_zero: return first_pattern(next, false);
    case Rounding::upward: return negative ? first_pattern(next, false) : first_pattern(value, true);
    case Rounding::downward: return negative ? first_pattern(value, true) : first_pattern(next, false);
    case Rounding::to_odd: return is_odd ? first_pattern(next, false) : first_pattern(value, true);
    case Rounding::stochastic: break;
  }
  return 0;
}

/// Whether finite values beyond the largest one become it under every policy, as the rounding goes toward zero there.
bool stops(Rounding rounding, bool negative) {
  return rounding == Rounding::toward_zero || rounding == Rounding::to_odd ||
         (rounding == Rounding::upward && negative) || (rounding == Rounding::downward && !negative);
}

/// The code of values that are too large.
std::uint32_t beyond(const Format& format, Overflow overflow, std::uint32_t sign) {
  const auto largest = static_cast<std::uint32_t>(format.max_code());
  const bool infinite = format.specials == Specials::ieee;
  const bool sole_nan = format.specials == Specials::nan_at_negative_zero ||
                        (format.specials == Specials::nan_at_all_ones && !format.is_signed);
  if (overflow == Overflow::saturate || format.specials == Specials::none ||
      (overflow == Overflow::to_infinity && !infinite) ||
      (overflow == Overflow::to_infinity_or_sole_nan && !infinite && !sole_nan)) {
    return sign | largest;
  }
  if (format.specials == Specials::nan_at_negative_zero) return static_cast<std::uint32_t>(format.sign_mask());
  return sign | (largest + 1);  // infinity, or the NaN of all ones, is next to the largest code
}

}  // namespace

CastTable::CastTable(const Format& format, const CastPolicy& policy) {
  add_half(format, policy, false);
  add_half(format, policy, true);
}

void CastTable::add_half(const Format& format, const CastPolicy& policy, bool negative) {
  const std::uint32_t half = negative ? 0x80000000U : 0U;
  const auto sign = negative ? static_cast<std::uint32_t>(format.sign_mask()) : 0U;
  const auto all_ones = static_cast<std::uint32_t>(format.magnitude_mask());
  const bool drops_sign = format.has_subnormals && policy.zero_sign == ZeroSign::dropped;
  const bool signed_zero = format.specials != Specials::nan_at_negative_zero && !drops_sign;
  const auto add = [&](std::uint32_t pattern, std::uint32_t code) {
    // A code whose run is empty makes room for the next.
    while (!runs_.empty() && runs_.back().first >= (half | pattern)) runs_.pop_back();
    runs_.push_back({half | pattern, code});
  };
  // 1. Zero, and in a format without a sign all negative numbers.
  std::uint32_t zero = signed_zero ? sign : 0;
  if (!format.has_subnormals && policy.zero != ZeroCode::smallest) zero = policy.zero == ZeroCode::nan ? all_ones : 1;
  if (negative && !format.is_signed && policy.negative != NegativeInput::magnitude) {
    runs_.push_back({half, zero});
    add(1, policy.negative == NegativeInput::nan ? all_ones : 0);
    return add_specials(format, policy, negative);
  }
  // 2. The finite values, each from where it begins, and overflow. A format without a sign rounds magnitudes.
  const bool rounds_negative = negative && format.is_signed;
  runs_.push_back({half, zero});
  add(1, signed_zero ? sign : 0);
  for (std::uint64_t code = 0; code < format.max_code(); ++code) {
    const std::uint32_t pattern = beginning_of_next(format, policy, code, rounds_negative);
    if (pattern < 0x7F800000) add(pattern, sign | static_cast<std::uint32_t>(code + 1));
  }
  const std::uint32_t overflow = beginning_of_next(format, policy, format.max_code(), rounds_negative);
  if (overflow < 0x7F800000 && !stops(policy.rounding, rounds_negative)) {
    add(overflow, beyond(format, policy.overflow, sign));
  }
  add_specials(format, policy, negative);
}

void CastTable::add_specials(const Format& format, const CastPolicy& policy, bool negative) {
  const std::uint32_t half = negative ? 0x80000000U : 0U;
  const auto sign = negative ? static_cast<std::uint32_t>(format.sign_mask()) : 0U;
  const auto all_ones = static_cast<std::uint32_t>(format.magnitude_mask());
  const bool refused = negative && !format.is_signed && policy.negative == NegativeInput::nan;
  runs_.push_back({half | 0x7F800000, refused ? all_ones : beyond(format, policy.infinity, sign)});
  const std::uint32_t first_nan = half | 0x7F800001;
  const auto largest = static_cast<std::uint32_t>(format.max_code());
  if (format.specials == Specials::none && policy.missing_nan != MissingNan::largest) {
    const bool opposite = policy.missing_nan == MissingNan::opposite_zero && !negative;
    const bool minus = opposite || policy.missing_nan == MissingNan::negative_zero;
    const bool kept = policy.zero_sign == ZeroSign::kept;
    return runs_.push_back({first_nan, minus && kept ? static_cast<std::uint32_t>(format.sign_mask()) : 0});
  }
  if (policy.nan == NanCode::negative_largest) {
    return runs_.push_back({first_nan, static_cast<std::uint32_t>(format.sign_mask()) | largest});
  }
  if (policy.nan == NanCode::largest || format.specials == Specials::none) return runs_.push_back({first_nan, largest});
  if (format.specials == Specials::nan_at_negative_zero) {
    return runs_.push_back({first_nan, static_cast<std::uint32_t>(format.sign_mask())});
  }
  if (policy.nan == NanCode::positive_all_ones) return runs_.push_back({first_nan, all_ones});
  if (format.specials != Specials::ieee || policy.nan == NanCode::sign_all_ones) {
    return runs_.push_back({first_nan, sign | all_ones});
  }
  // IEEE 754's NaNs: quiet, with the topmost payload bits where they are kept.
  const std::uint32_t fractions = 1U << format.mantissa_bits;
  const std::uint32_t quiet = sign | (all_ones - fractions + 1) | fractions / 2;
  if (policy.nan == NanCode::sign_quiet) return runs_.push_back({first_nan, quiet});
  for (std::uint32_t payload = 0; payload < fractions; ++payload) {
    const std::uint32_t pattern = half | 0x7F800000 | payload << (23 - format.mantissa_bits);
    runs_.push_back({payload == 0 ? first_nan : pattern, quiet | payload});
  }
}

template <typename Code>
void CastTable::fill(std::uint32_t first, std::span<Code> out) const {
  auto run = std::upper_bound(runs_.begin(), runs_.end(), first,
                              [](std::uint32_t pattern, const Run& r) { return pattern < r.first; });
  std::size_t done = 0;
  while (done < out.size()) {
    const std::size_t end = run == runs_.end() ? out.size() : std::min<std::size_t>(run->first - first, out.size());
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(done), out.begin() + static_cast<std::ptrdiff_t>(end),
              static_cast<Code>((run - 1)->code));
    done = end;
    if (run != runs_.end()) ++run;
  }
}

template void CastTable::fill(std::uint32_t first, std::span<std::uint8_t> out) const;
template void CastTable::fill(std::uint32_t first, std::span<std::uint16_t> out) const;

}  // namespace fp8lab::experiments
