// SPDX-License-Identifier: Apache-2.0
// Compiled to vectors (experiments/CMakeLists.txt): these loops are all that check does to an element by itself.
#include "check/row_sums.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace fp8lab::experiments {
namespace {

constexpr std::size_t sum_lanes = 8;

double sum_of_lanes(const std::array<double, sum_lanes>& a) {
  return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

}  // namespace

double row_energy(std::span<const float> x) {
  std::array<double, sum_lanes> sums{};
  std::size_t i = 0;
  for (; i + sum_lanes <= x.size(); i += sum_lanes) {
    for (std::size_t lane = 0; lane < sum_lanes; ++lane) {
      const auto value = static_cast<double>(x[i + lane]);
      sums[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; i < x.size(); ++i, ++lane) {
    const auto value = static_cast<double>(x[i]);
    sums[lane] += value * value;
  }
  return sum_of_lanes(sums);
}

double row_noise(std::span<const float> back, std::span<const float> x) {
  std::array<double, sum_lanes> sums{};
  const float* const a = back.data();
  const float* const b = x.data();
  std::size_t i = 0;
  for (; i + sum_lanes <= x.size(); i += sum_lanes) {
    for (std::size_t lane = 0; lane < sum_lanes; ++lane) {
      const double error = static_cast<double>(a[i + lane]) - static_cast<double>(b[i + lane]);
      sums[lane] += error * error;
    }
  }
  for (std::size_t lane = 0; i < x.size(); ++i, ++lane) {
    const double error = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sums[lane] += error * error;
  }
  return sum_of_lanes(sums);
}

std::uint64_t count_zeroed(std::span<const float> back, std::span<const float> x) {
  const float* const a = back.data();
  const float* const b = x.data();
  std::uint64_t zeroed = 0;
  constexpr std::size_t piece_size = 1U << 16;  // whose count fits in 32 bits, and so in a vector's lane
  for (std::size_t first = 0; first < x.size(); first += piece_size) {
    std::uint32_t some = 0;
    const std::size_t end = std::min(x.size(), first + piece_size);
    for (std::size_t i = first; i < end; ++i) {
      some += static_cast<std::uint32_t>(a[i] == 0) & static_cast<std::uint32_t>(b[i] != 0);
    }
    zeroed += some;
  }
  return zeroed;
}

std::uint64_t count_from_one_to(std::span<const std::uint8_t> codes, std::uint8_t mask, std::uint8_t most) {
  std::uint64_t all = 0;
  constexpr std::size_t piece_size = 255;  // whose count fits in a byte
  for (std::size_t first = 0; first < codes.size(); first += piece_size) {
    std::uint8_t some = 0;
    const std::size_t end = std::min(codes.size(), first + piece_size);
    for (std::size_t i = first; i < end; ++i) {
      const auto below = static_cast<std::uint8_t>((codes[i] & mask) - 1);  // 0 becomes 255
      some = static_cast<std::uint8_t>(some + (below < most ? 1 : 0));
    }
    all += some;
  }
  return all;
}

void amaxes_of_runs(std::span<const float> x, std::span<float> out) {
  constexpr std::uint32_t magnitude = 0x7FFFFFFFU;
  for (std::size_t run = 0; run < out.size(); ++run) {
    const std::size_t end = std::min(x.size(), 16 * run + 16);
    std::uint32_t most = 0;  // magnitudes of finite floats are in the order of their words
    for (std::size_t i = 16 * run; i < end; ++i) most = std::max(most, std::bit_cast<std::uint32_t>(x[i]) & magnitude);
    out[run] = std::bit_cast<float>(most);
  }
}

FiniteAmax finite_amax(std::span<const float> x) {
  constexpr std::uint32_t magnitude = 0x7FFFFFFFU;
  constexpr std::uint32_t infinity = 0x7F800000U;
  const float* const values = x.data();
  std::uint32_t most = 0;
  std::uint64_t not_finite = 0;
  constexpr std::size_t piece_size = 1U << 16;
  for (std::size_t first = 0; first < x.size(); first += piece_size) {
    std::uint32_t some = 0;
    const std::size_t end = std::min(x.size(), first + piece_size);
    for (std::size_t i = first; i < end; ++i) {
      const std::uint32_t word = std::bit_cast<std::uint32_t>(values[i]) & magnitude;
      some += static_cast<std::uint32_t>(word >= infinity);
      most = std::max(most, word >= infinity ? 0U : word);
    }
    not_finite += some;
  }
  return {std::bit_cast<float>(most), not_finite};
}

}  // namespace fp8lab::experiments
