// SPDX-License-Identifier: Apache-2.0
// Writes .npy files, as NumPy's format version 1.0 describes them.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace fp8lab::tests {

/// Writes the elements, given in the order of the file, below a header with these entries: `descr` such as "<f4",
/// `shape` such as "(2, 3)".
template <typename Values>
void write_npy(const std::filesystem::path& path, const std::string& descr, const std::string& shape,
               const Values& values, bool fortran_order = false) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': " + (fortran_order ? "True" : "False") +
                       ", 'shape': " + shape + ", }";
  header.resize(118, ' ');
  std::ofstream file(path, std::ios::binary);
  file << std::string("\x93NUMPY\x01\x00\x76\x00", 10) << header;
  const auto size = static_cast<std::streamsize>(values.size() * sizeof(values[0]));
  file.write(reinterpret_cast<const char*>(values.data()), size);
}

}  // namespace fp8lab::tests
