// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace fp8lab {

/// The shapes that experiments draw from; each is fixed, without parameters.
enum class Family : std::uint8_t { normal, uniform, laplace, student_t, lognormal };

/// A distribution with the name users call it by.
struct Distribution {
  std::string_view name;
  Family family;
  std::string_view description;
};

inline constexpr std::array distributions{
    Distribution{"normal", Family::normal, "N(0, 1): mean 0, variance 1"},
    Distribution{"uniform", Family::uniform, "U(-1, 1): constant on (-1, 1), variance 1/3"},
    Distribution{"laplace", Family::laplace, "Laplace: mean 0, variance 1, density exp(-sqrt(2) |x|) / sqrt(2)"},
    Distribution{"student_t", Family::student_t, "Student's t with 4 degrees of freedom, unscaled: variance 2"},
    Distribution{"lognormal", Family::lognormal, "exp of N(0, 1): positive, E[x^2] = e^2"},
};

/// The distribution called `name`. Throws std::invalid_argument that lists the known names.
[[nodiscard]] const Distribution& find_distribution(std::string_view name);

/// The probability density at x. Total.
[[nodiscard]] double density(const Distribution& distribution, double x);

/// The x that a draw falls below with probability p: the inverse of the cumulative distribution function.
///
/// The ends of the support at 0 and 1, infinite ones included; NaN outside [0, 1]. Accurate to a few units in the last
/// place of the tail: min(p, 1 - p) is what it computes with, and 1 - p is exact above 1/2.
[[nodiscard]] double quantile(const Distribution& distribution, double p);

/// E[x^2], the signal power that an SQNR compares with.
[[nodiscard]] double second_moment(const Distribution& distribution);

/// Draws elements `first` to `first + out.size() - 1` of the distribution's stream `seed`.
///
/// Element i is float(quantile((u + 1/2) / 2^53)), u the top 53 bits of w[1] * 2^32 + w[0], w = philox4x32 of the
/// counter {i mod 2^32, i / 2^32, 0, 0} and the key {seed mod 2^32, seed / 2^32}; (u + 1/2) / 2^53 counts as exact, so
/// that both tails reach 2^-54 and neither end. An element depends on seed and index alone: pieces, in any order and on
/// any thread, make the same sample. The math library's last place may move an element by one float32 unit.
void sample(const Distribution& distribution, std::uint64_t seed, std::uint64_t first, std::span<float> out);

/// Draws elements `first` to `first + out.size() - 1` of U(low, high), stream `seed`: element i is
/// float(low + (high - low) * (u + 1/2) / 2^53), in double, with the u of sample(). Rounding may give an end.
///
/// Throws std::invalid_argument unless low < high, both finite in float32.
void sample_uniform(double low, double high, std::uint64_t seed, std::uint64_t first, std::span<float> out);

/// The standard normal without chance: element by element the quantiles of (i + 1/2) / n, n = out.size(), in a
/// scrambled order that is always the same.
///
/// x_i = float(quantile of (i + 1/2) / n), i from 0 to n - 1; key_i = s_i >> 33 with s_-1 = 12345 and
/// s_i = 6364136223846793005 * s_(i - 1) + 1442695040888963407 mod 2^64. `out` is x in the order of ascending keys,
/// equal keys in the order of i (the stable argsort). The generator is Knuth's MMIX (The Art of Computer Programming 2,
/// section 3.3.4).
void normal_grid(std::span<float> out);

}  // namespace fp8lab
