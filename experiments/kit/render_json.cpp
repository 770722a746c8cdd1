// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "kit/render.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::string_view no_document = "this is not the JSON of a document: ";
constexpr std::array notations{"general", "fixed", "scientific", "percent"};
constexpr std::array layouts{"rows", "records"};
constexpr std::array types{"text", "integer", "number", "flag"};  // in the order of Column::values

/// The counts of a histogram that are not of bins, by their keys.
struct NamedCounter {
  const char* name;
  std::uint64_t Counts::* count;
};
constexpr std::array counters{NamedCounter{"zeros", &Counts::zeros},
                              NamedCounter{"infinities", &Counts::infinities},
                              NamedCounter{"nans", &Counts::nans},
                              NamedCounter{"below", &Counts::below},
                              NamedCounter{"above", &Counts::above},
                              NamedCounter{"underflows", &Counts::underflows},
                              NamedCounter{"saturations", &Counts::saturations},
                              NamedCounter{"total", &Counts::total}};

Json value_of(double x) {
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  return x;  // NaN becomes null
}
Json value_of(const std::optional<Integer>& value) {
  return value ? value->visit([](auto number) { return Json(number); }) : Json(nullptr);
}
template <typename T>
Json value_of(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}
template <typename Values>
Json list_of(const Values& values) {
  Json list = Json::array();
  for (const auto& value : values) {
    if constexpr (std::same_as<Values, std::vector<bool>>) {
      list.push_back(Json(bool(value)));
    } else {
      list.push_back(value_of(value));
    }
  }
  return list;
}

Json section_json(const Text& text) {
  return {{"kind", "text"}, {"name", text.name}, {"title", text.title}, {"paragraphs", text.paragraphs}};
}

Json section_json(const Table& table) {
  Json json{{"kind", "table"},         {"name", table.name},
            {"title", table.title},    {"layout", layouts[static_cast<std::size_t>(table.layout)]},
            {"marked", table.marked},  {"detail", table.detail},
            {"columns", Json::array()}};
  for (const Column& column : table.columns) {
    const Head& head = column.head;
    Json entry{{"name", head.name},
               {"title", head.title},
               {"unit", head.unit},
               {"type", types[column.values.index()]},
               {"notation", notations[static_cast<std::size_t>(head.notation)]},
               {"digits", head.digits},
               {"right", head.right},
               {"detail", head.detail}};
    entry["values"] = std::visit([](const auto& values) { return list_of(values); }, column.values);
    if (!column.expected.empty()) entry["expected"] = list_of(column.expected);
    json["columns"].push_back(std::move(entry));
  }
  return json;
}

Json section_json(const Histograms& section) {
  Json json{{"kind", "histograms"},   {"name", section.name},     {"title", section.title},
            {"least", section.least}, {"detail", section.detail}, {"histograms", Json::array()}};
  for (const Counts& counts : section.histograms) {
    Json entry{{"name", counts.name},
               {"title", counts.title},
               {"label", counts.label},
               {"edges", counts.edges},
               {"counts", counts.counts}};
    for (const NamedCounter& counter : counters) entry[counter.name] = counts.*counter.count;
    json["histograms"].push_back(std::move(entry));
  }
  return json;
}

Json axis_json(const PlotAxis& axis) { return {{"name", axis.name}, {"logarithmic", axis.logarithmic}}; }

Json section_json(const Curves& curves) {
  Json json{{"kind", "curves"},         {"name", curves.name},      {"title", curves.title},
            {"x", axis_json(curves.x)}, {"y", axis_json(curves.y)}, {"labelled", curves.labelled},
            {"detail", curves.detail},  {"lines", Json::array()}};
  for (const Curve& curve : curves.lines) {
    json["lines"].push_back({{"label", curve.label}, {"x", list_of(curve.x)}, {"y", list_of(curve.y)}});
  }
  return json;
}

