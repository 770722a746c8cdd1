// SPDX-License-Identifier: Apache-2.0
// Compiled to vectors (experiments/CMakeLists.txt).
#include "check/row_sums.hpp"

#include <algorithm>

namespace fp8lab::experiments {

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

}  // namespace fp8lab::experiments
