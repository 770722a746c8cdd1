// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "files/dot_words.hpp"
#include "fp8lab/reference/tensor_core/mma_model.hpp"

namespace fp8lab::experiments {

/// Dot products of one instruction, and the words that somebody else got for them.
struct RecordedDots {
  std::string name;  ///< of the set
  MmaModel model;
  Dots dots;
  Codes d;  ///< the words of the accumulator afterwards
};

/// A dot product of several instructions, from an accumulator of zero.
struct RecordedChain {
  Dots dot;                ///< one
  std::uint32_t fast;      ///< the accumulator after all of them
  std::uint32_t promoted;  ///< the binary32 sum of accumulators restarted every 128 of K
};
struct RecordedChains {
  std::string name;  ///< of the set
  MmaModel model;
  std::vector<RecordedChain> chains;
};

/// The contents of a file.
struct Recorded {
  std::string source;  ///< as the file names it
  std::vector<RecordedDots> sets;
  std::vector<RecordedChains> chains = {};
};

/// Reads vectors as tests/vectors/mma_sim.json has them: JSON, plain or gzipped, with `source`, `groups` of rows
/// [a, b, c, d] or [a, b, scale_a, scale_b, c, d], and `chains` of rows [a, b, fast, promoted], all in hexadecimal.
///
/// The JSON is followed as it is unpacked, so that the rows alone are held. At most 2^26 bytes of JSON, 2^12 groups and
/// 2^20 rows are read: less than 1 GB of memory, whatever the file.
///
/// Throws std::runtime_error, one line with the file's name, where it cannot be read or is not of that form.
[[nodiscard]] Recorded read_vectors(const std::filesystem::path& path);

/// Reads rows measured on GPUs: JSON, plain or gzipped, with `source` and `groups`, each with `gpu`, `model` (the path
/// that its instruction takes), `fmt`, `cd` (f32 or f16) and `cases` of rows [a, b, c, d]. The rows themselves: Khattak
/// and Mikaitis, "MATLAB-tensor-core", model_validation, which is not part of fp8lab. Throws as read_vectors() does.
[[nodiscard]] Recorded read_gpu_rows(const std::filesystem::path& path);

}  // namespace fp8lab::experiments
