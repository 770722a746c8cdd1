// SPDX-License-Identifier: Apache-2.0
// A second opinion on rounding that shares nothing with round_pack: a table of all values, searched.
//
// Every value of the formats here, every midpoint between neighbours and every input is a dyadic rational that double
// holds exactly, and comparing doubles is exact: this is a search over exact rationals.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "fp8lab/formats/encode.hpp"

namespace fp8lab::tests {

class TableOracle {
 public:
  explicit TableOracle(const Format& format) : format_(format) {
    const int codes = 1 << (format.exponent_bits + format.mantissa_bits);
    for (int code = 0; code < codes; ++code) {
      if (is_number(code)) magnitudes_.push_back(value(code));
    }
    // One value more, where the next would be if the exponent had no end: what rounds to it overflows.
    const double last = magnitudes_.back();
    const int binade = std::ilogb(last);
    beyond_ = last + std::ldexp(1.0, binade - format.mantissa_bits);
  }

  /// Magnitudes of all finite codes, ascending: index is code.
  [[nodiscard]] const std::vector<double>& magnitudes() const { return magnitudes_; }
  [[nodiscard]] double beyond() const { return beyond_; }

  /// The code of an x that is no NaN; `random` is the random bits of a stochastic rounding as a fraction of one.
  [[nodiscard]] std::uint32_t encode(const CastPolicy& policy, double x, double random = 0) const {
    const bool negative = std::signbit(x) && format_.is_signed;
    if (!format_.has_subnormals && x == 0) return policy.zero == ZeroCode::nan ? all_ones() : second(policy);
    if (std::signbit(x) && !negative && x != 0) {
      if (policy.negative == NegativeInput::nan) return all_ones();
      if (policy.negative == NegativeInput::smallest && !std::isinf(x)) return 0;
    }
    const std::uint32_t code =
        encode_signed(policy, x, negative, negative ? std::uint32_t{1} << (format_.bits() - 1) : 0U, random);
    const bool is_zero = format_.has_subnormals && (code & (all_ones() >> (format_.is_signed ? 1 : 0))) == 0;
    if (is_zero && code >> format_.bits() == 0 && policy.zero_sign == ZeroSign::dropped) return 0;
    // The code of -0 is NaN's there, and an overflow may mean it; a zero has no sign.
    if (format_.specials != Specials::nan_at_negative_zero) return code;
    const bool overflowed = code >> format_.bits() != 0;
    const std::uint32_t nan_code = std::uint32_t{1} << (format_.bits() - 1);
    if (overflowed) return nan_code;
    return (code & (nan_code - 1)) == 0 ? 0 : code;
  }

