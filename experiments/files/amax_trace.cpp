// SPDX-License-Identifier: Apache-2.0
#include "files/amax_trace.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <streambuf>
#include <string_view>
#include <utility>

#include "files/stored_file.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t most_amaxes = 1 << 24;
constexpr std::size_t most_columns = 1 << 16;
constexpr std::size_t longest_line = 1 << 24;  // names of 256 bytes

/// The whole of a text as a number; none where it is not one that fits.
template <typename T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Text without the spaces around it.
std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view spaces = " \t\r";
  text.remove_prefix(std::min(text.find_first_not_of(spaces), text.size()));
  return text.substr(0, text.find_last_not_of(spaces) + 1);
}

/// The fields between commas, without the spaces around them; of more than `most`, so many and one.
std::vector<std::string_view> fields_of(std::string_view line, std::size_t most) {
  std::vector<std::string_view> fields;
  for (std::size_t first = 0; first <= line.size() && fields.size() <= most;) {
    const std::size_t end = std::min(line.find(',', first), line.size());
    fields.push_back(without_blanks(line.substr(first, end - first)));
    first = end + 1;
  }
  return fields;
}

/// A column's name in parts.
struct ColumnName {
  std::string tensor;
  std::optional<int> rank;
};
ColumnName split_name(const std::string& name) {
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  const std::size_t at = name.rfind('@');
  ColumnName split{name.substr(0, at), std::nullopt};
  if (split.tensor.empty()) refuse("a column must have a name, tensor or tensor@rank, not '", name, "'");
  if (std::ranges::any_of(name, is_control)) refuse("a column's name must be printable");
  if (at == std::string::npos) return split;
  split.rank = number_in<int>(std::string_view(name).substr(at + 1));
  if (!split.rank || *split.rank < 0) refuse("the rank after the '@' of column '", name, "' must be a whole number");
  return split;
}

/// Throws unless every tensor has the ranks of the first, or none as it has.
void check_ranks(const std::vector<TracedTensor>& tensors) {
  const TracedTensor& first = tensors.front();
  const auto sorted = [](std::vector<int> ranks) {
    std::ranges::sort(ranks);
    return ranks;
  };
  const std::vector<int> wanted = sorted(first.ranks);
  for (const TracedTensor& tensor : tensors) {
    if (tensor.ranks.empty() != first.ranks.empty()) {
      refuse("either every column or none has a rank: ", tensor.name, " and ", first.name, " differ");
    }
    const std::vector<int> ranks = sorted(tensor.ranks);
    const auto [own, others] = std::ranges::mismatch(ranks, wanted);
    if (own == ranks.end() && others == wanted.end()) continue;
    // The smallest rank that only one of them has.
    const bool lacks = own == ranks.end() || (others != wanted.end() && *others < *own);
    refuse("column '", lacks ? tensor.name : first.name, "@", lacks ? *others : *own,
           "' is missing: ", lacks ? first.name : tensor.name, " has that rank");
  }
}

/// Tensors as their columns' names have them, without amaxes; columns[i] says to which tensor column i goes.
struct Layout {
  std::vector<TracedTensor> tensors;
  std::vector<std::size_t> columns;
};
Layout layout_of(const std::vector<std::string>& names) {
  if (names.empty()) refuse("a trace must have a column for at least one tensor");
  if (names.size() > most_columns) refuse("a trace must have at most ", most_columns, " columns, not ", names.size());
  Layout layout;
  std::map<std::string, std::size_t, std::less<>> places;
  std::set<std::pair<std::size_t, int>> seen;  // tensor and rank
  for (const std::string& name : names) {
    const ColumnName split = split_name(name);
    const auto [place, is_new] = places.try_emplace(split.tensor, layout.tensors.size());
    if (is_new) layout.tensors.push_back({split.tensor, {}, {}});
    TracedTensor& tensor = layout.tensors[place->second];
    const bool is_twice = (!is_new && !split.rank) || !seen.insert({place->second, split.rank.value_or(-1)}).second;
    if (is_twice) refuse("two columns are called '", name, "'");
    if (!is_new && tensor.ranks.empty()) {
      refuse("either every column or none has a rank: ", split.tensor, " has both");
    }
    if (split.rank) tensor.ranks.push_back(*split.rank);
    layout.columns.push_back(place->second);
  }
  check_ranks(layout.tensors);
  return layout;
}

/// Reads a CSV line by line; every message begins with the place.
class Reader {
 public:
  Reader(std::istream& text, std::string source) : text_(text), source_(std::move(source)) {}

  AmaxTrace read() {
    // 1. The header.
    if (!next()) fail("it is empty; it must begin with a header, step,tensor,...");
    const std::vector<std::string_view> header = fields_of(line_, most_columns + 1);
    if (header.front() != "step") fail("the first column must be called step, not '", header.front(), "'");
    if (header.size() > most_columns + 1)
      fail("it has more than ", most_columns, " columns of amaxes, the most allowed");
    const std::vector<std::string> names(header.begin() + 1, header.end());
    placed([&] { (void)layout_of(names); });
    // 2. A line a step; empty ones may come after the last.
    std::vector<std::vector<float>> columns(names.size());
    std::vector<std::uint64_t> steps;
    while (next()) {
      if (without_blanks(line_).empty()) {
        if (!is_rest_empty()) fail("it is empty");
        break;
      }
      read_line(names, steps, columns);
    }
    if (steps.empty()) fail("there is no step after the header");
    return trace_of_columns(source_, steps, names, columns);
  }

