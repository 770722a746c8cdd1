// SPDX-License-Identifier: Apache-2.0
#include "kit/picture.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <utility>

#include "fp8lab/formats/environment.hpp"

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

bool is_drawable(double value) { return value > 0 && std::isfinite(value); }

/// The points that the axes can show.
Line drawable_part(const Line& line, AxisOfX axis) {
  Line kept{line.mark, {}, {}};
  for (std::size_t i = 0; i < line.x.size(); ++i) {
    const bool has_x = axis == AxisOfX::linear ? std::isfinite(line.x[i]) : is_drawable(line.x[i]);
    if (!has_x || !is_drawable(line.y[i])) continue;
    kept.x.push_back(line.x[i]);
    kept.y.push_back(line.y[i]);
  }
  return kept;
}

/// Where draw_lines() puts what: rows of characters, the highest first.
class Plane {
 public:
  /// Precondition: finite points that the axes can show, at least one.
  Plane(const std::vector<Line>& lines, int width, AxisOfX axis, int rows_a_decade)
      : axis_(axis), rows_a_decade_(rows_a_decade) {
    const int ends_a_decade = has_all_labels() ? rows_a_decade : 1;  // where the axis may end
    constexpr double infinity = std::numeric_limits<double>::infinity();
    double lowest = infinity;
    double right = -infinity;
    left_ = infinity;
    top_ = -infinity;
    for (const Line& line : lines) {
      for (std::size_t i = 0; i < line.x.size(); ++i) {
        left_ = std::min(left_, along(line.x[i]));
        right = std::max(right, along(line.x[i]));
        lowest = std::min(lowest, std::floor(std::log10(line.y[i]) * ends_a_decade) / ends_a_decade);
        top_ = std::max(top_, std::ceil(std::log10(line.y[i]) * ends_a_decade) / ends_a_decade);
      }
    }
    if (right > left_) cells_a_unit_ = (width - 1) / (right - left_);
    rows_.assign(static_cast<std::size_t>(std::lround((top_ - lowest) * rows_a_decade)) + 1,
                 std::string(static_cast<std::size_t>(width), ' '));
  }

  [[nodiscard]] const std::vector<std::string>& rows() const { return rows_; }
  /// The text beside line `row`.
  [[nodiscard]] std::string label(std::size_t row) const {
    char text[32] = "";
    if (has_all_labels()) {
      std::snprintf(text, sizeof text, "%.2g", std::pow(10, top_ - static_cast<double>(row) / rows_a_decade_));
    } else if (row % static_cast<std::size_t>(rows_a_decade_) == 0) {
      std::snprintf(text, sizeof text, "1e%d", static_cast<int>(top_) - static_cast<int>(row) / rows_a_decade_);
    }
    return text;
  }
  [[nodiscard]] int column(double x) const { return static_cast<int>(std::lround((along(x) - left_) * cells_a_unit_)); }
  void mark(const Line& line, std::size_t i) {
    char& cell = cell_of(column(line.x[i]), std::log10(line.y[i]));
    cell = cell == ' ' || cell == '.' || cell == line.mark ? line.mark : '*';
  }
  /// Points between a line's point and its next one.
  void join(const Line& line, std::size_t i) {
    const int first = column(line.x[i]);
    const int last = column(line.x[i + 1]);
    const double y = std::log10(line.y[i]);
    for (int at = first + 1; at < last; ++at) {
      cell_of(at, y + (std::log10(line.y[i + 1]) - y) * (at - first) / (last - first)) = '.';
    }
  }

 private:
  /// A place on the horizontal axis: decades where it is logarithmic.
  [[nodiscard]] double along(double x) const {
    switch (axis_) {
      case AxisOfX::logarithmic: return std::log10(x);
      case AxisOfX::linear: break;
    }
    return x;
  }
  char& cell_of(int column, double log_y) {
    return rows_[static_cast<std::size_t>(std::lround((top_ - log_y) * rows_a_decade_))]
                [static_cast<std::size_t>(column)];
  }

  [[nodiscard]] bool has_all_labels() const { return rows_a_decade_ > 3; }

  double left_, top_;
  double cells_a_unit_ = 0;
  AxisOfX axis_;
  int rows_a_decade_;
  std::vector<std::string> rows_;
};

