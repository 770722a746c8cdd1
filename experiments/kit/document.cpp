// SPDX-License-Identifier: Apache-2.0
#include "kit/document.hpp"

namespace fp8lab::experiments {

std::size_t Column::size() const {
  return std::visit([](const auto& all) { return all.size(); }, values);
}

Counts counts_of(const Histogram& histogram, std::string name, std::string title, std::string label) {
  return {.name = std::move(name),
          .title = std::move(title),
          .label = std::move(label),
          .edges = histogram.edges(),
          .counts = histogram.counts(),
          .zeros = histogram.zeros,
          .infinities = histogram.infinities,
          .nans = histogram.nans,
          .below = histogram.below,
          .above = histogram.above,
          .underflows = histogram.underflows,
          .saturations = histogram.saturations,
          .total = histogram.total()};
}

}  // namespace fp8lab::experiments
