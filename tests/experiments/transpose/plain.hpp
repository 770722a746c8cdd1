// SPDX-License-Identifier: Apache-2.0
// Quantization as its definitions have it, in double, one element at a time: none of the library's code.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace fp8lab::tests {

/// A small format in plain numbers.
struct PlainFormat {
  int mantissa_bits;
  int lowest;  // exponent of the smallest normal number
  double largest;
};
inline constexpr PlainFormat plain_e4m3{3, -6, 448};
inline constexpr PlainFormat plain_e5m2{2, -14, 57344};
inline constexpr PlainFormat plain_e2m1{1, 0, 6};

struct PlainCopy {
  std::vector<double> values, codes, scales;
  std::uint64_t saturated = 0;
};

/// Scale and its inverse from an amax; both float32.
using PlainRule = std::pair<double, double> (*)(double amax, const PlainFormat& format);

inline std::pair<double, double> plain_power(int exponent) {
  return {std::ldexp(1, -exponent), std::ldexp(1, exponent)};
}

/// OCP MX: 2^(floor(log2 amax) - emax), at least 2^-127.
inline std::pair<double, double> plain_ocp(double amax, const PlainFormat& format) {
  if (amax == 0) return plain_power(-127);
  return plain_power(std::max(-127, std::ilogb(amax) - std::ilogb(format.largest)));
}
/// Transformer Engine's MX: amax * fl(1 / largest), up to a power of two.
inline std::pair<double, double> plain_te_mx(double amax, const PlainFormat& format) {
  const float p = static_cast<float>(amax) * (1 / static_cast<float>(format.largest));
  if (p == 0) return plain_power(-127);
  const int exponent = std::ilogb(p);
  return plain_power(std::ldexp(1, exponent) == static_cast<double>(p) ? exponent : exponent + 1);
}
/// Transformer Engine's float scale.
inline std::pair<double, double> plain_te(double amax, const PlainFormat& format) {
  if (amax == 0) return {1, 1};
  const float scale = static_cast<float>(format.largest) / static_cast<float>(amax);
  return {scale, 1 / scale};
}
/// The same without its mantissa.
inline std::pair<double, double> plain_te_pow2(double amax, const PlainFormat& format) {
  return plain_power(-std::ilogb(plain_te(amax, format).first));
}

inline double plain_rounded(double x, const PlainFormat& format) {
  if (x == 0) return x;
  const double ulp = std::ldexp(1, std::max(std::ilogb(x), format.lowest) - format.mantissa_bits);
  return std::nearbyint(x / ulp) * ulp;  // to nearest even
}

struct PlainRecipe {
  std::string name;
  PlainFormat format;
  PlainRule rule;
  std::size_t along;   // K
  std::size_t across;  // K; 0: the whole tensor shares a scale
};

inline const std::vector<PlainRecipe> plain_recipes{
    {"te_mxfp8", plain_e4m3, plain_te_mx, 32, 1},
    {"ocp_mxfp8_e4m3", plain_e4m3, plain_ocp, 32, 1},
    {"ocp_mxfp8_e5m2", plain_e5m2, plain_ocp, 32, 1},
    {"ocp_mxfp4", plain_e2m1, plain_ocp, 32, 1},
    {"te_block_1x128", plain_e4m3, plain_te_pow2, 128, 1},
    {"te_block_1x128_fp32", plain_e4m3, plain_te, 128, 1},
    {"te_block_128x128", plain_e4m3, plain_te_pow2, 128, 128},
    {"te_mxfp8_2d", plain_e4m3, plain_te_mx, 32, 32},
    {"te_current_scaling", plain_e4m3, plain_te, 0, 0},
    {"te_current_scaling_pow2", plain_e4m3, plain_te_pow2, 0, 0},
};

struct PlainMatrix {
  std::size_t rows, columns;
  std::vector<double> values;
};

/// Calls use(i) for the elements of a tile that begins at (top, left).
template <typename Use>
void for_tile(const PlainMatrix& x, std::size_t top, std::size_t left, std::size_t high, std::size_t wide,
              const Use& use) {
  for (std::size_t row = top; row < std::min(top + high, x.rows); ++row) {
    for (std::size_t column = left; column < std::min(left + wide, x.columns); ++column) use(row * x.columns + column);
  }
}

/// `columnwise` swaps along and across.
inline PlainCopy plain_copy(const PlainMatrix& x, const PlainRecipe& recipe, bool columnwise) {
  std::size_t high = columnwise ? recipe.along : recipe.across;
  std::size_t wide = columnwise ? recipe.across : recipe.along;
  if (recipe.across == 0) std::tie(high, wide) = std::pair(x.rows, x.columns);
  PlainCopy copy{x.values, x.values, x.values};
  const auto quantize_tile = [&](std::size_t top, std::size_t left) {
    double amax = 0;
    for_tile(x, top, left, high, wide, [&](std::size_t i) { amax = std::max(amax, std::abs(x.values[i])); });
    const auto [scale, scale_inv] = recipe.rule(amax, recipe.format);
    for_tile(x, top, left, high, wide, [&, by = scale, back = scale_inv](std::size_t i) {
      const double rounded = plain_rounded(static_cast<float>(x.values[i] * by), recipe.format);
      copy.saturated += std::abs(rounded) > recipe.format.largest ? 1 : 0;
      copy.codes[i] = std::clamp(rounded, -recipe.format.largest, recipe.format.largest);
      copy.values[i] = static_cast<float>(copy.codes[i] * back);
      copy.scales[i] = back;
    });
  };
  for (std::size_t top = 0; top < x.rows; top += high) {
    for (std::size_t left = 0; left < x.columns; left += wide) quantize_tile(top, left);
  }
  return copy;
}

inline PlainMatrix plain_matrix(const PlainMatrix& x, const PlainCopy& copy) {
  return {x.rows, x.columns, copy.values};
}

inline std::uint64_t plain_differing(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), std::uint64_t{0}, std::plus<>(),
                            [](double x, double y) -> std::uint64_t { return x != y ? 1 : 0; });
}

inline double plain_sqnr(const std::vector<double>& x, const std::vector<double>& copy) {
  double signal = 0;
  double noise = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    signal += x[i] * x[i];
    noise += (copy[i] - x[i]) * (copy[i] - x[i]);
  }
  return 10 * std::log10(signal / noise);
}

}  // namespace fp8lab::tests
