// SPDX-License-Identifier: Apache-2.0
// The updates of SGD and Adam as Transformer Engine's multi-tensor kernels compute them, one tensor at a time.
//
// Source: Transformer Engine 2.20, common/multi_tensor/sgd.cu and adam.cu, which are compiled with fast-math: subnormal
// numbers count as zeros of their sign, before each operation and after it, and a division multiplies by the
// reciprocal. What is fused is what nvcc 13.0 fuses of these formulas for sm_90 with -use_fast_math. A result is taken
// for subnormal where it is so after rounding: what devices do with values within 2^-150 below 2^-126 is unknown.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/operators/float_output.hpp"

namespace fp8lab {

struct SgdParameters {
  float lr = 1e-3F;
  float weight_decay = 0;
  float momentum = 0;
  float dampening = 0;
  bool nesterov = false;
  bool first_run = false;  ///< the momentum begins as the gradient
  bool weight_decay_after_momentum = false;
  float scale = 1;  ///< multiplies the gradient
};

/// In place, with FTZ on each operation:
///
///     g = grad scale;  g = fma(weight_decay, param, g) unless after the momentum
///     momentum = fma(momentum, factor, (1 - dampening) g), or g in the first run;
///     g = the momentum, or of nesterov fma(factor, momentum, g);  g = fma(weight_decay, param, g) if after it
///     param = fma(-g, lr, param); a float16 one is param + fl16(-(lr g)) in float16
///
/// Every bit is the kernel's, but for the subnormal results named above. `model` gets float16 copies of the parameters
/// where it is not empty.
///
/// Throws std::invalid_argument unless types are those that a kernel has: grad, param and momentum float16; or float32,
/// where grad may be float16 if there is a `model`; and for sizes that differ.
void sgd_update(const SgdParameters& parameters, FloatSpan grad, FloatOutput param, FloatOutput momentum,
                std::span<Half> model = {}, int threads = 1);

/// Where the decay of weights enters.
enum class AdamMode : std::uint8_t {
  l2,         ///< in the gradient
  decoupled,  ///< in the update: AdamW
};
inline constexpr std::array adam_modes{Named{"l2", AdamMode::l2, "in the gradient"},
                                       Named{"decoupled", AdamMode::decoupled, "in the update: AdamW"}};
static_assert(is_in_order(adam_modes));
[[nodiscard]] constexpr std::span<const Named<AdamMode>> named_values(AdamMode /*of_type*/) { return adam_modes; }

struct AdamParameters {
  float lr = 1e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float eps = 1e-8F;
  float weight_decay = 0;
  std::uint32_t step = 1;  ///< the number of this update, from 1 on
  bool bias_correction = true;
  AdamMode mode = AdamMode::decoupled;
};

/// In place, with FTZ on each operation, and c1 = float32(1 - beta1^step) (the power in float64), c2 likewise, or 1:
///
///     of l2: g = fma(weight_decay, param, g)
///     m = fma(beta1, m, (1 - beta1) g);  v = fma(beta2, v, ((1 - beta2) g) g)
///     u = (m / c1) / (sqrt(v / c2) + eps);  of decoupled: u = fma(weight_decay, param, u)
///     param = fma(-lr, u, param)
///
/// Divisions multiply by the reciprocal. Reciprocals and the root are rounded correctly, or with Functions::hopper
/// those of an H100 or H200: every bit is the kernel's then, but for the subnormal results named above. `master` holds
/// the parameters as float32 where it is not empty, and param their copies.
///
/// Throws std::invalid_argument for float64, sizes that differ, and step 0.
void adam_update(const AdamParameters& parameters, FloatSpan grad, FloatOutput param, FloatOutput m, FloatOutput v,
                 std::span<float> master = {}, const OperatorOptions& options = {});

/// The same for g = grad inverse_scale, which also replaces grad, rounded to its type: what the kernels for CUDA graphs
/// do. In the compiled ones lr u is rounded before it is subtracted: so it is with Functions::hopper, and fused
/// otherwise. They take the powers of beta with CUDA's pow of float64, of which the last bit is not modelled.
///
/// Throws likewise.
void adam_update_unscaling(const AdamParameters& parameters, float inverse_scale, FloatOutput grad, FloatOutput param,
                           FloatOutput m, FloatOutput v, std::span<float> master = {},
                           const OperatorOptions& options = {});

/// The same with parameters of FP8: codes of fl(master scale). Returns the largest of amax and of all |master|, NaN
/// dropped.
///
/// Throws likewise, and for a format that has more than 8 bits.
[[nodiscard]] float adam_update_fp8(const AdamParameters& parameters, FloatSpan grad, const Format& format, float scale,
                                    float amax, std::span<std::uint8_t> codes, FloatOutput m, FloatOutput v,
                                    std::span<float> master, const OperatorOptions& options = {});

/// The same with a master of 32 bits in two parts of 16: a bfloat16 rounded by its 15th bit behind, half away, and the
/// low word, as signed; the high word is the bfloat16, less 1 where the low word is negative.
///
/// Throws likewise.
void adam_update_remainder(const AdamParameters& parameters, FloatSpan grad, std::span<BFloat16> param, FloatOutput m,
                           FloatOutput v, std::span<std::int16_t> remainder, const OperatorOptions& options = {});

}  // namespace fp8lab
