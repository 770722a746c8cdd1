// SPDX-License-Identifier: Apache-2.0
#include "check/plain_tensors.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "checkpoints/checkpoint.hpp"
#include "files/stored_file.hpp"
#include "fp8lab/formats/refuse.hpp"

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view gguf_begin = "GGUF";
constexpr std::string_view archive_begin = "PK\3\4";

/// The first bytes of a regular file; none where it cannot be read, which whoever opens it tells.
std::string first_bytes(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  std::string begin(gguf_begin.size(), '\0');
  try {
    begin.resize(StoredFile(path).read(0, begin));
  } catch (const std::runtime_error&) {
    return "";
  }
  return begin;
}
bool is_container(const fs::path& path) {
  const std::string begin = first_bytes(path);
  return begin == gguf_begin || begin == archive_begin;
}
bool has_ending(const fs::path& path, std::span<const std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view end) { return path.native().ends_with(end); });
}

/// Whether a folder has no file that find_stored_tensors() takes, and one of these.
bool is_folder_of_containers(const fs::path& folder) {
  constexpr std::array<std::string_view, 3> others{".safetensors", ".npy", ".index.json"};
  constexpr std::array<std::string_view, 2> containers{".gguf", ".npz"};
  std::error_code error;
  bool has_container = false;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (has_ending(entry->path(), others)) return false;
    has_container |= has_ending(entry->path(), containers);
  }
  return has_container;
}

std::optional<ElementType> type_of_dtype(std::string_view dtype) {
  if (dtype == "F32") return ElementType::float32;
  if (dtype == "F64") return ElementType::float64;
  if (dtype == "F16") return ElementType::float16;
  if (dtype == "BF16") return ElementType::bfloat16;
  return std::nullopt;
}

/// Why a tensor is left out; empty: it is not.
std::string reason_against(const Checkpoint& checkpoint, const StoredTensor& tensor,
                           const std::optional<ElementType>& type) {
  if (!type) return "its dtype is " + tensor.dtype;
  if (!checkpoint.has_data(tensor)) return "its file ends within it";
  if (tensor.bytes != tensor.elements() * bytes_of(*type)) {
    return "it has " + std::to_string(tensor.bytes) + " bytes, which its shape and dtype do not need";
  }
  if (tensor.fortran_order && tensor.shape.size() > 1) {
    return "it lies in Fortran order, which is read from .npy files alone";
  }
  return "";
}

void add_tensors(const fs::path& path, std::span<const std::string> names, FoundTensors& all) {
  const auto checkpoint = std::make_shared<const Checkpoint>(path);
  for (const StoredTensor& tensor : checkpoint->tensors()) {
    const auto named = std::ranges::find_if(names, [&](const auto& one) { return names_tensor(one, tensor.name); });
    if (!names.empty() && named == names.end()) continue;
    const bool by_name = std::ranges::find(names, tensor.name) != names.end();
    const std::optional<ElementType> type = type_of_dtype(tensor.dtype);
    if (const std::string reason = reason_against(*checkpoint, tensor, type); !type || !reason.empty()) {
      if (by_name) refuse(printable(path.native()), ", tensor ", printable(tensor.name), ": ", reason);
      all.left_out.push_back({printable(tensor.name), reason, tensor.name});
      continue;
    }
    const fs::path& file = checkpoint->files()[tensor.file];
    all.found.push_back(
        {.path = file,
         .header = {.name = tensor.name,
                    .type = *type,
                    .shape = tensor.shape,
                    .size = tensor.elements(),
                    .offset = 0,
                    .wanted = static_cast<std::size_t>(named - names.begin())},
         .by_name = by_name,
         .read = [checkpoint, &tensor](std::uint64_t first,
                                       std::span<std::byte> out) { checkpoint->read(tensor, first, out); },
         .in_order = first_bytes(file) == archive_begin});
  }
}

}  // namespace

std::optional<FoundTensors> find_plain_tensors(std::span<const fs::path> paths, std::span<const std::string> names) {
  const auto takes = [](const fs::path& path) { return is_container(path) || is_folder_of_containers(path); };
  if (std::ranges::none_of(paths, takes)) return std::nullopt;
  FoundTensors all;
  for (const fs::path& path : paths) add_tensors(path, names, all);
  for (const std::string& name : names) {
    const auto is_found = [&](const FoundTensor& one) { return names_tensor(name, one.header.name); };
    const auto is_left_out = [&](const LeftOutTensor& one) { return names_tensor(name, one.own_name); };
    if (std::ranges::any_of(all.found, is_found) || std::ranges::any_of(all.left_out, is_left_out)) continue;
    refuse(printable(paths.front().native()), " has no tensor ", printable(name));
  }
  std::ranges::stable_sort(all.found, {}, [](const FoundTensor& one) { return one.header.wanted; });
  return all;
}

void refuse_pickled(std::span<const fs::path> paths) {
  constexpr std::array<std::string_view, 3> endings{".pt", ".pth", ".bin"};
  for (const fs::path& path : paths) {
    // What torch.save writes now begins as an .npz archive does.
    const std::string begin = first_bytes(path);
    const bool is_archive = begin == archive_begin && has_ending(path, endings);
    if (!is_archive && !begin.starts_with('\x80') && !path.native().ends_with(".bin.index.json")) continue;
    refuse(printable(path.native()), ": files of torch.save are read by the fp8lab from pip, with PyTorch");
  }
}

}  // namespace fp8lab::experiments
