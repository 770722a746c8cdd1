// SPDX-License-Identifier: Apache-2.0
// Matrices to transpose, and what a document tells of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "experiments/transpose/plain.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "kit/render.hpp"
#include "support.hpp"
#include "transpose/transpose.hpp"

namespace fp8lab::tests {

using namespace fp8lab::experiments;

/// Normal draws of many sizes, with rows, columns and elements that stand out, and zeros.
inline PlainMatrix wide_matrix(std::size_t rows, std::size_t columns) {
  std::vector<float> drawn(rows * columns);
  sample(find_distribution("normal"), 7, 0, drawn);
  PlainMatrix x{rows, columns, {}};
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const std::size_t row = i / columns;
    const std::size_t column = i % columns;
    int exponent = static_cast<int>(random_bits(1, i) % 24) - 12;
    if (row % 37 == 5) exponent += 9;
    if (column % 41 == 3) exponent -= 15;
    x.values.push_back(random_bits(2, i) % 50 == 0 ? 0 : std::ldexp(drawn[i], exponent));
  }
  return x;
}

inline std::vector<float> floats_of(const PlainMatrix& x) { return {x.values.begin(), x.values.end()}; }

inline TransposeArguments transposing(const std::vector<float>& values, std::size_t rows,
                                      const std::vector<std::string>& names) {
  TransposeArguments arguments;
  arguments.source = HeldTensors{{MatrixView(std::span<const float>(values), rows, values.size() / rows)}};
  arguments.recipes.clear();
  for (const std::string& name : names) arguments.recipes.push_back(choose_recipe(name));
  return arguments;
}

inline TransposeArguments drawing(long long rows, long long columns, std::uint64_t seed,
                                  const std::vector<std::string>& names) {
  TransposeArguments arguments = transposing({0}, 1, names);
  arguments.source = Draws{.seed = seed, .rows = rows, .columns = columns};
  return arguments;
}

/// What a document tells of the recipes, whatever the source: tables and histograms.
inline nlohmann::json recipes_json(const TransposeResult& result) {
  nlohmann::json sections = nlohmann::json::array();
  const nlohmann::json document = nlohmann::json::parse(json_of(document_of(result)));
  for (const nlohmann::json& section : document["sections"]) {
    if (section["name"] != "intro" && section["name"] != "tensors") sections.push_back(section);
  }
  return sections;
}

}  // namespace fp8lab::tests
