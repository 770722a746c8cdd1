// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "fp8lab/reference/operators/optimizer.hpp"

namespace fp8lab {

/// What Adam's loops need beside AdamParameters.
struct AdamConstants {
  float inverse_correction1, inverse_correction2;  // the reciprocals
  bool is_step_fused;                              // lr update, which param loses, is not rounded
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
  /// Updates m and v. roots = v times the reciprocal of its correction.
  void (*adam_moments)(const AdamParameters& parameters, const AdamConstants& constants, const OptimizerPiece& piece,
                       float* roots);
  /// x = 1 / (sqrt(x) + eps), with the root and the reciprocal rounded correctly.
  void (*adam_shares)(float eps, float* x, std::size_t count);
  /// Updates param by m and these shares.
  void (*adam_step)(const AdamParameters& parameters, const AdamConstants& constants, const OptimizerPiece& piece,
                    const float* shares);
  /// Leaves in grad what lr multiplies. param does not change.
  void (*sgd_gradient)(const SgdParameters& parameters, const OptimizerPiece& piece);
  /// param = fma(-grad, lr, param); and -(lr grad) in grad instead.
  void (*sgd_step)(float lr, const OptimizerPiece& piece);
  void (*sgd_change)(float lr, const OptimizerPiece& piece);
  /// The sum of squares, each fused.
  float (*sum_of_squares)(const float* x, std::size_t count);
  /// sums += x^2 element by element, each fused.
  void (*add_squares)(const float* x, float* sums, std::size_t count);
};
/// The loops of the target that is chosen.
[[nodiscard]] OptimizerFunctions optimizer_functions();

}  // namespace fp8lab
