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
#include "units/gelu_by_tanh.hpp"
#include "units/special_word.hpp"

namespace fp8lab {
namespace {

float hopper_tanh_approx(float x) {
  return std::bit_cast<float>(
      special_word(SpecialUnits::hopper, SpecialFunction::tanh, Subnormals::kept, std::bit_cast<std::uint32_t>(x)));
}

float epilogue_gelu(float x) {
  constexpr float product = 0x1.2444fcp-5F;  // five units more than gelu_root times gelu_cubic
  const float t = hopper_tanh_approx(x * std::fma(x * product, x, gelu_root));
  return 0.5F * std::fma(x, t, x);
}

}  // namespace

float activated(GemmActivation activation, float x, float input) {
  switch (activation) {
    case GemmActivation::none: return x;
    case GemmActivation::relu: return x < 0 ? 0 : x;
    case GemmActivation::gelu: return epilogue_gelu(x);
    case GemmActivation::gelu_float32: return gelu_by_tanh(x, hopper_tanh_approx);
    case GemmActivation::dgelu: return gelu_slope_by_tanh(input, hopper_tanh_approx) * x;
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