Json section_json(const NumberLine& line) {
  return {{"kind", "number_line"},
          {"name", line.name},
          {"title", line.title},
          {"detail", line.detail},
          {"values", list_of(line.values)},
          {"labels", line.labels},
          {"marked", line.marked},
          {"low", value_of(line.low)},
          {"high", value_of(line.high)},
          {"low_included", line.low_included},
          {"high_included", line.high_included}};
}

// The way back. What is missing or of another type makes nlohmann's at() and get() throw.
using Parsed = nlohmann::ordered_json;

template <typename Names>
std::size_t index_of(const Names& names, const std::string& name) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return i;
  }
  throw std::invalid_argument("'" + name + "' is not a value of a document");
}

void read(const Parsed& json, double& value) {
  if (json.is_null()) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (json.is_string()) {
    value = json.get<std::string>() == "inf" ? HUGE_VAL : -HUGE_VAL;
  } else {
    value = json.get<double>();
  }
}
void read(const Parsed& json, std::optional<Integer>& value) {
  if (json.is_null()) return;
  value = json.is_number_unsigned() ? Integer(json.get<std::uint64_t>()) : Integer(json.get<std::int64_t>());
}
template <typename T>
void read(const Parsed& json, std::optional<T>& value) {
  if (!json.is_null()) value = json.get<T>();
}
template <typename Values>
Values list_from(const Parsed& json) {
  Values values;
  for (const Parsed& entry : json) {
    typename Values::value_type value{};
    read(entry, value);
    values.push_back(std::move(value));
  }
  return values;
}

Text text_from(const Parsed& json) {
  return {json.at("name"), json.at("title"), json.at("paragraphs").get<std::vector<std::string>>()};
}

Column column_from(const Parsed& json) {
  Column column{{.name = json.at("name"),
                 .title = json.at("title"),
                 .unit = json.at("unit"),
                 .notation = static_cast<Notation>(index_of(notations, json.at("notation"))),
                 .digits = json.at("digits"),
                 .right = json.at("right"),
                 .detail = json.at("detail")},
                {}};
  const Parsed& values = json.at("values");
  switch (index_of(types, json.at("type"))) {
    case 0: column.values = list_from<Texts>(values); break;
    case 1: column.values = list_from<Integers>(values); break;
    case 2: column.values = list_from<Numbers>(values); break;
    default: column.values = list_from<Flags>(values); break;
  }
  if (json.contains("expected")) column.expected = list_from<Texts>(json.at("expected"));
  return column;
}

Table table_from(const Parsed& json) {
  Table table{.name = json.at("name"),
              .title = json.at("title"),
              .layout = static_cast<TableLayout>(index_of(layouts, json.at("layout"))),
              .marked = json.at("marked"),
              .detail = json.at("detail")};
  for (const Parsed& column : json.at("columns")) {
    table.columns.push_back(column_from(column));
    if (table.columns.back().size() != table.rows()) throw std::invalid_argument("a table has columns of two lengths");
  }
  return table;
}

Histograms histograms_from(const Parsed& json) {
  Histograms section{
      .name = json.at("name"), .title = json.at("title"), .least = json.at("least"), .detail = json.at("detail")};
  for (const Parsed& entry : json.at("histograms")) {
    Counts counts{.name = entry.at("name"), .title = entry.at("title"), .label = entry.at("label")};
    counts.edges = entry.at("edges").get<std::vector<double>>();
    counts.counts = entry.at("counts").get<std::vector<std::uint64_t>>();
    for (const NamedCounter& counter : counters) counts.*counter.count = entry.at(counter.name);
    section.histograms.push_back(std::move(counts));
  }
  return section;
}

Curves curves_from(const Parsed& json) {
  const auto axis = [](const Parsed& one) { return PlotAxis{one.at("name"), one.at("logarithmic")}; };
  Curves curves{.name = json.at("name"),
                .title = json.at("title"),
                .x = axis(json.at("x")),
                .y = axis(json.at("y")),
                .labelled = json.at("labelled"),
                .detail = json.at("detail")};
  for (const Parsed& line : json.at("lines")) {
    curves.lines.push_back({line.at("label"), list_from<Numbers>(line.at("x")), list_from<Numbers>(line.at("y"))});
  }
  return curves;
}

