// SPDX-License-Identifier: Apache-2.0
// The arguments by which a user gives an experiment its tensors: the same names with the same meaning everywhere. An
// experiment adds those that it takes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kit/argument.hpp"
#include "kit/document.hpp"
#include "kit/tensor_source.hpp"

namespace fp8lab::experiments {

/// Tensors as a user gives them: arrays (Python alone), files, the normal grid, or draws.
struct TensorArguments {
  Draws draws = {};
  bool is_flat = false;  ///< draws and the grid have a size instead of rows and columns
  bool grid = false;     ///< the normal grid instead of draws
  std::vector<std::filesystem::path> files = {};
  std::vector<std::string> names = {};  ///< which tensors of the files: names or patterns
  HeldTensors arrays = {};

  /// Adds `x`, an array or several, in order, without which tensors are read or drawn. It comes first: Python takes it
  /// without its name, too. `taken` tells how the element types are taken.
  void add_arrays(ArgumentList& list, const std::string& taken);
  /// Adds `file` and `tensor`.
  void add_files(ArgumentList& list);
  /// Adds `distribution` and `seed`.
  void add_draws(ArgumentList& list);
  /// Adds `rows` and `columns` of draws.
  void add_shape(ArgumentList& list);
  /// Adds `size` of draws and of the grid.
  void add_size(ArgumentList& list);
  /// Adds `grid`.
  void add_grid(ArgumentList& list);
  /// Adds `stream` and `steps`: how many tensors are drawn, and how they differ.
  void add_stream(ArgumentList& list);
  /// Adds `outlier_rows` and `outlier_columns` of draws.
  void add_outliers(ArgumentList& list);

  /// The tensors that the arguments name. Throws std::invalid_argument for a size out of range.
  [[nodiscard]] TensorSource source() const;
};

/// The tensors that were read: a row for each, which a terminal leaves out.
[[nodiscard]] Table tensors_table(const std::vector<SourceTensor>& tensors);
/// Where tensors were left out: a paragraph that counts them by reason, and a table of all, which a terminal leaves
/// out.
void add_left_out(const std::vector<LeftOutTensor>& left_out, std::size_t taken, std::vector<Section>& sections);
/// What tables call the tensors: their names without the file or the folder that all of them share; x[0], x[1], ... of
/// several that have no name, and nothing of one alone.
[[nodiscard]] std::vector<std::string> names_in_tables(const std::vector<SourceTensor>& tensors);

}  // namespace fp8lab::experiments