/// The axis below a plane, with those of the ticks that there is room for.
std::string axis_of(const Plane& plane, std::vector<double> ticks, const TextStyle& style) {
  std::string line = padded("", label_width) + (style.unicode ? "└" : "+");
  for (std::size_t i = 0; i < plane.rows().front().size(); ++i) line += style.unicode ? "─" : "-";
  std::ranges::sort(ticks);
  const std::size_t origin = label_width + 1;
  std::string labels;
  for (const double x : ticks) {
    char label[32];
    std::snprintf(label, sizeof label, "%.7g", x);
    const std::size_t at = origin + static_cast<std::size_t>(plane.column(x));
    if (!labels.empty() && labels.size() + 1 > at) continue;
    labels = padded(labels, at) + label;
  }
  return line + '\n' + labels + '\n';
}

}  // namespace

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string bar(double value, double largest, int width, const TextStyle& style) {
  const DefaultEnvironment environment;
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

std::size_t columns_that_fit(const TextStyle& style) {
  return static_cast<std::size_t>(std::max(1, (style.width - label_width) / (static_cast<int>(least_column) + 2)));
}

std::string draw_binades(const std::vector<const Counts*>& columns, const TextStyle& style, double least) {
  const DefaultEnvironment environment;
  const int width = std::clamp((style.width - label_width) / static_cast<int>(columns.size()) - 2, 8, 40);
  const auto& edges = columns.front()->edges;
  std::vector<double> largest;
  largest.reserve(columns.size());
  for (const Counts* one : columns) largest.push_back(static_cast<double>(std::ranges::max(one->counts)));
  const auto any_above = [&](double share, std::size_t bin) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const auto count = static_cast<double>(columns[i]->counts[bin]);
      if (count > 0 && count >= share * largest[i]) return true;
    }
    return false;
  };
  std::size_t first = 0;
  std::size_t last = edges.size() - 1;  // one past the highest bin in use
  while (last > 0 && !any_above(0, last - 1)) --last;
  while (first < last && !any_above(least, first)) ++first;

  std::string heading = padded("", label_width);
  for (const Counts* one : columns) {
    heading += padded(one->label.empty() ? one->name : one->label, static_cast<std::size_t>(width) + 2);
  }
  std::string text = trimmed(heading) + '\n';
  for (std::size_t bin = last; bin-- > first;) {
    std::string line = padded(binade_label(edges[bin]), label_width);
    for (std::size_t i = 0; i < columns.size(); ++i) {
      line += bar(static_cast<double>(columns[i]->counts[bin]), largest[i], width, style) + "  ";
    }
    text += trimmed(line) + '\n';
  }
  const auto row = [&](const char* label, const auto& count_of) {
    if (std::ranges::all_of(columns, [&](const Counts* one) { return count_of(*one) == 0; })) return;
    std::string line = padded(label, label_width);
    for (const Counts* one : columns) {
      line += padded(std::to_string(count_of(*one)), static_cast<std::size_t>(width) + 2);
    }
    text += trimmed(line) + '\n';
  };
  row("less", [&](const Counts& one) {
    const auto begin = one.counts.begin();
    return std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(first), std::uint64_t{0});
  });
  for (const auto& [label, field] :
       {std::pair{"zero", &Counts::zeros}, std::pair{"smaller", &Counts::below}, std::pair{"larger", &Counts::above},
        std::pair{"inf", &Counts::infinities}, std::pair{"NaN", &Counts::nans}}) {
    row(label, [field = field](const Counts& one) { return one.*field; });
  }
  return text;
}

std::string draw_lines(const std::vector<Line>& lines, const TextStyle& style, AxisOfX axis, int rows_a_decade) {
  const DefaultEnvironment environment;
  // 1. What can be drawn.
  std::vector<Line> drawable;
  std::vector<double> ticks;
  for (const Line& line : lines) {
    const Line& kept = drawable.emplace_back(drawable_part(line, axis));
    ticks.insert(ticks.end(), kept.x.begin(), kept.x.end());
  }
  if (ticks.empty()) return "";
  // 2. Lines first: a mark covers them.
  Plane plane(drawable, std::clamp(style.width - label_width - 9, 10, 80), axis,
              rows_a_decade);  // 9: the last tick's label
  for (const Line& line : drawable) {
    for (std::size_t i = 0; i + 1 < line.x.size(); ++i) plane.join(line, i);
  }
  for (const Line& line : drawable) {
    for (std::size_t i = 0; i < line.x.size(); ++i) plane.mark(line, i);
  }
  // 3. The rows with their labels.
  std::string text;
  for (std::size_t row = 0; row < plane.rows().size(); ++row) {
    text += padded(plane.label(row), label_width);
    text += style.unicode ? "│" : "|";
    for (const char c : trimmed(plane.rows()[row])) text += c == '.' && style.unicode ? "·" : std::string(1, c);
    text = trimmed(text) + '\n';
  }
  return text + axis_of(plane, std::move(ticks), style);
}

}  // namespace fp8lab::experiments
