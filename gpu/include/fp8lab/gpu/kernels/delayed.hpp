// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp8lab/gpu/team.hpp"
#include "fp8lab/reference/scaling/delayed_rule.hpp"

namespace fp8lab::gpu {

/// The end of a step of delayed scaling for many tensors, a block each: HistoryRule::bulk_kernel and
/// ScaleFormula::margin_first.
///
/// Bound: reads and writes the history once.
struct UpdateScales {
  static constexpr unsigned threads = 256;
  struct Shared {
    std::uint32_t newest;
  };

  float* amaxes;  ///< (length, tensors): row 0 is the running step's
  float* scale;
  float* scale_inv;  ///< null: a later cast writes it, beside its data
  std::size_t tensors;
  std::size_t length;
  float largest_over_margin;  ///< fp8_max * 2^-margin
  float largest_scale;
  bool most_recent;  ///< the newest amax makes the scale, not the largest

  [[nodiscard]] std::size_t blocks() const { return tensors; }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t tensor, Shared& shared) const {
    float* const own = amaxes + tensor;
    team.for_each(1, [&](std::size_t) { shared.newest = std::bit_cast<std::uint32_t>(own[0]); });
    const auto newest = std::bit_cast<float>(shared.newest);
    // 1. An amax of 0 changes nothing but scale_inv, if that is written. Otherwise the window moves.
    auto largest = team.template each<std::uint32_t>();
    if (newest != 0) move_window(team, own, newest, largest);
    // 2. The scale.
    const auto most = std::bit_cast<float>(team.max(largest));
    team.for_each(1, [&](std::size_t) {
      const float amax = most_recent ? newest : most;
      const float next = newest == 0 ? scale[tensor] : margin_first_scale(largest_over_margin, amax, scale[tensor]);
      scale[tensor] = limited_scale(next, largest_scale);
      if (scale_inv != nullptr) scale_inv[tensor] = 1 / scale[tensor];
    });
  }

 private:
  /// Row 0 becomes the last one, the others move up, and row 0 is zero: a band of rows after the other. The largest of
  /// each thread's rows goes to `largest`, as float32 bits.
  template <typename Team, typename Each>
  FP8LAB_HD void move_window(const Team& team, float* own, float newest, Each& largest) const {
    for (std::size_t first = 0; first < length; first += threads) {
      auto moved = team.template each<float>();
      team.for_each_thread([&](std::size_t t) {
        const std::size_t row = first + t;
        if (row >= length) return;
        const float here = own[row * tensors];
        const auto bits = std::bit_cast<std::uint32_t>(here);
        if (here > 0 && bits > largest[t]) largest[t] = bits;  // fmaxf from 0: NaN is dropped
        moved[t] = row + 1 < length ? own[(row + 1) * tensors] : newest;
      });
      team.for_each_thread([&](std::size_t t) {
        const std::size_t row = first + t;
        if (row < length) own[row * tensors] = row == 0 ? 0.0F : moved[t];
      });
    }
  }
};

}  // namespace fp8lab::gpu
