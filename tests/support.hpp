// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <string>

#include <vector>

#include "catch.hpp"
#include "exhaustive.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/targets.hpp"

namespace fp8lab::tests {

/// Whether this is the sanitized build, which is for undefined behaviour: smaller samples show it too.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

inline constexpr float inf = std::numeric_limits<float>::infinity();
inline constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// What a test forces ends with it, also where it fails.
struct UnforceTarget {
  ~UnforceTarget() { force_target(""); }
};

/// The SplitMix64 sequence (Steele, Lea, Flood 2014): element i of a stream, so that samples can be split over threads.
inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

/// Collects mismatches: the first few with index, input and both results, and their total count.
class Mismatches {
 public:
  template <typename Input>
  void compare(std::uint64_t index, Input input, std::uint64_t actual, std::uint64_t expected, const char* what = "") {
    if (actual == expected) return;
    if (++count_ > 8) return;
    std::ostringstream line;
    line << std::hex << "index " << index << " input " << input << " got " << actual << " expected " << expected << ' '
         << what << '\n';
    lines_ += line.str();
  }
  void merge(const Mismatches& other) {
    if (count_ < 8) lines_ += other.lines_;
    count_ += other.count_;
  }
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] const std::string& lines() const { return lines_; }

 private:
  std::uint64_t count_ = 0;
  std::string lines_;
};

/// The named formats of at most 8 bits: all their codes, and all that lies between them, can be gone through.
inline std::vector<NamedFormat> byte_formats() {
  std::vector<NamedFormat> formats;
  for (const NamedFormat& named : named_formats) {
    if (named.format.bits() <= 8) formats.push_back(named);
  }
  return formats;
}

inline std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
inline float from_bits(std::uint32_t word) { return std::bit_cast<float>(word); }
/// The same, of every NaN that of the quiet one.
inline std::uint32_t word_of(float x) { return x == x ? bits(x) : 0x7FC00000U; }

}  // namespace fp8lab::tests

/// Requires that there were none.
#define REQUIRE_NO(mismatches)          \
  do {                                  \
    INFO((mismatches).lines());         \
    REQUIRE((mismatches).count() == 0); \
  } while (false)
