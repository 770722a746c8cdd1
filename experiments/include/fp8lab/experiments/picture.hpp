// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "fp8lab/reference/histogram.hpp"

namespace fp8lab::experiments {

/// What the terminal that a text is for can show.
struct TextStyle {
  bool color = false;
  bool unicode = true;  ///< block characters; '#' otherwise
  int width = 100;      ///< columns
};

/// `line` without the spaces at its end.
[[nodiscard]] std::string trimmed(std::string line);

/// A bar of `width` cells, filled to value / largest; any nonzero value shows.
[[nodiscard]] std::string bar(double value, double largest, int width, const TextStyle& style);

/// Histograms with the same BinadeBins drawn side by side, one line a binade from the highest that is used to the
/// lowest, each with its own full scale.
[[nodiscard]] std::string draw_binades(const std::vector<std::string>& titles,
                                       const std::vector<const Histogram*>& histograms, const TextStyle& style);

}  // namespace fp8lab::experiments
