// SPDX-License-Identifier: Apache-2.0
// The result of an experiment, without formatting. The renderers of render.hpp make text, JSON, CSV and pages of it.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "fp8lab/reference/measure/histogram.hpp"
#include "kit/json.hpp"
#include "kit/provenance.hpp"

namespace fp8lab::experiments {

/// Paragraphs, without line ends: the renderer wraps them.
struct Text {
  std::string name;
  std::string title = {};  ///< a heading, or empty
  std::vector<std::string> paragraphs = {};
};

/// How a terminal shows a number.
enum class Notation : std::uint8_t {
  general,     ///< `digits` significant digits
  fixed,       ///< `digits` digits after the point
  scientific,  ///< the same, with an exponent
  percent,     ///< fixed, of 100 times the number
};

/// The name, title, unit and notation of a column.
struct Head {
  std::string name;        ///< its key in JSON, CSV and Python
  std::string title = {};  ///< its heading at a terminal; `name` where empty
  std::string unit = {};   ///< such as dB
  Notation notation = Notation::general;
  int digits = 6;
  bool right = false;   ///< texts that are aligned as numbers are
  bool detail = false;  ///< a terminal leaves it out, and says so
};

/// A whole number from -2^63 to 2^64 - 1.
class Integer {
 public:
  Integer() = default;
  template <std::integral T>
  Integer(T value) : word_(static_cast<std::uint64_t>(value)) {
    if constexpr (std::signed_integral<T>) is_negative_ = value < 0;
  }

  /// Calls `visitor` with the number, as a std::int64_t where it is negative and else as a std::uint64_t; returns its
  /// result.
  template <typename Visitor>
  auto visit(const Visitor& visitor) const {
    return is_negative_ ? visitor(static_cast<std::int64_t>(word_)) : visitor(word_);
  }
  friend bool operator==(const Integer&, const Integer&) = default;

 private:
  std::uint64_t word_ = 0;  ///< modulo 2^64
  bool is_negative_ = false;
};

using Texts = std::vector<std::optional<std::string>>;
using Integers = std::vector<std::optional<Integer>>;
using Numbers = std::vector<double>;  ///< NaN: there is no number
using Flags = std::vector<std::optional<bool>>;

/// A column of a table. All columns of a table have the same length.
struct Column {
  Head head;
  std::variant<Texts, Integers, Numbers, Flags> values;
  Texts expected = {};  ///< what texts should be; empty: nothing is expected. A terminal marks what differs

  [[nodiscard]] std::size_t size() const;
};

/// How a terminal shows a table.
enum class TableLayout : std::uint8_t {
  rows,     ///< a line for each row
  records,  ///< a line for each value: the first of a row is its heading
};

struct Table {
  std::string name;
  std::string title = {};
  TableLayout layout = TableLayout::rows;
  bool marked = false;  ///< rows get the marks a, b, c, ..., which Curves give to their lines
  bool detail = false;  ///< a terminal leaves it out, and says so
  std::vector<Column> columns = {};

