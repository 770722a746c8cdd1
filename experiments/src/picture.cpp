// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/experiments/picture.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace fp8lab::experiments {
namespace {

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string binade_label(double edge) {
  char text[32];
  std::snprintf(text, sizeof text, "2^%-5d", std::ilogb(edge));
  return text;
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

std::string draw_binades(const std::vector<std::string>& titles, const std::vector<const Histogram*>& histograms,
                         const TextStyle& style) {
  constexpr int label_width = 9;
  const int width = std::clamp((style.width - label_width) / static_cast<int>(histograms.size()) - 2, 8, 40);
  const auto& edges = histograms.front()->edges();
  const auto used = [&](std::size_t bin) {
    return std::ranges::any_of(histograms, [&](const Histogram* h) { return h->counts()[bin] != 0; });
  };
  std::size_t first = 0;
  std::size_t last = edges.size() - 1;  // one past the highest bin in use
  while (last > 0 && !used(last - 1)) --last;
  while (first < last && !used(first)) ++first;

  std::string heading = padded("", label_width);
  for (const std::string& title : titles) heading += padded(title, static_cast<std::size_t>(width) + 2);
  std::string text = trimmed(heading) + '\n';
  std::vector<double> largest;
  largest.reserve(histograms.size());
  for (const Histogram* h : histograms) largest.push_back(static_cast<double>(std::ranges::max(h->counts())));
  for (std::size_t bin = last; bin-- > first;) {
    std::string line = padded(binade_label(edges[bin]), label_width);
    for (std::size_t i = 0; i < histograms.size(); ++i) {
      line += bar(static_cast<double>(histograms[i]->counts()[bin]), largest[i], width, style) + "  ";
    }
    text += trimmed(line) + '\n';
  }
  const auto row = [&](const char* label, std::uint64_t Histogram::* field) {
    if (std::ranges::all_of(histograms, [&](const Histogram* h) { return h->*field == 0; })) return;
    std::string line = padded(label, label_width);
    for (const Histogram* h : histograms)
      line += padded(std::to_string(h->*field), static_cast<std::size_t>(width) + 2);
    text += trimmed(line) + '\n';
  };
  row("zero", &Histogram::zeros);
  row("smaller", &Histogram::below);
  row("larger", &Histogram::above);
  row("inf", &Histogram::infinities);
  row("NaN", &Histogram::nans);
  return text;
}

}  // namespace fp8lab::experiments
