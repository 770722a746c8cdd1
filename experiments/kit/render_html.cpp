// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>

#include "fp8lab/formats/environment.hpp"
#include "kit/page_style.hpp"
#include "kit/render.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t most_rows = 500;        // of a table on a page: more are in JSON and CSV
constexpr std::size_t most_points = 600;      // of a curve: a line has no more dots on a screen
constexpr std::size_t most_panels = 64;       // of a section of histograms
constexpr std::size_t colors = 7;             // of page_style.hpp: .c0 to .c6
constexpr std::size_t longest_unbroken = 40;  // characters of a cell that stay on one line
constexpr std::size_t rows_in_notebook = 10;  // a notebook shows a glance
constexpr std::size_t panels_in_notebook = 4;

/// How much of a document is shown.
struct PageStyle {
  std::size_t rows = most_rows;
  std::size_t panels = most_panels;
};

/// A text as HTML: it opens no tag and ends no attribute.
std::string escaped_html(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '&': html += "&amp;"; break;
      case '<': html += "&lt;"; break;
      case '>': html += "&gt;"; break;
      case '"': html += "&quot;"; break;
      case '\'': html += "&#39;"; break;
      case '\n':
      case '\t': html += c; break;
      default:
        html += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? std::string("\xEF\xBF\xBD") : std::string(1, c);
    }
  }
  return html;
}

std::string heading_html(const std::string& title, int level) {
  if (title.empty()) return "";
  return fmt::format("<h{0}>{1}</h{0}>\n", level, escaped_html(title));
}

/// A name, such as rounds_to_it, as a reader would write it.
std::string in_words(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return name;
}

/// A number in a picture: few digits, and 2^k as such.
std::string axis_number(double x) {
  int exponent = 0;
  if (x > 0 && std::isfinite(x) && std::frexp(x, &exponent) == 0.5) {
    return fmt::format("2<tspan dy=\"-4\" font-size=\"8\">{}</tspan>", exponent - 1);
  }
  return fmt::format("{:.3g}", x);
}

/// A number beside an axis: short, so that it fits where letters are large.
std::string tick_text(double x) {
  std::string text = fmt::format("{:.3g}", x);
  if (text.size() > 5 && std::abs(x) < 1) text = fmt::format("{:.1e}", x);
  for (const std::string_view from : {".0e", "e-0", "e+0"}) {
    const std::size_t place = text.find(from);
    if (place != std::string::npos) text.replace(place, from.size(), from == "e-0" ? "e-" : "e");
  }
  return text;
}

// 1. Tables.

std::string all_digits(const Column& /*column*/, const std::optional<std::string>& text) { return text.value_or("-"); }
std::string all_digits(const Column& /*column*/, double x) { return std::isnan(x) ? "-" : fmt::format("{}", x); }
std::string all_digits(const Column& /*column*/, const std::optional<Integer>& value) {
  return value ? value->visit([](auto number) { return fmt::format("{}", number); }) : "-";
}
std::string all_digits(const Column& /*column*/, const std::optional<bool>& flag) {
  return !flag ? "-" : *flag ? "yes" : "no";
}

/// Whether a column's texts are drawings, whose characters stand one below the other.
bool is_drawn(const Column& column) {
  const auto* texts = std::get_if<Texts>(&column.values);
  if (texts == nullptr) return false;
  const auto some = std::span(*texts).first(std::min<std::size_t>(texts->size(), 32));
  return std::ranges::any_of(some, [](const auto& text) { return text && text->find("  ") != std::string::npos; });
}

