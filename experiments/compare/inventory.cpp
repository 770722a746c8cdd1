// SPDX-License-Identifier: Apache-2.0
#include "compare/inventory.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "files/stored_file.hpp"
#include "files/weight_map.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text.hpp"
#include "kit/tensor_source.hpp"

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

TensorHeader header_of_raw(const fs::path& path) {
  const std::uint64_t bytes = StoredFile(path).size();
  return {.name = "", .type = ElementType::uint8, .shape = {bytes}, .size = bytes, .offset = 0};
}

void add_file(const CompareArguments& arguments, const fs::path& path, const std::string& below, Inventory& all) {
  if (arguments.raw) {
    all[{below, ""}] = {path, header_of_raw(path)};
    return;
  }
  const std::vector<std::string> every{"*"};
  std::span<const std::string> names = arguments.names.empty() ? every : arguments.names;
  const bool is_one_file = below.empty();
  const bool is_named = has_names(path);
  // A file among several need not have any of the tensors that are asked for.
  const bool picks = !is_one_file && is_named && !arguments.names.empty();
  if (picks) names = every;
  if (!is_named && (is_one_file || arguments.names.empty())) names = {};
  for (TensorHeader& header : find_tensors(path, names, OtherDtypes::as_words)) {
    if (header.dtype == "V2" && arguments.format == "bfloat16") {  // what NumPy makes of ml_dtypes' bfloat16
      header.type = ElementType::bfloat16;
      header.dtype.clear();
    }
    const auto is_it = [&](const std::string& name) { return names_tensor(name, header.name); };
    if (picks && std::ranges::none_of(arguments.names, is_it)) continue;
    std::string name = header.name;
    all[{below, std::move(name)}] = {path, std::move(header)};
  }
}

void add_folder(const CompareArguments& arguments, const fs::path& path, Inventory& all) try {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
    const std::string extension = entry.path().extension().native();
    const bool is_read = arguments.raw || extension == ".npy" || extension == ".safetensors";
    std::error_code error;  // of a link that leads nowhere
    if (is_read && entry.is_regular_file(error)) {
      add_file(arguments, entry.path(), entry.path().lexically_relative(path).native(), all);
    }
  }
} catch (const fs::filesystem_error& error) {
  const fs::path& told = error.path1().empty() ? path : error.path1();
  throw std::runtime_error(cannot_read(in_one_line(told.native()), "a folder: " + error.code().message()));
}

void add_index(const CompareArguments& arguments, const fs::path& path, Inventory& all) {
  const std::map<std::string, std::string> files = read_weight_map(path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : files) names.insert(file);
  for (const std::string& name : names) add_file(arguments, path.parent_path() / name, name, all);
  for (const auto& [tensor, file] : files) {
    const auto is_it = [&name = tensor](const std::string& pattern) { return names_tensor(pattern, name); };
    const bool is_wanted = arguments.names.empty() || std::ranges::any_of(arguments.names, is_it);
    if (!is_wanted || all.contains({file, tensor})) continue;
    throw std::runtime_error(
        cannot_read(in_one_line(path.native()),
                    "it says that " + printable(file) + " has tensor " + printable(tensor) + ", which it has not"));
  }
}

std::string called(const std::pair<std::string, std::string>& key, const ListedTensor& tensor) {
  const std::string path = key.first.empty() ? tensor.path.filename().native() : key.first;
  return key.second.empty() ? printable(path) : printable(path) + " " + printable(key.second);
}

/// Why two tensors cannot be compared, in words; empty where they can.
std::string misfit_of(const TensorHeader& a, const TensorHeader& b) {
  const auto text = [](const TensorHeader& header) {
    std::string type(header.format.empty() ? name_of(header.type) : header.format);
    if (!header.dtype.empty()) type = header.dtype;
    return type + (header.pairs ? ", pairs, of shape " : " of shape ") + shape_text(shape_in_elements(header));
  };
  if (a.type != b.type || a.dtype != b.dtype || a.shape != b.shape) return text(a) + " in a and " + text(b) + " in b";
  if (!a.format.empty() && !b.format.empty() && a.format != b.format) {
    return std::string(a.format) + " in a and " + std::string(b.format) + " in b";
  }
  return "";
}

/// The only tensor of each name; null where several files have one.
using Names = std::map<std::string, const Inventory::value_type*>;

Names names_of(const Inventory& all) {
  Names names;
  for (const auto& entry : all) {
    if (entry.first.second.empty()) continue;
    const auto [place, is_new] = names.try_emplace(entry.first.second, &entry);
    if (!is_new) place->second = nullptr;
  }
  return names;
}

/// One side, and what meets tensors of the other.
struct Side {
  explicit Side(const Inventory& inventory) : all(inventory), names(names_of(inventory)) {}

