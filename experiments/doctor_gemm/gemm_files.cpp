// SPDX-License-Identifier: Apache-2.0
#include "doctor_gemm/gemm_files.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "files/stored_file.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/tensor_core/scale_shapes.hpp"
#include "kit/tensor_source.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::uint64_t most_gemm_bytes = std::uint64_t{1} << 33;

/// The format called `name` of that tensor.
Format gemm_format(const std::string& name, const std::string& called) {
  if (name == "float32") return binary32;
  try {
    const Format format = find_format(name).format;
    if (format.bits() <= 16) return format;
  } catch (const std::invalid_argument& error) {
    refuse("format of ", called, ": ", error.what());
  }
  refuse("format of ", called, ": ", name, " is not one of a GEMM's operands or output here");
}

/// The files, each with the name of its tensor.
class FileReader {
 public:
  explicit FileReader(const DoctorGemmArguments& arguments) : arguments_(arguments) {}

  /// What the header says. `format` is what the user says of it; `usual` is taken where neither the file nor the user
  /// tells.
  GemmArray describe(const std::filesystem::path& path, const std::string& called,
                     const std::optional<std::string>& format, const std::optional<Format>& usual) {
    const FoundTensor found = find_tensor(path, called, format);
    const TensorHeader& header = found.header;
    if (header.fortran_order && header.shape.size() > 1) {
      refuse(called, " is stored in Fortran order: store it in C order, as the kernel has it, and say its layout");
    }
    GemmArray array{.shape = header.shape};
    set_format(array, header, called, format, usual);
    const std::uint64_t bytes = header.size * bytes_of(header.type);
    if (bytes > most_gemm_bytes) {
      refuse(called, " has ", bytes, " bytes, of which at most ", most_gemm_bytes, " are read into memory");
    }
    array.stored = static_cast<std::size_t>(bytes);
    described_.insert_or_assign(called, std::pair(found.path, header));
    return array;
  }

  /// Reads what describe() told of.
  void read(GemmArray& array, const std::string& called) const {
    const auto found = described_.find(called);
    if (found == described_.end()) return;
    const auto& [path, header] = found->second;
    array.bytes.resize(array.stored);
    TensorFile(path, header).read_bytes(0, array.bytes);
  }

  /// Whether all names have been used.
  void check_names() const {
    if (next_name_ < arguments_.names.size()) {
      refuse("tensors names ", arguments_.names.size(), " tensors, and ", next_name_, " .safetensors files are given");
    }
  }

 private:
  FoundTensor find_tensor(const std::filesystem::path& path, const std::string& called,
                          const std::optional<std::string>& format) {
    if (arguments_.raw) {
      const std::uint64_t bytes = StoredFile(path).size();
      const std::uint64_t each =
          format && gemm_format(*format, called).bits() > 8 ? gemm_format(*format, called).bits() / 8 : 1;
      if (bytes % each != 0) refuse(called, " has ", bytes, " bytes, no whole number of elements of ", each, " bytes");
      const TensorHeader whole{
          .name = "", .type = ElementType::uint8, .shape = {bytes / each}, .size = bytes, .offset = 0};
      return {.path = path, .header = whole};
    }
    std::string name;
    if (path.extension() != ".npy" && next_name_ < arguments_.names.size()) name = arguments_.names[next_name_++];
    return find_one_tensor(path, name, called);
  }

  void set_format(GemmArray& array, const TensorHeader& header, const std::string& called,
                  const std::optional<std::string>& format, const std::optional<Format>& usual) const {
    array.is_told = true;
    if (header.type == ElementType::float64) refuse(called, " is of float64, which is not diagnosed");
    if (header.type != ElementType::uint8) {
      if (format) refuse("format of ", called, " is for codes of a byte, and it is of ", name_of(header.type));
      array.format = header.type == ElementType::float16 ? binary16 : bfloat16;
      if (header.type == ElementType::float32) array.format = binary32;
      return;
    }
    if (format) {
      array.format = gemm_format(*format, called);
      if (!arguments_.raw && array.format.bits() > 8) {
        refuse(called, " has elements of a byte, ", *format, " has ", array.format.bits(), " bits");
      }
    } else if (!header.format.empty()) {
      array.format = find_format(header.format).format;
    } else if (usual) {
      array.format = *usual;
      array.is_told = false;
    } else {
      refuse("format of ", called, " must be given: its file does not tell what its bytes are");
    }
  }

