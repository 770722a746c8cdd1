// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace fp8lab::experiments {

/// A run of many parts, each of which another process may do: what it knows then is lines of text, and the lines of all
/// parts make the result, whoever did them and in whatever order they come.
class PartedRun {
 public:
  struct Part {
    std::size_t number;
    std::uint64_t elements;  ///< how much there is to do
  };
  virtual ~PartedRun() = default;
  PartedRun(const PartedRun&) = delete;
  PartedRun& operator=(const PartedRun&) = delete;

  /// The parts that are not known.
  [[nodiscard]] virtual std::vector<Part> missing() const = 0;
  /// Does a part, and gives its line, with its line break.
  [[nodiscard]] virtual std::string line_of(std::size_t part) const = 0;
  /// Takes whole lines that somebody gave; who is told where they are none of this run. A part that is known counts
  /// once. Throws std::invalid_argument, and std::runtime_error where they cannot be kept.
  virtual void take(std::string_view lines, const std::string& whose) = 0;

 protected:
  PartedRun() = default;
};

/// Gives a run the lines of what it has not yet, done by the cluster of that scheduler.
using Cluster = std::function<void(const std::string& scheduler, PartedRun&)>;

}  // namespace fp8lab::experiments
