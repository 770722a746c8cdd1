// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"

namespace fp8lab::experiments {

/// The codes of all 2^32 floats as runs of equal codes, in the order of bit patterns. A second opinion on encode(): the
/// first float of each run follows from the exact values of the format, and nothing is rounded. It is as fast as
/// memory.
///
/// Every value of such a format, and every midpoint between two values, is a double. Precondition: at most 16 bits, and
/// a rounding that needs no random bits.
class CastTable {
 public:
  CastTable(const Format& format, const CastPolicy& policy);

  /// The codes of the floats whose bit patterns are first, first + 1, ...
  template <typename Code>
  void fill(std::uint32_t first, std::span<Code> out) const;

  /// The number of runs.
  [[nodiscard]] std::size_t size() const { return runs_.size(); }

 private:
  struct Run {
    std::uint32_t first;
    std::uint32_t code;
  };
  void add_half(const Format& format, const CastPolicy& policy, bool negative);
  void add_specials(const Format& format, const CastPolicy& policy, bool negative);

  std::vector<Run> runs_;
};

}  // namespace fp8lab::experiments
