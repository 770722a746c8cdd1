// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/formats/memory.hpp"
#include "scaling/scaling.hpp"

namespace fp8lab::experiments {

/// The tensors of a ScalingSource, one in memory at a time.
class Stream {
 public:
  /// Reads the headers of all files. Throws std::invalid_argument for sizes out of range, and what TensorFile throws.
  Stream(const ScalingSource& source, int threads);

  [[nodiscard]] std::size_t steps() const { return shapes_.size(); }
  /// The number of elements of all tensors together.
  [[nodiscard]] double elements() const;
  /// What a message begins with that is about the tensor of a step: which file's it is, or which array.
  [[nodiscard]] std::string called(std::size_t step) const;
  [[nodiscard]] std::size_t rows(std::size_t step) const { return shapes_[step].rows; }
  [[nodiscard]] std::size_t columns(std::size_t step) const { return shapes_[step].columns; }
  /// What it is, in words and one line.
  [[nodiscard]] const std::string& description() const { return description_; }
  /// What each step's tensor is called; empty where none has a name.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

  /// The step's tensor, row-major; valid until the next call.
  [[nodiscard]] std::span<const float> tensor(std::size_t step);

 private:
  struct Shape {
    std::size_t rows;
    std::size_t columns;
  };

  void open(const DrawnStream& drawn);
  void open(const GridStream& grid);
  void open(const StoredStream& stored);
  void open(const std::vector<HeldMatrix>& held);
  void draw(const DrawnStream& drawn, std::size_t step);
  void read(const StoredStream& stored, std::size_t step);

  const ScalingSource* source_;
  int threads_;
  std::vector<Shape> shapes_;
  std::vector<std::string> names_;
  std::string description_;
  Buffer<float> room_;
};

}  // namespace fp8lab::experiments