  const DoctorGemmArguments& arguments_;
  std::size_t next_name_ = 0;
  std::map<std::string, std::pair<std::filesystem::path, TensorHeader>> described_;
};

void check_given(const DoctorGemmArguments& arguments) {
  if (arguments.a.empty() || arguments.b.empty() || arguments.product.empty()) {
    refuse("a, b and product must be given: three files");
  }
  if (arguments.raw && (arguments.sizes.size() != 3 || !arguments.product_format)) {
    refuse("files without a header need sizes, M,N,K, and the format of the product");
  }
  if (!arguments.raw && !arguments.sizes.empty()) refuse("sizes are for files without a header: say raw, too");
  constexpr std::uint64_t most = std::uint64_t{1} << 30;  // so that no number of bytes overflows
  for (const std::uint64_t size : arguments.sizes) {
    if (size == 0 || size > most) refuse("sizes must be from 1 to ", most, ", not ", size);
  }
}

/// (rows, K) of an operand, as elements.
std::pair<std::size_t, std::size_t> shape_of_operand(const GemmArray& array, const std::string& called,
                                                     bool transposed) {
  if (array.shape.size() != 2) refuse(called, " must have two dimensions, not ", array.shape.size());
  auto first = static_cast<std::size_t>(array.shape[0]);
  std::size_t second = static_cast<std::size_t>(array.shape[1]) * (array.format.bits() == 4 ? 2 : 1);
  if (transposed) std::swap(first, second);
  return {first, second};
}

std::vector<float> floats_of(const GemmArray& array) {
  constexpr Format single = binary32;
  if (array.format == single) return {array.as<float>().begin(), array.as<float>().end()};
  std::vector<float> values;
  for (const std::uint16_t word : array.as<std::uint16_t>()) values.push_back(decode(array.format, word));
  return values;
}

/// Gives an operand its scales: by their type and shape of blocks, tiles, rows or the tensor.
void set_scales(Operand& operand, const GemmArray& scales, const DoctorGemmArguments& arguments,
                const std::string& called) {
  if (scales.bytes.empty()) return;
  constexpr Format single = binary32;
  if (scales.format != single) {
    operand.scales.codes = scales.as<std::uint8_t>();
    if (arguments.scale_layout == "swizzled") {
      operand.scales.layout = ScaleLayout::swizzled;
    } else if (scales.is_told && operand.rows * operand.depth % scales.size() == 0) {
      // float8 types call E4M3 what a tensor core reads as UE4M3: scales have no sign.
      constexpr Format scale_e4m3 = e4m3;
      const Format format = scales.format == scale_e4m3 ? ue4m3 : scales.format;
      operand.scales.type = BlockScales{format, static_cast<int>(operand.rows * operand.depth / scales.size())};
    }
    return;
  }
  const auto values = scales.as<float>();
  if (values.size() == 1) {
    operand.tensor_scale.factor *= values.front();
    return;
  }
  // Files without a header have no shape; a dimension of 1 may be left out.
  const auto shape = arguments.raw ? std::span<const std::uint64_t>() : std::span<const std::uint64_t>(scales.shape);
  if (set_float_scales(operand, values, shape)) return;
  const FloatScaleShapes wanted = float_scale_shapes(operand);
  refuse(called, " has ", values.size(), " scales; of an operand of ", operand.rows, " rows and K = ", operand.depth,
         " they are one for the tensor, one for each row, or one for each 1 x 128 (", wanted.fine.down, " x ",
         wanted.fine.along, ") or 128 x 128 elements (", wanted.coarse.down, " x ", wanted.coarse.along,
         "), as they are stored");
}

Operand operand_in(const GemmArray& array, std::size_t rows, std::size_t depth, bool transposed) {
  constexpr Format single = binary32;
  Operand operand;
  if (array.format == single) {
    operand = Operand::floats(array.as<float>(), rows, depth);
  } else if (array.format.bits() > 8) {
    operand = Operand::codes(array.as<std::uint16_t>(), array.format, rows, depth);
  } else {
    operand = Operand::codes(array.as<std::uint8_t>(), array.format, rows, depth);
    operand.packed = array.format.bits() == 4;
  }
  operand.transposed = transposed;
  return operand;
}

}  // namespace

std::size_t GemmArray::bytes_each() const {
  return format.bits() <= 8 ? 1 : static_cast<std::size_t>(format.bits()) / 8;
}

