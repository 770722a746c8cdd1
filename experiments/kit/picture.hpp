// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8lab/reference/measure/histogram.hpp"
#include "kit/document.hpp"

namespace fp8lab::experiments {

/// A histogram with its name (also that of its CSV file) and what it counts.
struct NamedHistogram {
  std::string name;
  std::string title;
  Histogram histogram;
};

/// The abilities of the terminal that a text is for.
struct TextStyle {
  bool color = false;
  bool unicode = true;  ///< block characters; '#' otherwise
  int width = 100;      ///< columns
};

/// `line` without the spaces at its end.
[[nodiscard]] std::string trimmed(std::string line);

/// A bar of `width` cells, filled to value / largest; any nonzero value shows.
[[nodiscard]] std::string bar(double value, double largest, int width, const TextStyle& style);

/// The columns of draw_binades() are at least as wide: a bar still tells something, and a short title has room.
inline constexpr std::size_t least_column = 12;
/// How many histograms draw_binades() can put side by side.
[[nodiscard]] std::size_t columns_that_fit(const TextStyle& style);

/// Counts of the same bins of binades drawn side by side under their labels, one line a binade from the highest that is
/// used to the lowest, each with its own full scale. The lowest lines, as long as each of their counts is below `least`
/// of its column's largest, become one, which says how many they count.
[[nodiscard]] std::string draw_binades(const std::vector<const Counts*>& columns, const TextStyle& style,
                                       double least = 0);

/// A line of draw_lines(): points (x, y) in the order of x, each drawn as `mark`.
struct Line {
  char mark;
  std::vector<double> x, y;
};

/// The scale of draw_lines()'s horizontal axis.
enum class AxisOfX : std::uint8_t { logarithmic, linear };

/// Lines in a plane with a logarithmic scale on both axes, or on the vertical one alone: three lines of text a decade
/// and whole decades, or more lines a decade, each with its label, as far as the points reach. What is not finite, or
/// not positive on a logarithmic axis, is left out; empty where nothing is left. Where marks meet, a '*' stands for all
/// of them.
[[nodiscard]] std::string draw_lines(const std::vector<Line>& lines, const TextStyle& style,
                                     AxisOfX axis = AxisOfX::logarithmic, int rows_a_decade = 3);

}  // namespace fp8lab::experiments