  /// The tensor that meets one of the other side, or null.
  [[nodiscard]] const Inventory::value_type* partner_of(const Inventory::value_type& entry, const Side& other) const {
    if (all.size() == 1 && other.all.size() == 1) return &*all.begin();
    if (const auto same = all.find(entry.first); same != all.end()) return &*same;
    const auto own = other.names.find(entry.first.second);
    const auto place = names.find(entry.first.second);
    if (own == other.names.end() || place == names.end() || own->second == nullptr) return nullptr;
    return place->second;
  }
  /// Why nothing here meets a tensor of the other side.
  [[nodiscard]] std::string_view reason(const Inventory::value_type& entry) const {
    return names.contains(entry.first.second) ? ", by its path: several files have a tensor of its name." : ".";
  }

  const Inventory& all;
  Names names;
};

}  // namespace

bool is_collection(const CompareArguments& arguments, const fs::path& path) {
  std::error_code error;  // which opening the file tells
  return fs::is_directory(path, error) || (!arguments.raw && path.native().ends_with(".index.json"));
}

Inventory inventory_of(const CompareArguments& arguments, const fs::path& path) {
  Inventory all;
  if (!is_collection(arguments, path)) {
    add_file(arguments, path, "", all);
    return all;
  }
  if (std::error_code error; fs::is_directory(path, error)) {
    add_folder(arguments, path, all);
  } else {
    add_index(arguments, path, all);
  }
  if (!all.empty()) return all;
  if (!arguments.names.empty()) refuse(in_quotes(path.native()), " has no tensor ", printable(arguments.names.front()));
  refuse(in_quotes(path.native()), " has no ", arguments.raw ? "" : ".npy and .safetensors ", "files");
}

std::vector<std::uint64_t> shape_in_elements(const TensorHeader& header, bool pairs) {
  std::vector<std::uint64_t> shape = header.shape;
  if (pairs && !shape.empty()) shape.back() *= 2;
  return shape;
}

Meeting meeting_of(const Inventory& all_a, const Inventory& all_b) {
  const Side a(all_a);
  const Side b(all_b);
  Meeting meeting;
  for (const auto& entry : all_a) {
    const Inventory::value_type* const other = b.partner_of(entry, a);
    std::string name = called(entry.first, entry.second);
    if (other == nullptr) {
      meeting.unpaired.push_back(name.append(" is in a alone").append(b.reason(entry)));
      continue;
    }
    const bool is_by_name = entry.first.first != other->first.first && entry.first.second == other->first.second;
    if (is_by_name && !entry.first.second.empty()) name = printable(entry.first.second);
    if (const std::string misfit = misfit_of(entry.second.header, other->second.header); !misfit.empty()) {
      meeting.unpaired.push_back(name.append(" cannot be compared: ").append(misfit).append("."));
    } else {
      meeting.pairs.push_back({name, &entry.second, &other->second});
    }
  }
  for (const auto& entry : all_b) {
    if (a.partner_of(entry, b) != nullptr) continue;
    meeting.unpaired.push_back(called(entry.first, entry.second).append(" is in b alone").append(a.reason(entry)));
  }
  return meeting;
}

void check_names(const CompareArguments& arguments, const Inventory& all_a, const Inventory& all_b) {
  for (const std::string& name : arguments.names) {
    const auto is_named = [&name](const Inventory::value_type& entry) {
      return names_tensor(name, entry.first.second);
    };
    if (std::ranges::any_of(all_a, is_named) || std::ranges::any_of(all_b, is_named)) continue;
    refuse("tensors names ", printable(name), ", which matches no tensor of a and none of b");
  }
}

void check_choice(const Inventory& all_a, const Inventory& all_b) {
  const auto refuse_several = [](const Inventory& one, std::string_view side_of_one, const Inventory& several,
                                 std::string_view side_of_several) {
    constexpr std::size_t most = 20;
    std::string names;
    std::size_t told = 0;
    for (const auto& [key, tensor] : several) {
      if (told++ == most) break;
      names += (names.empty() ? "" : ", ") + printable(key.second);
    }
    if (several.size() > most) names += ", ...";
    refuse(side_of_one, " is one tensor, ", called(one.begin()->first, one.begin()->second), "; ", side_of_several,
           " has ", several.size(), ": ", names, ". Choose one of these with tensors");
  };
  const auto is_unnamed = [](const Inventory& all) { return all.size() == 1 && all.begin()->first.second.empty(); };
  if (is_unnamed(all_a) && all_b.size() > 1) refuse_several(all_a, "a", all_b, "b");
  if (is_unnamed(all_b) && all_a.size() > 1) refuse_several(all_b, "b", all_a, "a");
}

}  // namespace fp8lab::experiments
