// SPDX-License-Identifier: Apache-2.0
// A fuzz target: any bytes as the name of everything that has one. What may come out is the thing or
// std::invalid_argument.
#include <cstdint>
#include <stdexcept>
#include <string_view>

#include "accumulate/accumulate.hpp"
#include "dot/dot.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/targets.hpp"
#include "fp8lab/reference/gemm/gemm_recipe_names.hpp"
#include "fp8lab/reference/gemm/named_gemm_recipes.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/recipe_names.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "kit/chosen.hpp"
#include "primer/primer.hpp"
#include "scaling/scaling.hpp"

namespace {

using namespace fp8lab;
using namespace fp8lab::experiments;

/// Calls all of them.
template <typename... Find>
void look_up(std::string_view name, const Find&... find) {
  const auto one = [&](const auto& each) {
    try {
      static_cast<void>(each(name));
    } catch (const std::invalid_argument&) {
    }
  };
  (one(find), ...);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view name(reinterpret_cast<const char*>(data), size);
  look_up(name, find_format, find_profile, find_recipe, find_delayed_version, find_distribution, find_model, find_gemm);
  const auto field = [](auto any) {
    return [any](std::string_view text) { return find_value<decltype(any)>("x", text); };
  };
  look_up(name, field(Transform{}), field(NanInAmax{}), field(Quotient{}), field(ScaleArithmetic{}),
          field(ScaleRounding{}), field(ScaleLimit{}), field(SpecialScale{}), field(ScaleType{}), field(E8m0Edges{}),
          field(TensorScaleRule{}), field(BlockProduct{}), field(BlockFactor{}), field(FactorRule{}),
          field(TileOperation{}), field(StepType{}), field(PartialOrder{}), field(ScaleOrder{}),
          field(TensorScaleUse{}), field(CEntry{}), field(Addition{}), field(GemmActivation{}), field(BiasGradient{}),
          field(Rounding{}), field(Axis{}), field(JustInTimeRule{}), field(MxRule{}), field(BlockRule{}),
          field(Direction{}), field(Fp8Format{}), field(AmaxComputeAlgo{}), field(ZeroRule{}), field(StreamKind{}));
  look_up(
      name, choose_format, choose_profile, choose_rounding, choose_recipe, choose_delayed, choose_factor_draws,
      find_primer_model, operand_format, [](std::string_view text) { return parse_codes(e4m3, text); },
      [](std::string_view text) { return parse_codes(binary32, text); });
  return 0;
}
