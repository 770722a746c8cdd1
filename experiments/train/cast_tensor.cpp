// SPDX-License-Identifier: Apache-2.0
#include "train/cast_tensor.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/reference/scaling/facts.hpp"

namespace fp8lab::experiments {
namespace {

/// How the recipe casts the tensor: the same way for both of its products.
const LinearCast& cast_of(const LinearRecipe& recipe, LinearTensor tensor) {
  switch (tensor) {
    case LinearTensor::x: break;
    case LinearTensor::w: return recipe.fprop.b;
    case LinearTensor::dy: return recipe.wgrad.a;
  }
  return recipe.fprop.a;
}

AmaxHistory& history_of(LayerHistories& histories, LinearTensor tensor) {
  switch (tensor) {
    case LinearTensor::x: break;
    case LinearTensor::w: return histories.w;
    case LinearTensor::dy: return histories.dy;
  }
  return histories.x;
}

Pass pass_of(LinearTensor tensor) { return tensor == LinearTensor::dy ? Pass::backward : Pass::forward; }

/// The sum of count(byte) over all bytes of codes.
template <typename Count>
std::uint32_t count_codes(const Quantized& q, const Count& count) {
  std::uint32_t sum = 0;
  in_pieces(q.codes.size(), [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) sum += count(q.codes[i]);
  });
  return sum;
}

std::uint32_t zeros_of(const Quantized& q) {
  if (q.format.bits() == 4) {
    return count_codes(q, [](std::uint8_t pair) -> std::uint32_t {
      return ((pair & 0x07) == 0 ? 1 : 0) + ((pair & 0x70) == 0 ? 1 : 0);
    });
  }
  return count_codes(q, [](std::uint8_t code) -> std::uint32_t { return (code & 0x7F) == 0 ? 1 : 0; });
}

/// Codes that are no finite number.
std::uint32_t not_finite_of(const Quantized& q) {
  if (q.format.bits() != 8) return 0;
  const auto largest = static_cast<std::uint8_t>(q.format.max_code());
  return count_codes(q, [=](std::uint8_t code) -> std::uint32_t { return (code & 0x7F) > largest ? 1 : 0; });
}

/// The scale of the whole tensor; NaN where there are several.
float scale_of(const Quantized& q) { return tensor_factor(q).value_or(std::numeric_limits<float>::quiet_NaN()); }

/// The limit above which a magnitude rounds to more than the format's largest value.
double saturation_limit(const Format& format) {
  const double largest = max_value(format);
  return largest + std::ldexp(0.5, std::ilogb(largest) - format.mantissa_bits);
}

}  // namespace

LayerHistories start_histories(const LayerRecipe& recipe) {
  if (!recipe.delayed) return {};
  const AmaxHistory start = start_history(*recipe.delayed);
  return {start, start, start};
}
void update_forward(const LayerRecipe& recipe, LayerHistories& histories) {
  if (!recipe.delayed) return;
  update_scale(*recipe.delayed, Pass::forward, histories.x);
  update_scale(*recipe.delayed, Pass::forward, histories.w);
}
void update_backward(const LayerRecipe& recipe, LayerHistories& histories) {
  if (recipe.delayed) update_scale(*recipe.delayed, Pass::backward, histories.dy);
}

bool takes_random(const LayerRecipe& recipe, LinearTensor tensor) {
  const auto* cast = std::get_if<Recipe>(&cast_of(recipe.linear, tensor));
  return cast != nullptr && is_stochastic(*cast);
}

CastTensor::CastTensor(const MatrixView& x, LinearTensor tensor, const LayerRecipe& recipe, LayerHistories& histories,
                       Directions directions, std::span<const std::uint8_t> random)
    : view_(x), facts_(facts_of(x)) {
  facts_.scale = std::numeric_limits<float>::quiet_NaN();
  const auto* cast = std::get_if<Recipe>(&cast_of(recipe.linear, tensor));
  if (cast == nullptr) return;
  is_quantized_ = true;
  QuantizeOptions options;
  if (is_stochastic(*cast)) options.random = RandomSource{random, 8};
  try {
    quantize_tensor(*cast, tensor, recipe, histories, directions, options);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(std::string(name_of(tensor)) + ": " + error.what());
  }
  look_at_codes(*cast, directions);
}

void CastTensor::quantize_tensor(const Recipe& cast, LinearTensor tensor, const LayerRecipe& recipe,
                                 LayerHistories& histories, Directions directions, const QuantizeOptions& options) {
  const bool both = directions.rowwise && directions.columnwise;
  const Direction one = directions.rowwise ? Direction::rowwise : Direction::columnwise;
  Quantized& only = directions.rowwise ? rowwise_ : columnwise_;
  if (recipe.delayed) {
    AmaxHistory& history = history_of(histories, tensor);
    if (both) {
      quantize_both(view_, *recipe.delayed, pass_of(tensor), history, rowwise_, columnwise_, options);
    } else {
      quantize(view_, *recipe.delayed, pass_of(tensor), history, one, only, options);
    }
    return;
  }
  if (both) {
    quantize_both(view_, cast, rowwise_, columnwise_, options);
  } else {
    quantize(view_, cast, one, only, options);
  }
}

void CastTensor::look_at_codes(const Recipe& cast, Directions directions) {
  const Quantized& q = directions.rowwise ? rowwise_ : columnwise_;
  facts_.scale = scale_of(q);
  facts_.not_finite = std::max(facts_.not_finite, not_finite_of(q));
  const bool is_turned = q.direction == Direction::columnwise && cast.transform != Transform::none;
  if (!is_turned) {
    const std::uint32_t nonzero_codes = static_cast<std::uint32_t>(view_.size()) - zeros_of(q);
    facts_.flushed = facts_.nonzero > nonzero_codes ? facts_.nonzero - nonzero_codes : 0;
  }
  if (!is_given(q.recipe)) return;
  const auto rounds_to_more = static_cast<float>(saturation_limit(q.format));
  if (facts_.amax * facts_.scale > rounds_to_more) facts_.saturated = count_above(view_, rounds_to_more / facts_.scale);
}

LinearInput CastTensor::input(Direction direction) const {
  if (!is_quantized_) return view_;
  return std::cref(direction == Direction::rowwise ? rowwise_ : columnwise_);
}

}  // namespace fp8lab::experiments
