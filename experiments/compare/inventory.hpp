// SPDX-License-Identifier: Apache-2.0
// Lists the tensors of two dumps, and pairs those that are to be compared.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compare/compare.hpp"

namespace fp8lab::experiments {

/// One tensor of a file.
struct ListedTensor {
  std::filesystem::path path;
  TensorHeader header;
};
/// By the path below the folder and the name in the file.
using Inventory = std::map<std::pair<std::string, std::string>, ListedTensor>;

/// Whether a path stands for several files: a folder, or the .index.json file of a checkpoint.
[[nodiscard]] bool is_collection(const CompareArguments& arguments, const std::filesystem::path& path);

/// Lists the tensors of a path: of a folder all .npy and .safetensors files, or with `raw` all files; of an index the
/// files that it names. Throws std::invalid_argument where there is no tensor that the arguments ask for, and as
/// find_tensors() and read_weight_map() do; std::runtime_error where an index names a tensor that its file does not
/// have.
[[nodiscard]] Inventory inventory_of(const CompareArguments& arguments, const std::filesystem::path& path);

/// The shape of a tensor in elements, where each of its bytes may hold two.
[[nodiscard]] std::vector<std::uint64_t> shape_in_elements(const TensorHeader& header, bool pairs);
[[nodiscard]] inline std::vector<std::uint64_t> shape_in_elements(const TensorHeader& header) {
  return shape_in_elements(header, header.pairs);
}

/// Two tensors that can be compared. They are those of the inventories, which must outlive it.
struct TensorPair {
  std::string name;  ///< printable
  const ListedTensor *a, *b;
};
struct Meeting {
  std::vector<TensorPair> pairs;
  std::vector<std::string> unpaired;  ///< sentences about the others
};

/// Tensors meet by the path and the name; those without a partner by the name alone, where no other file of their side
/// has it. The only tensors of both sides meet whatever their names.
[[nodiscard]] Meeting meeting_of(const Inventory& all_a, const Inventory& all_b);

/// Refuses a name or pattern that names no tensor of either side.
void check_names(const CompareArguments& arguments, const Inventory& all_a, const Inventory& all_b);

/// Refuses a file of one tensor without a name beside a file with several, none of which was named.
void check_choice(const Inventory& all_a, const Inventory& all_b);

}  // namespace fp8lab::experiments
