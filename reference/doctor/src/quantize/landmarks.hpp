// SPDX-License-Identifier: Apache-2.0
// Elements of a tensor that say more than others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fp8lab::doctor {

/// Indices of elements, in order.
struct Landmarks {
  std::vector<std::uint64_t> records;   ///< larger in magnitude than all before them; no NaN
  std::vector<std::uint64_t> specials;  ///< the first NaN, infinity, subnormal number, -0 and 0
};

[[nodiscard]] Landmarks landmarks_of(std::span<const float> x, int threads);

}  // namespace fp8lab::doctor
