// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fp8lab/reference/linear/linear_recipe.hpp"
#include "fp8lab/reference/measure/histogram.hpp"
#include "fp8lab/reference/scaling/delayed_scaling.hpp"
#include "kit/chosen.hpp"
#include "kit/document.hpp"
#include "kit/progress.hpp"
#include "linear/layer.hpp"
#include "linear/split.hpp"

namespace fp8lab::experiments {

/// A Linear layer, and the recipes that compute it: each sees the same tensors in the same order.
struct LinearArguments {
  LayerSource source = LayerDraws{};
  std::vector<ChosenLinearRecipe> recipes = {
      choose_linear_recipe("te_delayed_hopper"),  choose_linear_recipe("te_current_scaling_hopper"),
      choose_linear_recipe("te_mxfp8_blackwell"), choose_linear_recipe("te_nvfp4_blackwell"),
      choose_linear_recipe("bf16_hopper"),        choose_linear_recipe("tf32_hopper")};
  std::vector<LinearPass> passes = {};  ///< empty: all whose factors there are
  /// Where the scales of recipes with a given scale come from: margin, amax_history_len, amax_compute_algo and version;
  /// the formats are the recipe's. Every tensor has its own history, whose first scale is 1.
  Delayed delayed = {};
  bool check_shapes = true;         ///< sizes that a recipe's system refuses are refused: see check_shape()
  std::uint64_t rounding_seed = 1;  ///< of the random bits of stochastic rounding
  int threads = 1;                  ///< no result depends on it
};

/// Sums over the elements of one cause's part of the difference; or of the whole difference.
struct PartTotals {
  double sum = 0;
  double sum_squares = 0;
  double sum_with_total = 0;  ///< of part times whole difference
  double sum_growth = 0;      ///< of (parts up to this one)^2 - (parts before it)^2
  double largest = 0;         ///< magnitude

  /// `before` is the sum of the parts before it.
  void add(double part, double before, double total);
  void merge(const PartTotals& other);
};

/// The difference between a GEMM's output and its real product, and its parts, over finite elements.
struct SplitTotals {
  std::uint64_t count = 0;
  std::uint64_t not_finite = 0;   ///< elements left out: their output, or a number of the chain, is not finite
  double real_squares = 0;        ///< sum of the squares of the real product
  std::vector<PartTotals> parts;  ///< for each cause of causes_of()
  PartTotals total;

  void merge(const SplitTotals& other);
  [[nodiscard]] double rms(const PartTotals& part) const;
  /// rms over the root mean square of the real product.
  [[nodiscard]] double relative_rms(const PartTotals& part) const;
  [[nodiscard]] double mean(const PartTotals& part) const;
  /// The part's covariance with the whole: sum of part * difference over sum of difference^2. The shares of all causes
  /// add up to 1: what two causes have in common counts half for each. A negative share makes the difference smaller.
  /// NaN where there is no difference.
  [[nodiscard]] double share(const PartTotals& part) const;
  /// By how much the difference's sum of squares grows where this cause joins those before it in the chain, over the
  /// whole sum of squares. These add up to 1, too: what two causes have in common counts for the later one. Where a
  /// cause replaces one rounding by another, as a lagging scale does, this tells what the other costs; its share does
  /// not, for the first rounding has nothing in common with the outcome any more.
  [[nodiscard]] double growth(const PartTotals& part) const;
};

/// The effect of a cast on a factor of a product.
struct CastFacts {
  LinearTensor tensor;
  double scale;        ///< multiplied it; NaN where it has several scales
  double fresh_scale;  ///< what its own amax makes; other than `scale` with delayed scaling alone
  std::uint64_t elements = 0;
  std::uint64_t saturated = 0;
  std::uint64_t underflows = 0;
};

/// A step of a pass.
struct SplitStep {
  SplitTotals totals;
  CastFacts a, b;
};

/// A pass of one recipe.
struct MeasuredPass {
  LinearPass pass;
  std::vector<SplitStep> steps;
  SplitTotals totals;   ///< of all steps
  Histogram histogram;  ///< |difference| over the root mean square of the step's real product, by binade
};

/// A recipe.
struct MeasuredLinear {
  std::string name;
  std::string description;
  std::string source;  ///< the software or paper that defines it, where that is known
  std::vector<MeasuredPass> passes;
};

struct LinearResult {
  LinearArguments arguments;
  std::string source;  ///< of the tensors, in words
  std::vector<LayerTensorFacts> tensors;
  std::vector<LeftOutTensor> left_out;
  std::vector<LinearPass> passes;
  std::vector<MeasuredLinear> measured;
};

/// Computes every pass of the layer by every recipe, step by step, and splits what differs from the real product by
/// cause (split.hpp). Histories of delayed scaling are updated at the end of a step.
///
/// Throws std::invalid_argument for no or repeated recipes or passes, a pass without tensors, as Layer does, and where
/// a recipe does not take a tensor: the message names the recipe, the pass and the tensor.
[[nodiscard]] LinearResult run_linear(const LinearArguments& arguments, const Progress& progress = {});

/// The result in tables, curves and histograms.
[[nodiscard]] Document document_of(const LinearResult& result);

}  // namespace fp8lab::experiments
