// SPDX-License-Identifier: Apache-2.0
// The files of a GEMM: its operands, its output, and what its epilogue adds.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "doctor_gemm/doctor_gemm.hpp"
#include "files/tensor_file.hpp"

namespace fp8lab::experiments {

/// A tensor of a file, in memory.
struct GemmArray {
  std::vector<std::uint64_t> shape = {};  ///< of what is stored
  Format format = binary32;               ///< of the elements
  bool is_told = false;                   ///< whether the file or an argument tells the format
  std::size_t stored = 0;                 ///< bytes in the file, by its header
  std::vector<std::byte> bytes = {};      ///< these, once they are read

  /// Elements that are stored: bytes where they are codes of 8 bits or fewer.
  [[nodiscard]] std::size_t size() const { return stored / bytes_each(); }
  [[nodiscard]] std::size_t bytes_each() const;
  template <typename T>
  [[nodiscard]] std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

/// All files of a GEMM.
struct GemmFiles {
  GemmArray a, b, out, scale_a, scale_b;
  std::vector<float> c = {}, bias = {};
  std::size_t rows = 0, columns = 0, depth = 0;  ///< M, N, K

  /// Throws as run_doctor_gemm() does: where sizes do not fit, before more than the headers was read.
  explicit GemmFiles(const DoctorGemmArguments& arguments);
  /// Views of the files, which must outlive them.
  [[nodiscard]] Operand left(const DoctorGemmArguments& arguments) const;
  [[nodiscard]] Operand right(const DoctorGemmArguments& arguments) const;

 private:
  void set_sizes(std::span<const std::uint64_t> sizes, bool out_is_whole);
  void set_sizes_of_shapes(const DoctorGemmArguments& arguments);
};

}  // namespace fp8lab::experiments
