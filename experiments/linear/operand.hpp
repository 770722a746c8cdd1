// SPDX-License-Identifier: Apache-2.0
// A factor of a Linear layer's GEMM, before and after its cast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <variant>

#include "fp8lab/formats/memory.hpp"
#include "fp8lab/reference/linear/linear.hpp"
#include "fp8lab/reference/measure/outcome.hpp"
#include "fp8lab/reference/scaling/delayed_scaling.hpp"

namespace fp8lab::experiments {

/// The values that came back of a cast, and what became of each element. A nonzero value that came back as zero is an
/// underflow. A finite value that, divided by its scale_inv, rounds beyond the format's largest value is saturated.
struct CastValues {
  Buffer<float> values = {};
  Buffer<Outcome> outcomes = {};
  double scale = 0;  ///< multiplied the tensor; NaN where it has several scales, 1 where it was not scaled
  std::uint64_t saturated = 0;
  std::uint64_t underflows = 0;
};

/// A factor of a GEMM as (rows, depth), row-major, depth the dimension that the GEMM sums over; before and after its
/// cast.
struct SplitOperand {
  LinearTensor tensor = LinearTensor::x;
  std::size_t rows = 0;
  std::size_t depth = 0;
  Buffer<float> given = {};  ///< the tensor's values
  Buffer<float> turned =
      {};                   ///< where the recipe turns it by a Hadamard matrix: rounded, as it is cast then; else empty
  CastValues fresh = {};    ///< the cast; with delayed scaling, the one by the scale that the tensor's own amax makes
  CastValues lagging = {};  ///< with delayed scaling, the cast by the history's scale; else empty
  std::variant<MatrixView, Quantized> source{MatrixView(std::span<const float>(), 0, 0)};  ///< what linear() gets

  [[nodiscard]] bool is_delayed() const { return !lagging.values.empty(); }
  /// The values that the tensor core gets.
  [[nodiscard]] const CastValues& used() const { return is_delayed() ? lagging : fresh; }
  [[nodiscard]] LinearInput input() const {
    if (const auto* q = std::get_if<Quantized>(&source)) return std::cref(*q);
    return std::get<MatrixView>(source);
  }
};

/// How a tensor is cast.
struct SplitCast {
  LinearFactor factor;
  LinearCast cast = binary32;
  bool rounds_to_tf32 = false;       ///< the model reads float32 as TF32, to which gemm() rounds: nearest, ties away
  const Delayed* delayed = nullptr;  ///< for a recipe whose scale is given: where that comes from
  AmaxHistory* history = nullptr;    ///< of the tensor; it records the amax, and is not updated
  std::optional<RandomSource> random = {};  ///< for stochastic rounding
  int threads = 1;
};

/// Casts a tensor. x must outlive the result, which may view it. Throws as quantize() does.
[[nodiscard]] SplitOperand cast_operand(const MatrixView& x, const SplitCast& how);

}  // namespace fp8lab::experiments
