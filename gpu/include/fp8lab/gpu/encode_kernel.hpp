// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/gpu/team.hpp"

namespace fp8lab::gpu {

/// Encodes `count` floats to one byte each in any format, by the scalar encode(); block i takes the i-th piece of
/// `elements_per_block`.
struct EncodeKernel {
  static constexpr unsigned threads = 256;
  static constexpr std::size_t elements_per_block = 1024;
  struct Shared {};

  Format format;
  CastPolicy policy;
  const float* in;
  std::uint8_t* out;
  std::size_t count;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return ceil_div(count, elements_per_block); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& /*shared*/) const {
    const std::size_t first = block * elements_per_block;
    const std::size_t size = count - first < elements_per_block ? count - first : elements_per_block;
    team.for_each(size, [this, first](std::size_t i) {
      out[first + i] = static_cast<std::uint8_t>(encode(format, policy, in[first + i]));
    });
  }
};

}  // namespace fp8lab::gpu
