// SPDX-License-Identifier: Apache-2.0
// Diagnoses a kernel from files of its input and output.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/doctor/diagnose.hpp"
#include "kit/chosen.hpp"

namespace fp8lab::experiments {

/// The files to diagnose, and what is known about them.
struct DoctorArguments {
  std::filesystem::path x, codes;  ///< .npy or .safetensors files
  std::optional<std::filesystem::path> scales = {};
  std::vector<std::string> names = {};           ///< of tensors of .safetensors files: x, codes and scales, in order
  std::optional<std::string> format = {};        ///< of codes
  std::optional<std::string> scale_format = {};  ///< of scales of a byte: e8m0 or ue4m3
  std::optional<double> tensor_scale = {};
  std::optional<ChosenRecipe> expected = {};
  std::optional<std::string> direction = {};
  /// Elements of x that are looked at; of a larger one rows are sampled. Left out: 2^28, and of a larger one 2^24, or
  /// two groups of rows where these are more, since a search of more takes long.
  std::optional<std::uint64_t> most_elements = {};
  std::size_t most_shown = 10;
  bool strict = false;                                 ///< whether what the input does not show counts
  std::optional<std::filesystem::path> exercise = {};  ///< where an input is written that shows all
  std::optional<std::filesystem::path> probe = {};     ///< where an input is written that parts explanations
  int threads = 1;
};

struct DoctorResult {
  doctor::Diagnosis diagnosis;
  std::vector<std::uint64_t> shape;         ///< of x in its file
  std::uint64_t columns = 1;                ///< of x as it is looked at
  std::vector<std::uint64_t> sampled_rows;  ///< the row in the file of each row that is looked at; empty where all are

  /// The row and column in the file of an element that is looked at.
  [[nodiscard]] std::array<std::uint64_t, 2> place_of(std::uint64_t index) const;
  std::optional<doctor::Probe> probe = {};
};

/// Reads and diagnoses.
///
/// Throws std::invalid_argument where tensors do not fit each other, are of types that no kernel reads or writes, or a
/// row of x has more elements than are looked at; std::runtime_error where a file cannot be read or the probe cannot be
/// written.
[[nodiscard]] DoctorResult run_doctor(const DoctorArguments& arguments);

}  // namespace fp8lab::experiments
