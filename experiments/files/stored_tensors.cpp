// SPDX-License-Identifier: Apache-2.0
#include "files/stored_tensors.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "files/stored_file.hpp"
#include "files/tensor_header.hpp"
#include "files/weight_map.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/refuse.hpp"

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

/// The files of a folder or of an index, and which tensors of them the index promises.
struct FilesOfPath {
  std::vector<fs::path> files;
  std::map<std::string, std::vector<std::string>> promised;  ///< by the path of the file
};

bool has_suffix_of_index(const fs::path& path) { return path.native().ends_with(".index.json"); }

FilesOfPath files_of_index(const fs::path& index) {
  FilesOfPath all;
  for (const auto& [tensor, file] : read_weight_map(index)) {
    all.promised[(index.parent_path() / file).native()].push_back(tensor);
  }
  for (const auto& [file, tensors] : all.promised) all.files.emplace_back(file);
  return all;
}

FilesOfPath files_of_folder(const fs::path& folder) try {
  std::vector<fs::path> indices;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (has_suffix_of_index(entry.path())) indices.push_back(entry.path());
  }
  if (indices.size() == 1) return files_of_index(indices.front());
  FilesOfPath all;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension().native();
    std::error_code error;  // of a link that leads nowhere
    if ((extension == ".npy" || extension == ".safetensors") && entry.is_regular_file(error)) {
      all.files.push_back(entry.path());
    }
  }
  if (all.files.empty()) refuse(printable(folder.native()), " has no .npy and .safetensors files");
  return all;
} catch (const fs::filesystem_error& error) {
  const fs::path& told = error.path1().empty() ? folder : error.path1();
  throw std::runtime_error(cannot_read(in_one_line(told.native()), "a folder: " + error.code().message()));
}

/// Why a file cannot be read, for a place where the file is named already.
std::string without_file(const fs::path& file, std::string reason) {
  const std::string begin = cannot_read(in_one_line(file.native()), "");
  return reason.starts_with(begin) ? reason.substr(begin.size()) : reason;
}

/// The headers of all tensors of a file among several. A .npy file's tensor gets the name of the file.
std::vector<TensorHeader> all_headers(const fs::path& path, const fs::path& folder) {
  if (has_names(path)) return find_tensors(path, std::vector<std::string>{"*"}, OtherDtypes::as_words);
  std::vector<TensorHeader> one = find_tensors(path);
  one.front().name = path.lexically_relative(folder).replace_extension().native();
  return one;
}

/// The index of the first name that names a tensor; that of `names` where none does.
std::size_t first_that_names(std::span<const std::string> names, const std::string& tensor) {
  const auto found = std::ranges::find_if(names, [&](const std::string& one) { return names_tensor(one, tensor); });
  return static_cast<std::size_t>(found - names.begin());
}

void add_several(const fs::path& path, std::span<const std::string> names, FoundTensors& all) {
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  const FilesOfPath files = is_folder ? files_of_folder(path) : files_of_index(path);
  const std::size_t first = all.found.size();
  const auto wants = [&](const std::string& name) {
    return names.empty() || first_that_names(names, name) < names.size();
  };
  const auto leave_out = [&](const std::string& name, const std::string& reason) {
    if (std::ranges::find(names, name) != names.end()) throw std::runtime_error(reason);
    all.left_out.push_back({printable(name), reason});
  };
  for (const fs::path& file : files.files) {
    checkpoint();
    // 1. All of a file that cannot be read is left out.
    const auto promise = files.promised.find(file.native());
    std::vector<TensorHeader> headers;
    try {
      headers = all_headers(file, is_folder ? path : path.parent_path());
    } catch (const std::runtime_error& cause) {
      if (promise == files.promised.end()) {
        all.left_out.push_back({printable(file.native()), without_file(file, cause.what())});
      }
      if (promise == files.promised.end()) continue;
      for (const std::string& tensor : promise->second) {
        if (wants(tensor)) leave_out(tensor, cause.what());
      }
      continue;
    }
    // 2. What the file has.
    std::set<std::string> has;
    for (TensorHeader& header : headers) {
      has.insert(header.name);
      if (!wants(header.name)) continue;
      header.wanted = names.empty() ? 0 : first_that_names(names, header.name);
      const bool by_name = std::ranges::find(names, header.name) != names.end();
      all.found.push_back({file, std::move(header), by_name});
    }
    if (promise == files.promised.end()) continue;
    for (const std::string& tensor : promise->second) {
      if (has.contains(tensor) || !wants(tensor)) continue;
      leave_out(tensor, "the index says that " + printable(file.filename().native()) + " has it, and it has not");
    }
  }
  std::ranges::stable_sort(std::span(all.found).subspan(first), [](const FoundTensor& a, const FoundTensor& b) {
    if (a.header.wanted != b.header.wanted) return a.header.wanted < b.header.wanted;
    return comes_before(a.header.name, b.header.name);
  });
}

void add_one_file(const fs::path& path, std::span<const std::string> names, FoundTensors& all) {
  if (names.empty()) {
    for (TensorHeader& header : find_tensors(path)) all.found.push_back({path, std::move(header), true});
    return;
  }
  for (TensorHeader& header : find_tensors(path, names, OtherDtypes::as_words)) {
    const bool by_name = std::ranges::find(names, header.name) != names.end();
    // A dtype that is not read is told by the reader's own words.
    if (by_name && !header.dtype.empty()) (void)find_tensors(path, std::vector<std::string>{header.name});
    all.found.push_back({path, std::move(header), by_name});
  }
}

}  // namespace

bool is_several_files(const fs::path& path) {
  std::error_code error;  // which opening the file tells
  return fs::is_directory(path, error) || has_suffix_of_index(path);
}

FoundTensors find_stored_tensors(std::span<const fs::path> paths, std::span<const std::string> names) {
  FoundTensors all;
  for (const fs::path& path : paths) {
    is_several_files(path) ? add_several(path, names, all) : add_one_file(path, names, all);
  }
  for (const std::string& name : names) {
    const auto is_named = [&](const FoundTensor& one) { return names_tensor(name, one.header.name); };
    if (std::ranges::any_of(all.found, is_named)) continue;
    std::string why;  // shards that are missing, above all
    if (!all.left_out.empty()) why = "; " + all.left_out.front().name + ": " + all.left_out.front().reason;
    const std::string tensor = name == "*" ? "tensor that can be read" : "tensor " + printable(name);
    if (paths.size() == 1) refuse(printable(paths.front().native()), " has no ", tensor, why);
    refuse("none of the ", paths.size(), " files has a ", tensor, why);
  }
  return all;
}

FoundTensor find_one_tensor(const fs::path& path, const std::string& name, std::string_view called) {
  std::vector<std::string> names;
  if (!name.empty()) names.push_back(name);
  std::vector<FoundTensor> found;
  if (is_several_files(path)) {
    found = find_stored_tensors(std::span(&path, 1), names).found;
    // A dtype that is not read is told by the reader's own words.
    if (found.size() == 1 && !found.front().header.dtype.empty()) {
      (void)find_tensors(found.front().path, std::vector<std::string>{found.front().header.name});
    }
  } else {
    for (TensorHeader& header : find_tensors(path, names)) found.push_back({path, std::move(header), true});
  }
  if (found.empty()) refuse(called, ": ", printable(path.native()), " has no tensor");
  if (found.size() != 1) {
    refuse(called, ": ", found.size(), name.empty() ? " tensors are there" : " tensors have that name", "; name one");
  }
  return std::move(found.front());
}

}  // namespace fp8lab::experiments
