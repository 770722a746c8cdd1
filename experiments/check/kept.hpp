// SPDX-License-Identifier: Apache-2.0
// What is known of tensors when a run ends early: a line of JSON for each, which the next run reads.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "check/check.hpp"
#include "kit/kept_lines.hpp"

namespace fp8lab::experiments {

/// Results of tensors, one a line, and in a file where there is one, each written as soon as it is known. A line is
/// that of a tensor where its key and its recipes are; the key is the name in its file, the shape, and the place, size
/// and time of the file. Lines of several runs, on other parts of a model, may be put together in any order: `cat a b >
/// all`. A last line that was cut off does not count.
class KeptTensors {
 public:
  /// Throws std::invalid_argument where the file is there and `resume` is not given, or `resume` without a checkpoint.
  KeptTensors(const CheckArguments& arguments, const TensorStream& stream);

  /// The result of a tensor of the stream; null: it is not known.
  [[nodiscard]] const CheckedTensor* find(std::size_t tensor) const {
    const std::optional<CheckedTensor>& result = results_[tensor];
    return result ? &*result : nullptr;
  }
  [[nodiscard]] std::size_t count() const { return found_; }   ///< the tensors that are known
  [[nodiscard]] double elements() const { return elements_; }  ///< of these
  [[nodiscard]] std::string line_of(std::size_t tensor, const CheckedTensor& result) const;
  /// Takes whole lines, each with its line break, and writes them. A tensor that is known counts once. Throws
  /// std::invalid_argument for what is no line of a tensor of the stream.
  void take(std::string_view lines);

 private:
  [[nodiscard]] std::string key_of(std::size_t tensor) const;
  bool keep(const std::string& key, const CheckedTensor& result);

  const TensorStream* stream_;
  std::string recipes_;
  std::vector<std::string> keys_;                    ///< of the tensors of the stream
  std::multimap<std::string, std::size_t> tensors_;  ///< by their keys; a file that is given twice has each twice
  std::vector<std::optional<CheckedTensor>> results_;
  std::size_t found_ = 0;
  double elements_ = 0;
  KeptLines lines_;
};

}  // namespace fp8lab::experiments
