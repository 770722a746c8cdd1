// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "fp8lab/reference/measure/errors.hpp"
#include "fp8lab/reference/measure/histogram.hpp"
#include "kit/document.hpp"
#include "kit/picture.hpp"
#include "kit/primer.hpp"
#include "kit/progress.hpp"

namespace fp8lab::experiments {

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
