// SPDX-License-Identifier: Apache-2.0
// Where along K an output begins to differ from what is predicted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "gemm/problem.hpp"

namespace fp8lab::doctor {

/// The first elements of K of an operand, with their scales.
class OperandHead {
 public:
  /// Throws std::invalid_argument where the depth ends within a block, a tile or a byte, or is larger than K.
  OperandHead(const Operand& from, std::size_t depth);

  /// Valid as long as this.
  [[nodiscard]] Operand operand() const;

 private:
  Operand from_;
  std::size_t depth_;
  std::variant<std::vector<std::uint8_t>, std::vector<std::uint16_t>, std::vector<float>> elements_;
  std::vector<std::uint8_t> blocks_;
  std::vector<float> tiles_;
};

/// Where the first difference enters, by elements whose products end early, as in the triangular input of
/// prefix_probe(): those that end by `from` are as predicted, and most that end at `to` or later are not. None where
/// elements do not say so; `words` are those predicted of `elements`.
[[nodiscard]] std::optional<FirstDifference> difference_along_k(const GemmProblem& problem,
                                                                std::span<const std::size_t> elements,
                                                                std::span<const std::uint64_t> words);
/// Where it enters by outputs of the first elements of K, each of which `is_right` says to be right or not: it is asked
/// of few of them.
[[nodiscard]] FirstDifference difference_of_prefixes(std::span<const GemmPrefix> prefixes, std::size_t depth,
                                                     const std::function<bool(const GemmPrefix&)>& is_right);

/// The answer in words.
[[nodiscard]] std::string describe(const FirstDifference& difference);

}  // namespace fp8lab::doctor
