// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8lab/gpu/recorder/tiles.hpp"
#include "fp8lab/gpu/team.hpp"

namespace fp8lab::gpu {

/// Fills memory with Gaussian values, in float32 or bfloat16.
struct FillGaussian {
  static constexpr unsigned threads = 256;
  static constexpr std::size_t words_of_block = 4096;
  struct Shared {};

  std::uint32_t* out;  ///< words of one float32, or of two bfloat16
  std::size_t count;   ///< words
  std::uint64_t seed;
  bool is_bfloat16;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return ceil_div(count, words_of_block); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& /*shared*/) const {
    team.for_each(words_of_block, [&](std::size_t i) {
      const std::size_t at = block * words_of_block + i;
      constexpr Format format = binary32;
      if (at >= count) return;
      const auto word = static_cast<std::uint32_t>(generator::gaussian(format, random_word(seed, at), 0));
      // Both halves of a word of bfloat16 are the same number's, of either sign.
      out[at] = is_bfloat16 ? (word >> 16) * 0x10001U ^ 0x8000U : word;
    });
  }
};

}  // namespace fp8lab::gpu
