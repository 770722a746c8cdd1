// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/linear/fp8_state.hpp"
#include "fp8lab/reference/linear/linear.hpp"

namespace fp8lab {

/// Where a result goes: float32 where the recipe's output is binary32, else its codes.
using LinearOutput = std::variant<std::span<float>, std::span<std::uint16_t>>;

/// Which forward of a layer it is under activation recomputation, where the first one runs without grad mode and the
/// second one just before the backward.
enum class Recompute : std::uint8_t { none, first, second };
[[nodiscard]] std::span<const Named<Recompute>> named_values(Recompute of_type);

/// How a layer runs forward.
struct ForwardOptions {
  std::span<const float> bias = {};  ///< as LinearOptions has it
  /// Whether the weight's codes are kept: left out, it is quantized anew and the cache stays as it is; true, it is
  /// quantized and kept; false, what is kept is used again, and its amax is not recorded.
  std::optional<bool> is_first_microbatch = {};
  bool training = true;       ///< the module's mode
  bool requires_grad = true;  ///< whether the input, the weight or the bias does
  Recompute recompute = Recompute::none;
  ZeroRule zero_rule = ZeroRule::floor;
  int threads = 1;
  bool check_shapes = true;  ///< as LinearOptions has it
};

/// The tensors and facts that a layer's forward keeps for its backward. The views of x and w are those of the caller,
/// who keeps the values alive where a backward pass is in high precision.
struct LinearCall {
  std::size_t layer = 0;
  LinearRecipe recipe;
  std::optional<Delayed> delayed;  ///< where the layer ran in FP8 under delayed scaling
  bool updates_backward = false;   ///< it was the first layer of its region
  bool has_grad = false;           ///< it ran in grad mode: a backward may follow
  MatrixView x = {std::span<const float>(), 0, 0};
  MatrixView w = x;  ///< of a weight that exists in FP8 only: of `dequantized`
  std::shared_ptr<const std::vector<float>> dequantized;
  std::optional<Quantized> x_columnwise;
  std::shared_ptr<const QuantizedWeight> weight;
  std::shared_ptr<const QuantizedWeight> cache;  ///< the layer's, where the weight came from it or went there
};

/// The recipe that forward() runs: that of the innermost region, or state.high_precision outside of enabled ones; of a
/// second forward that of the layer's last one. Throws std::invalid_argument for a layer that the state does not have.
[[nodiscard]] const LinearRecipe& recipe_of_forward(const Fp8State& state, std::size_t layer,
                                                    Recompute recompute = Recompute::none);

/// y = x w^T + bias in the innermost region of the state, or in state.high_precision outside of enabled ones.
///
/// Under delayed scaling x and w are cast with the scales of their histories, and their amaxes go there. The layer is
/// registered at its first such forward; a region with another amax_history_len resizes its histories.
///
/// @param x  (tokens, in)
/// @param w  (out, in); left out where write_weight() has made a weight that exists in FP8 only
/// @param y  tokens * out elements
///
/// Throws std::invalid_argument as linear() does, and for a layer that the state does not have, a weight that is
/// missing or given twice, and a second forward without a first one; std::logic_error while an update is due.
[[nodiscard]] LinearCall forward(Fp8State& state, std::size_t layer, const MatrixView& x,
                                 const std::optional<MatrixView>& w, LinearOutput y,
                                 const ForwardOptions& options = {});

/// How a backward runs, and which gradients it computes.
struct BackwardOptions {
  bool accumulate = false;                  ///< dw is added to what it has, as LinearOptions has it
  std::optional<RandomSource> random = {};  ///< as LinearOptions has it
  ZeroRule zero_rule = ZeroRule::floor;
  int threads = 1;
  bool check_shapes = true;  ///< as LinearOptions has it
};

/// dx = dy w and dw = dy^T x of a call of forward(). dy is cast with the scale of its history, and its amax goes there.
/// The backward of the region's first layer ends with the update of all backward scales.
///
/// @param dy  (tokens, out)
/// @param dx  tokens * in elements, or empty where the input needs no gradient
/// @param dw  out * in elements, or empty where the weight needs none
///
/// Throws std::invalid_argument as linear_dgrad() and linear_wgrad() do, where neither is wanted, and where the call
/// ran without grad mode; std::logic_error while an update is due.
void backward(Fp8State& state, const LinearCall& call, const MatrixView& dy, LinearOutput dx, LinearOutput dw,
              const BackwardOptions& options = {});

/// Quantizes a weight (out, in) into a layer that keeps it in FP8 only, as Transformer Engine's quantized_model_init
/// and each later write do (its optimizer's step): under delayed scaling with the scale that the layer has at that
/// moment, 1 at first. Its amax goes into the history; codes and scale_inv stay until the next write.
///
/// Throws std::invalid_argument as quantize() does.
void write_weight(Fp8State& state, std::size_t layer, const MatrixView& w, const Autocast& region, int threads = 1);

}  // namespace fp8lab
