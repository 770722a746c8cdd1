// SPDX-License-Identifier: Apache-2.0
// CUDA's functions of one number, as templates of whether subnormal numbers are flushed. The caller has the default
// arithmetic.
//
// Formulas and constants: CUDA 13.0's libdevice.10.bc. A polynomial is evaluated by Horner's rule, each step fused;
// what else is fused is what nvcc 13.0 makes of it for sm_80, sm_90 and sm_100.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "units/special_word.hpp"

namespace fp8lab {

// NOLINTBEGIN(modernize-use-std-numbers): each constant is the library's word, the nearest float32 or not
template <Subnormals kSubnormals>
class DeviceSteps {
 public:
  explicit DeviceSteps(SpecialUnits units) : units_(units) {}

  // 1. Exponentials: 2^n 2^f, where n comes from a sum that rounds down, and f is not reduced below -0 or above 1.
  [[nodiscard]] float expf(float x) const { return power_of(x, 0x1.77313ap-8F, 0x1.715476p+0F, 0x1.4ae0c0p-26F); }
  [[nodiscard]] float exp10f(float x) const { return power_of(x, 0x1.aff4c4p-7F, 0x1.a934f0p+1F, 0x1.2f346ep-24F); }
  [[nodiscard]] float fast_expf(float x) const { return exp2f(product(x, log2_of_e)); }
  [[nodiscard]] float fast_exp10f(float x) const { return exp2f(product(x, 0x1.a934f0p+1F)); }
  [[nodiscard]] float exp2f(float x) const { return unit(SpecialFunction::ex2, x); }
  /// 2^n (e^r - 1) + (2^n - 1), with n one lower where 2^n would be infinite.
  [[nodiscard]] float expm1f(float x) const {
    const float turns = std::abs(flushed(x)) < 0.41F ? 0.0F : std::nearbyint(product(x, log2_of_e));
    const float r = fused(-turns, 0x1.7f7d1cp-20F, fused(-turns, 0x1.62e400p-1F, x));
    const bool is_largest = turns == 128;
    const float n = is_largest ? turns - 1 : turns;
    const float slope =
        polynomial(std::array{0x1.6bd7ccp-10F, 0x1.12acc6p-7F, 0x1.5557c6p-5F, 0x1.5553ecp-3F, 0x1.fffffcp-2F}, r);
    const float of_rest = fused(product(r, slope), r, r);
    const float power = exp2f(n);
    float y = fused(of_rest, power, sum(power, -1));
    if (is_largest) y = sum(y, y);
    if (n > 128) y = infinite;
    if (n < -25) y = -1;
    return flushed(x) == 0 ? sum(x, x) : y;
  }

