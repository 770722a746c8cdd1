// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/reference/measure/histogram.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "kit/chosen.hpp"
#include "kit/document.hpp"
#include "kit/factor_draws.hpp"
#include "kit/progress.hpp"

namespace fp8lab::experiments {

/// The arguments of the experiment: it sums every combination of distribution, model, promotion and K.
struct AccumulateArguments {
  std::vector<MmaModel> models{hopper_wgmma_fp8, blackwell_tcgen05_fp8};
  std::vector<FactorDraws> distributions{choose_factor_draws("abs_uniform"), choose_factor_draws("normal")};
  std::vector<long long> ks{32, 128, 512, 1024, 4096, 16384};  ///< 1 to 2^20
  /// The intervals of promotion, as GemmRecipe has them; 0: never. `exact` has no accumulator to promote and is
  /// measured once, whatever these are.
  std::vector<long long> promote_ks{0, 128};
  std::optional<ChosenFormat> format_a,
      format_b;            ///< none: E4M3 where the model takes it, otherwise the first it takes
  long long rows = 32;     ///< of A, 1 to 4096; each with
  long long columns = 32;  ///< each row of B makes a dot product
  std::uint64_t seed = 1;
  int threads = 1;  ///< changes nothing but the time
};

/// Errors in a few numbers; NaN where none is finite.
struct ErrorSummary {
  std::uint64_t count = 0;  ///< finite ones; the others are left out
  double mean = 0;          ///< the bias
  double rms = 0;
  double median = 0;   ///< of magnitudes
  double largest = 0;  ///< of magnitudes
};

/// The errors of all dot products at one K.
struct AccumulatePoint {
  long long k;
  ErrorSummary relative_error;  ///< (computed - exact) / |exact|
  ErrorSummary backward_error;  ///< (computed - exact) / sum |products|
  Histogram histogram;          ///< |relative error|, 8 bins a decade
};

/// The errors of one way to sum, against K.
struct AccumulateCurve {
  FactorDraws draws;
  MmaModel model;
  ChosenFormat format_a, format_b;
  int promote_k;
  std::vector<AccumulatePoint> points;  ///< in the order of K
};

struct AccumulateResult {
  AccumulateArguments arguments;
  std::vector<AccumulateCurve> curves;
};

/// The curves that the arguments ask for, still empty: distributions, then models, then promotions.
///
/// Throws std::invalid_argument for lists that are empty or have an entry twice, numbers out of range, more than 2^28
/// factors or 2^20 dot products, more than 4096 points, formats of more than 16 bits, and what gemm() refuses: formats
/// that a model does not take, promotion in the middle of an instruction, K in the middle of a block of scales.
[[nodiscard]] std::vector<AccumulateCurve> curves_of(const AccumulateArguments& arguments);

/// Measures every curve: gemm() of the drawn factors against their exact dot products, all block scales 1.
///
/// Factors are float32 draws, cast with cuda_satfinite. Element k of A's row i is element 2 i * 2^20 + k of the stream
/// `seed`, of B's row i (2 i + 1) * 2^20 + k: a longer K, or more rows, go on where the shorter ones end. The exact dot
/// products are those of the codes, summed in double in pieces of at most 1,024: off by less than 2^-40 of the sum of
/// magnitudes (Higham, "Accuracy and Stability of Numerical Algorithms", section 4.2), where float32 has 2^-24. Takes
/// memory for the codes and at most two thirds of a gigabyte besides. Throws as curves_of() does.
[[nodiscard]] AccumulateResult run_accumulate(const AccumulateArguments& arguments, const Progress& progress = {});

/// Table `points` with a row for each curve and K, tables and curves of the errors of each distribution against K, and
/// a histogram for each point.
[[nodiscard]] Document document_of(const AccumulateResult& result);

}  // namespace fp8lab::experiments
