// SPDX-License-Identifier: Apache-2.0
// Why the codes and scales of a matrix are not those that a recipe makes of the original.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoints/coded_matrix.hpp"
#include "checkpoints/finding.hpp"
#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"

namespace fp8lab::experiments {

/// An original and the recipe that is expected to have quantized it.
struct ExpectedMatrix {
  MatrixView original;  ///< of float or BFloat16
  Recipe recipe;
  std::optional<float> group_amax = {};     ///< of a fused group, where the recipe has a scale of the tensor
  std::optional<float> stored_global = {};  ///< the tensor's scale, in place of what the amax makes, as it is stored
  bool global_divides = false;
  int threads = 1;
  CodedMatrix (*make)(const ExpectedMatrix&) = nullptr;  ///< in place of the recipe
};

/// What the recipe makes of the original.
[[nodiscard]] CodedMatrix quantized_as(const ExpectedMatrix& expected);

struct Differences {
  std::size_t codes = 0, scales = 0;  ///< how many differ
  bool global = false;
  [[nodiscard]] bool none() const { return codes == 0 && scales == 0 && !global; }
};
/// Bit by bit; all codes count where the matrices have other sizes, and all scales where the grids have. One NaN is
/// another's equal.
[[nodiscard]] Differences differences(const CodedMatrix& a, const CodedMatrix& b);

/// A cause that makes every byte of the given matrix, or the most likely one, with what is wrong.
struct Explanation {
  FindingKind kind;
  std::string words;
  std::string where = {};
};

/// `maker` made `expected`; `rules` are other recipes of the layout's format and blocks. Precondition: the matrices
/// have the same size, and differ.
[[nodiscard]] Explanation explain(const CodedMatrix& given, const CodedMatrix& expected, const ExpectedMatrix& maker,
                                  std::span<const Recipe> rules);

/// "[9, 3], [200, 11] and 5 more": places in a matrix of that many columns.
[[nodiscard]] std::string places(std::span<const std::size_t> indices, std::size_t columns);

}  // namespace fp8lab::experiments
