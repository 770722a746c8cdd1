// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/reference/measure/errors.hpp"
#include "fp8lab/reference/measure/histogram.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "kit/chosen.hpp"
#include "kit/document.hpp"
#include "kit/picture.hpp"
#include "kit/progress.hpp"
#include "kit/tensor_source.hpp"

namespace fp8lab::experiments {

/// The recipes that are compared where none is chosen: 1-D blocks with scales that are powers of two (MX, 1 x 128) and
/// that are not (1 x 128, NVFP4), 2-D blocks, and one scale for the tensor.
inline constexpr std::array<std::string_view, 10> default_transpose_recipes{
    "te_mxfp8",       "ocp_mxfp8_e4m3",      "ocp_mxfp8_e5m2",   "ocp_mxfp4",          "te_nvfp4",
    "te_block_1x128", "te_block_1x128_fp32", "te_block_128x128", "te_current_scaling", "te_current_scaling_pow2"};
[[nodiscard]] std::vector<ChosenRecipe> transpose_recipes();

/// The arguments of the experiment.
struct TransposeArguments {
  /// Each tensor has two dimensions or more, and all but the last are rows. bfloat16 is quantized as such, float16 as
  /// float32, float64 is rounded to float32.
  TensorSource source = Draws{.rows = 1024, .columns = 1024};
  std::vector<ChosenRecipe> recipes = transpose_recipes();
  int threads = 1;  ///< changes nothing but the time
};

/// How many elements. The columnwise copies are "original", made of the values themselves, and "requantized", made of
/// what the rowwise copy gives back.
struct TransposeCounts {
  std::uint64_t transposed_differ = 0;       ///< the rowwise copy's value is not the original's
  std::uint64_t values_differ = 0;           ///< the requantized value is not the original's
  std::uint64_t codes_differ = 0;            ///< nor the code
  std::uint64_t scales_differ = 0;           ///< what the code is multiplied with on dequantize
  std::uint64_t underflows_original = 0;     ///< finite, not zero, and zero in the original
  std::uint64_t underflows_requantized = 0;  ///< and zero in the requantized copy
  std::uint64_t extra_underflows = 0;        ///< zero in the requantized copy, and not in the original
  std::uint64_t saturated_rowwise = 0;       ///< finite and, scaled and rounded, beyond the format's largest value
  std::uint64_t saturated_original = 0;      ///< the same
  std::uint64_t saturated_requantized = 0;   ///< the same of what the rowwise copy gave back
};

/// A count with the name that reports give it.
struct NamedTransposeCount {
  const char* name;
  std::uint64_t TransposeCounts::* count;
};
inline constexpr std::array transpose_counts{
    NamedTransposeCount{"transposed_differ", &TransposeCounts::transposed_differ},
    NamedTransposeCount{"values_differ", &TransposeCounts::values_differ},
    NamedTransposeCount{"codes_differ", &TransposeCounts::codes_differ},
    NamedTransposeCount{"scales_differ", &TransposeCounts::scales_differ},
    NamedTransposeCount{"underflows_original", &TransposeCounts::underflows_original},
    NamedTransposeCount{"underflows_requantized", &TransposeCounts::underflows_requantized},
    NamedTransposeCount{"extra_underflows", &TransposeCounts::extra_underflows},
    NamedTransposeCount{"saturated_rowwise", &TransposeCounts::saturated_rowwise},
    NamedTransposeCount{"saturated_original", &TransposeCounts::saturated_original},
    NamedTransposeCount{"saturated_requantized", &TransposeCounts::saturated_requantized},
};

/// A recipe's three copies of the matrix, measured on every element. Copies are compared dequantized, in float32; zeros
/// of either sign are equal, and so are NaNs. Errors are the copy minus the value, in double.
struct MeasuredTranspose {
  explicit MeasuredTranspose(ChosenRecipe what);

  ChosenRecipe recipe;
  std::size_t tensor = 0;  ///< which of TransposeResult::tensors
  ErrorTotals rowwise;
  ErrorTotals original;
  ErrorTotals requantized;
  ErrorTotals difference;  ///< of the requantized copy from the original
  TransposeCounts counts;
  double widest_scale_factor = 1;  ///< the larger over the smaller of an element's two scales, neither 0
  Histogram error_original;        ///< |error| by binade
  Histogram error_requantized;
  Histogram relative_error_original;  ///< |error / value|, 8 bins a decade
  Histogram relative_error_requantized;
  Histogram difference_ulps;  ///< requantized minus original in units in the last place of the original's code, 64 bins

  void merge(const MeasuredTranspose& other);
  /// SQNR of the original less that of the requantized copy in dB: 0 where both are without error, NaN where nothing
  /// finite is to be compared.
  [[nodiscard]] double loss_db() const;
  /// sqrt(sum of (requantized - original)^2 / sum of values^2); NaN where that is no number.
  [[nodiscard]] double relative_rms_difference() const;
  /// The five, with the names of their files.
  [[nodiscard]] std::vector<NamedHistogram> histograms() const;
};

struct TransposeResult {
  TransposeArguments arguments;
  std::string source;  ///< in words, one line
  std::vector<SourceTensor> tensors;
  std::vector<LeftOutTensor> left_out = {};
  std::vector<MeasuredTranspose> recipes;  ///< of the first tensor, then of the next
};

/// Measures what a second, columnwise, copy costs that is made of the rowwise one. In training a tensor is summed over
/// along its rows (fprop) and along its columns (wgrad). Transformer Engine quantizes both copies from the original
/// values; who keeps the rowwise copy alone quantizes twice: quantize(dequantize(quantize(x, rowwise)), columnwise).
/// What comes back in between is float32. DeepSeek-V3 (arXiv 2412.19437, section 3.3.3) has power-of-two scales for
/// that case.
///
/// Throws std::invalid_argument for no recipes or one twice, stochastic rounding, a Hadamard transform (columnwise it
/// has no counterpart rowwise), sizes out of range (at most 2^27 elements) or that break a
/// recipe's blocks, fewer than two dimensions, codes, and what TensorFile throws.
///
/// An element takes its own bytes (none where the caller holds it), and a band of 2^19 elements, or of 32 rows or a
/// tile where these have more, about 60 bytes for each. A recipe that has one scale, or a second one, for the whole
/// tensor takes seven bytes more for every element: three for codes of 8 bits, four for what the rowwise copy gives
/// back.
[[nodiscard]] TransposeResult run_transpose(const TransposeArguments& arguments, const Progress& progress = {});

/// Tables with a row for each recipe, both copies' errors side by side, all histograms, and how to read them.
[[nodiscard]] Document document_of(const TransposeResult& result);

}  // namespace fp8lab::experiments
