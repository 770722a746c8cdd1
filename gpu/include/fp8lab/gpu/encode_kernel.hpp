// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8lab/formats/encode.hpp"

namespace fp8lab::gpu {

/// Encodes `count` floats to one byte each; block i takes the i-th piece of `elements_per_block`.
struct EncodeKernel {
  static constexpr std::size_t elements_per_block = 1024;

  Format format;
  CastPolicy policy;
  const float* in;
  std::uint8_t* out;
  std::size_t count;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return (count + elements_per_block - 1) / elements_per_block; }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block) const {
    const std::size_t first = block * elements_per_block;
    const std::size_t size = count - first < elements_per_block ? count - first : elements_per_block;
    team.for_each(size, [this, first](std::size_t i) {
      out[first + i] = static_cast<std::uint8_t>(encode(format, policy, in[first + i]));
    });
  }
};

}  // namespace fp8lab::gpu
