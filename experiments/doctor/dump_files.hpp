// SPDX-License-Identifier: Apache-2.0
// The files of a dump, whole or some of their rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "doctor/doctor.hpp"
#include "kit/tensor.hpp"

namespace fp8lab::experiments {

/// The files of a dump.
struct DumpFiles {
  Tensor x;
  std::vector<std::uint64_t> shape;  ///< of x in its file
  TensorHeader codes_header{}, scales_header{};
  std::vector<std::byte> codes, scales;
  std::vector<std::string> notes;           ///< what is not looked at, a sentence each
  std::vector<std::uint64_t> sampled_rows;  ///< the row of the file of each row of x; empty where all are read
};

/// Rows in groups that are read from a tensor: [first, first + count).
struct RowGroup {
  std::uint64_t first, count;

  friend bool operator==(const RowGroup&, const RowGroup&) = default;
};
/// At most `most` elements of a tensor in groups of 128 rows, which hold whole tiles of every recipe: the first group,
/// the last one, and some between them at equal distances. Where 128 rows are more, one group of as many rows as fit.
/// Throws std::invalid_argument where not even one does.
[[nodiscard]] std::vector<RowGroup> sample_rows(std::uint64_t rows, std::uint64_t columns, std::uint64_t most);

/// Reads the files that the arguments name. Of an x of more than `most_elements` elements only rows are read, and the
/// codes and scales of these. Throws as run_doctor() does.
[[nodiscard]] DumpFiles read_dump(const DoctorArguments& arguments);

}  // namespace fp8lab::experiments
