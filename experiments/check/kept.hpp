// SPDX-License-Identifier: Apache-2.0
// What is known of tensors when a run ends early: a line of JSON for each, which the next run reads.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "check/check.hpp"

namespace fp8lab::experiments {

/// Results in a file, one tensor a line, each written as soon as it is known. A line is that of a tensor where its key
/// is: the name, the shape, the recipes, and of files their sizes and times. Lines of several runs, on other parts of a
/// model, may be put together in any order: `cat a b > all`. A last line that was cut off does not count.
class KeptTensors {
 public:
  /// Throws std::invalid_argument where the file is there and `resume` is not given, or `resume` without a checkpoint.
  KeptTensors(const CheckArguments& arguments, const TensorStream& stream);

  [[nodiscard]] std::optional<CheckedTensor> find(std::size_t tensor) const;
  void add(std::size_t tensor, const CheckedTensor& result);

 private:
  [[nodiscard]] std::string key_of(std::size_t tensor) const;
  void read(const std::filesystem::path& path);

  const TensorStream* stream_;
  std::string recipes_;
  std::map<std::string, CheckedTensor> known_;
  std::optional<std::filesystem::path> path_;
};

}  // namespace fp8lab::experiments
