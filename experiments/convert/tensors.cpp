// SPDX-License-Identifier: Apache-2.0
#include "convert/tensors.hpp"

#include <algorithm>
#include <stdexcept>

#include "files/tensor_file.hpp"

namespace fp8lab::experiments {

bool is_wanted(const std::vector<std::string>& patterns, const std::string& name) {
  return patterns.empty() ||
         std::ranges::any_of(patterns, [&](const std::string& one) { return names_tensor(one, name); });
}

TensorsResult run_tensors(const TensorsArguments& arguments) {
  TensorsResult result;
  if (!arguments.model && !arguments.layouts) {
    throw std::invalid_argument("model must be given, or layouts to list those that are known");
  }
  if (!arguments.model) return result;
  result.checkpoint = std::make_unique<Checkpoint>(*arguments.model);
  result.found = recognize(*result.checkpoint);
  return result;
}

}  // namespace fp8lab::experiments