  // 2. Logarithms: of a significand from 2/3 to 4/3 (log2f: 0.7 to 1.4) by a polynomial in m - 1.
  [[nodiscard]] float logf(float x) const {
    const Significand at = significand_of(x, 0x3F2AAAAB);
    const float m = sum(at.m, -1);
    const float slope = polynomial(std::array{-0x1.0aa04ep-3F, 0x1.2073ecp-3F, -0x1.f19b98p-4F, 0x1.1e52aap-3F,
                                              -0x1.55b172p-3F, 0x1.99da16p-3F, -0x1.fffe44p-3F, 0x1.5554f0p-2F, -0.5F},
                                   m);
    const float y = fused(at.exponent, 0x1.62e430p-1F, fused(product(m, slope), m, m));
    return logarithm(at.x, y);
  }
  [[nodiscard]] float log10f(float x) const {
    const float y = product(logf(x), 0x1.bcb7b2p-2F);
    return y;
  }
  [[nodiscard]] float log2f(float x) const {
    const Significand at = significand_of(x, 0x3F3504F3);
    const float m = sum(at.m, -1);
    const float slope =
        polynomial(std::array{0x1.8d64fep-4F, -0x1.58fe60p-3F, 0x1.5f9e54p-3F, -0x1.6e9c86p-3F, 0x1.a417e8p-3F,
                              -0x1.ec7916p-3F, 0x1.277f32p-2F, -0x1.715492p-2F, 0x1.ec7094p-2F, -0x1.715476p-1F},
                   m);
    const float y = sum(at.exponent, fused(m, log2_of_e, product(m, product(m, slope))));
    return logarithm(at.x, y);
  }
  [[nodiscard]] float fast_log2f(float x) const { return unit(SpecialFunction::lg2, x); }
  [[nodiscard]] float fast_logf(float x) const { return product(fast_log2f(x), 0x1.62e430p-1F); }
  [[nodiscard]] float fast_log10f(float x) const { return product(fast_log2f(x), 0x1.344136p-2F); }
  /// x = 2^e m - 1 with m from 3/4 to 3/2: the part of m - 1 that is x's is exact.
  [[nodiscard]] float log1pf(float x) const {
    const auto word = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t exponent =
        (std::bit_cast<std::uint32_t>(truncated_sum_with_one(x)) - 0x3F400000U) & 0xFF800000U;
    const float share = fused(0.25F, std::bit_cast<float>(0x40800000U - exponent), -1);
    const float m = sum(share, std::bit_cast<float>(word - exponent));
    const float slope = polynomial(std::array{-0x1.737ef0p-5F, 0x1.b00024p-4F, -0x1.0ef1c0p-3F, 0x1.28c8eap-3F,
                                              -0x1.54d1bap-3F, 0x1.995f3cp-3F, -0x1.000084p-2F, 0x1.5555ccp-2F, -0.5F},
                                   m);
    const float scale = product(static_cast<float>(static_cast<std::int32_t>(exponent)), 0x1p-23F);
    float y = fused(scale, 0x1.62e430p-1F, fused(product(m, slope), m, m));
    if (word < infinity_word) return y;
    if (static_cast<std::int32_t>(word) > static_cast<std::int32_t>(0xBF800000U)) y = fused(x, infinite, infinite);
    return flushed(x) == 0 ? -0.0F : y;
  }