/// A cell: what the terminal shows, and where that has fewer digits all of them on demand.
std::string cell_html(const Table& table, const Column& column, std::size_t row) {
  const bool is_first = &column == table.columns.data();
  const bool is_number = !std::holds_alternative<Texts>(column.values) || column.head.right;
  const std::string text = cell_text(column, row);
  const std::string whole =
      std::visit([&](const auto& values) { return all_digits(column, values[row]); }, column.values);
  std::string classes = is_number && !is_first ? "n" : "";
  if (column.head.detail) classes += classes.empty() ? "d" : " d";
  const std::string_view look = is_drawn(column) ? "a" : text.size() > longest_unbroken ? "w" : "";
  if (!look.empty()) classes += (classes.empty() ? "" : " ") + std::string(look);
  std::string html = is_first ? "<th scope=\"row\"" : "<td";
  if (!classes.empty()) html += " class=\"" + classes + "\"";
  if (whole != text) html += " title=\"" + escaped_html(whole) + "\"";
  html += '>';
  if (is_first && table.marked) html += fmt::format("<b class=\"m c{}\">{}</b> ", row % colors, mark_of(row));
  const bool differs = !column.expected.empty() && column.expected[row] != text;
  html += differs ? "<mark>" + escaped_html(text) + "</mark><br><small>expected " +
                        escaped_html(column.expected[row].value_or("-")) + "</small>"
                  : escaped_html(text);
  return html + (is_first ? "</th>" : "</td>");
}

std::string rows_html(const Table& table, const PageStyle& style) {
  std::string html = "<table class=\"sortable\">\n<thead><tr>";
  for (const Column& column : table.columns) {
    const bool is_first = &column == table.columns.data();
    const bool is_number = !std::holds_alternative<Texts>(column.values) || column.head.right;
    std::string classes = is_number && !is_first ? "n" : "";
    if (column.head.detail) classes += classes.empty() ? "d" : " d";
    html += "<th scope=\"col\"" + (classes.empty() ? "" : " class=\"" + classes + "\"") + ">" +
            escaped_html(heading_of(column.head)) + "</th>";
  }
  html += "</tr></thead>\n<tbody>\n";
  for (std::size_t row = 0; row < std::min(table.rows(), style.rows); ++row) {
    html += "<tr>";
    for (const Column& column : table.columns) html += cell_html(table, column, row);
    html += "</tr>\n";
  }
  return html + "</tbody></table>";
}

/// Details are left out: they have for programs what the others say in words.
std::string records_html(const Table& table, const PageStyle& style) {
  std::string html = "<dl>\n";
  for (std::size_t row = 0; row < std::min(table.rows(), style.rows); ++row) {
    for (const Column& column : table.columns) {
      if (column.head.detail && !table.detail) continue;
      const bool is_first = &column == table.columns.data();
      const std::string value = escaped_html(cell_text(column, row));
      const std::string heading = column.head.title.empty() ? "" : escaped_html(heading_of(column.head)) + ": ";
      html += is_first ? "<dt>" + value + "</dt>\n" : "<dd>" + heading + value + "</dd>\n";
    }
  }
  return html + "</dl>";
}

/// Whether columns are hidden until the box above the table is ticked.
bool has_hidden_columns(const Table& table) {
  return table.layout == TableLayout::rows && !table.detail &&
         std::ranges::any_of(table.columns, [](const Column& one) { return one.head.detail; });
}

std::string body_html(const Table& table, const PageStyle& style) {
  if (table.rows() == 0 || table.columns.empty()) return "<p>none</p>\n";
  std::string html = "<div class=\"t\">";
  if (has_hidden_columns(table)) {
    html += "<label class=\"all\"><input type=\"checkbox\"> all columns</label>";
  }
  html += "<div class=\"scroll" + std::string(table.detail ? " every" : "") + "\">" +
          (table.layout == TableLayout::records ? records_html(table, style) : rows_html(table, style)) + "</div>";
  if (table.rows() > style.rows) {
    html +=
        fmt::format("<p class=\"note\">The first {} of {} rows; JSON and CSV have all.</p>", style.rows, table.rows());
  }
  return html + "</div>\n";
}

// 2. Pictures.

struct NamedCount {
  const char* name;
  std::uint64_t Counts::* count;
};
constexpr std::array counts_beside{NamedCount{"zero", &Counts::zeros}, NamedCount{"smaller", &Counts::below},
                                   NamedCount{"larger", &Counts::above}, NamedCount{"inf", &Counts::infinities},
                                   NamedCount{"NaN", &Counts::nans}};

