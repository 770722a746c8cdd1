// SPDX-License-Identifier: Apache-2.0
// Two files or folders of codes, scales or values that should be equal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "files/tensor_file.hpp"
#include "fp8lab/doctor/compare.hpp"
#include "kit/progress.hpp"

namespace fp8lab::experiments {

/// The dumps to compare, and how to read them.
struct CompareArguments {
  std::filesystem::path a, b;  ///< .npy, .safetensors, their .index.json, files without a header, or folders of these
  std::vector<std::string> names{};     ///< tensors of .safetensors files, as names_tensor() has them; empty: all
  std::optional<std::string> format{};  ///< of elements whose files do not tell it, which need it
  bool pairs = false;                   ///< codes of 4 bits, two in each byte; of the same elements
  std::vector<std::uint64_t> shape{};   ///< of files without a header, which `raw` says they are; empty: one row
  bool raw = false;
  std::optional<std::filesystem::path> input{};  ///< what both were made of: a file with as many elements
  std::size_t most_shown = 10;                   ///< of the differing elements of a tensor
  int threads = 1;                               ///< changes nothing but the time
};

/// Two tensors that were compared.
struct ComparedTensor {
  std::string name;                  ///< printable; of a file with one tensor the path below its folder
  std::string type;                  ///< such as "e4m3", "bfloat16", "I64"
  std::vector<std::uint64_t> shape;  ///< in elements
  /// Whether the elements have no format, as those of I64: words that are equal or not, of no kind and no distance.
  bool are_words = false;
  doctor::Comparison comparison{};
  std::vector<double> inputs{};      ///< of the first differing elements, where an input is given
  std::vector<std::string> kinds{};  ///< sentences about the kinds that all differences are of
  /// What the differences share, a sentence each: of which kind they are, how far apart, and where.
  [[nodiscard]] std::vector<std::string> findings() const;
};

struct CompareResult {
  std::vector<ComparedTensor> tensors;
  std::vector<std::string> unpaired;  ///< sentences about what only one side has, or what cannot be compared

  [[nodiscard]] bool equal() const;
};

/// Reads and compares. Only a piece of each file is in memory at a time for each thread.
///
/// Throws std::invalid_argument where no tensor of a has one in b, a name names none, formats are missing, the files of
/// a single tensor tell another format than is given, the input has another size, or for threads as parallel_for()
/// does; std::runtime_error where a file cannot be read.
[[nodiscard]] CompareResult run_compare(const CompareArguments& arguments, const Progress& progress = {});

}  // namespace fp8lab::experiments