  // 3. The tangent and the error function: a polynomial in x^2 near 0, beyond it an exponential.
  [[nodiscard]] float tanhf(float x) const {
    const float magnitude = std::abs(flushed(x));
    if (magnitude >= 0.6F) {
      if (magnitude >= 0x1.205968p+3F) return std::copysign(1.0F, x);
      const float power = flushing_unit(SpecialFunction::ex2, product(magnitude, 0x1.715476p+1F));
      return std::copysign(fused(flushing_unit(SpecialFunction::rcp, sum(power, 1)), -2, 1), x);
    }
    const float square = product(x, x);
    const float slope =
        polynomial(std::array{0x1.01e104p-6F, -0x1.ac795cp-5F, 0x1.10b282p-3F, -0x1.5553dap-2F, 0.0F}, square);
    return fused(slope, x, x);
  }
  [[nodiscard]] float fast_tanhf(float x) const {  // an instruction that has no .ftz
    return std::bit_cast<float>(
        special_word(units_, SpecialFunction::tanh, Subnormals::kept, std::bit_cast<std::uint32_t>(x)));
  }
  [[nodiscard]] float erff(float x) const {
    const float magnitude = std::abs(flushed(x));
    if (magnitude >= 0x1.00c1fcp+0F) {
      const float slope = polynomial(std::array{0x1.d69874p-14F, -0x1.5c00b6p-10F, 0x1.13233ep-7F, -0x1.49b334p-5F,
                                                0x1.46aa32p-3F, 0x1.d369f2p-1F, 0x1.421428p-1F},
                                     magnitude);
      const float power = flushing_unit(SpecialFunction::ex2, fused(slope, -magnitude, -magnitude));
      return std::copysign(sum(1, -power), x);
    }
    const float slope = polynomial(std::array{0x1.63d2d4p-14F, -0x1.ae9a40p-11F, 0x1.55abd4p-8F, -0x1.b837cep-6F,
                                              0x1.ce315ep-4F, -0x1.812758p-2F, 0x1.06eba6p-3F},
                                   product(x, x));
    return fused(slope, x, x);
  }
  /// A polynomial in (x - 4) / (x + 4) over 1 + 2 x, times e^(-x^2), of which the square's rounding is undone.
  [[nodiscard]] float erfcf(float x) const {
    const float a = std::abs(flushed(x));
    if (a > 0x1.41c290p+3F) return x < 0 ? 2.0F : 0.0F;
    const float inverse = flushing_unit(SpecialFunction::rcp, sum(a, 4));
    const float quotient = product(sum(a, -4), inverse);
    const float rest = fused(-quotient, a, fused(-4, sum(quotient, 1), a));
    const float t = fused(inverse, rest, quotient);
    const float p = polynomial(
        std::array{0x1.d34122p-11F, 0x1.cdc0b6p-8F, -0x1.03f696p-6F, 0x1.2a6e76p-5F, -0x1.10f8b4p-4F, 0x1.8043aap-4F,
                   -0x1.9da848p-4F, 0x1.16e9bcp-4F, 0x1.f7e2e0p-7F, -0x1.1df1a8p-3F, 0x1.3ba592p+0F},
        t);
    const float share = flushing_unit(SpecialFunction::rcp, fused(2, a, 1));
    const float first = product(p, share);
    const float left = sum(fused(a, product(first, -2), p), -first);
    const float factor = fused(left, share, first);
    const float square = product(a, a);
    const float whole = std::trunc(product(-square, log2_of_e));
    const float n = std::abs(whole) > 126 ? std::copysign(126.0F, whole) : whole;
    const float r = fused(n, 0x1.05c610p-29F, fused(n, -0x1.62e430p-1F, -square));
    const float power = flushing_unit(SpecialFunction::ex2, product(r, log2_of_e));
    const float scaled = product(power, power_of_two_in_the_last_bits(sum(n, 0x1.8000fep+23F)));
    const float exponential = fused(scaled, fused(-a, a, square), scaled);
    const float y = product(factor, exponential);
    return flushed(x) < 0 ? sum(2, -y) : y;
  }
  /// erfc(-x / sqrt(2)) / 2 of a product of two parts, whose second corrects what is below -1.
  [[nodiscard]] float normcdff(float x) const {
    const float limited = std::abs(flushed(x)) > 14.5F ? std::copysign(14.5F, x) : x;
    const float high = product(limited, -0x1.6a09e6p-1F);
    const float low = fused(limited, -0x1.9fcef4p-27F, fused(limited, -0x1.6a09e6p-1F, -high));
    const float argument = sum(high, low);
    float y = erfcf(argument);
    if (limited < -1) {
      const float left = sum(sum(high, -argument), low);
      y = fused(product(product(argument, -2), y), left, y);
    }
    return product(y, 0.5F);
  }

  // 4. Divisions and roots.
  [[nodiscard]] float rsqrtf(float x) const { return unit(SpecialFunction::rsqrt, x); }
  [[nodiscard]] float fast_sqrtf(float x) const { return unit(SpecialFunction::sqrt, x); }
  [[nodiscard]] float rounded_sqrt(float x) const { return flushed(std::sqrt(flushed(x))); }
  [[nodiscard]] float rounded_divide(float x, float y) const { return flushed(flushed(x) / flushed(y)); }
  [[nodiscard]] float rounded_reciprocal(float x) const { return rounded_divide(1, x); }
  /// div.approx: a divisor that is subnormal is made larger; one above 2^126 has the reciprocal 0.
  [[nodiscard]] float fast_divide(float x, float y) const { return quotient(x, y, infinite); }
  /// div.full: a divisor above 2^126 is made smaller.
  [[nodiscard]] float full_divide(float x, float y) const { return quotient(x, y, 0x1p+126F); }
  [[nodiscard]] float full_reciprocal(float x) const { return full_divide(1, x); }
  [[nodiscard]] float fast_reciprocal(float x) const { return unit(SpecialFunction::rcp, x); }

