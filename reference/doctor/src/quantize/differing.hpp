// SPDX-License-Identifier: Apache-2.0
// How many of many bytes differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace fp8lab::doctor {

struct DifferingBytes {
  std::uint64_t all = 0;
  std::uint64_t in_sign = 0;  ///< of these: in that bit alone
};

/// Counts bytes in the words that are added, in which each counted byte is 0x80 and each other one 0.
class ByteCount {
 public:
  void add(std::uint64_t flags) {
    constexpr int most = 255;  // of which each byte has room for
    bytes_ += flags >> 7U;
    if (++added_ == most) flush();
  }
  [[nodiscard]] std::uint64_t total() {
    flush();
    return total_;
  }

 private:
  void flush() {
    for (; bytes_ != 0; bytes_ >>= 8U) total_ += bytes_ & 0xFFU;
    added_ = 0;
  }

  std::uint64_t bytes_ = 0, total_ = 0;
  int added_ = 0;
};

/// 0x80 in each byte that is not 0.
constexpr std::uint64_t flags_of(std::uint64_t word) {
  constexpr std::uint64_t low = 0x7F7F7F7F7F7F7F7FU;
  return (((word & low) + low) | word) & ~low;
}

/// Counts them, eight at a time. Bytes that are those of `others` are as good.
inline DifferingBytes differing_bytes(const std::uint8_t* stored, std::span<const std::uint8_t> codes,
                                      const std::uint8_t* others, std::uint8_t sign) {
  ByteCount all;
  ByteCount in_sign;
  const auto add = [&](std::size_t first, std::size_t length) {
    constexpr std::uint64_t each = 0x0101010101010101U;
    std::uint64_t there = 0;
    std::uint64_t code = 0;
    std::uint64_t other = 0;
    std::memcpy(&there, stored + first, length);
    std::memcpy(&code, codes.data() + first, length);
    std::memcpy(&other, others + first, length);
    const std::uint64_t differs = flags_of(there ^ code) & flags_of(there ^ other);
    all.add(differs);
    in_sign.add(differs & ~flags_of(there ^ code ^ (each * sign)));
  };
  const std::size_t whole = codes.size() / 8 * 8;
  for (std::size_t i = 0; i < whole; i += 8) add(i, 8);
  add(whole, codes.size() - whole);
  return {all.total(), in_sign.total()};
}

}  // namespace fp8lab::doctor