/// The bins that are shown: from `first` to one before `last`.
struct Bins {
  std::size_t first = 0, last = 0;
};

Bins bins_of(std::span<const Counts> all, double least) {
  const auto any_above = [&](double share, std::size_t bin) {
    return std::ranges::any_of(all, [&](const Counts& one) {
      if (bin >= one.counts.size() || one.counts[bin] == 0) return false;
      return static_cast<double>(one.counts[bin]) >= share * static_cast<double>(std::ranges::max(one.counts));
    });
  };
  Bins bins;
  for (const Counts& one : all) bins.last = std::max(bins.last, one.counts.size());
  while (bins.last > 0 && !any_above(0, bins.last - 1)) --bins.last;
  while (bins.first < bins.last && !any_above(least, bins.first)) ++bins.first;
  return bins;
}

/// The colour of a histogram: that of the line or row whose mark begins its label, such as "b dw1", or else of its
/// place.
std::size_t color_of(const Counts& counts, std::size_t place) {
  const std::string_view label = counts.label;
  const bool has_mark = !label.empty() && (label.size() == 1 || label[1] == ' ');
  for (std::size_t i = 0; has_mark && i < 52; ++i) {
    if (mark_of(i) == label.front()) return i % colors;
  }
  return place % colors;
}

/// A histogram: a bar for each bin, from 0 up to its largest count, and in words what no bin has.
std::string panel_of(const Counts& counts, const Bins& bins, std::size_t color) {
  constexpr double width = 360, height = 130, left = 8, top = 16, bottom = 22;
  const std::string label = counts.label.empty() ? counts.name : counts.label;
  const auto end = std::min(bins.last, counts.counts.size());
  const std::uint64_t largest = counts.counts.empty() ? 0 : std::ranges::max(counts.counts);
  std::string html = "<figure><figcaption><b>" + escaped_html(label) + "</b>";
  if (!counts.title.empty() && counts.title != label) html += " " + escaped_html(counts.title);
  html += "</figcaption>\n";
  if (largest > 0 && bins.first < end) {
    html += fmt::format(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"histogram of {} elements\">"
        "<text x=\"{}\" y=\"11\" class=\"ax\">at most {} a bin</text>",
        width, height, counts.total, left, largest);
    const double step = (width - 2 * left) / static_cast<double>(bins.last - bins.first);
    const double gap = step > 4 ? 1 : 0;
    for (std::size_t bin = bins.first; bin < end; ++bin) {
      if (counts.counts[bin] == 0) continue;
      const double tall = std::max(
          1.0, (height - top - bottom) * static_cast<double>(counts.counts[bin]) / static_cast<double>(largest));
      html += fmt::format(
          "<rect class=\"f{}\" x=\"{:.4g}\" y=\"{:.4g}\" width=\"{:.4g}\" height=\"{:.4g}\"><title>{:.6g} to {:.6g}: "
          "{}</title></rect>",
          color, left + step * static_cast<double>(bin - bins.first) + gap / 2, height - bottom - tall,
          std::max(step - gap, 0.5), tall, counts.edges[bin], counts.edges[bin + 1], counts.counts[bin]);
    }
    html += fmt::format("<path class=\"axis\" d=\"M{} {}H{}\"/>", left, height - bottom, width - left);
    const std::size_t every = std::max<std::size_t>(1, (bins.last - bins.first + 5) / 6);
    for (std::size_t bin = bins.first; bin <= end; bin += every) {
      const double x = left + step * static_cast<double>(bin - bins.first);
      const char* anchor = bin == bins.first ? "start" : x > width - left - 12 ? "end" : "middle";
      html += fmt::format(
          "<path class=\"axis\" d=\"M{0:.4g} {1}v4\"/><text class=\"ax\" text-anchor=\"{2}\" "
          "x=\"{0:.4g}\" y=\"{3}\">{4}</text>",
          x, height - bottom, anchor, height - 4, axis_number(counts.edges[bin]));
    }
    html += "</svg>\n";
  }
  // What no bin of the picture has.
  std::string beside;
  const auto add = [&](const char* name, std::uint64_t count) {
    if (count != 0) beside += fmt::format("{}{} {}", beside.empty() ? "" : " · ", name, count);
  };
  const auto begin = counts.counts.begin();
  const auto first = static_cast<std::ptrdiff_t>(std::min(bins.first, counts.counts.size()));
  add("less", std::accumulate(begin, begin + first, std::uint64_t{0}));
  for (const NamedCount& one : counts_beside) add(one.name, counts.*one.count);
  if (beside.empty() && largest == 0) beside = "nothing is counted";
  if (!beside.empty()) html += "<p class=\"note\">" + beside + "</p>\n";
  return html + "</figure>\n";
}

