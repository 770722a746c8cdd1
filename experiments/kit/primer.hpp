// SPDX-License-Identifier: Apache-2.0
// The inputs, the FP8 product and the printed tables of the FP8 primer, which models and devices compute.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/policy.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
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

/// The cast of the inputs to E4M3: cuda_satfinite, the default policy.
inline constexpr CastPolicy primer_cast{};

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
[[nodiscard]] std::vector<float> primer_fp8_product(const PrimerArguments& arguments, const PrimerTensors& tensors,
                                                    const Progress& progress = {});

/// The rows, or columns, of a matrix that PyTorch prints: the first and last three of `size`.
[[nodiscard]] std::array<std::size_t, 6> printed_places(std::size_t size);
/// The values that PyTorch prints of a matrix.
using CornerValues = std::array<std::array<float, 6>, 6>;
[[nodiscard]] CornerValues corner_values(std::span<const float> matrix, std::size_t rows, std::size_t columns);
/// The corners of the outputs as texts, beside the published ones.
[[nodiscard]] std::vector<PrimerTable> primer_tables(const CornerValues& out_fp8, const CornerValues& out_fp32,
                                                     const CornerValues& out_fp8_representable);

}  // namespace fp8lab::experiments
