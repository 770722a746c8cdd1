// SPDX-License-Identifier: Apache-2.0
// Tensor files in memory, byte by byte, and what reading them gives.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "files/tensor_file.hpp"
#include "support.hpp"

namespace fp8lab::tests::tensor_bytes {

using experiments::ElementType;
using experiments::TensorFile;
using Shape = std::vector<std::uint64_t>;

/// The `count` lowest bytes of `value`, lowest first.
inline std::string le(std::uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

inline std::string npy(const std::string& dict, const std::string& data = "", int major = 1, int minor = 0) {
  return "\x93NUMPY" + le(static_cast<unsigned>(major), 1) + le(static_cast<unsigned>(minor), 1) +
         le(dict.size(), major == 1 ? 2 : 4) + dict + data;
}
/// The header as NumPy writes it.
inline std::string dict(const std::string& descr, const std::string& shape,
                        const std::string& fortran_order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran_order + ", 'shape': " + shape + ", }    \n";
}
inline std::string safetensors(const std::string& header, const std::string& data = "") {
  return le(header.size(), 8) + header + data;
}
inline std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape, int begin,
                          int end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

/// A header of these tensors.
inline std::string object(const std::string& members) { return std::string("{").append(members).append("}"); }

inline TensorFile open(const std::string& bytes, std::string_view tensor = {}) {
  return {std::make_unique<std::istringstream>(bytes), "t", tensor};
}
template <typename Error>
std::string message(const std::string& bytes, std::string_view tensor) {
  try {
    open(bytes, tensor);
  } catch (const Error& error) {
    const std::string text = error.what();
    return text.starts_with("cannot read t: ") ? text.substr(15) : "no prefix: " + text;
  }
  return "no error";
}
/// Why a file is not read: its own fault, or that of what was asked.
inline std::string fault(const std::string& bytes, std::string_view tensor = {}) {
  return message<std::runtime_error>(bytes, tensor);
}
inline std::string refusal(const std::string& bytes, std::string_view tensor = {}) {
  return message<std::invalid_argument>(bytes, tensor);
}

inline std::uint64_t bits_of(float x) { return bits(x); }
inline std::uint64_t bits_of(double x) { return std::bit_cast<std::uint64_t>(x); }
inline std::uint64_t bits_of(Half x) { return x.bits; }
inline std::uint64_t bits_of(BFloat16 x) { return x.bits; }
inline std::uint64_t bits_of(std::uint8_t x) { return x; }

/// Requires that the file's elements are `expected`, in pieces of every size and from every place.
template <typename T>
void require_elements(TensorFile file, const std::vector<std::uint64_t>& expected) {
  REQUIRE(file.size() == expected.size());
  Mismatches mismatches;
  for (std::size_t first = 0; first <= expected.size(); ++first) {
    for (std::size_t count = 0; count <= expected.size() - first; ++count) {
      std::vector<T> piece(count);
      file.read(first, piece);
      for (std::size_t i = 0; i < count; ++i) mismatches.compare(first, i, bits_of(piece[i]), expected[first + i]);
    }
  }
  REQUIRE_NO(mismatches);
}

inline std::string data(const std::vector<std::uint64_t>& elements, int size) {
  std::string bytes;
  for (const std::uint64_t element : elements) bytes += le(element, size);
  return bytes;
}

// A NaN's payload, signalling too, -0, a subnormal, an infinity: what a conversion on the way would change.
inline const std::vector<std::uint64_t> floats{0x3F800000, 0x7FA12345, 0xFFC00001, 0x80000000,
                                               0x00000001, 0x7F800000, 0x42280000};
inline const std::vector<std::uint64_t> doubles{0x3FF0000000000000, 0x7FF0000000000001, 0xFFF8123456789ABC,
                                                0x8000000000000000, 1};
inline const std::vector<std::uint64_t> codes{0x00, 0x7F, 0x80, 0xFF};
inline const std::vector<std::uint64_t> halves{0x3C00, 0x7C01, 0xFE55, 0x8000, 0x0001, 0x7F81, 0xFF80};

}  // namespace fp8lab::tests::tensor_bytes