std::string body_html(const Histograms& section, const PageStyle& style) {
  const Bins bins = bins_of(section.histograms, section.least);
  std::string html = "<div class=\"panels\">\n";
  for (std::size_t i = 0; i < std::min(section.histograms.size(), style.panels); ++i) {
    const Counts& one = section.histograms[i];
    // Where the bins differ, each panel has its own.
    const bool is_alike = one.edges == section.histograms.front().edges;
    html += panel_of(one, is_alike ? bins : bins_of(std::span(&one, 1), section.least), color_of(one, i));
  }
  html += "</div>\n";
  if (section.histograms.size() > style.panels) {
    html += fmt::format("<p class=\"note\">The first {} of {} histograms; JSON and CSV have all.</p>\n", style.panels,
                        section.histograms.size());
  }
  return html;
}

/// An axis of a plane, with places from `low` to `high` on it; logarithmic ones have decades.
struct Scale {
  bool is_logarithmic;
  double low, high;
  double begin, end;  ///< in the picture

  [[nodiscard]] bool has(double x) const { return std::isfinite(x) && (!is_logarithmic || x > 0); }
  [[nodiscard]] double place(double x) const { return is_logarithmic ? std::log10(x) : x; }
  [[nodiscard]] double at(double x) const {
    return high > low ? begin + (end - begin) * (place(x) - low) / (high - low) : (begin + end) / 2;
  }
  [[nodiscard]] std::vector<double> ticks() const {
    std::vector<double> all;
    if (is_logarithmic) {
      const double step = std::max(1.0, std::ceil((high - low) / 7));
      for (double power = std::ceil(low - 1e-9); power <= high + 1e-9; power += step) {
        all.push_back(std::pow(10, power));
      }
      if (all.size() > 1) return all;
      all.clear();
      for (int i = 0; i <= 4; ++i) all.push_back(std::pow(10, low + (high - low) * i / 4));
      return all;
    }
    if (!(high > low)) return {low};
    const double rough = (high - low) / 5;
    const double unit = std::pow(10, std::floor(std::log10(rough)));
    const double step = rough / unit < 2 ? 2 * unit : rough / unit < 5 ? 5 * unit : 10 * unit;
    for (double x = std::ceil(low / step) * step; x <= high + step * 1e-9; x += step) all.push_back(x);
    return all;
  }
};

Scale scale_of(const Curves& curves, bool is_x, double begin, double end) {
  Scale scale{is_x ? curves.x.logarithmic : curves.y.logarithmic, HUGE_VAL, -HUGE_VAL, begin, end};
  const bool other = is_x ? curves.y.logarithmic : curves.x.logarithmic;
  for (const Curve& line : curves.lines) {
    for (std::size_t i = 0; i < line.x.size(); ++i) {
      const double mine = is_x ? line.x[i] : line.y[i];
      const double its = is_x ? line.y[i] : line.x[i];
      if (!scale.has(mine) || !std::isfinite(its) || (other && its <= 0)) continue;
      scale.low = std::min(scale.low, scale.place(mine));
      scale.high = std::max(scale.high, scale.place(mine));
    }
  }
  if (!is_x && scale.high > scale.low) {
    const double margin = 0.04 * (scale.high - scale.low);
    scale.low -= margin;
    scale.high += margin;
  }
  return scale;
}

