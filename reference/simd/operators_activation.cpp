// SPDX-License-Identifier: Apache-2.0
// Activations of float32 arrays. The formulas are in src/operators/activation_formulas-inl.hpp; the arithmetic of one
// lane defines the result.
#include "simd/operators_activation.hpp"

#include <array>
#include <optional>
#include <utility>

#include "formats/simd/targets.hpp"
#include "fp8lab/reference/operators/sum_order.hpp"
#include "units/hopper_functions.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/operators_activation.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "operators/activation_formulas-inl.hpp"
#include "simd/operators_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {

template <class Math, KernelActivation kActivation>
HWY_ATTR void Forward(const ActivationParameters& parameters, const ActivationPiece& piece) {
  using F = Formulas<Math>;
  const auto scale = Math::Number(piece.scale);
  for (std::size_t i = 0; i < piece.count; i += Math::lanes()) {
    auto y = F::template Value<kActivation>(parameters, Math::Load(piece.x + i));
    if constexpr (row_of(kActivation).gated) {
      y = Math::Product(y, F::template Gate<kActivation>(parameters, Math::Load(piece.gate + i)));
    }
    Math::Store(Math::Product(y, scale), piece.out + i);
  }
}

template <class Math, KernelActivation kActivation>
HWY_ATTR void Backward(const ActivationParameters& parameters, const ActivationPiece& piece) {
  using F = Formulas<Math>;
  for (std::size_t i = 0; i < piece.count; i += Math::lanes()) {
    const auto x = Math::Load(piece.x + i);
    const auto grad = Math::Load(piece.grad + i);
    const auto dx = Math::Product(F::template Gradient<kActivation>(parameters, x), grad);
    if constexpr (row_of(kActivation).gated) {
      const auto gate = Math::Load(piece.gate + i);
      const auto slope = F::template GateGradient<kActivation, false>(parameters, gate);
      const auto value = F::template Value<kActivation>(parameters, x);
      Math::Store(Math::Product(dx, F::template Gate<kActivation>(parameters, gate)), piece.out + i);
      Math::Store(Math::Product(Math::Product(slope, grad), value), piece.gate_out + i);
    } else {
      Math::Store(dx, piece.out + i);
    }
  }
}

template <class Math, KernelActivation kActivation>
HWY_ATTR void ScaledBackward(const ActivationParameters& parameters, const ActivationPiece& piece) {
  using F = Formulas<Math>;
  const auto scale = Math::Number(piece.scale);
  for (std::size_t i = 0; i < piece.count; i += Math::lanes()) {
    const auto x = Math::Load(piece.x + i);
    const auto grad = Math::Load(piece.grad + i);
    const auto scaled = Math::Product(grad, scale);
    auto value = F::template Value<kActivation>(parameters, x);
    auto slope = F::template ScaledGradient<kActivation>(parameters, x);
    if constexpr (row_of(kActivation).gated) {
      const auto gate_in = Math::Load(piece.gate + i);
      const auto gate = F::template Gate<kActivation>(parameters, gate_in);
      const auto gate_slope = F::template GateGradient<kActivation, true>(parameters, gate_in);
      Math::Store(Math::Product(scaled, Math::Product(value, gate_slope)), piece.gate_out + i);
      value = Math::Product(value, gate);
      slope = Math::Product(slope, gate);
    }
    Math::Store(Math::Product(scaled, slope), piece.out + i);
    float* lane = piece.lanes + i % sum_lanes;
    Math::Store(Math::Fused(grad, value, Math::Load(lane)), lane);
  }
}

using Loop = void (*)(const ActivationParameters&, const ActivationPiece&);
using Loops = std::array<Loop, kernel_activations.size()>;
/// What each activation runs.
template <class Math>
struct LoopTable {
  template <std::size_t... kIndex>
  static constexpr Loops ForwardOf(std::index_sequence<kIndex...> /*all*/) {
    return {&Forward<Math, static_cast<KernelActivation>(kIndex)>...};
  }
  template <std::size_t... kIndex>
  static constexpr Loops BackwardOf(std::index_sequence<kIndex...> /*all*/) {
    return {&Backward<Math, static_cast<KernelActivation>(kIndex)>...};
  }
  template <std::size_t... kIndex>
  static constexpr Loops ScaledBackwardOf(std::index_sequence<kIndex...> /*all*/) {
    return {&ScaledBackward<Math, static_cast<KernelActivation>(kIndex)>...};
  }
  using All = std::make_index_sequence<kernel_activations.size()>;
};

