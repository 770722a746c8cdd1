// SPDX-License-Identifier: Apache-2.0
// The activations of Transformer Engine's kernels, with their gradients, in float32.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/operators/float_output.hpp"

namespace fp8lab {

enum class KernelActivation : std::uint8_t {
  gelu,
  qgelu,
  relu,
  srelu,
  silu,
  glu,
  geglu,
  qgeglu,
  reglu,
  sreglu,
  swiglu,
  clamped_swiglu,
  situglu,
};

/// Facts of an activation. Gated ones take rows of two halves, a and b, and give a row of half the length.
struct ActivationRow {
  std::string_view name;
  KernelActivation value;
  std::string_view formula;   ///< sigmoid(x) is 1 / (1 + exp(-x))
  std::string_view gradient;  ///< the derivative by x, or by a
  bool gated = false;
  bool scaled = false;  ///< there is a kernel that scales rows, and so scaled_activation()
};

/// Source: Transformer Engine 2.20, common/util/math.h; common/util/vectorized_pointwise.h has what a gate does, and
/// common/activation/scaled_activation.cu what a scale does.
inline constexpr std::array kernel_activations{
    ActivationRow{
        "gelu", KernelActivation::gelu, "x (0.5 + 0.5 tanh(x (0.79788456 + 0.03567741 x^2)))",
        "0.5 x (1 - t^2) (0.79788456 + 0.1070322243 x^2) + 0.5 (1 + t), t = tanh(0.79788456 x (1 + 0.044715 x^2))"},
    ActivationRow{"qgelu", KernelActivation::qgelu, "x sigmoid(1.702 x)",
                  "1.702 x s (1 - s) + s, s = sigmoid(1.702 x)"},
    ActivationRow{"relu", KernelActivation::relu, "max(x, 0), 0 of NaN", "1 where x > 0, else 0"},
    ActivationRow{"srelu", KernelActivation::srelu, "x^2 where x > 0, else 0", "max(2 x, 0)", false, true},
    ActivationRow{"silu", KernelActivation::silu, "x sigmoid(x)", "x s (1 - s) + s, s = sigmoid(x)"},
    ActivationRow{"glu", KernelActivation::glu, "sigmoid(a) b", "s (1 - s), s = sigmoid(a)", true},
    ActivationRow{"geglu", KernelActivation::geglu, "gelu(a) b", "as of gelu", true},
    ActivationRow{"qgeglu", KernelActivation::qgeglu, "qgelu(a) b", "as of qgelu", true},
    ActivationRow{"reglu", KernelActivation::reglu, "relu(a) b", "as of relu", true},
    ActivationRow{"sreglu", KernelActivation::sreglu, "srelu(a) b", "as of srelu", true},
    ActivationRow{"swiglu", KernelActivation::swiglu, "silu(a) b", "as of silu", true, true},
    ActivationRow{"clamped_swiglu", KernelActivation::clamped_swiglu,
                  "c sigmoid(alpha c) (d + offset), c = min(a, limit), d = b limited to [-limit, limit]",
                  "alpha c s (1 - s) + s where a <= limit, else 0, s = sigmoid(alpha c); of b 0 outside of the limits",
                  true, true},
    ActivationRow{"situglu", KernelActivation::situglu, "beta1 tanh(a / beta1) sigmoid(a) d, d = beta2 tanh(b / beta2)",
                  "(1 - t^2) s + beta1 t s (1 - s), t = tanh(a / beta1), s = sigmoid(a); of b 1 - tanh(b / beta2)^2",
                  true, true},
};
static_assert(is_in_order(kernel_activations));

/// The facts of one.
[[nodiscard]] constexpr const ActivationRow& row_of(KernelActivation activation) {
  return kernel_activations[static_cast<std::size_t>(activation)];
}

/// What clamped_swiglu and situglu have beside their input; the defaults are those of Transformer Engine's operations.
/// No other activation reads them.
struct ActivationParameters {
  float limit = 7;  ///< of clamped_swiglu, as the next two; positive
  float alpha = 1.702F;
  float offset = 1;
  float beta1 = 4;   ///< of situglu, as the next one; positive and finite
  float beta2 = 25;  ///< positive and finite
};

/// out = the activation of x, row by row, rounded to out's type. Of a gated one out has half as many columns as x.
///
/// Throws std::invalid_argument for x of float64, sizes that do not fit, an odd number of columns of a gated one, a
/// limit that is not positive, a beta1 or beta2 that is not positive and finite, arrays that overlap (an activation
/// that is not gated may write over x itself), and as check_threads() does.
void activation(KernelActivation kind, const ActivationParameters& parameters, const MatrixView& x, FloatOutput out,
                const OperatorOptions& options = {});

/// dx = the gradient by x, for the gradient `grad` by the result; of a gated one the gradient by a, (f'(a) grad) b, and
/// that by b, grad f(a), side by side as a and b are. bias_gradient, where it is not empty, gets the sum of the rows of
/// dx before they are rounded, one for each column: a sum over rows in the order of sum_order.hpp.
///
/// Throws as activation() does.
void activation_backward(KernelActivation kind, const ActivationParameters& parameters, const MatrixView& grad,
                         const MatrixView& x, FloatOutput dx, std::span<float> bias_gradient = {},
                         const OperatorOptions& options = {});

/// How the kernels that multiply each row by its scale lay out a and b: whole halves, or, of a size other than 0,
/// segments of that many columns of a and of b in turns.
struct ScaledLayout {
  std::size_t interleave = 0;  ///< a multiple of 32 that divides the columns of the result
};

/// The same times scales[row], of activations whose row says `scaled`.
///
/// Throws as activation() does, and for other activations, another number of scales, and an interleave that does not
/// fit.
void scaled_activation(KernelActivation kind, const ActivationParameters& parameters, const MatrixView& x,
                       std::span<const float> scales, FloatOutput out, ScaledLayout layout = {},
                       const OperatorOptions& options = {});

/// Its gradients: dx, with (grad scale) (f'(a) b) and (grad scale) f(a), and, where it is not empty, that by the
/// scales, the sum over a row of grad (f(a) b), the product fused, in the order of sum_order.hpp, or with
/// Functions::hopper of the kernel whose dx has grad's type.
///
/// Throws as scaled_activation() does.
void scaled_activation_backward(KernelActivation kind, const ActivationParameters& parameters, const MatrixView& grad,
                                const MatrixView& x, std::span<const float> scales, FloatOutput dx,
                                std::span<float> scale_gradient, ScaledLayout layout = {},
                                const OperatorOptions& options = {});

}  // namespace fp8lab
