// SPDX-License-Identifier: Apache-2.0
// Diagnoses a GEMM from files of its inputs and its output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/doctor/diagnose_gemm.hpp"
#include "kit/chosen.hpp"

namespace fp8lab::experiments {

/// The files to diagnose, and what is known about them. Files are .npy, .safetensors, or raw.
struct DoctorGemmArguments {
  std::filesystem::path a, b, product;
  std::vector<std::string> names = {};  ///< of tensors of .safetensors files, in the order of the files below
  std::optional<std::filesystem::path> scale_a = {}, scale_b = {}, c = {}, bias = {};
  std::optional<std::string> format_a = {}, format_b = {}, product_format = {};
  std::optional<std::string> scale_format = {};  ///< of scales of a byte: e8m0 or ue4m3
  double tensor_scale_a = 1, tensor_scale_b = 1, scale_out = 1;
  std::string layout = "nt";             ///< as gemm() of Python has it
  std::string scale_layout = "compact";  ///< or swizzled
  std::vector<std::uint64_t> places =
      {};            ///< m and n of each element of the product, where it is some elements; empty: all
  bool raw = false;  ///< files have no header
  std::vector<std::uint64_t> sizes = {};          ///< M, N and K, of raw files
  std::optional<ChosenGemmRecipe> expected = {};  ///< what the GEMM should do; the next ones change its fields
  std::optional<int> expected_promote_k = {};
  std::vector<std::uint64_t> expected_split_k = {}, expected_split_order = {};
  std::optional<std::string> expected_scale_order = {}, expected_c_enters = {}, expected_zero_rule = {};
  std::optional<ChosenProfile> expected_profile = {};
  std::size_t most_shown = 10;  ///< explanations, and elements
  std::size_t most_products = std::size_t{1} << 27;
  int threads = 1;
  std::optional<std::filesystem::path> probe = {};  ///< where inputs are written that part explanations
};

struct DoctorGemmResult {
  doctor::GemmDiagnosis diagnosis = {};
  Format format = binary32;                     ///< of the output
  std::optional<doctor::GemmProbe> probe = {};  ///< where explanations are tied
  std::size_t probed = 0;                       ///< explanations that the probe is about: the first ones
};

/// Reads and diagnoses.
///
/// Throws std::invalid_argument where tensors do not fit each other or are of types that no GEMM takes;
/// std::runtime_error where a file cannot be read or the probe cannot be written.
[[nodiscard]] DoctorGemmResult run_doctor_gemm(const DoctorGemmArguments& arguments);

}  // namespace fp8lab::experiments