constexpr std::array dashes{"", "7 3", "2 3", "9 3 2 3"};  // of lines that have the same colour
std::string stroke_of(std::size_t i) {
  const std::string_view dash = dashes.at(i / colors % dashes.size());
  return fmt::format("class=\"s{}\"{}", i % colors, dash.empty() ? "" : fmt::format(" stroke-dasharray=\"{}\"", dash));
}

std::string line_html(const Curve& line, std::size_t index, const Scale& x, const Scale& y) {
  std::string path;
  std::string dots;
  bool is_open = false;
  const std::size_t every = std::max<std::size_t>(1, (line.x.size() + most_points - 1) / most_points);
  for (std::size_t i = 0; i < line.x.size(); ++i) {
    if (i % every != 0 && i + 1 != line.x.size()) continue;
    if (!x.has(line.x[i]) || !y.has(line.y[i])) {
      is_open = false;
      continue;
    }
    path += fmt::format("{}{:.5g} {:.5g}", is_open ? "L" : "M", x.at(line.x[i]), y.at(line.y[i]));
    is_open = true;
    if (line.x.size() > 40) continue;
    dots += fmt::format(
        "<circle class=\"f{}\" r=\"2.6\" cx=\"{:.5g}\" cy=\"{:.5g}\"><title>{}: {:.6g}, {:.6g}</title></circle>",
        index % colors, x.at(line.x[i]), y.at(line.y[i]), escaped_html(line.label), line.x[i], line.y[i]);
  }
  return path.empty() ? "" : fmt::format("<path {} d=\"{}\"/>{}", stroke_of(index), path, dots);
}

std::string body_html(const Curves& curves, const PageStyle& /*style*/) {
  constexpr double width = 640, height = 300, left = 54, right = 12, top = 26, bottom = 38;
  const Scale x = scale_of(curves, true, left, width - right);
  const Scale y = scale_of(curves, false, height - bottom, top);
  std::string html = "<ul class=\"legend\">";
  for (std::size_t i = 0; i < curves.lines.size(); ++i) {
    html += fmt::format(
        "<li><svg viewBox=\"0 0 28 10\" width=\"28\" height=\"10\"><path {} d=\"M0 5H28\"/></svg> {}{}</li>",
        stroke_of(i), curves.labelled ? fmt::format("<b>{}</b> ", mark_of(i)) : "",
        escaped_html(curves.lines[i].label));
  }
  html += "</ul>\n";
  if (x.low > x.high || y.low > y.high) return html + "<p class=\"note\">no point that the axes can show</p>\n";
  html += fmt::format("<svg class=\"plot\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{} over {}\">", width,
                      height, escaped_html(curves.y.name), escaped_html(curves.x.name));
  for (const double tick : y.ticks()) {
    html += fmt::format(
        "<path class=\"grid\" d=\"M{} {:.5g}H{}\"/><text class=\"ax\" text-anchor=\"end\" x=\"{}\" "
        "y=\"{:.5g}\">{}</text>",
        left, y.at(tick), width - right, left - 5, y.at(tick) + 4, tick_text(tick));
  }
  for (const double tick : x.ticks()) {
    const bool is_last = x.at(tick) > width - right - 16;
    html += fmt::format(
        "<path class=\"axis\" d=\"M{0:.5g} {1}v4\"/><text class=\"ax\" text-anchor=\"{4}\" "
        "x=\"{5:.5g}\" y=\"{2}\">{3:.6g}</text>",
        x.at(tick), height - bottom, height - bottom + 15, tick, is_last ? "end" : "middle",
        is_last ? width - 2 : x.at(tick));
  }
  html += fmt::format("<path class=\"axis\" d=\"M{} {}H{}\"/>", left, height - bottom, width - right);
  for (std::size_t i = 0; i < curves.lines.size(); ++i) html += line_html(curves.lines[i], i, x, y);
  html += fmt::format(
      "<text class=\"ax\" x=\"4\" y=\"11\">{}</text><text class=\"ax\" text-anchor=\"end\" x=\"{}\" "
      "y=\"{}\">{}</text>",
      escaped_html(in_words(curves.y.name)), width - right, height - 4, escaped_html(in_words(curves.x.name)));
  return html + "</svg>\n";
}

