// SPDX-License-Identifier: Apache-2.0
#include "files/npy_writer.hpp"

#include <bit>

namespace fp8lab::experiments {

std::string npy_of(std::string_view descr, std::initializer_list<std::size_t> shape,
                   std::span<const std::byte> elements) {
  static_assert(std::endian::native == std::endian::little, "elements are written as they lie in memory");
  std::string header = "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (";
  for (const std::size_t length : shape) header += std::to_string(length) + ", ";
  header += "), }";
  // Magic, version and length are 10 bytes; with the line's end a multiple of 64.
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  file.append(reinterpret_cast<const char*>(elements.data()), elements.size());
  return file;
}

}  // namespace fp8lab::experiments