 private:
  /// Whether there is a next line, which is then in line_.
  bool next() {
    using Traits = std::streambuf::traits_type;
    std::streambuf& text = *text_.rdbuf();
    line_.clear();
    if (Traits::eq_int_type(text.sgetc(), Traits::eof())) return false;
    ++number_;
    for (auto c = text.sbumpc(); !Traits::eq_int_type(c, Traits::eof()) && c != '\n'; c = text.sbumpc()) {
      if (line_.size() == longest_line)
        fail("it has more than ", longest_line, " bytes, the most that a line may have");
      line_ += Traits::to_char_type(c);
    }
    return true;
  }
  /// Leaves the number of the line as it is.
  bool is_rest_empty() {
    const std::size_t number = number_;
    bool is_empty = true;
    while (is_empty && next()) is_empty = without_blanks(line_).empty();
    number_ = number;
    return is_empty;
  }

  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    refuse(source_, ", line ", std::max<std::size_t>(number_, 1), ": ", parts...);
  }
  template <typename Work>
  void placed(const Work& work) const {
    try {
      work();
    } catch (const std::invalid_argument& error) {
      fail(error.what());
    }
  }

  void read_line(const std::vector<std::string>& names, std::vector<std::uint64_t>& steps,
                 std::vector<std::vector<float>>& columns) const {
    const auto count = static_cast<std::size_t>(std::ranges::count(line_, ',')) + 1;
    if (count != names.size() + 1) fail("it has ", count, " fields, and the header has ", names.size() + 1);
    const std::vector<std::string_view> fields = fields_of(line_, count);
    const auto step = number_in<std::uint64_t>(fields.front());
    if (!step) fail("step must be a whole number, not '", fields.front(), "'");
    if (!steps.empty() && *step <= steps.back()) fail("steps must increase, and ", *step, " follows ", steps.back());
    if ((steps.size() + 1) * names.size() > most_amaxes) fail("there are more than ", most_amaxes, " amaxes");
    steps.push_back(*step);
    for (std::size_t column = 0; column < names.size(); ++column) {
      const std::string_view field = fields[column + 1];
      const auto amax = number_in<float>(field);
      if (!amax) fail("column ", names[column], ": '", field, "' is not a number that float32 holds");
      if (*amax < 0) fail("column ", names[column], ": an amax must not be negative, and is ", field);
      columns[column].push_back(*amax);
    }
  }

  std::istream& text_;
  std::string source_;
  std::string line_;
  std::size_t number_ = 0;  // of the line
};

}  // namespace

AmaxTrace trace_of_columns(const std::string& source, const std::vector<std::uint64_t>& steps,
                           const std::vector<std::string>& names, const std::vector<std::vector<float>>& columns) {
  const DefaultEnvironment environment;
  Layout layout = layout_of(names);
  if (steps.empty()) refuse("a trace must have at least one step");
  if (!std::ranges::is_sorted(steps, std::ranges::less_equal())) refuse("steps must increase");
  if (columns.size() != names.size()) refuse("there are ", columns.size(), " columns and ", names.size(), " names");
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].size() != steps.size()) {
      refuse("column ", names[i], " has ", columns[i].size(), " amaxes, and there are ", steps.size(), " steps");
    }
    const auto negative = std::ranges::find_if(columns[i], [](float amax) { return amax < 0; });
    if (negative != columns[i].end()) refuse("column ", names[i], ": an amax must not be negative, and is ", *negative);
    layout.tensors[layout.columns[i]].amaxes.push_back(columns[i]);
  }
  return {source, steps, std::move(layout.tensors)};
}

AmaxTrace parse_amax_trace(std::istream& text, const std::string& source) {
  const DefaultEnvironment environment;
  return Reader(text, source).read();
}

AmaxTrace read_amax_trace(const std::filesystem::path& file) {
  FileStream text(file);
  return parse_amax_trace(text, in_one_line(file.native()));
}

AmaxTrace example_amax_trace() {
  const DefaultEnvironment environment;
  constexpr std::uint64_t count = 48;
  constexpr float inf = std::numeric_limits<float>::infinity();
  constexpr float tiny = 1e-38F;
  std::vector<std::uint64_t> steps;
  std::vector<std::vector<float>> columns(5);
  float drift = 0.25F;
  for (std::uint64_t step = 1; step <= count; ++step) {
    const float around_4 = 3.5F + 0.0625F * static_cast<float>(step * 7 % 17);  // 3.5 to 4.5, without a pattern
    steps.push_back(step);
    columns[0].push_back(around_4);
    columns[1].push_back(drift);
    columns[2].push_back(step == 20 ? 64 * around_4 : around_4);
    columns[3].push_back(step >= 24 ? 16 * around_4 : around_4);
    columns[4].push_back(step % 4 == 1 ? around_4 / static_cast<float>(step) : 0);
    if (step == 24) columns[4].back() = inf;
    if (step > 40) columns[4].back() = tiny;
    drift *= 1.125F;
  }
  return trace_of_columns("the built-in example", steps, {"stationary", "drifting", "outlier", "jump", "rare"},
                          columns);
}

}  // namespace fp8lab::experiments
