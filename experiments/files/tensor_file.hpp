// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <istream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/unpack.hpp"

namespace fp8lab::experiments {

/// The types of elements that a TensorFile reads. Codes of one byte, of whatever format, are uint8.
enum class ElementType : std::uint8_t { float32, float64, float16, bfloat16, uint8 };

[[nodiscard]] std::span<const Named<ElementType>> named_values(ElementType of_type);
/// Bytes of an element.
[[nodiscard]] std::uint64_t bytes_of(ElementType type);

/// Text of unknown origin as one clean line: printable ASCII in double quotes, the rest escaped as JSON escapes it,
/// and of more than 80 bytes the beginning and the end.
[[nodiscard]] std::string printable(std::string_view text);

/// The facts that a file states about one of its tensors.
struct TensorHeader {
  std::string name;  ///< as the file has it, of any characters: print printable(name); empty for .npy
  ElementType type;
  std::vector<std::uint64_t> shape;  ///< empty for a scalar, which is one element
  std::uint64_t size;                ///< in elements; may be 0
  std::uint64_t offset;              ///< of the first element, in bytes from the file's begin
  bool fortran_order = false;        ///< the first index runs fastest
  std::size_t wanted = 0;            ///< the first of the names asked for that names it
  std::string_view format = {};      ///< of codes, where the file tells it: "e4m3", "e5m2fnuz", "e8m0", "e2m1", ...
  bool pairs = false;                ///< each byte, which counts as an element, holds two codes of 4 bits
  /// Empty, or what the elements are that no ElementType has: "I64". `type` has as many bytes then, and no meaning.
  std::string dtype = {};
};

/// How tensors of other dtypes than those of ElementType are taken.
enum class OtherDtypes : std::uint8_t {
  refused,
  as_words,  ///< BOOL, C64, integers of 16 to 64 bits; and in .safetensors files any others, as bytes
};

/// Whether `pattern` names a tensor called `name`: it is that name, or becomes it where each '*' stands for any text,
/// each '?' for one character, [12], [a-c] and [!12] for one character of a set or not of it, and {a,b} for a or b.
/// Throws std::invalid_argument where the braces stand for more than 4096 patterns.
[[nodiscard]] bool names_tensor(std::string_view pattern, std::string_view name);
/// Whether a name has one of these characters: it may name several tensors.
[[nodiscard]] bool is_pattern(std::string_view name);

/// The headers of the tensors of a .npy or .safetensors file that one of `names` names, in the order of these; several
/// that one pattern names in the order of their names, where numbers count as numbers (layers.2 before layers.10).
/// Without names it is the file's one tensor.
///
/// Throws as TensorFile's constructor does, and std::invalid_argument where no tensor is named or more than 2^16 are.
[[nodiscard]] std::vector<TensorHeader> find_tensors(const std::filesystem::path& path,
                                                     std::span<const std::string> names = {},
                                                     OtherDtypes others = OtherDtypes::refused);

/// Whether the tensors of a file have names: not that of a .npy file. Throws std::runtime_error where the file cannot
/// be read.
[[nodiscard]] bool has_names(const std::filesystem::path& path);

/// Reads bytes of a tensor from `first` on. Throws std::runtime_error where they cannot be read.
using ReadBytes = std::function<void(std::uint64_t first, std::span<std::byte> out)>;

/// One tensor of a .npy or .safetensors file, read piece by piece: only the header is ever held in memory.
///
/// .npy, versions 1.0 to 3.0: dtypes <f4, <f8, <f2, <V2 as ml_dtypes writes bfloat16, and codes of one byte: |u1,
/// |i1, and <f1 and <V1 as ml_dtypes writes E5M2 and other FP8. Elements come as they are stored: where the file says
/// fortran_order, the first index runs fastest; the shape is the file's all the same. What follows the array is
/// ignored. https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
///
/// .safetensors: dtypes F32, F64, F16, BF16, and codes: F8_E4M3, F8_E5M2, their FNUZ variants, F8_E8M0, U8, I8, and F4
/// as bytes of two codes where rows have whole bytes. Other tensors of the file may have other dtypes.
/// https://github.com/huggingface/safetensors#format
///
/// The content tells which of both a file is; its name does not matter. Errors are one line that names the file.
class TensorFile {
 public:
  /// Opens a regular file and reads its header. `tensor` names one of the tensors of a .safetensors file, as
  /// names_tensor() has it; it may be empty where there is only one, and must be for .npy.
  /// Throws std::runtime_error where the file cannot be read or is not as its format demands, std::invalid_argument
  /// where `tensor` does not name one of its tensors (the message lists them).
  explicit TensorFile(const std::filesystem::path& path, std::string_view tensor = {});
  /// Opens a file whose header was read before.
  TensorFile(const std::filesystem::path& path, TensorHeader header);
  /// A tensor whose bytes somebody else reads; `called` is its file in messages.
  TensorFile(ReadBytes read, std::string_view called, TensorHeader header);
  /// The same as the first of a stream that can seek, a std::istringstream for instance; `called` is its name in
  /// messages.
  TensorFile(std::unique_ptr<std::istream> content, std::string_view called, std::string_view tensor = {});

  [[nodiscard]] const std::string& name() const { return header_.name; }
  [[nodiscard]] ElementType type() const { return header_.type; }
  [[nodiscard]] const std::vector<std::uint64_t>& shape() const { return header_.shape; }
  [[nodiscard]] std::uint64_t size() const { return header_.size; }
  [[nodiscard]] bool fortran_order() const { return header_.fortran_order; }

  /// Reads elements first .. first + out.size(), bit for bit. Throws std::invalid_argument where they are of another
  /// type or not all within the tensor, std::runtime_error where the file cannot be read (any more).
  void read(std::uint64_t first, std::span<float> out);
  void read(std::uint64_t first, std::span<double> out);
  void read(std::uint64_t first, std::span<Half> out);
  void read(std::uint64_t first, std::span<BFloat16> out);
  void read(std::uint64_t first, std::span<std::uint8_t> out);
  /// The same of whatever type they are, as bytes: a whole number of elements.
  void read_bytes(std::uint64_t first, std::span<std::byte> out) { read_as(header_.type, first, out); }

 private:
  void read_as(ElementType type, std::uint64_t first, std::span<std::byte> out);

  std::unique_ptr<std::istream> content_;  // or read_
  ReadBytes read_;
  std::string called_;
  TensorHeader header_;
};

}  // namespace fp8lab::experiments
