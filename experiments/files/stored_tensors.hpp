// SPDX-License-Identifier: Apache-2.0
// Finds tensors of several files: of files that a user names, of the index of a checkpoint, and of a folder.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/tensor_file.hpp"

namespace fp8lab::experiments {

/// A tensor and the file that holds it.
struct FoundTensor {
  std::filesystem::path path;
  TensorHeader header;
  bool by_name =
      false;  ///< asked for by its own name, or the only one of a file that was asked for: no pattern chose it
  ReadBytes read = {};    ///< where the path's file is not read as it lies
  bool in_order = false;  ///< and best from begin to end, by one reader
};
/// What was not taken, and why.
struct LeftOutTensor {
  std::string name;           ///< printable
  std::string reason;         ///< a sentence without its full stop
  std::string own_name = {};  ///< as its file has it
};
struct FoundTensors {
  std::vector<FoundTensor> found;
  std::vector<LeftOutTensor> left_out;
};

/// Whether a path stands for several files: a folder, or the .index.json file of a checkpoint.
[[nodiscard]] bool is_several_files(const std::filesystem::path& path);

/// The tensors of these paths that one of `names` names; without names the one tensor of a file, and all of an index or
/// a folder. Of a folder these are the files of its one *.index.json, or else its .safetensors and .npy files, also in
/// folders below it. There, a .npy file's tensor has the name of the file without ".npy", and tensors of all files come
/// in the order of `names`, then of their own names; else file by file.
///
/// Tensors may be of any dtype (OtherDtypes::as_words). Throws what find_tensors() and read_weight_map() do, and
/// std::invalid_argument where a name or a pattern names no tensor. In an index or a folder, what cannot be read is
/// left out: a file, or a tensor that the index promises; but not a tensor that was asked for by its name.
[[nodiscard]] FoundTensors find_stored_tensors(std::span<const std::filesystem::path> paths,
                                               std::span<const std::string> names);
/// The one tensor that `name` names, in a file, an index or a folder; with an empty name the only one. Throws as
/// find_stored_tensors() does, and std::invalid_argument, which says what is `called` so, where there are several.
[[nodiscard]] FoundTensor find_one_tensor(const std::filesystem::path& path, const std::string& name,
                                          std::string_view called);

}  // namespace fp8lab::experiments
