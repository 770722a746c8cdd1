// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/linear/linear_recipe.hpp"
#include "fp8lab/reference/measure/errors.hpp"
#include "fp8lab/reference/measure/histogram.hpp"
#include "kit/chosen.hpp"
#include "kit/document.hpp"
#include "kit/experiment.hpp"

namespace fp8lab::experiments {

/// The task that a network learns: which of the products x[2j] * x[2j+1] is the largest, or all of them.
enum class TrainLoss : std::uint8_t { cross_entropy, mse };
enum class Optimizer : std::uint8_t { adam, sgd };
/// The tensors that a jump multiplies.
enum class JumpOf : std::uint8_t { inputs, gradients };
/// The precision of the last layer.
enum class HeadPrecision : std::uint8_t { high_precision, fp8 };

/// The enumerators with their names (see named.hpp).
[[nodiscard]] std::span<const Named<TrainLoss>> named_values(TrainLoss of_type);
[[nodiscard]] std::span<const Named<Optimizer>> named_values(Optimizer of_type);
[[nodiscard]] std::span<const Named<JumpOf>> named_values(JumpOf of_type);
[[nodiscard]] std::span<const Named<HeadPrecision>> named_values(HeadPrecision of_type);

/// A factor on the inputs or on the loss's gradient from a step on, for some steps.
struct Jump {
  std::optional<long long> step = {};  ///< the first is 1; none: there is no jump
  double factor = 1048576;
  JumpOf of = JumpOf::inputs;
  long long length = 1;  ///< in steps
};

struct TrainArguments {
  std::vector<long long> sizes{64, 256, 256, 16};  ///< of the inputs, of each hidden layer, of the outputs
  std::vector<ChosenLinearRecipe> recipes{
      choose_linear_recipe("bf16_hopper"),
      choose_linear_recipe("te_delayed_hopper"),
      choose_linear_recipe("te_delayed_hopper_e4m3"),
      choose_linear_recipe("te_current_scaling_hopper"),
      choose_linear_recipe("te_block_hopper"),
      choose_linear_recipe("te_mxfp8_blackwell"),
      choose_linear_recipe("te_nvfp4_blackwell"),
  };
  HeadPrecision head = HeadPrecision::high_precision;
  long long batch = 128, steps = 1000;
  TrainLoss loss = TrainLoss::cross_entropy;
  Optimizer optimizer = Optimizer::adam;
  double learning_rate = 0.002;
  double momentum = 0.9;  ///< of sgd
  double clip = 1;        ///< gradients whose norm is larger are scaled to it; 0: none are
  double gradient_scale = 1;
  long long amax_history_len = 1024;
  AmaxComputeAlgo amax_compute_algo = AmaxComputeAlgo::max;
  int margin = 0;
  DelayedVersion version = te_current;
  Jump jump = {};
  std::vector<long long> error_steps{1, 10, 100, 1000};  ///< steps whose gradients are compared with FP32's
  double divergence = 2;  ///< a loss above so many times the lowest mean is out of bounds
  std::optional<std::filesystem::path> checkpoint = {};  ///< where the state is saved
  bool resume = false;                                   ///< go on from the checkpoint
  std::uint64_t seed = 1;
  int threads = 1;
};

/// Counts of what a cast met among the elements of a tensor.
struct TensorStats {
  float amax = 0;                ///< NaN left out
  float scale = 0;               ///< NaN where the tensor has several, or is not quantized
  std::uint32_t nonzero = 0;     ///< elements that are not zero
  std::uint32_t flushed = 0;     ///< were not zero, and became zero
  std::uint32_t saturated = 0;   ///< rounded to more than the largest value of the format; with a given scale alone
  std::uint32_t not_finite = 0;  ///< infinities and NaNs, of the values or of the codes
};

/// Error of a layer's dw against the FP32 gradient of the same weights and batch.
struct GradientError {
  std::size_t step = 0, layer = 0;  ///< from 1 on
  ErrorTotals totals = {};
  std::uint64_t lost = 0;  ///< elements that are zero, and are not in FP32
  Histogram histogram;     ///< of |error| over the rms of the FP32 gradient
};

/// The facts of a tensor of a layer at a step.
struct TensorEvent {
  std::size_t step = 0, layer = 0;  ///< from 1 on
  LinearTensor tensor = LinearTensor::x;
  TensorStats facts = {};
};

/// When and why a run diverged.
struct Divergence {
  std::size_t step = 0;  ///< the first of those whose loss is out of bounds
  double loss = 0;       ///< there
  double bound = 0;      ///< there
  /// From 20 steps before it to 20 steps after, in the order of computation: the first cast that met an infinity or a
  /// NaN; that saturated a thousandth of the elements that are not zero; that flushed half of them, and less at first.
  std::optional<TensorEvent> not_finite = {}, saturated = {}, flushed = {};
};

/// One recipe's run.
struct TrainedRun {
  ChosenLinearRecipe recipe;
  std::vector<double> losses;        ///< a step, of its batch, before the step
  std::vector<TensorStats> tensors;  ///< a step, layer and tensor (x, w, dy), in this order
  std::vector<GradientError> errors;
  std::optional<Divergence> divergence;
  double final_loss = 0;  ///< mean of the last 20 steps
  double test_loss = 0;   ///< of data that it was not trained on, computed in FP32 with its weights
};

struct TrainResult {
  TrainArguments arguments;
  double chance = 0;             ///< the loss of the best constant, and of the best linear model
  std::vector<TrainedRun> runs;  ///< FP32 first

  [[nodiscard]] std::size_t layers() const { return arguments.sizes.size() - 1; }
};

/// The recipe of the FP32 run: IEEE float32, one fused multiply-add after the other, of ascending k.
inline constexpr std::string_view train_reference = "fp32_cdna3";

/// Trains the network under FP32 and under each recipe, from the same weights on the same batches.
///
/// Results depend neither on threads, nor on the processor, nor on interruptions: where there is a checkpoint file, the
/// state is saved into it at the start, every minute, at the end, and when an exception (an Interruptible's) ends the
/// run; with `resume` the run goes on from it, to the same bits.
///
/// Throws std::invalid_argument for arguments that make no sense, sizes that a recipe does not take, and a checkpoint
/// of another configuration or version; std::runtime_error for one that cannot be read or written.
[[nodiscard]] TrainResult run_train(const TrainArguments& arguments, const Context& context = {});

/// The tables `runs`, `divergence`, `errors`, `losses` and `tensors`, loss curves, histograms of gradient errors.
[[nodiscard]] Document document_of(const TrainResult& result);

}  // namespace fp8lab::experiments