GemmFiles::GemmFiles(const DoctorGemmArguments& arguments) {
  check_given(arguments);
  // 1. The headers.
  FileReader reader(arguments);
  a = reader.describe(arguments.a, "a", arguments.format_a, e4m3);
  b = reader.describe(arguments.b, "b", arguments.format_b, e4m3);
  out = reader.describe(arguments.product, "product", arguments.product_format, std::nullopt);
  const std::optional<Format> usual_scales = e8m0;
  const std::optional<std::string> floats = "float32";
  const auto scale_format = arguments.raw && !arguments.scale_format ? floats : arguments.scale_format;
  if (arguments.scale_a) scale_a = reader.describe(*arguments.scale_a, "scale_a", scale_format, usual_scales);
  if (arguments.scale_b) scale_b = reader.describe(*arguments.scale_b, "scale_b", scale_format, usual_scales);
  // 2. Their sizes.
  if (arguments.raw) {
    set_sizes(arguments.sizes, arguments.places.empty());
  } else {
    set_sizes_of_shapes(arguments);
  }
  // 3. What the epilogue adds.
  const auto addend = [&](const std::optional<std::filesystem::path>& path, const std::string& called,
                          std::size_t count) -> GemmArray {
    if (!path) return {};
    GemmArray array = reader.describe(*path, called, arguments.raw ? floats : std::nullopt, std::nullopt);
    if (array.format.bits() <= 8) refuse(called, " must be of float32, float16 or bfloat16, not of codes of a byte");
    if (array.size() != count) refuse(called, " must have ", count, " elements, not ", array.size());
    return array;
  };
  GemmArray added_c = addend(arguments.c, "c", rows * columns);
  GemmArray added_bias = addend(arguments.bias, "bias", columns);
  reader.check_names();
  // 4. What is stored, scales first: they are few, and their sizes are checked as they are used.
  reader.read(scale_a, "scale_a");
  reader.read(scale_b, "scale_b");
  static_cast<void>(left(arguments));
  static_cast<void>(right(arguments));
  for (const auto& [array, called] : {std::pair(&a, "a"), std::pair(&b, "b"), std::pair(&out, "product"),
                                      std::pair(&added_c, "c"), std::pair(&added_bias, "bias")}) {
    reader.read(*array, called);
  }
  c = floats_of(added_c);
  bias = floats_of(added_bias);
}

void GemmFiles::set_sizes(std::span<const std::uint64_t> sizes, bool out_is_whole) {
  rows = static_cast<std::size_t>(sizes[0]);
  columns = static_cast<std::size_t>(sizes[1]);
  depth = static_cast<std::size_t>(sizes[2]);
  const auto check = [&](const GemmArray& array, std::size_t count, const std::string& called) {
    const std::size_t bytes = array.format.bits() == 4 ? count / 2 : count * array.bytes_each();
    if (array.stored == bytes) return;
    refuse(called, " has ", array.stored, " bytes; of M,N,K = ", rows, ",", columns, ",", depth, " it has ", bytes);
  };
  check(a, rows * depth, "a");
  check(b, columns * depth, "b");
  if (out_is_whole) check(out, rows * columns, "product");
}

void GemmFiles::set_sizes_of_shapes(const DoctorGemmArguments& arguments) {
  std::size_t depth_b = 0;
  std::tie(rows, depth) = shape_of_operand(a, "a", arguments.layout[0] == 't');
  std::tie(columns, depth_b) = shape_of_operand(b, "b", arguments.layout[1] == 'n');
  if (depth != depth_b) refuse("a and b must have the same K, not ", depth, " and ", depth_b);
  const std::array<std::uint64_t, 2> wanted{rows, columns};
  if (arguments.places.empty() && !std::ranges::equal(out.shape, wanted)) {
    refuse("the product must have the shape ", rows, " x ", columns, ", M x N, not ", shape_text(out.shape));
  }
}

Operand GemmFiles::left(const DoctorGemmArguments& arguments) const {
  Operand operand = operand_in(a, rows, depth, arguments.layout[0] == 't');
  operand.tensor_scale = {static_cast<float>(arguments.tensor_scale_a)};
  set_scales(operand, scale_a, arguments, "scale_a");
  return operand;
}

Operand GemmFiles::right(const DoctorGemmArguments& arguments) const {
  Operand operand = operand_in(b, columns, depth, arguments.layout[1] == 'n');
  operand.tensor_scale = {static_cast<float>(arguments.tensor_scale_b)};
  set_scales(operand, scale_b, arguments, "scale_b");
  return operand;
}

}  // namespace fp8lab::experiments
