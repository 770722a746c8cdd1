// SPDX-License-Identifier: Apache-2.0
#include "kit/experiment.hpp"

#include <algorithm>

#include "fp8lab/formats/text.hpp"

namespace fp8lab::experiments {

std::string Experiment::identifier() const {
  std::string text = name;
  std::ranges::replace_if(text, [](char c) { return c == '-' || c == ' '; }, '_');
  return text;
}

const Experiment& find_experiment(std::string_view identifier) {
  std::vector<std::string> names;
  for (const Experiment& one : experiments()) {
    if (one.identifier() == identifier) return one;
    names.push_back(one.identifier());
  }
  refuse_name("experiment", identifier, std::vector<std::string_view>(names.begin(), names.end()));
}

}  // namespace fp8lab::experiments