  // 5. Turns: x - n pi/2, by three parts of pi/2, or from the bits of 2/pi where n is large.
  [[nodiscard]] float fast_sinf(float x) const { return unit(SpecialFunction::sin, x); }
  [[nodiscard]] float fast_cosf(float x) const { return unit(SpecialFunction::cos, x); }
  [[nodiscard]] float sinf(float x) const { return turn(x, 0); }
  [[nodiscard]] float cosf(float x) const { return turn(x, 1); }

 private:
  static constexpr std::uint32_t infinity_word = 0x7F800000U;
  static constexpr float infinite = std::numeric_limits<float>::infinity();
  static constexpr float log2_of_e = 0x1.715476p+0F;

  SpecialUnits units_;

  static float flushed(float x) {
    if constexpr (kSubnormals == Subnormals::flushed) {
      return std::abs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x;
    } else {
      return x;
    }
  }
  static float sum(float a, float b) { return flushed(flushed(a) + flushed(b)); }
  static float product(float a, float b) { return flushed(flushed(a) * flushed(b)); }
  static float fused(float a, float b, float c) { return flushed(std::fma(flushed(a), flushed(b), flushed(c))); }
  /// The last coefficient + x (the one before it + x ...).
  template <std::size_t kCount>
  static float polynomial(const std::array<float, kCount>& coefficients, float x) {
    float y = coefficients[0];
    for (std::size_t i = 1; i < kCount; ++i) y = fused(y, x, coefficients[i]);
    return y;
  }

  [[nodiscard]] float unit(SpecialFunction function, float x) const {
    return std::bit_cast<float>(special_word(units_, function, kSubnormals, std::bit_cast<std::uint32_t>(x)));
  }
  /// Most functions take the instruction with .ftz, however they are compiled.
  [[nodiscard]] float flushing_unit(SpecialFunction function, float x) const {
    return std::bit_cast<float>(special_word(units_, function, Subnormals::flushed, std::bit_cast<std::uint32_t>(x)));
  }