std::string body_html(const NumberLine& line, const PageStyle& /*style*/) {
  constexpr double width = 640, height = 84, left = 34, axis = 44;
  if (line.values.size() < 2) return "";
  const double low = line.values.front();
  const double span = line.values.back() - low;
  const auto at = [&](double value) { return left + (width - 2 * left) * (value - low) / span; };
  std::string html = fmt::format("<svg class=\"plot\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", width,
                                 height, escaped_html(line.title));
  if (!std::isnan(line.low)) {
    const double from = std::clamp(at(line.low), left, width - left);
    const double to = std::clamp(at(line.high), left, width - left);
    html += fmt::format("<rect class=\"band\" x=\"{:.5g}\" y=\"{}\" width=\"{:.5g}\" height=\"16\"/>", from, axis - 8,
                        to - from);
    for (const auto& [x, is_included] : {std::pair{from, line.low_included}, std::pair{to, line.high_included}}) {
      html +=
          fmt::format("<circle class=\"{}\" r=\"3\" cx=\"{:.5g}\" cy=\"{}\"/>", is_included ? "f1" : "open", x, axis);
    }
  }
  html += fmt::format("<path class=\"axis\" d=\"M{} {}H{}\"/>", left, axis, width - left);
  const std::size_t every = std::max<std::size_t>(1, (line.values.size() + 7) / 8);
  for (std::size_t i = 0; i < line.values.size(); ++i) {
    const bool is_marked = i == line.marked;
    const double x = at(line.values[i]);
    html += fmt::format("<path class=\"{}\" d=\"M{:.5g} {}v{}\"/>", is_marked ? "s0" : "axis", x,
                        is_marked ? axis - 14 : axis - 6, is_marked ? 28 : 12);
    if (!is_marked && i % every != 0 && i + 1 != line.values.size()) continue;
    if (!is_marked && line.marked < line.values.size() && std::abs(x - at(line.values[line.marked])) < 34) continue;
    html += fmt::format(
        "<text class=\"ax{4}\" text-anchor=\"middle\" x=\"{0:.5g}\" y=\"18\">{1}</text>"
        "<text class=\"ax{4}\" text-anchor=\"middle\" x=\"{0:.5g}\" y=\"{2}\">{3:.6g}</text>",
        x, escaped_html(line.labels[i]), height - 10, line.values[i], is_marked ? " strong" : "");
  }
  return html + "</svg>\n";
}

std::string body_html(const Text& section, const PageStyle& /*style*/) {
  std::string html;
  for (const std::string& paragraph : section.paragraphs) html += "<p>" + escaped_html(paragraph) + "</p>\n";
  return html;
}

// 3. Sections and documents.

bool is_detail_section(const Section& section) {
  return std::visit(
      [](const auto& kind) {
        if constexpr (requires { kind.detail; }) return kind.detail;
        return false;
      },
      section);
}

std::string section_html(const Section& section, const PageStyle& style, int level) {
  return std::visit(
      [&](const auto& kind) {
        const std::string body = body_html(kind, style);
        if (!is_detail_section(section)) {
          return "<section>\n" + heading_html(kind.title, level) + body + "</section>\n";
        }
        return "<details><summary>" + escaped_html(kind.title.empty() ? in_words(kind.name) : kind.title) +
               "</summary>\n" + body + "</details>\n";
      },
      section);
}

/// JSON on a page: texts as they are, other values as JSON has them.
std::string value_text(const Json& value) {
  std::string text;
  for (const char c : value.text()) text += c == '\n' ? "" : std::string(1, c);
  return text;
}

std::string badge_of(const Document& document) {
  if (!document.passed) return "";
  return *document.passed ? "<span class=\"badge ok\">passed</span>" : "<span class=\"badge no\">NOT passed</span>";
}