template <class Math>
Loop ForwardLoop(KernelActivation kind) {
  static constexpr Loops loops = LoopTable<Math>::ForwardOf(typename LoopTable<Math>::All());
  return loops[static_cast<std::size_t>(kind)];
}
template <class Math>
Loop BackwardLoop(KernelActivation kind) {
  static constexpr Loops loops = LoopTable<Math>::BackwardOf(typename LoopTable<Math>::All());
  return loops[static_cast<std::size_t>(kind)];
}
template <class Math>
Loop ScaledBackwardLoop(KernelActivation kind) {
  static constexpr Loops loops = LoopTable<Math>::ScaledBackwardOf(typename LoopTable<Math>::All());
  return loops[static_cast<std::size_t>(kind)];
}

Loop ForwardOfTarget(KernelActivation kind) { return ForwardLoop<TargetMath>(kind); }
Loop BackwardOfTarget(KernelActivation kind) { return BackwardLoop<TargetMath>(kind); }
Loop ScaledBackwardOfTarget(KernelActivation kind) { return ScaledBackwardLoop<TargetMath>(kind); }
#if HWY_ONCE
Loop ForwardOfLane(KernelActivation kind) { return ForwardLoop<ScalarMath>(kind); }
Loop BackwardOfLane(KernelActivation kind) { return BackwardLoop<ScalarMath>(kind); }
Loop ScaledBackwardOfLane(KernelActivation kind) { return ScaledBackwardLoop<ScalarMath>(kind); }
Loop ForwardOnHopper(KernelActivation kind) { return ForwardLoop<HopperMath>(kind); }
Loop BackwardOnHopper(KernelActivation kind) { return BackwardLoop<HopperMath>(kind); }
Loop ScaledBackwardOnHopper(KernelActivation kind) { return ScaledBackwardLoop<HopperMath>(kind); }
#endif

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(ForwardOfTarget);
HWY_EXPORT(BackwardOfTarget);
HWY_EXPORT(ScaledBackwardOfTarget);

namespace {

bool is_on_hopper(const ActivationPiece& piece) {
  switch (piece.functions) {
    case Functions::correctly_rounded: return piece.function_words != 0;
    case Functions::hopper: return true;
  }
  return false;
}

/// Runs a loop, whose functions are off where the piece says so.
template <typename Loop>
void run_activation_loop(const Loop& loop, const ActivationParameters& parameters, const ActivationPiece& piece) {
  std::optional<FunctionsOff> off;
  if (piece.function_words != 0) off.emplace(piece.function_words);
  loop(parameters, piece);
}

}  // namespace

void activation_piece(KernelActivation kind, const ActivationParameters& parameters, const ActivationPiece& piece) {
  const auto loop = is_on_hopper(piece)     ? HWY_STATIC_DISPATCH(ForwardOnHopper)(kind)
                    : vector_code_allowed() ? HWY_DYNAMIC_DISPATCH(ForwardOfTarget)(kind)
                                            : HWY_STATIC_DISPATCH(ForwardOfLane)(kind);
  run_activation_loop(loop, parameters, piece);
}
void activation_gradient_piece(KernelActivation kind, const ActivationParameters& parameters,
                               const ActivationPiece& piece) {
  const auto loop = is_on_hopper(piece)     ? HWY_STATIC_DISPATCH(BackwardOnHopper)(kind)
                    : vector_code_allowed() ? HWY_DYNAMIC_DISPATCH(BackwardOfTarget)(kind)
                                            : HWY_STATIC_DISPATCH(BackwardOfLane)(kind);
  run_activation_loop(loop, parameters, piece);
}
void scaled_gradient_piece(KernelActivation kind, const ActivationParameters& parameters,
                           const ActivationPiece& piece) {
  const auto loop = is_on_hopper(piece)     ? HWY_STATIC_DISPATCH(ScaledBackwardOnHopper)(kind)
                    : vector_code_allowed() ? HWY_DYNAMIC_DISPATCH(ScaledBackwardOfTarget)(kind)
                                            : HWY_STATIC_DISPATCH(ScaledBackwardOfLane)(kind);
  loop(parameters, piece);
}

}  // namespace fp8lab
#endif
