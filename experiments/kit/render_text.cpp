// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <type_traits>

#include "fp8lab/formats/environment.hpp"
#include "kit/render.hpp"

namespace fp8lab::experiments {
namespace {

/// Columns of a terminal: a character of UTF-8 takes one.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string blanks(std::size_t count) { return fmt::format("{:{}}", "", count); }

// 1. Values.

std::string shown(const Head& head, double x) {
  if (std::isnan(x)) return "-";
  switch (head.notation) {
    case Notation::fixed: return fmt::format("{:.{}f}", x, head.digits);
    case Notation::scientific: return fmt::format("{:.{}e}", x, head.digits);
    case Notation::percent: {
      if (x == 0) return "0";
      // Whatever is there shows.
      const bool vanishes = std::abs(100 * x) < 0.5 * std::pow(10, -head.digits);
      return vanishes ? fmt::format("{:.0e} %", 100 * x) : fmt::format("{:.{}f} %", 100 * x, head.digits);
    }
    case Notation::general: break;
  }
  return fmt::format("{:.{}g}", x, head.digits);
}
std::string shown(const Head& /*head*/, const std::optional<std::string>& text) { return text.value_or("-"); }
std::string shown(const Head& /*head*/, const std::optional<Integer>& value) {
  return value ? value->visit([](auto number) { return std::to_string(number); }) : "-";
}
std::string shown(const Head& /*head*/, const std::optional<bool>& flag) {
  if (!flag) return "-";
  return *flag ? "yes" : "no";
}

// 2. Tables.

constexpr std::string_view expected_label = "expected";  // of a row that follows one that differs

/// A column as a terminal shows it: its cells, the heading first.
struct Cells {
  std::vector<std::string> lines;
  std::vector<std::string> marks, expected;  ///< of each row, empty where nothing differs
  std::size_t width = 0;
  bool right = false;
};

/// Carets below the characters in which a text differs from what is expected.
std::string marks_of(const std::string& text, const std::string& expected) {
  std::string marks;
  for (std::size_t i = 0; i < text.size(); ++i) {
    marks += text.size() != expected.size() || text[i] != expected[i] ? '^' : ' ';
  }
  return marks;
}

Cells cells_of(const Table& table, const Column& column) {
  Cells cells;
  const bool is_first = &column == table.columns.data();
  cells.right = !is_first && (column.head.right || !std::holds_alternative<Texts>(column.values));
  cells.lines.push_back((is_first && table.marked ? "# " : "") + heading_of(column.head));
  for (std::size_t row = 0; row < column.size(); ++row) {
    const std::string text = cell_text(column, row);
    cells.lines.push_back((is_first && table.marked ? std::string{mark_of(row), ' '} : "") + text);
    const bool differs = !column.expected.empty() && column.expected[row] != text;
    cells.expected.push_back(differs ? column.expected[row].value_or("-") : "");
    cells.marks.push_back(differs ? marks_of(text, cells.expected.back()) : "");
  }
  for (const auto& texts : {cells.lines, cells.expected}) {
    for (const std::string& text : texts) cells.width = std::max(cells.width, width_of(text));
  }
  const auto is_expected = [](const Column& one) { return !one.expected.empty(); };
  if (is_first && std::ranges::any_of(table.columns, is_expected)) {
    cells.width = std::max(cells.width, expected_label.size());
  }
  return cells;
}

std::string aligned(const Cells& cells, const std::string& text) {
  const std::string gap = blanks(cells.width - std::min(cells.width, width_of(text)));
  return cells.right ? gap + text : text + gap;
}

/// A line of some columns: of each what text_of(column) gives.
template <typename TextOf>
std::string line_of(const std::vector<const Cells*>& columns, const TextOf& text_of) {
  std::string line;
  for (const Cells* cells : columns) line += "  " + aligned(*cells, text_of(*cells));
  return trimmed(std::move(line)) + '\n';
}

/// Some columns of a table; `label` gets a line of its own above each row where it does not fit beside them.
std::string block_of(const Cells& label, const std::vector<const Cells*>& columns, bool stacked, std::size_t width) {
  std::vector<const Cells*> all = columns;
  if (!stacked) all.insert(all.begin(), &label);
  std::string text;
  for (std::size_t row = 0; row < label.lines.size(); ++row) {
    if (stacked) text += wrapped("  " + label.lines[row], width, 4) + '\n';
    if (stacked && all.size() == 1 && all.front()->width + 5 > width) {  // a long text
      text += "     " + wrapped(all.front()->lines[row], width - 5, 5) + '\n';
      continue;
    }
    const std::string line = line_of(all, [&](const Cells& cells) { return cells.lines[row]; });
    text += stacked ? "   " + line : line;
    if (row == 0 || std::ranges::all_of(all, [&](const Cells* cells) { return cells->expected[row - 1].empty(); })) {
      continue;
    }
    const std::string indent = stacked ? "   " : "";
    text += indent + line_of(all, [&](const Cells& cells) { return cells.marks[row - 1]; });
    text += indent + line_of(all, [&](const Cells& cells) {
              return &cells == &label ? std::string(expected_label) : cells.expected[row - 1];
            });
  }
  return text;
}

/// Rows as lines: all columns side by side, or the labels above the others, or blocks of columns below one another.
std::string rows_text(const std::vector<Cells>& cells, std::size_t width) {
  const Cells& label = cells.front();
  const auto total = [](std::span<const Cells> all) {
    std::size_t sum = 0;
    for (const Cells& one : all) sum += 2 + one.width;
    return sum;
  };
  const std::span<const Cells> others = std::span(cells).subspan(1);
  const bool fits_stacked = total(others) + 3 <= width;
  std::size_t widest = 0;
  for (const Cells& one : others) widest = std::max(widest, one.width);
  const bool stacked = total(cells) > width && (fits_stacked || label.width + widest + 4 > width);
  const std::size_t room = stacked ? width - std::min<std::size_t>(width, 3) : width - label.width - 2;
  std::string text;
  std::vector<const Cells*> block;
  std::size_t used = 0;
  const auto flush = [&] {
    text += (text.empty() ? "" : "\n") + block_of(label, block, stacked, width);
    block.clear();
    used = 0;
  };
  for (const Cells& one : others) {
    if (!block.empty() && used + 2 + one.width > room) flush();
    block.push_back(&one);
    used += 2 + one.width;
  }
  if (!block.empty() || others.empty()) flush();
  return text;
}

std::string records_text(const Table& table, std::size_t width) {
  std::string text;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    for (const Column& column : table.columns) {
      if (column.head.detail) continue;
      const bool is_first = &column == table.columns.data();
      std::string value = cell_text(column, row);
      if (!is_first && !column.head.title.empty()) value.insert(0, heading_of(column.head) + ": ");
      text += is_first ? wrapped(value, width) + '\n' : "    " + wrapped(value, width - 4, 6) + '\n';
    }
  }
  return text;
}

std::string body_of(const Table& table, const TextStyle& style) {
  const auto width = static_cast<std::size_t>(style.width);
  if (table.layout == TableLayout::records) return records_text(table, width);
  std::vector<Cells> cells;
  for (const Column& column : table.columns) {
    if (!column.head.detail) cells.push_back(cells_of(table, column));
  }
  return cells.empty() || table.rows() == 0 ? "  none\n" : rows_text(cells, width);
}

// 3. Pictures.

std::string body_of(const Histograms& section, const TextStyle& style) {
  std::string text;
  const std::size_t most = columns_that_fit(style);
  for (std::size_t first = 0; first < section.histograms.size(); first += most) {
    std::vector<const Counts*> columns;
    for (std::size_t i = first; i < std::min(first + most, section.histograms.size()); ++i) {
      columns.push_back(&section.histograms[i]);
    }
    if (first != 0) text += '\n';
    text += draw_binades(columns, style, section.least);
  }
  return text;
}

std::string body_of(const Curves& curves, const TextStyle& style) {
  std::vector<Line> lines;
  std::string text;
  for (std::size_t i = 0; i < curves.lines.size(); ++i) {
    lines.push_back({mark_of(i), curves.lines[i].x, curves.lines[i].y});
    if (!curves.labelled) {
      text +=
          wrapped(fmt::format("  {} {}", mark_of(i), curves.lines[i].label), static_cast<std::size_t>(style.width), 4) +
          '\n';
    }
  }
  const AxisOfX axis = curves.x.logarithmic ? AxisOfX::logarithmic : AxisOfX::linear;
  const std::string picture = draw_lines(lines, style, axis, curves.y.rows_a_decade);
  return text + (picture.empty() ? "  no point that the axes can show\n" : picture);
}

/// A line of characters: each value a bar, the marked one an 'O', the interval '=' between its ends.
std::string body_of(const NumberLine& line, const TextStyle& style) {
  if (line.values.size() < 2) return "  none\n";
  const std::size_t width = static_cast<std::size_t>(std::clamp(style.width - 4, 12, 96));
  const double span = line.values.back() - line.values.front();
  const auto at = [&](double value) {
    const double share = std::clamp((value - line.values.front()) / span, 0.0, 1.0);
    return static_cast<std::size_t>(std::lround(share * static_cast<double>(width - 1)));
  };
  std::string picture(width, '-');
  if (!std::isnan(line.low)) {
    std::fill(picture.begin() + static_cast<std::ptrdiff_t>(at(line.low)),
              picture.begin() + static_cast<std::ptrdiff_t>(at(line.high)) + 1, '=');
  }
  for (const double value : line.values) picture[at(value)] = '|';
  if (!std::isnan(line.low)) {
    picture[at(line.low)] = line.low_included ? '[' : '(';
    picture[at(line.high)] = line.high_included ? ']' : ')';
  }
  picture[at(line.values[line.marked])] = 'O';
  // The ends, and the marked value where there is room between them.
  std::string names(width, ' ');
  std::size_t taken = 0;
  const std::string last = line.labels.back();
  const auto put = [&](std::size_t place, const std::string& label, std::size_t limit) {
    const std::size_t first = std::min(place, width - std::min(width, label.size()));
    if (first + label.size() > limit || first < taken) return;
    names.replace(first, label.size(), label);
    taken = first + label.size() + 1;
  };
  const std::size_t limit = width - std::min(width, last.size() + 1);
  for (std::size_t i = 0; i + 1 < line.values.size(); ++i) {
    const bool is_marked_near =
        i < line.marked && at(line.values[line.marked]) < at(line.values[i]) + line.labels[i].size() + 1;
    if (!is_marked_near) put(at(line.values[i]), line.labels[i], limit);
  }
  put(width, last, width);
  return "  " + picture + "\n" + trimmed("  " + names) + "\n";
}

std::string body_of(const Text& section, const TextStyle& style) {
  const std::size_t width = static_cast<std::size_t>(std::min(style.width, 100));
  const std::size_t indent = section.title.empty() ? 0 : 2;
  std::string text;
  for (const std::string& paragraph : section.paragraphs) {
    text += blanks(indent) + wrapped(paragraph, width - indent, indent) + '\n';
  }
  return text;
}

/// What a title says beside its words: what a character means that a picture of characters alone has.
template <typename Kind>
std::string title_end(const Kind& /*section*/, const std::string& body) {
  return std::is_same_v<Kind, Curves> && body.find('*') != std::string::npos ? " (*: several lines)" : "";
}

/// A section that a terminal shows, below its title.
template <typename Kind>
std::string section_text(const Kind& section, const TextStyle& style) {
  const std::string body = body_of(section, style);
  std::string text = section.title;
  if (text.empty()) return body;
  text += title_end(section, body) + (text.ends_with('.') ? "" : ":");
  return wrapped(text, static_cast<std::size_t>(style.width)) + '\n' + body;
}

// 4. What a terminal leaves out.

std::string left_out(const Text& /*text*/) { return ""; }
std::string left_out(const Table& table) {
  if (table.detail) return fmt::format("{} ({} {})", table.name, table.rows(), table.rows() == 1 ? "row" : "rows");
  std::string names;
  for (const Column& column : table.columns) {
    if (column.head.detail) names += (names.empty() ? "" : ", ") + column.head.name;
  }
  return names.empty() ? "" : fmt::format("{} with {}", table.name, names);
}
std::string left_out(const Histograms& section) {
  return section.detail ? fmt::format("{} ({} histograms)", section.name, section.histograms.size()) : "";
}
std::string left_out(const Curves& curves) { return curves.detail ? curves.name : ""; }
std::string left_out(const NumberLine& line) { return line.detail ? line.name : ""; }

bool is_detail(const Section& section) {
  return std::visit(
      [](const auto& kind) {
        if constexpr (requires { kind.detail; }) return kind.detail;
        return false;
      },
      section);
}

}  // namespace

