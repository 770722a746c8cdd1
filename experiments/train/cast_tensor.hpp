// SPDX-License-Identifier: Apache-2.0
// A tensor of a layer as both of its products take it, with what its cast met.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fp8lab/reference/linear/linear.hpp"
#include "train/train.hpp"
#include "train/values.hpp"

namespace fp8lab::experiments {

/// How a layer computes: its recipe and, where the recipe's scales are given, the delayed scaling that gives them.
struct LayerRecipe {
  LinearRecipe linear;
  std::optional<Delayed> delayed = {};
};

/// The amax histories of a layer's tensors; empty without delayed scaling. Forward ones move on after the forward pass
/// of all layers, that of dy after the backward pass of all.
struct LayerHistories {
  AmaxHistory x, w, dy;
};
[[nodiscard]] LayerHistories start_histories(const LayerRecipe& recipe);
void update_forward(const LayerRecipe& recipe, LayerHistories& histories);
void update_backward(const LayerRecipe& recipe, LayerHistories& histories);

/// The directions that are wanted.
struct Directions {
  bool rowwise = true, columnwise = true;
};

/// A cast tensor: codes and scales of both directions, made of the same values; or the values, where the recipe leaves
/// them in high precision.
class CastTensor {
 public:
  /// Casts x, which must outlive this, and records the amax in the layer's history. `random`: a byte for each element,
  /// where the recipe rounds stochastically. Throws std::invalid_argument as quantize() does.
  CastTensor(const MatrixView& x, LinearTensor tensor, const LayerRecipe& recipe, LayerHistories& histories,
             Directions directions, std::span<const std::uint8_t> random = {});

  /// The operand of a product, which views this. Precondition: the direction was wanted.
  [[nodiscard]] LinearInput input(Direction direction) const;
  [[nodiscard]] const TensorStats& facts() const { return facts_; }

 private:
  void quantize_tensor(const Recipe& cast, LinearTensor tensor, const LayerRecipe& recipe, LayerHistories& histories,
                       Directions directions, const QuantizeOptions& options);
  void look_at_codes(const Recipe& cast, Directions directions);

  MatrixView view_;
  bool is_quantized_ = false;
  Quantized rowwise_, columnwise_;
  TensorStats facts_;
};

/// Whether a cast of this tensor takes random bytes.
[[nodiscard]] bool takes_random(const LayerRecipe& recipe, LinearTensor tensor);

}  // namespace fp8lab::experiments
