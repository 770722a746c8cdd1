// SPDX-License-Identifier: Apache-2.0
// Looks up parts of a document by name.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "kit/render.hpp"

namespace fp8lab::tests {

/// The section of this kind and name. Throws where there is none.
template <typename Kind>
const Kind& section_of(const experiments::Document& document, std::string_view name) {
  for (const experiments::Section& section : document.sections) {
    const auto* found = std::get_if<Kind>(&section);
    if (found != nullptr && found->name == name) return *found;
  }
  throw std::out_of_range("no section " + std::string(name));
}

/// A column of a table: Texts, Integers, Numbers or Flags.
template <typename Values>
const Values& column_of(const experiments::Document& document, std::string_view table, std::string_view name) {
  for (const experiments::Column& column : section_of<experiments::Table>(document, table).columns) {
    if (column.head.name == name) return std::get<Values>(column.values);
  }
  throw std::out_of_range("no column " + std::string(name));
}

/// A histogram by its name.
inline const experiments::Counts& counts_named(const experiments::Document& document, std::string_view name) {
  for (const experiments::Section& section : document.sections) {
    const auto* histograms = std::get_if<experiments::Histograms>(&section);
    if (histograms == nullptr) continue;
    const auto found = std::ranges::find(histograms->histograms, name, &experiments::Counts::name);
    if (found != histograms->histograms.end()) return *found;
  }
  throw std::out_of_range("no histogram " + std::string(name));
}

inline std::vector<std::string> names_of(const experiments::Files& files) {
  std::vector<std::string> names;
  for (const auto& [name, content] : files) names.push_back(name);
  return names;
}

}  // namespace fp8lab::tests
