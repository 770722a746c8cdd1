// SPDX-License-Identifier: Apache-2.0
#include "kit/document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

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

std::string histogram_name(std::size_t row, std::string_view subject, std::string_view histogram) {
  std::string name(subject.substr(0, 40));
  std::ranges::replace_if(
      name, [](unsigned char c) { return c >= 0x80 || (std::isalnum(c) == 0 && c != '.' && c != '-'); }, '_');
  return fmt::format("{:02}_{}_{}", row + 1, name, histogram);
}

}  // namespace fp8lab::experiments
