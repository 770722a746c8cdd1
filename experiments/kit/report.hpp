// SPDX-License-Identifier: Apache-2.0
// What the reports of all experiments share.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "fp8lab/reference/measure/histogram.hpp"
#include "kit/document.hpp"
#include "kit/json.hpp"
#include "kit/provenance.hpp"
#include "kit/tensor_source.hpp"

namespace fp8lab::experiments {

/// printf into a string of at most 511 characters.
template <typename... Args>
std::string formatted(const char* format, Args... args) {
  char text[512];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

/// A text as a field of a CSV.
[[nodiscard]] inline std::string csv_field(const std::string& text) {
  if (text.find_first_of("\",\n\r") == std::string::npos) return text;
  std::string field = "\"";
  for (const char c : text) field.append(c == '"' ? 2 : 1, c);
  return field + '"';
}

[[nodiscard]] inline Json json_of_histogram(const Histogram& histogram) {
  return {{"edges", histogram.edges()},
          {"counts", histogram.counts()},
          {"zeros", histogram.zeros},
          {"infinities", histogram.infinities},
          {"nans", histogram.nans},
          {"below", histogram.below},
          {"above", histogram.above},
          {"underflows", histogram.underflows},
          {"saturations", histogram.saturations},
          {"total", histogram.total()}};
}

/// What a source is, for the arguments of a result.
[[nodiscard]] inline Json json_of_source(const TensorSource& source) {
  if (const auto* draws = std::get_if<Draws>(&source)) {
    const auto outliers = [](const OutlierLines& lines) {
      return Json{{"count", lines.count}, {"factor", lines.factor}};
    };
    return {{"stream", name_of(draws->kind)},
            {"distribution", draws->distribution.name},
            {"seed", draws->seed},
            {"steps", draws->steps},
            {"rows", draws->rows},
            {"columns", draws->columns},
            {"outlier_rows", outliers(draws->outlier_rows)},
            {"outlier_columns", outliers(draws->outlier_columns)}};
  }
  if (const auto* grid = std::get_if<Grid>(&source)) {
    return {{"grid", true}, {"rows", grid->rows}, {"columns", grid->columns}};
  }
  if (const auto* stored = std::get_if<StoredTensors>(&source)) {
    Json json{{"files", Json::array()}, {"tensor", stored->names}};
    for (const auto& path : stored->paths) json["files"].push_back(path.native());
    return json;
  }
  return {{"arrays", std::get<HeldTensors>(source).size()}};
}

/// The tensors of a result: name, type and shape.
[[nodiscard]] inline Json json_of_tensors(const std::vector<SourceTensor>& tensors) {
  Json json = Json::array();
  for (const SourceTensor& facts : tensors) {
    json.push_back({{"name", facts.name}, {"type", name_of(facts.type)}, {"shape", facts.shape}});
  }
  return json;
}

/// The version of the keys of all results in JSON. A program that reads results checks it: it becomes larger whenever a
/// key is renamed, removed or gets another meaning. New keys leave it as it is.
inline constexpr int json_schema = 2;

/// A result in JSON: the experiment, the schema, where the result came from, and then its `content`.
[[nodiscard]] inline Json json_of_result(std::string_view experiment, const Json& arguments, const Json& content) {
  const Provenance made = provenance();
  Json json{{"experiment", experiment},
            {"schema", json_schema},
            {"provenance",
             {{"version", made.version},
              {"commit", made.commit},
              {"compiler", made.compiler},
              {"cpu", made.cpu},
              {"date", made.date},
              {"arguments", arguments}}}};
  json.update(content);
  return json;
}

/// As a file's content. What is not UTF-8, in a file name perhaps, is replaced; what is no number becomes null.
[[nodiscard]] inline std::string text_of(const Json& json) { return json.text() + '\n'; }

}  // namespace fp8lab::experiments
