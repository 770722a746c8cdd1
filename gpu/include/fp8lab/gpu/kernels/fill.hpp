// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8lab/gpu/team.hpp"

namespace fp8lab::gpu {

/// Writes zeros: to an amax before it is raised, and to the padding of swizzled scales.
struct FillZero {
  static constexpr unsigned threads = 256;
  static constexpr std::size_t bytes_of_block = 4096;
  struct Shared {};

  std::uint8_t* out;
  std::size_t bytes;

  [[nodiscard]] std::size_t blocks() const { return ceil_div(bytes, bytes_of_block); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& /*shared*/) const {
    const std::size_t first = block * bytes_of_block;
    const std::size_t size = bytes - first < bytes_of_block ? bytes - first : bytes_of_block;
    team.for_each(size, [&](std::size_t i) { out[first + i] = 0; });
  }
};

}  // namespace fp8lab::gpu
