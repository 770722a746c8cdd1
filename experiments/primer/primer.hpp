// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/reference/measure/errors.hpp"
#include "fp8lab/reference/measure/histogram.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "kit/document.hpp"
#include "kit/picture.hpp"
#include "kit/progress.hpp"

namespace fp8lab::experiments {

/// The arguments of the primer experiment; the defaults are those of Transformer Engine's FP8 primer on an H100 PCIe.
struct PrimerArguments {
  std::uint64_t seed = 12345;
  int sms = 114;  ///< streaming multiprocessors of the device that drew the weights
  MmaModel mma = hopper_wgmma_fp8;
  long long in_features = 768;
  long long out_features = 768;
  long long rows = 1024;
  float scale_x = 1;
  float scale_w = 1;
  int threads = 1;  ///< changes nothing but the time
};

/// The corner of a matrix that PyTorch prints: its first and last three rows and columns, as it prints them.
using Corner = std::array<std::array<std::string, 6>, 6>;

struct PrimerTable {
  std::string name;
  std::string title;
  Corner ours;
  Corner published;
  int matches;  ///< of 36 strings
  int required;
};

/// One cause's part of out_fp8 - out_fp32, over every element of the output.
struct PrimerCause {
  std::string name;
  std::string meaning;
  ErrorTotals totals;
  double share;  ///< sum(cause * total) / sum(total^2): the shares of all causes add up to 1
};

struct PrimerResult {
  PrimerArguments arguments;
  std::vector<PrimerTable> tables;
  std::vector<PrimerCause> causes;  ///< cast_of_x, cast_of_w, accumulator, tf32, and last their sum: total
  std::vector<NamedHistogram> histograms;
  bool judged;  ///< the arguments are the published ones, so the tables have to match
  bool passed;  ///< every table has at least its required matches
};

/// The models that can compute the primer's FP8 product, as "a, b, c".
[[nodiscard]] std::string primer_model_names();
/// The one called `name`. Throws std::invalid_argument that lists them.
[[nodiscard]] const MmaModel& find_primer_model(std::string_view name);

/// Throws std::invalid_argument as run_primer() does.
void check_primer(const PrimerArguments& arguments);
/// Whether these are the arguments of the published tables.
[[nodiscard]] bool is_published_primer(const PrimerArguments& arguments);

/// The inputs of the primer, and their casts.
struct PrimerTensors {
  std::vector<float> x, w;                              ///< (rows, in_features), (out_features, in_features)
  std::vector<std::uint8_t> x_codes, w_codes;           ///< E4M3
  std::vector<float> x_representable, w_representable;  ///< the values of the codes
};
/// x from PyTorch's CPU stream and w from its CUDA stream, without casts and with them. The arguments must have been
/// checked, here and below.
[[nodiscard]] PrimerTensors primer_inputs(const PrimerArguments& arguments);
[[nodiscard]] PrimerTensors primer_casts(const PrimerArguments& arguments);
/// The product of the codes.
[[nodiscard]] std::vector<float> primer_fp8_product(const PrimerArguments& arguments, const PrimerTensors& tensors);

/// The rows, or columns, of a matrix that PyTorch prints: the first and last three of `size`.
[[nodiscard]] std::array<std::size_t, 6> printed_places(std::size_t size);
/// The values that PyTorch prints of a matrix.
using CornerValues = std::array<std::array<float, 6>, 6>;
[[nodiscard]] CornerValues corner_values(std::span<const float> matrix, std::size_t rows, std::size_t columns);
/// The corners of the outputs as texts, beside the published ones.
[[nodiscard]] std::vector<PrimerTable> primer_tables(const CornerValues& out_fp8, const CornerValues& out_fp32,
                                                     const CornerValues& out_fp8_representable);

/// Runs the primer experiment: out = x w^T with x (rows, in_features) from PyTorch's CPU stream and w (out_features,
/// in_features) from its CUDA stream, in FP8, in TF32, and in TF32 with representable inputs.
///
/// Source: Transformer Engine documentation, "Using FP8 with Transformer Engine" (fp8_primer.ipynb).
/// Throws std::invalid_argument for sizes that are not multiples of 16 from 16 to 65536, for tensors of more than 2^26
/// elements, for models that do not take E4M3, for SM or thread counts below 1, and for scales that are not positive or
/// whose inverses' product is no normal float32.
[[nodiscard]] PrimerResult run_primer(const PrimerArguments& arguments, const Progress& progress = {});

/// Tables out_fp8, out_fp32, out_fp8_representable and difference, as PyTorch prints them, each beside what NVIDIA's
/// documentation prints, `matches` and `causes`; histograms of the errors and of the codes.
[[nodiscard]] Document document_of(const PrimerResult& result);

}  // namespace fp8lab::experiments
