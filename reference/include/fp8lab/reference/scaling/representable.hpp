// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <type_traits>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"

namespace fp8lab {

/// `x` as its own type's nearest value that survives a trip through `format` under `scale`:
/// decode(encode(fl(x * fl(scale)))) * fl(1 / fl(scale)), rounded to x's type; fl() rounds to x's type for float and
/// double and to float for Half and BFloat16. What Transformer Engine's primer calls cast_to_representable.
///
/// @tparam T float, double, Half or BFloat16
template <typename T>
[[nodiscard]] constexpr T cast_to_representable(const Format& format, const CastPolicy& policy, T x, double scale = 1) {
  if constexpr (std::is_floating_point_v<T>) {
    const auto cast = [&] {
      const T inverse = T{1} / static_cast<T>(scale);
      return static_cast<T>(decode(format, encode(format, policy, x * static_cast<T>(scale)))) * inverse;
    };
    return std::is_constant_evaluated() ? cast() : by_default_arithmetic(cast);
  } else {
    constexpr Format own = std::is_same_v<T, Half> ? binary16 : bfloat16;
    const float result = cast_to_representable(format, policy, decode(own, x.bits), scale);
    return T{static_cast<std::uint16_t>(encode(own, ieee_policy, result))};
  }
}

/// The same for every element of `in`, into `out` (which may be `in`), on `threads` threads.
///
/// Throws std::invalid_argument where the sizes differ, the arrays overlap otherwise, the format is wider than 16 bits,
/// the scale or its inverse is not positive and finite in that arithmetic, or threads < 1.
void cast_to_representable(const Format& format, const CastPolicy& policy, std::span<const float> in, double scale,
                           std::span<float> out, int threads = 1);
void cast_to_representable(const Format& format, const CastPolicy& policy, std::span<const double> in, double scale,
                           std::span<double> out, int threads = 1);
void cast_to_representable(const Format& format, const CastPolicy& policy, std::span<const Half> in, double scale,
                           std::span<Half> out, int threads = 1);
void cast_to_representable(const Format& format, const CastPolicy& policy, std::span<const BFloat16> in, double scale,
                           std::span<BFloat16> out, int threads = 1);

}  // namespace fp8lab
