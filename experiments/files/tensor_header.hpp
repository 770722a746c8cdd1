// SPDX-License-Identifier: Apache-2.0
// Reads bytes and numbers of headers, for .npy and .safetensors. Every length in a file is a claim: it is compared with
// the file's size before memory is taken for it or it is added to anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/tensor_file.hpp"

namespace fp8lab::experiments {

/// The most indices of a tensor: NumPy's limit, and a bound for what a header can make a reader hold.
inline constexpr std::size_t most_dimensions = 64;

/// A file's bytes, and its name for messages.
class Bytes {
 public:
  Bytes(std::istream& content, std::string_view called);

  [[nodiscard]] std::uint64_t size() const { return size_; }
  /// Reads out.size() bytes from `at` on; fails where there are fewer.
  void read(std::uint64_t at, std::span<std::byte> out);
  /// The `length` bytes from `at` on, as text or as a little-endian number; fails where there are fewer.
  [[nodiscard]] std::string text(std::uint64_t at, std::uint64_t length);
  [[nodiscard]] std::uint64_t number(std::uint64_t at, std::uint64_t length);

  /// Throws std::runtime_error: something is wrong with the file.
  [[noreturn]] void fail(std::string_view reason) const;
  /// Throws std::invalid_argument: something is wrong with what was asked of the file.
  [[noreturn]] void refuse(std::string_view reason) const;

 private:
  std::istream* content_;
  std::string_view called_;
  std::uint64_t size_ = 0;
};

/// The number of elements; none where all of them have no 64-bit number of bytes.
[[nodiscard]] std::optional<std::uint64_t> elements_of(std::span<const std::uint64_t> shape, ElementType type);

[[nodiscard]] TensorHeader read_npy_header(Bytes& bytes, OtherDtypes others);
/// Whether `a` comes before `b` where digits are compared as the numbers that they write: layers.2 before layers.10.
[[nodiscard]] bool comes_before(std::string_view a, std::string_view b);

/// What the header of a .safetensors file says of a tensor; nothing of it is compared with the file.
struct StatedTensor {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  ///< in bytes from the file's begin; end may lie before begin, or behind the file
};
/// A whole header, in the order of the file; a name may come twice.
struct StatedHeader {
  std::vector<StatedTensor> tensors = {};
  std::vector<std::pair<std::string, std::string>> metadata = {};
  std::uint64_t data = 0;  ///< where the data begin
};
/// Fails where the header is not of the form that .safetensors demands; what it says of the data may be wrong.
[[nodiscard]] StatedHeader read_stated_header(Bytes& bytes);

/// At least one, as find_tensors() has them.
[[nodiscard]] std::vector<TensorHeader> read_safetensors_headers(Bytes& bytes, std::span<const std::string> names,
                                                                 OtherDtypes others);

}  // namespace fp8lab::experiments
