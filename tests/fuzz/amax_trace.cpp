// SPDX-License-Identifier: Apache-2.0
// A fuzz target: any bytes as the CSV of a run's amaxes. What may come out is an error that names a line, or a trace
// whose every tensor has an amax a step.
#include "files/amax_trace.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <stdexcept>

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp8lab::experiments;
  std::istringstream text(std::string(reinterpret_cast<const char*>(data), size));
  AmaxTrace trace;
  try {
    trace = parse_amax_trace(text, "t");
  } catch (const std::invalid_argument& error) {
    require(std::string_view(error.what()).starts_with("t, line "));
    return 0;
  }
  require(!trace.steps.empty() && !trace.tensors.empty());
  require(std::ranges::is_sorted(trace.steps, std::ranges::less_equal()));
  for (const TracedTensor& tensor : trace.tensors) {
    require(!tensor.name.empty() && tensor.ranks.size() == trace.tensors.front().ranks.size());
    require(tensor.amaxes.size() == std::max<std::size_t>(tensor.ranks.size(), 1));
    for (const std::vector<float>& amaxes : tensor.amaxes) {
      require(amaxes.size() == trace.steps.size());
      require(std::ranges::none_of(amaxes, [](float amax) { return amax < 0; }));
    }
  }
  return 0;
}
