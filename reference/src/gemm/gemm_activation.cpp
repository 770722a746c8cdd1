// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/gemm/gemm_activation.hpp"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/gemm/gemm_recipe_names.hpp"
#include "gemm/activation_step.hpp"
#include "units/special_word.hpp"

namespace fp8lab {
namespace {

float hopper_tanh_approx(float x) {
  return std::bit_cast<float>(
      special_word(SpecialUnits::hopper, SpecialFunction::tanh, Subnormals::kept, std::bit_cast<std::uint32_t>(x)));
}

constexpr float epilogue_root = 0x1.988454p-1F;
constexpr float epilogue_cubic = 0x1.6e4e26p-5F;  // 0.044715

/// The hyperbolic tangent of GELU, with its usual argument.
float epilogue_tanh(float x) { return hopper_tanh_approx((epilogue_root * x) * std::fma(epilogue_cubic * x, x, 1.0F)); }

float epilogue_gelu(float x) {
  constexpr float product = 0x1.2444fcp-5F;  // five units more than that of the two constants
  const float t = hopper_tanh_approx(x * std::fma(x * product, x, epilogue_root));
  return 0.5F * std::fma(x, t, x);
}

float epilogue_gelu_float32(float x) { return (0.5F * x) * (epilogue_tanh(x) + 1.0F); }

float epilogue_gelu_slope(float x) {
  constexpr float slope = 0x1.b6676cp-4F;  // 0.1070322243
  const float t = epilogue_tanh(x);
  const float slope_of_tanh = std::fma(-t, t, 1.0F);
  const float slope_of_argument = std::fma(slope * x, x, epilogue_root);
  return (0.5F * x) * (slope_of_tanh * slope_of_argument) + 0.5F * (t + 1.0F);
}

}  // namespace

float activated(GemmActivation activation, float x, float input) {
  switch (activation) {
    case GemmActivation::none: return x;
    case GemmActivation::relu: return x < 0 ? 0 : x;
    case GemmActivation::gelu: return epilogue_gelu(x);
    case GemmActivation::gelu_float32: return epilogue_gelu_float32(x);
    case GemmActivation::dgelu: return epilogue_gelu_slope(input) * x;
  }
  return x;
}

void apply_gemm_activation(GemmActivation activation, std::span<const float> x, std::span<const float> input,
                           std::span<float> out, int threads) {
  if (out.size() != x.size()) refuse("out must have ", x.size(), " elements, not ", out.size());
  const bool takes_input = activation == GemmActivation::dgelu;
  if (!takes_input && !input.empty()) refuse("activation_input goes with dgelu, not with ", name_of(activation));
  if (takes_input && input.size() != x.size()) {
    refuse("activation_input must have ", x.size(), " elements, not ", input.size());
  }
  check_apart_or_same("x", x, "out", out);
  check_apart_or_same("activation_input", input, "out", out);
  const DefaultEnvironment environment;
  parallel_for(x.size(), threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      checkpoint(i);
      const float made = activated(activation, x[i], takes_input ? input[i] : 0);
      out[i] = std::isnan(made) ? std::bit_cast<float>(0x7FFFFFFFU) : made;
    }
  });
}

}  // namespace fp8lab
