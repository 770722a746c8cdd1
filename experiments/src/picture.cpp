// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/experiments/picture.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

namespace fp8lab::experiments {
namespace {

constexpr int label_width = 9;

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string binade_label(double edge) {
  char text[32];
  std::snprintf(text, sizeof text, "2^%-5d", std::ilogb(edge));
  return text;
}

/// A row of a table: cells from `first` on, each as wide as its column, all but the table's first to the right.
std::string table_row(const std::vector<std::string>& row, const std::vector<std::size_t>& widths, std::size_t first) {
  std::string line = first == 0 ? "" : "   ";
  for (std::size_t column = first; column < row.size(); ++column) {
    const std::string gap(widths[column] - row[column].size(), ' ');
    line += "  " + (column == 0 ? row[column] + gap : gap + row[column]);
  }
  return trimmed(line) + '\n';
}

}  // namespace

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string bar(double value, double largest, int width, const TextStyle& style) {
  constexpr std::array<const char*, 8> parts{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int steps = style.unicode ? 8 : 1;
  int filled = largest > 0 ? static_cast<int>(std::lround(value / largest * width * steps)) : 0;
  if (value > 0) filled = std::max(filled, 1);
  std::string text;
  for (int cell = 0; cell < filled / steps; ++cell) text += style.unicode ? "█" : "#";
  int used = filled / steps;
  if (filled % steps != 0) {
    text += parts[static_cast<std::size_t>(filled % steps)];
    ++used;
  }
  return text + std::string(static_cast<std::size_t>(width - used), ' ');
}

std::string draw_table(const std::vector<std::vector<std::string>>& rows, const TextStyle& style) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  std::size_t total = 0;
  for (std::size_t column = 0; column < widths.size(); ++column) {
    for (const auto& row : rows) widths[column] = std::max(widths[column], row[column].size());
    total += 2 + widths[column];
  }
  const bool fits = std::cmp_less_equal(total, style.width);
  std::string text;
  for (const auto& row : rows) {
    if (!fits) text += trimmed("  " + row.front()) + '\n';
    text += table_row(row, widths, fits ? 0 : 1);
  }
  return text;
}

std::size_t columns_that_fit(const TextStyle& style) {
  return static_cast<std::size_t>(std::max(1, (style.width - label_width) / (static_cast<int>(least_column) + 2)));
}

std::string draw_binades(const std::vector<std::string>& titles, const std::vector<const Histogram*>& histograms,
                         const TextStyle& style, double least) {
  const int width = std::clamp((style.width - label_width) / static_cast<int>(histograms.size()) - 2, 8, 40);
  const auto& edges = histograms.front()->edges();
  std::vector<double> largest;
  largest.reserve(histograms.size());
  for (const Histogram* h : histograms) largest.push_back(static_cast<double>(std::ranges::max(h->counts())));
  const auto any_above = [&](double share, std::size_t bin) {
    for (std::size_t i = 0; i < histograms.size(); ++i) {
      const auto count = static_cast<double>(histograms[i]->counts()[bin]);
      if (count > 0 && count >= share * largest[i]) return true;
    }
    return false;
  };
  std::size_t first = 0;
  std::size_t last = edges.size() - 1;  // one past the highest bin in use
  while (last > 0 && !any_above(0, last - 1)) --last;
  while (first < last && !any_above(least, first)) ++first;

  std::string heading = padded("", label_width);
  for (const std::string& title : titles) heading += padded(title, static_cast<std::size_t>(width) + 2);
  std::string text = trimmed(heading) + '\n';
  for (std::size_t bin = last; bin-- > first;) {
    std::string line = padded(binade_label(edges[bin]), label_width);
    for (std::size_t i = 0; i < histograms.size(); ++i) {
      line += bar(static_cast<double>(histograms[i]->counts()[bin]), largest[i], width, style) + "  ";
    }
    text += trimmed(line) + '\n';
  }
  const auto row = [&](const char* label, const auto& count_of) {
    if (std::ranges::all_of(histograms, [&](const Histogram* h) { return count_of(*h) == 0; })) return;
    std::string line = padded(label, label_width);
    for (const Histogram* h : histograms) {
      line += padded(std::to_string(count_of(*h)), static_cast<std::size_t>(width) + 2);
    }
    text += trimmed(line) + '\n';
  };
  row("less", [&](const Histogram& h) {
    const auto begin = h.counts().begin();
    return std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(first), std::uint64_t{0});
  });
  for (const auto& [label, field] : {std::pair{"zero", &Histogram::zeros}, std::pair{"smaller", &Histogram::below},
                                     std::pair{"larger", &Histogram::above}, std::pair{"inf", &Histogram::infinities},
                                     std::pair{"NaN", &Histogram::nans}}) {
    row(label, [field = field](const Histogram& h) { return h.*field; });
  }
  return text;
}

}  // namespace fp8lab::experiments