std::string cell_text(const Column& column, std::size_t row) {
  return std::visit([&](const auto& values) { return shown(column.head, values[row]); }, column.values);
}

std::string heading_of(const Head& head) {
  const std::string& title = head.title.empty() ? head.name : head.title;
  return head.unit.empty() ? title : title + " " + head.unit;
}

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  std::string result;
  std::size_t used = 0;
  const std::size_t lead = text.find_first_not_of(' ');
  if (lead == std::string_view::npos) return result;
  result.assign(text.substr(0, lead));
  used = lead;
  for (std::size_t first = lead; first < text.size();) {
    std::size_t end = text.find(' ', first);
    if (end == std::string_view::npos) end = text.size();
    const std::string_view word = text.substr(first, end - first);
    const bool begins = used <= lead && result.size() == lead;
    if (!begins && used + 1 + width_of(word) > width) {
      result += '\n' + blanks(indent);
      used = indent;
    } else if (!begins) {
      result += ' ';
      ++used;
    }
    result += word;
    used += width_of(word);
    first = std::min(text.find_first_not_of(' ', end), text.size());
  }
  return result;
}

std::string text_of(const Document& document, const TextStyle& style) {
  const DefaultEnvironment environment;
  std::string text;
  std::string details;
  for (const Section& section : document.sections) {
    const std::string detail = std::visit([](const auto& kind) { return left_out(kind); }, section);
    if (!detail.empty()) details += (details.empty() ? "" : ", ") + detail;
    if (is_detail(section)) continue;
    text +=
        (text.empty() ? "" : "\n") + std::visit([&](const auto& kind) { return section_text(kind, style); }, section);
  }
  if (details.empty()) return text;
  return text + '\n' +
         wrapped("Also in JSON and CSV: " + details + ".", static_cast<std::size_t>(std::min(style.width, 100)), 2) +
         '\n';
}

}  // namespace fp8lab::experiments
