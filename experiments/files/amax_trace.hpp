// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <string>
#include <vector>

namespace fp8lab::experiments {

/// The amaxes of a tensor, step by step.
struct TracedTensor {
  std::string name;
  std::vector<int> ranks;                  ///< empty for a tensor of a single process
  std::vector<std::vector<float>> amaxes;  ///< one a rank, an entry a step; not negative, inf and NaN allowed
};

/// The amaxes of a run: all that the scales of delayed scaling depend on.
struct AmaxTrace {
  std::string source;
  std::vector<std::uint64_t> steps;  ///< ascending
  std::vector<TracedTensor> tensors;
};

/// A trace of columns of amaxes, which have an entry a step. Columns are called "tensor", or "tensor@rank" where each
/// tensor has a column for every rank.
///
/// Throws std::invalid_argument for an empty trace, steps that do not ascend, more than 2^16 columns, columns of other
/// sizes, names that are empty, not printable or there twice, a rank that is missing, and negative amaxes.
[[nodiscard]] AmaxTrace trace_of_columns(const std::string& source, const std::vector<std::uint64_t>& steps,
                                         const std::vector<std::string>& names,
                                         const std::vector<std::vector<float>>& columns);

/// Reads a CSV: a header "step,<column>,..." and a line a step. Fields may have spaces around them, lines may end in
/// CR LF; "inf" and "nan" are amaxes. `source` is what messages call it.
///
/// Throws std::invalid_argument that names source, line and column for what trace_of_columns() refuses, and for text
/// where a number has to be, numbers that float32 cannot hold, lines with too few or too many fields, lines of more
/// than 2^24 bytes, and more than 2^24 amaxes. One line is in memory at a time, beside the amaxes.
[[nodiscard]] AmaxTrace parse_amax_trace(std::istream& text, const std::string& source);

/// The same from a regular file. Throws std::runtime_error where it cannot be read.
[[nodiscard]] AmaxTrace read_amax_trace(const std::filesystem::path& file);

/// A small trace to look at where no file is at hand: 48 steps of tensors called stationary, drifting (an eighth more
/// every step), outlier (64 times as much in step 20), jump (16 times as much from step 24 on) and rare (an expert that
/// is seldom used: zeros, then an infinity and amaxes too small for a finite scale).
[[nodiscard]] AmaxTrace example_amax_trace();

}  // namespace fp8lab::experiments
