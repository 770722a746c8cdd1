// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "fp8lab/reference/operators/optimizer.hpp"

namespace fp8lab {

/// What Adam's loops need beside AdamParameters.
struct AdamConstants {
  float inverse_correction1, inverse_correction2;  // the reciprocals
};
/// Float32 arrays of a piece, which are updated in place.
struct OptimizerPiece {
  float* grad;
  float* param;
  float* m;  // the momentum of SGD
  float* v;
  std::size_t count;  // a multiple of sum_lanes
};

/// Loops where subnormal numbers count as zeros.
struct OptimizerFunctions {
  void (*adam)(const AdamParameters& parameters, const AdamConstants& constants, const OptimizerPiece& piece);
  /// Leaves in grad what lr multiplies. param does not change.
  void (*sgd_gradient)(const SgdParameters& parameters, const OptimizerPiece& piece);
  /// param = fma(-grad, lr, param); and -(lr grad) in grad instead.
  void (*sgd_step)(float lr, const OptimizerPiece& piece);
  void (*sgd_change)(float lr, const OptimizerPiece& piece);
  /// The sum of squares, each fused.
  float (*sum_of_squares)(const float* x, std::size_t count);
};
/// The loops of the target that is chosen.
[[nodiscard]] OptimizerFunctions optimizer_functions();

}  // namespace fp8lab
