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
#include "gemm/activation_step.hpp"
#include "units/special_word.hpp"

namespace fp8lab {
namespace {

float hopper_tanh_approx(float x) {
  return std::bit_cast<float>(
      special_word(SpecialUnits::hopper, SpecialFunction::tanh, Subnormals::kept, std::bit_cast<std::uint32_t>(x)));
}

float gelu_of_epilogue(float x) {
  constexpr float root_of_two_over_pi = 0x1.988454p-1F;
  constexpr float cubic = 0x1.2444fcp-5F;  // five units more than the product with 0.044715
  const float half = 0.5F * x;
  const float t = hopper_tanh_approx(x * std::fma(x * cubic, x, root_of_two_over_pi));
  return std::fma(half, t, half);
}

}  // namespace

float activated(GemmActivation activation, float x) {
  switch (activation) {
    case GemmActivation::none: return x;
    case GemmActivation::relu: return x < 0 ? 0 : x;
    case GemmActivation::gelu: return gelu_of_epilogue(x);
    case GemmActivation::dgelu: return x;
  }
  return x;
}

void apply_gemm_activation(GemmActivation activation, std::span<const float> x, std::span<float> out, int threads) {
  if (activation == GemmActivation::dgelu) refuse("activation dgelu is not computed yet; none, relu and gelu are");
  if (out.size() != x.size()) refuse("out must have ", x.size(), " elements, not ", out.size());
  check_apart_or_same("x", x, "out", out);
  const DefaultEnvironment environment;
  parallel_for(x.size(), threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      checkpoint(i);
      out[i] = activated(activation, x[i]);
    }
  });
}

}  // namespace fp8lab