std::string made_html(const Document& document) {
  const Provenance& made = document.made;
  std::string html = "<details class=\"made\"><summary>How this was made</summary>\n<dl>\n";
  html += "<dt>arguments</dt><dd><code>" + escaped_html(value_text(document.arguments)) + "</code></dd>\n";
  for (const auto& [name, value] :
       {std::pair{"version", &made.version}, std::pair{"commit", &made.commit}, std::pair{"compiler", &made.compiler},
        std::pair{"cpu", &made.cpu}, std::pair{"date", &made.date}}) {
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, escaped_html(*value));
  }
  return html + "</dl></details>\n";
}

std::string article_of(const Document& document, const std::string& id, int level, const std::string& name) {
  std::string html = "<article id=\"" + escaped_html(id) + "\">\n" +
                     fmt::format("<h{0}>{1} {2}</h{0}>\n", level, escaped_html(name), badge_of(document));
  for (const Section& section : document.sections) html += section_html(section, {}, level + 1);
  return html + made_html(document) + "</article>\n";
}

std::string page_with(const std::string& title, const std::string& body) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
         escaped_html(title) + "</title>\n<style>\n" + std::string(page_style) + std::string(page_colors) +
         "</style>\n</head>\n<body class=\"fp8lab\">\n<main>\n" + body + "</main>\n<script>\n" +
         std::string(page_script) + "</script>\n</body>\n</html>\n";
}

/// The command that gives such a document, without the registry of experiments, which programs of tests do not link.
/// Commands of the group `verify` have a space behind that word.
std::string command_of(const Document& document) {
  std::string name = document.experiment;
  std::ranges::replace(name, '_', '-');
  constexpr std::string_view group = "verify-";
  if (name.starts_with(group)) name[group.size() - 1] = ' ';
  return "fp8lab " + name;
}

/// The document as its JSON says it: valid UTF-8, and the numbers that a reader of the JSON has.
Document as_stored(const Document& document) { return read_document(json_of(document)); }

}  // namespace

std::string page_of(const Document& document) {
  const DefaultEnvironment environment;
  const Document stored = as_stored(document);
  return page_with(command_of(stored), article_of(stored, stored.experiment, 1, command_of(stored)));
}

std::string page_of(const std::vector<NamedDocument>& documents, const std::string& title,
                    const std::vector<std::string>& notes) {
  const DefaultEnvironment environment;
  std::string body = "<h1>" + escaped_html(title) + "</h1>\n<nav><ul>\n";
  std::string articles;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const Document stored = as_stored(documents[i].document);
    const std::string id = fmt::format("d{}", i + 1);
    body += "<li><a href=\"#" + id + "\">" + escaped_html(documents[i].name) + "</a> " +
            (stored.experiment == documents[i].name ? "" : escaped_html(stored.experiment)) + " " + badge_of(stored) +
            "</li>\n";
    articles += article_of(stored, id, 2, documents[i].name);
  }
  body += "</ul></nav>\n";
  for (const std::string& note : notes) body += "<p class=\"note\">" + escaped_html(note) + "</p>\n";
  return page_with(title, body + articles);
}

std::string fragment_of(const Document& document) {
  const DefaultEnvironment environment;
  const Document stored = as_stored(document);
  const PageStyle style{.rows = rows_in_notebook, .panels = panels_in_notebook};
  std::string html = "<div class=\"fp8lab\"><style>" + std::string(page_style) + "</style>\n<p><b>" +
                     escaped_html(command_of(stored)) + "</b> " + badge_of(stored) + "</p>\n";
  // The first of each kind, a picture before a table: the rest is a name.
  const auto first_of = [&]<typename Kind>(const Kind* /*kind*/) {
    const auto found = std::ranges::find_if(stored.sections, [](const Section& one) {
      return std::holds_alternative<Kind>(one) && !is_detail_section(one);
    });
    if (found == stored.sections.end()) return false;
    html += section_html(*found, style, 4);
    return true;
  };
  if (!first_of(static_cast<const NumberLine*>(nullptr)) && !first_of(static_cast<const Curves*>(nullptr))) {
    first_of(static_cast<const Histograms*>(nullptr));
  }
  first_of(static_cast<const Table*>(nullptr));
  return html + "</div>\n";
}

}  // namespace fp8lab::experiments