NumberLine number_line_from(const Parsed& json) {
  NumberLine line{.name = json.at("name"),
                  .title = json.at("title"),
                  .detail = json.at("detail"),
                  .values = list_from<Numbers>(json.at("values")),
                  .labels = json.at("labels").get<std::vector<std::string>>(),
                  .marked = json.at("marked"),
                  .low_included = json.at("low_included"),
                  .high_included = json.at("high_included")};
  read(json.at("low"), line.low);
  read(json.at("high"), line.high);
  const bool is_ascending = std::ranges::is_sorted(line.values, std::less_equal<>()) || line.values.size() < 2;
  if (line.labels.size() != line.values.size() || line.marked >= line.values.size() || !is_ascending) {
    throw std::invalid_argument("a number line must have ascending values, a label for each, and a marked one of them");
  }
  return line;
}

Section section_from(const Parsed& json) {
  const std::string kind = json.at("kind");
  if (kind == "text") return text_from(json);
  if (kind == "table") return table_from(json);
  if (kind == "histograms") return histograms_from(json);
  if (kind == "curves") return curves_from(json);
  if (kind == "number_line") return number_line_from(json);
  throw std::invalid_argument("'" + kind + "' is not a kind of section");
}

/// A value of the arguments as one that can be written again.
Json json_from(const Parsed& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned()) return json.get<std::uint64_t>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_null()) return nullptr;
  Json result = json.is_array() ? Json::array() : Json::object();
  for (const auto& [key, value] : json.items()) {
    if (json.is_array()) {
      result.push_back(json_from(value));
    } else {
      result[key] = json_from(value);
    }
  }
  return result;
}

/// Throws where a file has something else: no JSON, that of another program, or a document of another schema.
void check_is_document(const Parsed& parsed) {
  if (parsed.is_discarded()) refuse(no_document, "it is not JSON, or its end is missing");
  if (!parsed.is_object()) refuse(no_document, "it is not an object with keys");
  for (const char* key : {"schema", "experiment", "arguments", "provenance", "passed", "sections"}) {
    if (!parsed.contains(key)) refuse(no_document, "the key \"", key, "\" is missing");
  }
  const Parsed& schema = parsed.at("schema");
  if (!schema.is_number_integer()) refuse(no_document, "\"schema\" is not a whole number");
  if (schema != document_schema) {
    refuse("the document has schema ", schema.dump(), ", and this version of fp8lab reads ", document_schema);
  }
}

}  // namespace

std::string json_of(const Document& document) {
  const DefaultEnvironment environment;
  const Provenance& made = document.made;
  Json json{{"experiment", document.experiment},
            {"schema", document_schema},
            {"arguments", document.arguments},
            {"provenance",
             {{"version", made.version},
              {"commit", made.commit},
              {"compiler", made.compiler},
              {"cpu", made.cpu},
              {"date", made.date}}},
            {"passed", value_of(document.passed)},
            {"sections", Json::array()}};
  for (const Section& section : document.sections) {
    json["sections"].push_back(std::visit([](const auto& kind) { return section_json(kind); }, section));
  }
  return json.text() + '\n';
}

Document read_document(const std::string& json) {
  const Parsed parsed = Parsed::parse(json, nullptr, false);  // no exceptions: their words are the library's
  check_is_document(parsed);
  try {
    const Parsed& made = parsed.at("provenance");
    Document document{
        .experiment = parsed.at("experiment"),
        .arguments = json_from(parsed.at("arguments")),
        .made = {made.at("version"), made.at("commit"), made.at("compiler"), made.at("cpu"), made.at("date")}};
    read(parsed.at("passed"), document.passed);
    for (const Parsed& section : parsed.at("sections")) document.sections.push_back(section_from(section));
    return document;
  } catch (const nlohmann::json::exception&) {
    refuse(no_document, "a key is missing in it, or a value has another type");
  }
}

}  // namespace fp8lab::experiments
