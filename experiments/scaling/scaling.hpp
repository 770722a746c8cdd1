// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/reference/measure/errors.hpp"
#include "fp8lab/reference/measure/histogram.hpp"
#include "fp8lab/reference/scaling/delayed_scaling.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "kit/chosen.hpp"
#include "kit/document.hpp"
#include "kit/magnitudes.hpp"
#include "kit/picture.hpp"
#include "kit/progress.hpp"
#include "kit/tensor_source.hpp"

namespace fp8lab::experiments {

/// The arguments of the experiment: every recipe sees the same tensors in the same order.
struct ScalingArguments {
  TensorSource source = Draws{.rows = 256, .columns = 256, .steps = 48, .kind = StreamKind::jump};
  std::vector<ChosenRecipe> recipes = {choose_recipe("te_current_scaling"), choose_recipe("te_mxfp8"),
                                       choose_recipe("te_block_1x128"), choose_recipe("te_nvfp4")};
  std::vector<Delayed> delayed = {choose_delayed("max:1024"), choose_delayed("max:8"), choose_delayed("most_recent:1")};
  Pass pass = Pass::forward;               ///< delayed scaling casts to the format of this pass
  bool bfloat16 = false;                   ///< values are rounded to bfloat16 first, as activations are
  OutDtype out_dtype = OutDtype::float32;  ///< the type of the dequantized values
  int threads = 1;                         ///< no result depends on it
};

/// One step of one recipe. Elements are those of the tensor.
struct ScalingStep {
  double scale;                  ///< multiplied the tensor; NaN where it has several scales
  double sqnr_db;                ///< infinite without error; NaN where no value is finite
  double rms;                    ///< sqrt(sum of squared errors / sum of squares)
  std::uint64_t saturated = 0;   ///< finite elements beyond the format's largest value after scaling and rounding
  std::uint64_t underflows = 0;  ///< finite nonzero elements that came back as zero
};

/// A recipe, measured on every tensor. float64 is rounded to float32 first, float16 is quantized as float32, bfloat16
/// as such. What comes back of x is dequantize(quantize(x)), rowwise, in float32 or rounded to x's own type; errors are
/// what comes back minus x, in double. In units in the last place they are those of x / scale_inv, in the format of the
/// codes.
struct MeasuredScaling {
  std::string name;
  std::string description;
  std::string source;  ///< the software or paper that defines it, where that is known
  Format format;       ///< the format of the codes
  std::vector<ScalingStep> steps;
  ErrorTotals totals;
  std::uint64_t elements = 0;
  std::uint64_t saturated = 0;
  std::uint64_t underflows = 0;
  std::uint64_t blocks = 0;          ///< groups of elements with a scale
  std::uint64_t clipped_blocks = 0;  ///< those with an element above the format's largest value after scaling
  std::size_t worst = 0;             ///< the step of the lowest SQNR
  Histogram relative_error;          ///< |error / x| by binade
  Histogram ulp_error;               ///< 64 bins from -1 to 1

  [[nodiscard]] std::vector<NamedHistogram> histograms() const;
};

struct ScalingResult {
  ScalingArguments arguments;
  std::string source;                 ///< the source of the tensors in words, one line
  std::vector<SourceTensor> tensors;  ///< one for each step
  std::vector<LeftOutTensor> left_out = {};
  std::vector<std::optional<Concentration>> concentrations = {};  ///< of each step
  std::vector<double> amaxes;  ///< the amax of each step, before any scaling; NaN is not counted
  std::vector<MeasuredScaling> measured;
};

/// Measures every recipe on every tensor. One tensor is in memory at a time. An element takes its own bytes (float64:
/// four), two bytes more where it is rounded to bfloat16, and one byte for the code of each thread. Scales come on top,
/// and about 14 bytes a thread for each of 2^18 elements, or for each of 32 rows where that is more.
///
/// Throws std::invalid_argument for no or repeated recipes, stochastic rounding, no tensors, sizes out of range or that
/// break a recipe's blocks, and what TensorFile throws.
[[nodiscard]] ScalingResult run_scaling(const ScalingArguments& arguments, const Progress& progress = {});

/// The result in tables, curves and histograms.
[[nodiscard]] Document document_of(const ScalingResult& result);

}  // namespace fp8lab::experiments
