// SPDX-License-Identifier: Apache-2.0
// Random words by their place, and the digest of a chunk of output words: integers only, so that host and device agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fp8lab/formats/host_device.hpp"

namespace fp8lab::gpu {

/// A bijection of 64 bits in which every input bit changes about half of the output bits.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014: the finalizer of
/// SplitMix64.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

/// Random word `index` of the stream `seed`. Streams of different seeds are unrelated.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t random_word(std::uint64_t seed, std::uint64_t index) {
  return mixed(mixed(seed + 0x9E3779B97F4A7C15U) + (index + 1) * 0x9E3779B97F4A7C15U);
}

/// The summand of the output word at `index` in the digest of its chunk. A digest is the sum of these modulo 2^64, so
/// that it does not depend on the order in which threads add them.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t digest_term(std::uint64_t index, std::uint64_t word) {
  return mixed(mixed(index + 0x9E3779B97F4A7C15U) ^ (word * 0xD1B54A32D192ED03U));
}

/// The digest of a tensor's words.
[[nodiscard]] inline std::uint64_t digest_of(std::span<const std::uint32_t> words) {
  std::uint64_t digest = 0;
  for (std::size_t i = 0; i < words.size(); ++i) digest += digest_term(i, words[i]);
  return digest;
}

}  // namespace fp8lab::gpu
