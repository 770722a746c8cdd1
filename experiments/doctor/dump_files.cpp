// SPDX-License-Identifier: Apache-2.0
#include "doctor/dump_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "fp8lab/formats/refuse.hpp"
#include "kit/tensor_source.hpp"

namespace fp8lab::experiments {
namespace {

/// Rows of a group, which all tiles of recipes divide.
constexpr std::uint64_t group_rows = 128;

/// Elements of a tensor that is read whole, and of a sample where two groups of rows have no more, unless the user says
/// how many.
constexpr std::uint64_t most_read = std::uint64_t{1} << 28;
constexpr std::uint64_t most_sampled = std::uint64_t{1} << 24;

std::string name_at(const DoctorArguments& arguments, std::size_t i) {
  return i < arguments.names.size() ? arguments.names[i] : "";
}

void check_order(const TensorHeader& header, const std::string& called) {
  if (header.fortran_order && header.shape.size() > 1) {
    refuse(called, " is stored in Fortran order: store it in C order, as the kernel has it");
  }
}

/// Elements [first * each, (first + count) * each) of every group, one after the other.
std::vector<std::byte> read_groups(TensorFile& file, std::span<const RowGroup> groups, std::uint64_t each) {
  const std::uint64_t width = bytes_of(file.type());
  std::uint64_t elements = 0;
  for (const RowGroup& group : groups) elements += group.count * each;
  std::vector<std::byte> bytes(static_cast<std::size_t>(elements * width));
  std::size_t at = 0;
  for (const RowGroup& group : groups) {
    const auto size = static_cast<std::size_t>(group.count * each * width);
    file.read_bytes(group.first * each, std::span(bytes).subspan(at, size));
    at += size;
  }
  return bytes;
}

template <typename T>
Tensor tensor_of(std::span<const std::byte> bytes, std::size_t columns) {
  Tensor x;
  const std::span<T> values = x.allocate<T>(bytes.size() / sizeof(T) / columns, columns);
  std::ranges::copy(bytes, std::as_writable_bytes(values).begin());
  return x;
}

Tensor tensor_of(ElementType type, std::span<const std::byte> bytes, std::size_t columns) {
  switch (type) {
    case ElementType::float32: return tensor_of<float>(bytes, columns);
    case ElementType::float16: return tensor_of<Half>(bytes, columns);
    case ElementType::bfloat16: return tensor_of<BFloat16>(bytes, columns);
    case ElementType::float64:
    case ElementType::uint8: break;
  }
  refuse("x is of ", name_of(type), "; a kernel quantizes float32, float16 or bfloat16");
}

/// Groups of the array that has its elements in the order of rows of x, and how many elements a unit of these has; none
/// where they do not follow the rows.
std::optional<std::pair<std::vector<RowGroup>, std::uint64_t>> groups_of(std::span<const RowGroup> groups,
                                                                         std::uint64_t elements, std::uint64_t rows) {
  if (elements % rows == 0) return std::pair(std::vector(groups.begin(), groups.end()), elements / rows);
  const std::uint64_t bands = (rows + group_rows - 1) / group_rows;
  const bool has_whole_bands =
      std::ranges::all_of(groups, [](const RowGroup& group) { return group.first % group_rows == 0; });
  if (elements % bands != 0 || !has_whole_bands) return std::nullopt;
  std::vector<RowGroup> own;
  for (const RowGroup& group : groups) {
    own.push_back({group.first / group_rows, (group.count + group_rows - 1) / group_rows});
  }
  return std::pair(std::move(own), elements / bands);
}

/// Rows and columns as which x is looked at: a tensor of a few long rows as many rows of 4096.
std::pair<std::uint64_t, std::uint64_t> shape_to_sample(const TensorHeader& x, std::vector<std::string>& notes) {
  constexpr std::uint64_t new_columns = 4096;
  const std::uint64_t columns = x.shape.empty() ? 1 : x.shape.back();
  const std::uint64_t rows = x.size / columns;
  if (rows >= group_rows || columns % new_columns != 0) return {rows, columns};
  notes.push_back(fmt::format("Its {} row{} of {} elements are looked at as rows of {}.", rows, rows == 1 ? "" : "s",
                              columns, new_columns));
  return {x.size / new_columns, new_columns};
}

/// Where the tensors lie: in the files that were given, or in those of an index or a folder.
struct DumpPaths {
  std::filesystem::path x, codes, scales;
};

void sample_scales(const std::filesystem::path& path, std::span<const RowGroup> groups, std::uint64_t rows,
                   DumpFiles& dump) {
  TensorFile file(path, dump.scales_header);
  if (file.size() == 1) {
    dump.scales = read_groups(file, std::array{RowGroup{0, 1}}, 1);
    dump.notes.emplace_back("The scale of the tensor follows from all of x, and is taken as a given number here.");
    return;
  }
  const auto own = groups_of(groups, file.size(), rows);
  if (!own) {
    dump.notes.push_back(fmt::format("The {} scales do not follow the rows of x and are not looked at.", file.size()));
    return;
  }
  dump.scales = read_groups(file, own->first, own->second);
}

void sample_dump(const DoctorArguments& arguments, const DumpPaths& paths, const TensorHeader& header,
                 DumpFiles& dump) {
  check_order(header, "x");
  const auto [rows, columns] = shape_to_sample(header, dump.notes);
  const std::uint64_t usual = std::min(most_read, std::max(2 * group_rows * columns, most_sampled));
  const std::uint64_t most = arguments.most_elements.value_or(usual);
  const std::vector<RowGroup> groups = sample_rows(rows, columns, most);
  // 1. x and its codes.
  const TensorHeader& codes = dump.codes_header;
  if (codes.size != header.size && codes.size != (header.size + 1) / 2) {
    refuse("codes have ", codes.size, codes.size == 1 ? " byte; x has " : " bytes; x has ", header.size,
           header.size == 1 ? " element, which has " : " elements, which have ", header.size, " codes of a byte or ",
           (header.size + 1) / 2, " bytes of two codes of 4 bits each");
  }
  if (codes.size % rows != 0) refuse("a row of x has ", columns, " elements, and its codes are no whole bytes");
  TensorFile x(paths.x, header);
  dump.x = tensor_of(header.type, read_groups(x, groups, columns), static_cast<std::size_t>(columns));
  TensorFile code_file(paths.codes, codes);
  dump.codes = read_groups(code_file, groups, codes.size / rows);
  // 2. What is said of it.
  for (const RowGroup& group : groups) {
    for (std::uint64_t i = 0; i < group.count; ++i) dump.sampled_rows.push_back(group.first + i);
  }
  dump.notes.insert(dump.notes.begin(),
                    fmt::format("A sample: {} of {} rows are looked at, in {} group{} from the first row to the last. "
                                "Codes and scales that are stored transposed are not found in it.",
                                dump.sampled_rows.size(), rows, groups.size(), groups.size() == 1 ? "" : "s"));
  // 3. Their scales.
  if (arguments.scales) sample_scales(paths.scales, groups, rows, dump);
}

std::vector<std::byte> read_whole(const std::filesystem::path& path, const TensorHeader& header) {
  TensorFile file(path, header);
  return read_groups(file, std::array{RowGroup{0, header.size}}, 1);
}

}  // namespace

std::vector<RowGroup> sample_rows(std::uint64_t rows, std::uint64_t columns, std::uint64_t most) {
  if (columns > most) {
    refuse("a row of x has ", columns, " elements, of which at most ", most, " are looked at: say more elements");
  }
  if (group_rows * columns > most) return {{0, std::min(rows, most / columns)}};
  const std::uint64_t all = (rows + group_rows - 1) / group_rows;
  const std::uint64_t wanted = std::min(all, most / (group_rows * columns));
  std::vector<RowGroup> groups;
  for (std::uint64_t i = 0; i < wanted; ++i) {
    const std::uint64_t group = wanted == 1 ? 0 : i * (all - 1) / (wanted - 1);
    groups.push_back({group * group_rows, std::min(group_rows, rows - group * group_rows)});
  }
  return groups;
}

DumpFiles read_dump(const DoctorArguments& arguments) {
  DumpFiles dump;
  if (const std::size_t files = arguments.scales ? 3 : 2; arguments.names.size() > files) {
    refuse("tensors has ", arguments.names.size(), " names, and there are ", files, " files");
  }
  // 1. What the files hold.
  DumpPaths paths;
  const auto find = [&](const std::filesystem::path& path, std::size_t i, std::string_view called,
                        std::filesystem::path& place) {
    FoundTensor found = find_one_tensor(path, name_at(arguments, i), called);
    place = std::move(found.path);
    return std::move(found.header);
  };
  const TensorHeader x = find(arguments.x, 0, "x", paths.x);
  dump.shape = x.shape;
  if (x.size == 0) refuse("x has no elements");
  if (x.type == ElementType::float64) refuse("x is of float64, which no kernel quantizes");
  if (x.type == ElementType::uint8) refuse("x is of bytes; it is the tensor that the kernel read, of floats");
  dump.codes_header = find(arguments.codes, 1, "codes", paths.codes);
  if (dump.codes_header.type != ElementType::uint8) {
    refuse("codes are of ", name_of(dump.codes_header.type), "; they must be bytes");
  }
  check_order(dump.codes_header, "codes");
  if (arguments.scales) {
    dump.scales_header = find(*arguments.scales, 2, "scales", paths.scales);
    check_order(dump.scales_header, "scales");
    if (dump.scales_header.size == 0) refuse("scales have no elements");
  }
  if (std::string note = doctor::note_on_pairs(x.shape, dump.codes_header.shape); !note.empty()) {
    dump.notes.push_back(std::move(note));
  }
  // 2. Their elements.
  if (x.size > arguments.most_elements.value_or(most_read)) {
    sample_dump(arguments, paths, x, dump);
    return dump;
  }
  StoredTensors stored{.paths = {paths.x}};
  if (has_names(paths.x)) stored.names.push_back(x.name);
  TensorStream(stored).load(0, dump.x);
  for (const TensorHeader* const other : {&dump.codes_header, &dump.scales_header}) {
    if (other->size > 4 * x.size + (1 << 20)) {
      refuse(other == &dump.codes_header ? "codes" : "scales", " have ", other->size, " elements; x has ", x.size);
    }
  }
  dump.codes = read_whole(paths.codes, dump.codes_header);
  if (arguments.scales) dump.scales = read_whole(paths.scales, dump.scales_header);
  return dump;
}

}  // namespace fp8lab::experiments