 private:
  [[nodiscard]] std::uint32_t encode_signed(const CastPolicy& policy, double x, bool negative, std::uint32_t sign,
                                            double random) const {
    const double magnitude = std::abs(x);
    const auto top = static_cast<std::uint32_t>(magnitudes_.size() - 1);
    const bool no_zero = !format_.has_subnormals && policy.smallest == SmallestCode::value;
    if (magnitude <= (no_zero ? magnitudes_.front() : 0)) return sign;
    if (std::isinf(magnitude)) return overflow({.overflow = policy.infinity}, negative, sign);
    if (magnitude >= beyond_) return overflow(policy, negative, sign);
    const auto upper = std::upper_bound(magnitudes_.begin(), magnitudes_.end(), magnitude);
    const auto above = static_cast<std::uint32_t>(upper - magnitudes_.begin());
    const std::uint32_t lower_code = above == 0 ? 0 : above - 1;  // below the smallest value, whose code counts as zero
    const double lower = lower_code == 0 && !no_zero ? 0 : magnitudes_[lower_code];
    if (magnitude == lower) return sign | lower_code;
    const double next = lower_code == top ? beyond_ : magnitudes_[lower_code + 1];
    const double middle = lower + (next - lower) / 2;
    bool up = false;
    switch (policy.rounding) {
      case Rounding::nearest_even:
        // IEEE 754-2019, section 4.3.1: to the even significand, or to the larger magnitude where neither is even.
        up = magnitude > middle ||
             (magnitude == middle && (lower_code % 2 == 1 || (format_.mantissa_bits == 0 && lower != 0)));
        break;
      case Rounding::nearest_away: up = magnitude >= middle; break;
      case Rounding::nearest_toward_zero: up = magnitude > middle; break;
      case Rounding::toward_zero: break;
      case Rounding::upward: up = !negative; break;
      case Rounding::downward: up = negative; break;
      // A significand of one bit is odd by itself.
      case Rounding::to_odd: up = lower_code % 2 == 0 && (format_.mantissa_bits > 0 || lower == 0); break;
      case Rounding::stochastic: up = (magnitude - lower) + random * (next - lower) >= next - lower; break;
    }
    if (!up) return sign | lower_code;
    return lower_code == top ? overflow(policy, negative, sign) : sign | (lower_code + 1);
  }
  [[nodiscard]] std::uint32_t all_ones() const { return (std::uint32_t{1} << format_.bits()) - 1; }
  [[nodiscard]] static std::uint32_t second(const CastPolicy& policy) {
    return policy.zero == ZeroCode::second ? 1 : 0;
  }
  [[nodiscard]] bool is_number(int code) const {
    const int fraction = code % (1 << format_.mantissa_bits);
    const int field = code >> format_.mantissa_bits;
    const int top = (1 << format_.exponent_bits) - 1;
    switch (format_.specials) {
      case Specials::ieee: return field != top;
      case Specials::nan_at_all_ones: return !(field == top && fraction == (1 << format_.mantissa_bits) - 1);
      case Specials::nan_at_negative_zero:
      case Specials::none: break;
    }
    return true;
  }
  [[nodiscard]] double value(int code) const {
    const double fraction = std::ldexp(code % (1 << format_.mantissa_bits), -format_.mantissa_bits);
    const int field = code >> format_.mantissa_bits;
    if (field == 0 && format_.has_subnormals) return std::ldexp(fraction, 1 - format_.bias);
    return std::ldexp(1 + fraction, field - format_.bias);
  }
  /// IEEE 754-2019 section 7.4: rounding modes that point back to the finite numbers stop at the largest.
  [[nodiscard]] std::uint32_t overflow(const CastPolicy& policy, bool negative, std::uint32_t sign) const {
    const bool back = policy.rounding == Rounding::toward_zero || (policy.rounding == Rounding::upward && negative) ||
                      (policy.rounding == Rounding::downward && !negative) || policy.rounding == Rounding::to_odd;
    const auto largest = static_cast<std::uint32_t>(magnitudes_.size() - 1);
    const bool e4m3_like = format_.specials == Specials::nan_at_all_ones && format_.is_signed;  // has NaNs of two signs
    const bool finite = policy.overflow == Overflow::saturate || format_.specials == Specials::none ||
                        (policy.overflow == Overflow::to_infinity && format_.specials != Specials::ieee) ||
                        (policy.overflow == Overflow::to_infinity_or_sole_nan && e4m3_like);
    if (back || finite) return sign | largest;
    // One code further is infinity or NaN; fnuz formats have theirs elsewhere, marked by a bit above the code.
    return format_.specials == Specials::nan_at_negative_zero ? std::uint32_t{1} << format_.bits()
                                                              : sign | (largest + 1);
  }

  Format format_;
  std::vector<double> magnitudes_;
  double beyond_;
};

/// The policies of all profiles without those that equal an earlier one, once `clear` has reset what a test leaves
/// open, and what a format has no use for is reset: what becomes of zero in a format that has it, for instance.
template <typename Clear>
std::vector<CastPolicy> distinct_policies(const Format& format, const Clear& clear) {
  std::vector<CastPolicy> policies;
  std::vector<CastPolicy> seen;
  for (const Profile& profile : profiles) {
    CastPolicy key = profile.policy;
    clear(key);
    if (format.has_subnormals) {
      key.zero = {};
      key.smallest = {};
    }
    if (format.is_signed) key.negative = {};
    if (format.has_nan()) key.missing_nan = {};
    if (std::ranges::count(seen, key) != 0) continue;
    seen.push_back(key);
    policies.push_back(profile.policy);
  }
  return policies;
}

/// Every value, every midpoint, their neighbours in T, zeros, the ends of T's range; both signs. For double also the
/// ties between float32 neighbours next to each of them, and what lies within an ulp of these: where going by way of
/// float32 makes a difference.
template <typename T>
std::vector<T> boundary_inputs(const TableOracle& oracle) {
  std::vector<double> points = oracle.magnitudes();
  points.push_back(oracle.beyond());
  const std::size_t values = points.size();
  for (std::size_t i = 0; i + 1 < values; ++i) points.push_back(points[i] + (points[i + 1] - points[i]) / 2);
  points.push_back(0);
  points.push_back(points[0] / 2);
  std::vector<T> inputs;
  const T infinity = std::numeric_limits<T>::infinity();
  const auto add = [&](T x) {
    if (!std::isfinite(x)) return;
    inputs.push_back(x);
    inputs.push_back(-x);
  };
  for (const double point : points) {
    const T x = static_cast<T>(point);
    for (const T toward : {infinity, -infinity}) {
      const T once = std::nextafter(x, toward);
      add(once);
      add(std::nextafter(once, toward));
    }
    add(x);
    if constexpr (std::is_same_v<T, double>) {
      const auto narrow = static_cast<float>(point);
      for (const float toward : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
        const double tie = point + (static_cast<double>(std::nextafter(narrow, toward)) - point) / 2;
        for (const double at : {std::nextafter(tie, infinity), tie, std::nextafter(tie, -infinity)}) add(at);
      }
    }
  }
  add(std::numeric_limits<T>::max());
  add(std::numeric_limits<T>::min());
  add(std::numeric_limits<T>::denorm_min());
  return inputs;
}

}  // namespace fp8lab::tests