  /// 2^n of a sum whose last bits are n + 127.
  static float power_of_two_in_the_last_bits(float x) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) << 23);
  }
  /// 2^(n + f) with n + f = x (first + second), n = floor(252 clamp(x share + 1/2)) - 126 or so.
  [[nodiscard]] float power_of(float x, float share, float first, float second) const {
    const float place = fused(x, share, 0.5F);
    const float clamped = place > 0 ? std::fmin(place, 1.0F) : 0.0F;
    // The sum with 12582913 rounds down: it is a whole number, and the product is exact in float64.
    const auto shifted = static_cast<float>(12582913 + std::floor(252 * static_cast<double>(clamped)));
    const float n = shifted - 12583039;
    const float f = fused(x, second, fused(x, first, -n));
    return product(flushing_unit(SpecialFunction::ex2, f), power_of_two_in_the_last_bits(shifted));
  }

  /// x, times 2^23 where it is subnormal, as m 2^exponent.
  struct Significand {
    float x, m, exponent;
  };
  static Significand significand_of(float x, std::uint32_t least) {
    const bool is_small = flushed(x) < 0x1p-126F;
    const float y = is_small ? product(x, 0x1p+23F) : x;
    const auto word = std::bit_cast<std::uint32_t>(y);
    const std::uint32_t exponent = (word - least) & 0xFF800000U;
    return {y, std::bit_cast<float>(word - exponent),
            fused(static_cast<float>(static_cast<std::int32_t>(exponent)), 0x1p-23F, is_small ? -23.0F : 0.0F)};
  }
  static float logarithm(float x, float y) {
    if (flushed(x) == 0) return -infinite;
    return std::bit_cast<std::uint32_t>(x) < infinity_word ? y : fused(x, infinite, infinite);
  }
  /// 1 + x, cut.
  static float truncated_sum_with_one(float x) {
    const double exact = double{flushed(x)} + 1;  // of |x| below 2^-29 it is rounded, toward the float32 that is cut to
    const auto nearest = static_cast<float>(exact);
    const bool is_beyond = std::abs(nearest) > std::abs(exact) || (exact == 1 && flushed(x) < 0);
    return is_beyond && !std::isinf(exact) ? std::nextafter(nearest, 0.0F) : nearest;
  }

  [[nodiscard]] float quotient(float x, float y, float large) const {
    float divisor = flushed(y);
    float dividend = flushed(x);
    if (std::abs(divisor) > large) {
      divisor = product(divisor, 0.25F);
      dividend = product(dividend, 0.25F);
    }
    if (std::abs(divisor) < 0x1p-126F && kSubnormals == Subnormals::kept) {
      divisor *= 0x1p+24F;
      dividend *= 0x1p+24F;
    }
    return product(flushing_unit(SpecialFunction::rcp, divisor), dividend);
  }

  struct Turned {
    float rest;
    std::uint32_t quadrant;
  };
  /// Payne and Hanek 1983, with 192 bits of 2/pi. 105615 <= |x| < infinity.
  static Turned turned_far(float x) {
    constexpr std::array<std::uint32_t, 6> two_over_pi{0x3C439041, 0xDB629599, 0xF534DDC0,
                                                       0xFC2757D1, 0x4E441529, 0xA2F9836E};
    const auto word = std::bit_cast<std::uint32_t>(x);
    std::array<std::uint32_t, 7> product{};
    std::uint64_t carry = 0;
    for (std::size_t i = 0; i < two_over_pi.size(); ++i) {
      carry += std::uint64_t{two_over_pi[i]} * (word << 8 | 0x80000000U);
      product[i] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    product[6] = static_cast<std::uint32_t>(carry);
    const std::uint32_t exponent = (word >> 23 & 0xFF) - 128;
    const std::size_t top = 6 - exponent / 32;
    const std::uint32_t shift = exponent % 32;
    const auto word_at = [&](std::size_t i) {
      const std::uint64_t both = std::uint64_t{product[i]} << 32 | product[i - 1];
      return static_cast<std::uint32_t>(both << shift >> 32);
    };
    const std::uint32_t high = word_at(top);
    std::uint64_t fraction = (std::uint64_t{high} << 32 | word_at(top - 1)) << 2;
    const auto is_upper = static_cast<std::uint32_t>(fraction >> 63);
    const std::uint32_t quadrant = (high >> 30) + is_upper;
    const bool is_negative = word >> 31 != 0;
    if (is_upper != 0) fraction = ~fraction;
    const auto rest = static_cast<float>(static_cast<double>(fraction) * 0x1.921fb54442d19p-64);
    return {is_negative != (is_upper != 0) ? -rest : rest, is_negative ? 0 - quadrant : quadrant};
  }
  static Turned turned(float x) {
    const float magnitude = std::abs(flushed(x));
    if (magnitude == infinite) return {product(x, 0), 0};
    if (magnitude >= 105615) return turned_far(x);
    if (x != x) return {x, 0};
    // A whole number: of -0 it is +0, which leaves the rest -0.
    const auto whole = static_cast<std::int32_t>(std::nearbyint(product(x, 0x1.45f306p-1F)));
    const auto turns = static_cast<float>(whole);
    const float rest = fused(turns, -0x1.84698ap-48F, fused(turns, -0x1.4442d0p-24F, fused(turns, -0x1.921fb4p+0F, x)));
    return {rest, static_cast<std::uint32_t>(whole)};
  }
  static float turn(float x, std::uint32_t quarters) {
    const Turned at = turned(x);
    const std::uint32_t quadrant = at.quadrant + quarters;
    const float square = product(at.rest, at.rest);
    const bool is_cosine = quadrant % 2 == 1;
    const float factor = is_cosine ? 1.0F : at.rest;
    const float slope =
        is_cosine ? polynomial(std::array{0x1.975800p-16F, -0x1.6c0fdap-10F, 0x1.555576p-5F, -0x1.fffffep-2F}, square)
                  : polynomial(std::array{-0x1.9a82a6p-13F, 0x1.110bc8p-7F, -0x1.555550p-3F}, square);
    const float y = fused(slope, fused(square, factor, 0), factor);
    return quadrant / 2 % 2 == 1 ? fused(y, -1, 0) : y;
  }
};
// NOLINTEND(modernize-use-std-numbers)

}  // namespace fp8lab
