// SPDX-License-Identifier: Apache-2.0
// The arguments by which a user gives an experiment its tensors: the same names with the same meaning everywhere. An
// experiment adds those that it takes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kit/argument.hpp"
#include "kit/document.hpp"
#include "kit/tensor_source.hpp"

namespace fp8lab::experiments {

/// Tensors as a user gives them: an array (Python alone), files, or draws.
struct TensorArguments {
  Draws draws = {};
  std::vector<std::filesystem::path> files = {};
  std::vector<std::string> names = {};  ///< which tensors of the files: names or patterns
  std::optional<HeldTensor> array = {};

  /// Adds `x`, without which tensors are read or drawn. It comes first: Python takes it without its name, too.
  void add_array(ArgumentList& list);
  /// Adds `file` and `tensor`.
  void add_files(ArgumentList& list);
  /// Adds `distribution` and `seed`.
  void add_draws(ArgumentList& list);
  /// Adds `rows` and `columns` of draws.
  void add_shape(ArgumentList& list);
  /// Adds `outlier_rows` and `outlier_columns` of draws.
  void add_outliers(ArgumentList& list);

  /// What they mean.
  [[nodiscard]] TensorSource source() const;
};

/// The tensors that were read: a row for each, which a terminal leaves out.
[[nodiscard]] Table tensors_table(const std::vector<SourceTensor>& tensors);

}  // namespace fp8lab::experiments
