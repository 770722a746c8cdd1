// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "fp8lab/formats/environment.hpp"
#include "kit/render.hpp"

namespace fp8lab::experiments {
namespace {

/// A text as a field.
std::string field(const std::string& text) {
  if (text.find_first_of("\",\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}
/// A number with all its digits; an empty field where there is none.
std::string field(double x) { return std::isnan(x) ? "" : fmt::format("{}", x); }
template <typename T>
std::string field(const std::optional<T>& value) {
  if (!value) return "";
  if constexpr (std::same_as<T, std::string>) {
    return field(*value);
  } else if constexpr (std::same_as<T, bool>) {
    return *value ? "1" : "0";
  } else {
    return value->visit([](auto number) { return fmt::format("{}", number); });
  }
}

std::string csv_of(const Table& table) {
  std::string csv;
  for (const Column& column : table.columns) csv += (csv.empty() ? "" : ",") + field(column.head.name);
  csv += '\n';
  for (std::size_t row = 0; row < table.rows(); ++row) {
    for (const Column& column : table.columns) {
      if (&column != table.columns.data()) csv += ',';
      csv += std::visit([row](const auto& values) { return field(values[row]); }, column.values);
    }
    csv += '\n';
  }
  return csv;
}

std::string csv_of(const Counts& counts) {
  std::string csv = "low,high,count\n";
  for (std::size_t i = 0; i < counts.counts.size(); ++i) {
    csv += fmt::format("{},{},{}\n", counts.edges[i], counts.edges[i + 1], counts.counts[i]);
  }
  return csv +
         fmt::format("zeros,,{}\ninfinities,,{}\nnans,,{}\nbelow,,{}\nabove,,{}\nunderflows,,{}\nsaturations,,{}\n",
                     counts.zeros, counts.infinities, counts.nans, counts.below, counts.above, counts.underflows,
                     counts.saturations);
}

std::string csv_of(const Curves& curves) {
  std::string csv = "line," + field(curves.x.name) + "," + field(curves.y.name) + "\n";
  for (const Curve& line : curves.lines) {
    for (std::size_t i = 0; i < line.x.size(); ++i) {
      csv += field(line.label) + "," + field(line.x[i]) + "," + field(line.y[i]) + "\n";
    }
  }
  return csv;
}

struct AddFiles {
  Files& files;
  void operator()(const Text& /*text*/) const {}
  void operator()(const NumberLine& /*line*/) const {}  // a table beside it has the values
  void operator()(const Table& table) const { files.emplace_back(table.name + ".csv", csv_of(table)); }
  void operator()(const Curves& curves) const { files.emplace_back(curves.name + ".csv", csv_of(curves)); }
  void operator()(const Histograms& section) const {
    for (const Counts& counts : section.histograms) files.emplace_back(counts.name + ".csv", csv_of(counts));
  }
};

}  // namespace

std::string json_file(const Document& document) { return document.experiment + ".json"; }

Files files_of(const Document& document) {
  const DefaultEnvironment environment;
  Files files{{json_file(document), json_of(document)}};
  for (const Section& section : document.sections) std::visit(AddFiles{files}, section);
  return files;
}

}  // namespace fp8lab::experiments
