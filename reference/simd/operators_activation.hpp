// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "fp8lab/reference/operators/activation.hpp"

namespace fp8lab {

/// A piece of rows as float32: arrays of `count` elements, a multiple of sum_lanes. Those that a function does not need
/// are null.
struct ActivationPiece {
  const float* x = nullptr;     // or the first half, a
  const float* gate = nullptr;  // the second half, b
  const float* grad = nullptr;
  float* out = nullptr;
  float* gate_out = nullptr;
  std::size_t count = 0;
  float scale = 1;         // of the row
  float* lanes = nullptr;  // sum_lanes sums of the gradient by the scale
  Functions functions = Functions::correctly_rounded;
  int function_words = 0;  // see OperatorOptions
};

/// out = (f(x) gate) scale.
void activation_piece(KernelActivation kind, const ActivationParameters& parameters, const ActivationPiece& piece);
/// out = (f'(x) grad) gate, gate_out = (gate' grad) f(x).
void activation_gradient_piece(KernelActivation kind, const ActivationParameters& parameters,
                               const ActivationPiece& piece);
/// out = (grad scale) (f'(x) gate), gate_out = (grad scale) (f(x) gate'); adds grad (f(x) gate) to the lanes.
void scaled_gradient_piece(KernelActivation kind, const ActivationParameters& parameters, const ActivationPiece& piece);

}  // namespace fp8lab