  [[nodiscard]] std::size_t rows() const { return columns.empty() ? 0 : columns.front().size(); }
};

/// A histogram as counts: those of bins, and those beside them.
struct Counts {
  std::string name;        ///< also that of its CSV file
  std::string title = {};  ///< what it counts
  std::string label = {};  ///< of its column in a picture, at most 12 characters; `name` where empty
  std::vector<double> edges = {};
  std::vector<std::uint64_t> counts = {};
  std::uint64_t zeros = 0, infinities = 0, nans = 0, below = 0, above = 0, underflows = 0, saturations = 0;
  std::uint64_t total = 0;
};
[[nodiscard]] Counts counts_of(const Histogram& histogram, std::string name, std::string title, std::string label = {});

/// The name of a histogram of the table row `row`, which is about `subject`: "02_e4m3_error". In `subject`, which a
/// user may have named, everything but letters, digits, '.' and '-' becomes '_', and no more than 40 characters are
/// kept.
[[nodiscard]] std::string histogram_name(std::size_t row, std::string_view subject, std::string_view histogram);

/// Histograms with the same bins where they are drawn: those of binades, side by side.
struct Histograms {
  std::string name;
  std::string title = {};
  double least = 0;     ///< a picture takes the lowest lines together whose counts are below this share of the largest
  bool detail = false;  ///< a terminal leaves it out, and says so
  std::vector<Counts> histograms = {};
};

struct PlotAxis {
  std::string name;
  bool logarithmic = true;
  int rows_a_decade = 3;  ///< lines of text, of a vertical axis; with more than 3, each has its label
};
struct Curve {
  std::string label;
  std::vector<double> x = {}, y = {};  ///< in the order of x
};
/// Lines in a plane.
struct Curves {
  std::string name;
  std::string title = {};
  PlotAxis x = {}, y = {};
  bool labelled = false;  ///< a table above has the labels already, as marked rows
  bool detail = false;    ///< a terminal leaves it out, and says so
  std::vector<Curve> lines = {};
};

/// Numbers on a line, such as the values of a binade, of which one is marked and has an interval around it.
struct NumberLine {
  std::string name;
  std::string title = {};
  bool detail = false;                                    ///< a terminal leaves it out, and says so
  std::vector<double> values = {};                        ///< in ascending order, at least two
  std::vector<std::string> labels = {};                   ///< of each value
  std::size_t marked = 0;                                 ///< the index of the value that is marked
  double low = std::numeric_limits<double>::quiet_NaN();  ///< the interval; NaN: there is none
  double high = std::numeric_limits<double>::quiet_NaN();
  bool low_included = false, high_included = false;
};

using Section = std::variant<Text, Table, Histograms, Curves, NumberLine>;

/// The version of a document's keys in JSON. It grows when a key is renamed, removed or gets another meaning.
inline constexpr int document_schema = 2;

/// The result of an experiment.
struct Document {
  std::string experiment = {};  ///< its name in Python
  Json arguments = Json::object();
  Provenance made = {};
  bool in_part = false;             ///< whether it passed by an input that does not show all, and that counts
  std::optional<bool> passed = {};  ///< where there is something to pass
  std::vector<Section> sections = {};
};

/// Sections in order. Temporary ones are moved: an initializer list would copy them.
template <typename... Sections>
std::vector<Section> sections_of(Sections&&... sections) {
  std::vector<Section> all;
  all.reserve(sizeof...(sections));
  (all.emplace_back(std::forward<Sections>(sections)), ...);
  return all;
}

/// Makes a table of a list: every column has its head and a member of an entry of the list, or a function of it.
template <typename Rows>
class Tabulated {
 public:
  Tabulated(const Rows& rows, Table table) : rows_(rows), table_(std::move(table)) {}

  /// A value is a text, a bool, an integer, a floating-point number, or an optional one of these.
  template <typename Value>
  Tabulated& column(Head head, const Value& value_of) {
    using Result = std::remove_cvref_t<decltype(std::invoke(value_of, *std::begin(rows_)))>;
    if constexpr (requires(Result result) { result.value(); }) {
      fill<typename Result::value_type>(std::move(head), value_of);
    } else {
      fill<Result>(std::move(head), value_of);
    }
    return *this;
  }
  Tabulated& expected(Texts texts) {
    table_.columns.back().expected = std::move(texts);
    return *this;
  }
  operator Table() { return std::move(table_); }  // NOLINT(google-explicit-constructor): the end of a chain

 private:
  template <typename T, typename Value>
  void fill(Head head, const Value& value_of) {
    using Values = std::conditional_t<std::same_as<T, bool>, Flags,
                                      std::conditional_t<std::integral<T> || std::same_as<T, Integer>, Integers,
                                                         std::conditional_t<std::floating_point<T>, Numbers, Texts>>>;
    Values values;
    values.reserve(std::size(rows_));
    for (const auto& row : rows_) {
      const auto value = std::invoke(value_of, row);
      if constexpr (requires { value.value(); }) {
        values.push_back(value ? entry<Values>(*value) : none<Values>());
      } else {
        values.push_back(entry<Values>(value));
      }
    }
    table_.columns.push_back({std::move(head), std::move(values)});
  }
  template <typename Values, typename T>
  static Values::value_type entry(const T& value) {
    if constexpr (std::same_as<Values, Integers>) {
      return Integer(value);
    } else if constexpr (std::same_as<Values, Numbers>) {
      return static_cast<double>(value);
    } else if constexpr (std::same_as<Values, Texts>) {
      return std::string(value);
    } else {
      return value;
    }
  }
  template <typename Values>
  static Values::value_type none() {
    if constexpr (std::same_as<Values, Numbers>) {
      return std::numeric_limits<double>::quiet_NaN();
    } else {
      return std::nullopt;
    }
  }

  const Rows& rows_;
  Table table_;
};
template <typename Rows>
[[nodiscard]] Tabulated<Rows> tabulate(const Rows& rows, Table table) {
  return {rows, std::move(table)};
}

/// The mark of the i-th of several curves in tables and pictures: a to z, then A to Z, then '+'.
[[nodiscard]] constexpr char mark_of(std::size_t i) {
  constexpr std::string_view marks = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  return i < marks.size() ? marks[i] : '+';
}

}  // namespace fp8lab::experiments
