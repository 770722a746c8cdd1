// SPDX-License-Identifier: Apache-2.0
#include "gemm/epilogue.hpp"

#include <algorithm>
#include <functional>
#include <span>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "gemm/activation_step.hpp"

namespace fp8lab {
namespace {

/// The scale of both tensors, as one number.
float alpha_of(const GemmRecipe& recipe, const TensorScale& a, const TensorScale& b) {
  const float divisor = a.divisor * b.divisor;
  const float alpha = recipe.divided ? a.factor * b.factor / divisor : a.factor * b.factor * (1 / divisor);
  return recipe.alpha == 1 ? alpha : recipe.alpha * alpha;
}

ScaleFactor output_factor(const GemmRecipe& recipe, float scale_out, ScaleReading reading) {
  if (recipe.scale_out_first || reading == ScaleReading::missing) return {};
  return {scale_out, reading == ScaleReading::inverted};
}

/// Whether scales multiply one after the other, c and the bias are added, and nothing is rounded to 16 bits.
bool is_usual(const GemmRecipe& r) {
  constexpr StepType exact_step = StepType::as_given;
  const bool are_exact = r.sum_type == exact_step && r.addend_type == exact_step && r.unscaled_type == exact_step &&
                         r.via_type == exact_step;
  return are_exact && r.tensor_scales == TensorScaleUse::as_alpha && r.addition == Addition::after_scales &&
         r.beta == 1 && !r.bias_first && r.activation == GemmActivation::none;
}

}  // namespace

Epilogue::Epilogue(const GemmRecipe& recipe, const GemmGiven& given, const GemmReading& reading, const TensorScale& a,
                   const TensorScale& b)
    : recipe_(recipe),
      reading_(reading),
      tensor_a_(a.factor / a.divisor),
      tensor_b_(b.factor / b.divisor),
      alpha_(alpha_of(recipe, a, b)),
      scale_out_first_(recipe.scale_out_first ? given.scale_out : 1),
      has_divisor_(a.divisor != 1 || b.divisor != 1),
      adds_c_(given.c && recipe.c_enters == CEntry::epilogue && reading.c != CReading::missing && recipe.beta != 0),
      adds_bias_(given.bias && reading.bias != BiasReading::missing && reading.bias != BiasReading::in_each_range),
      is_usual_(is_usual(recipe)),
      scale_out_(output_factor(recipe, given.scale_out, reading.scale_out)) {
  if (recipe.scale_out_first) alpha_ *= scale_out_first_;
}

EpilogueFactors Epilogue::factors(const RowScales& rows) const {
  EpilogueFactors all;
  const bool with_rows = recipe_.tensor_scales == TensorScaleUse::with_rows;
  const ScalePair scales(recipe_, reading_, with_rows ? rows.a * tensor_a_ : rows.a,
                         with_rows ? rows.b * tensor_b_ : rows.b);
  const ScaleOrder usual = with_rows ? ScaleOrder::scales_first : ScaleOrder::accumulator_first;
  switch (recipe_.scale_order.value_or(usual)) {
    case ScaleOrder::scales_first: {
      // A divisor divides the product of both scales.
      if (with_rows && has_divisor_ && !reading_.changes_scales()) break;
      all.add(scales.product());
      if (!with_rows) break;
      if (recipe_.alpha != 1) all.values[0].value *= recipe_.alpha;
      if (recipe_.scale_out_first) all.values[0].value *= scale_out_first_;
      return all;
    }
    case ScaleOrder::accumulator_first:
      all.add(scales.first());
      all.add(scales.second());
      break;
    case ScaleOrder::b_first:
      all.add(scales.second());
      all.add(scales.first());
      break;
  }
  if (with_rows && all.count == 2) {
    if (recipe_.alpha != 1 || recipe_.scale_out_first) all.add({recipe_.alpha * scale_out_first_});
  } else {
    all.add({alpha_});
  }
  return all;
}

Epilogue::Terms Epilogue::terms(const ElementAddends& addends) const {
  Terms terms;
  const auto add = [&](bool is_added, float x) {
    if (is_added) terms.values[terms.count++] = x;
  };
  const float bias = adds_bias_ ? rounded_to(recipe_.addend_type, addends.bias) : 0;
  const float c = adds_c_ ? rounded_to(recipe_.addend_type, addends.c) : 0;
  add(adds_bias_ && recipe_.bias_first, bias);
  add(adds_c_, recipe_.beta == 1 ? c : recipe_.beta * c);
  add(adds_bias_ && !recipe_.bias_first, bias);
  return terms;
}

/// Rounded to the type of the output, before c and the bias are added: to float16 and bfloat16 nearest even.
float Epilogue::as_output(float x) const {
  constexpr Format single = binary32;
  constexpr Format half = binary16;
  constexpr Format brain = bfloat16;
  if (recipe_.via_type != StepType::as_given || recipe_.output == single) return rounded_to(recipe_.via_type, x);
  if (recipe_.output == half) return rounded_to(StepType::to_float16, x);
  if (recipe_.output == brain) return rounded_to(StepType::to_bfloat16, x);
  return decode(recipe_.output, encode(recipe_.output, cast_of(recipe_), x));
}

float Epilogue::added(float x, const RowScales& rows, const ElementAddends& addends) const {
  EpilogueFactors by = factors(rows);
  const Terms all = terms(addends);
  const auto left = std::span(all.values).first(all.count);
  const auto add = [](float sum, std::span<const float> values) {
    for (const float value : values) sum += value;
    return sum;
  };
  switch (recipe_.addition) {
    case Addition::after_scales: break;
    case Addition::fused: {
      if (left.empty() || by.count == 0 || by.values[by.count - 1].divides) break;
      const float last = by.values[--by.count].value;
      return add(std::fma(by.scaled(x), last, left.front()), left.subspan(1));
    }
    case Addition::before_scales: return by.scaled(add(x, left));
    case Addition::after_rounding:
      x = as_output(by.scaled(x));
      for (const float value : left) x = as_output(x + value);
      return x;
  }
  return add(reading_.bias == BiasReading::in_each_range ? x : by.scaled(x), left);
}

/// The same as factors(), of a row.
void Epilogue::scale_row(std::span<float> x, float scale_a, std::span<const float> scales_b) const {
  const auto scale_b = [&](std::size_t i) { return scales_b.empty() ? 1 : scales_b[i]; };
  if (scale_a != 1 || !scales_b.empty()) {
    switch (recipe_.scale_order.value_or(ScaleOrder::accumulator_first)) {
      case ScaleOrder::scales_first:
        for (std::size_t i = 0; i < x.size(); ++i) x[i] *= scale_a * scale_b(i);
        break;
      case ScaleOrder::accumulator_first:
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] * scale_a * scale_b(i);
        break;
      case ScaleOrder::b_first:
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] * scale_b(i) * scale_a;
        break;
    }
  }
  if (alpha_ != 1) std::ranges::for_each(x, [&](float& value) { value *= alpha_; });
}

void Epilogue::row(std::span<float> x, float scale_a, std::span<const float> scales_b,
                   const RowAddends& addends) const {
  const auto at = [](std::span<const float> all, std::size_t i, float none) { return all.empty() ? none : all[i]; };
  if (!is_usual_) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = (*this)(x[i], {scale_a, at(scales_b, i, 1)},
                     {at(addends.c, i, 0), at(addends.bias, i, 0), at(addends.activation_input, i, 0)});
    }
    return;
  }
  scale_row(x, scale_a, scales_b);
  if (adds_c_) std::ranges::transform(x, addends.c, x.begin(), std::plus<>());
  if (adds_bias_) std::ranges::transform(x, addends.bias, x.begin(), std::plus<>());
  if (scale_out_.value != 1) std::ranges::for_each(x, [&](float& value) { value = times(value, scale_out_); });
}

float Epilogue::operator()(float accumulator, const RowScales& rows, const ElementAddends& addends) const {
  float x = added(rounded_to(recipe_.sum_type, accumulator), rows, addends);
  x = rounded_to(recipe_.unscaled_type, activated(recipe_.activation, x, addends.activation_input));
  return rounded_to(recipe_.via_type, times(x, scale_out_));
}

}  // namespace fp8lab
