// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/gemm/gemm_recipe.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ranges>
#include <string_view>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/gemm/gemm_recipe_names.hpp"
#include "tensor_core/misfit.hpp"

namespace fp8lab {
namespace {

void check_k_order(const KOrder& order) {
  if (order.ways == 1) return;
  if (order.ways == 0 || order.granule == 0 || order.window == 0 || order.window % (order.ways * order.granule) != 0) {
    refuse("k_order must have a window that is a positive multiple of ways * granule, not (", order.ways, ", ",
           order.granule, ", ", order.window, ")");
  }
}

/// Refuses what says of ranges twice, or says how what is not split is added.
void check_ranges(const GemmRecipe& r) {
  const int ways = (r.ranges != 0 ? 1 : 0) + (r.range_k != 0 ? 1 : 0) + (r.split_k.empty() ? 0 : 1);
  if (ways > 1) refuse("one of ranges, range_k and split_k at most says how K is split");
  if (ways == 0 && r.order == PartialOrder::pairwise) refuse("order must not be pairwise where K is not split");
  if (!r.split_order.empty() && r.order != PartialOrder::ascending) {
    refuse("order must be left out where split_order is given");
  }
  if (ways == 0 && r.partial_type == StepType::as_given && r.total_type != StepType::as_given) {
    refuse("total_type must be left out where K is not split");
  }
}

/// Refuses activations of kernels that do not multiply as the model does.
void check_activation(const GemmRecipe& r) {
  const bool is_usual = r.activation == GemmActivation::none || r.activation == GemmActivation::relu;
  const bool multiplies_float32 = r.model.name == "hopper_tf32" || r.model.name.starts_with("cuda_cores");
  if (!is_usual && !multiplies_float32 && !r.model.name.starts_with("hopper_")) {
    refuse("activation ", name_of(r.activation),
           " is known of Hopper's cuBLASLt alone, whose models begin with hopper_ or cuda_cores, not of ",
           r.model.name);
  }
  if (r.activation == GemmActivation::gelu && multiplies_float32) {
    refuse("activation gelu is that of 8 and 16 bits; of float32 operands, as of ", r.model.name,
           ", it is gelu_float32");
  }
  if (r.activation == GemmActivation::gelu_float32 && !multiplies_float32) {
    refuse("activation gelu_float32 is that of float32 operands; of 8 and 16 bits, as of ", r.model.name,
           ", it is gelu");
  }
}

/// Refuses gradients whose order of sums is not known.
void check_bias_gradient(const GemmRecipe& r) {
  switch (r.bias_gradient) {
    case BiasGradient::none: return;
    case BiasGradient::of_a: break;
    case BiasGradient::of_b:
      refuse("bias_gradient of_b is added in an order that is not known; that of_a, cuBLASLt's BGRADB, is");
  }
  if (r.model.name != "hopper_bf16" && r.model.name != "hopper_tf32") {
    refuse("bias_gradient of_a is known of the models hopper_bf16 and hopper_tf32, not of ", r.model.name);
  }
  if (r.alpha != 1) refuse("bias_gradient of_a is known where alpha is 1, not ", r.alpha);
}

void check_output(const GemmRecipe& r) {
  constexpr Format single = binary32;
  constexpr Format widest = binary64;
  if (r.output == widest && !r.model.is_fp64()) {
    refuse("output must not be float64: ", r.model.name, " has no float64 accumulator");
  }
  if (r.output == single || r.output == widest) {
    if (r.cast) refuse("cast must be left out: an output of ", format_name(r.output), " is not rounded");
    return;
  }
  if (r.output.bits() > 16) refuse("output must be float32 or a format of up to 16 bits, not of ", r.output.bits());
}

}  // namespace

const MmaModel& find_gemm_model(std::string_view name) {
  for (const MmaModel* model : {&cuda_cores, &cuda_cores_fma}) {
    if (model->name == name) return *model;
  }
  return find_model(name);
}

void check_gemm_recipe(const GemmRecipe& r) {
  if (r.promote_k < 0) refuse("promote_k must be 0 (never) or positive, not ", r.promote_k);
  const auto unit = static_cast<std::size_t>(r.model.k());
  if (unit != 0 && static_cast<std::size_t>(r.promote_k) % unit != 0) {
    refuse("promote_k must be a multiple of ", unit, ", one instruction of ", r.model.name, ", not ", r.promote_k,
           " (nearest: ", nearest_multiples(static_cast<std::size_t>(r.promote_k), unit), ")");
  }
  check_k_order(r.k_order);
  check_ranges(r);
  if (!std::isfinite(r.alpha)) refuse("alpha must be finite, not ", r.alpha);
  if (!std::isfinite(r.beta)) refuse("beta must be finite, not ", r.beta);
  check_activation(r);
  check_bias_gradient(r);
  check_output(r);
}

std::vector<std::size_t> ranges_of(const GemmRecipe& r, std::size_t depth, std::size_t unit) {
  // 1. Their lengths.
  std::vector<std::size_t> lengths = r.split_k;
  const std::size_t whole = std::max<std::size_t>(unit, 1);
  std::size_t length = r.range_k;
  if (r.ranges > 1) length = (depth + r.ranges * whole - 1) / (r.ranges * whole) * whole;
  for (std::size_t first = 0; length != 0 && first < depth; first += length) {
    lengths.push_back(std::min(length, depth - first));
  }
  // 2. Whether they go with K and with what it is split into.
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] == 0 || (i + 1 < lengths.size() && lengths[i] % whole != 0)) {
      refuse("split_k: a range must be a positive multiple of ", whole, " (the last: any positive number), not ",
             lengths[i]);
    }
  }
  const std::size_t sum = std::accumulate(lengths.begin(), lengths.end(), std::size_t{0});
  if (!lengths.empty() && sum != depth) refuse("split_k: the ranges must add up to K, ", depth, ", not ", sum);
  std::vector<std::size_t> order = r.split_order;
  std::ranges::sort(order);
  if (!order.empty() && !std::ranges::equal(order, std::views::iota(std::size_t{0}, lengths.size()))) {
    refuse("split_order must have every number from 0 to below ", lengths.size(), ", the ranges of split_k, once");
  }
  if (lengths.empty()) return {depth};
  return lengths;
}

CastPolicy cast_of(const GemmRecipe& recipe) {
  return recipe.cast.value_or(recipe.output.bits() <= 8 ? CastPolicy{} : cuda_nosat_policy);
}

float rounded_to(StepType type, float x) {
  switch (type) {
    case StepType::as_given: break;
    case StepType::to_float16: return decode(binary16, encode(binary16, cuda_nosat_policy, x));
    case StepType::to_bfloat16: return decode(bfloat16, encode(bfloat16, cuda_nosat_policy, x));
  }
  return x;
}

}  // namespace fp8lab
