// SPDX-License-Identifier: Apache-2.0
// Departures of the scale: how it is made.
#include <array>
#include <bit>
#include <optional>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "quantize/departures/shared.hpp"
#include "quantize/named_rows.hpp"
#include "quantize/scales_case.hpp"

namespace fp8lab::doctor {
namespace {

template <const Format& format>
void make_for_largest_of(Recipe& rule) {
  rule.format = format;  // NOLINT(readability-redundant-parentheses): there are none
}

bool is_of_8_bits_but(const SearchCase& one, const Format& format) {
  return one.recipe().format != format && one.recipe().format.bits() == 8;
}

/// The E4M3 scale of a tile under a tensor's, rounded in that way.
template <Rounding rounding>
void round_block_scale(TileScale& scale, const ScaleRule& rule, const Deviation& /*own*/) {
  if (rule.recipe.tensor_scale == TensorScaleRule::none) return;
  const float product = product_under_tensors(rule.recipe, rule.constants, rule.amax);
  const float rounded = decode(ue4m3, encode(ue4m3, CastPolicy{.rounding = rounding}, product));
  // Stretched to what it is rounded to, it is the nearest.
  scale = scale_under_tensors(rule.recipe, rule.constants, rule.amax, product == 0 ? 1 : rounded / product);
}

void take_scale_inv(TileScale& scale, const Recipe& recipe, float scale_inv) {
  scale.scale_inv = scale_inv;
  scale.factor = divides(recipe.operation) ? scale_inv : 1 / scale_inv;
}

/// The sum is rounded.
void add_to_scale(TileScale& scale, const ScaleRule& rule, const Deviation& own) {
  const Recipe& recipe = rule.recipe;
  if (recipe.rounding == ScaleRounding::none || !makes_scale_inv(recipe)) {
    take_scale_inv(scale, recipe, scale.scale_inv + own.value);
    return;
  }
  Recipe before = recipe;
  before.rounding = ScaleRounding::none;
  const float sum = scale_of_amax(before, rule.constants, rule.amax).scale_inv + own.value;
  take_scale_inv(scale, recipe, rounded_scale(recipe, rule.constants, sum));
}

void round_by_value(TileScale& scale, const ScaleRule& rule, const Deviation& /*own*/) {
  if (rule.recipe.scale_type != ScaleType::float32) return;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(scale.scale_inv) + 0x400000U;
  take_scale_inv(scale, rule.recipe, std::bit_cast<float>(bits & 0x7F800000U));
}

/// `value`, or where `place` is 1 the inverse of that.
void take_tensor_scale(TensorFacts& facts, const Deviation& own) {
  (own.place == 1 ? facts.tensor_scale_inv : facts.tensor_scale) = own.value;
}

void multiply_scale(TileScale& scale, const ScaleRule& rule, const Deviation& own) {
  scale.scale_inv *= own.value;
  scale.factor = divides(rule.recipe.operation) ? scale.factor * own.value : scale.factor / own.value;
  if (rule.recipe.scale_type != ScaleType::e8m0_code) return;
  scale.code = static_cast<std::uint8_t>(encode(e8m0, CastPolicy{}, scale.scale_inv));
}

bool rounds_its_scales(const ModelCase& model, const Deviation& /*own*/) {
  return model.recipe.scale_type != ScaleType::float32 || model.recipe.rounding != ScaleRounding::none;
}
bool scales_its_tensor(const ModelCase& model, const Deviation& /*own*/) { return has_tensor_scale(model.recipe); }

/// A power of two, or a number of few digits, that multiplies all scales.
std::optional<Suggestion> factor_of_scales(const ScalesCase& one) {
  if (!one.factor) return std::nullopt;
  const std::optional<float> value = one.power ? one.power : short_decimal(*one.factor);
  if (!value) return std::nullopt;
  return Suggestion{{.value = *value}, one.cost_of_factor() + 0.0002};
}

/// A largest value of few digits that makes all scales, unless they are times a power of two.
std::optional<Suggestion> other_largest(const ScalesCase& one) {
  if (!one.factor || one.power) return std::nullopt;
  const double largest = largest_of(one.model.recipe().format);
  const std::optional<float> value = short_decimal({largest / one.factor->highest, largest / one.factor->lowest});
  if (!value) return std::nullopt;
  return Suggestion{{.value = *value}, one.cost_of_factor()};
}

constexpr auto scale_table = of_stage(
    KernelStage::scale,
    std::array{
        Departure{.name = "largest_of_e4m3fnuz",
                  .words = "the scale is made for a largest value of 240",
                  .cost = 1.0564,
                  .is_searched = [](const SearchCase& one) { return is_of_8_bits_but(one, e4m3fnuz); },
                  .rule = make_for_largest_of<e4m3fnuz>},
        Departure{.name = "largest_of_e5m2",
                  .words = "the scale is made for a largest value of 57344",
                  .cost = 1.0571,
                  .is_searched = [](const SearchCase& one) { return is_of_8_bits_but(one, e5m2); },
                  .rule = make_for_largest_of<e5m2>},
        Departure{.name = "largest_of_e4m3",
                  .words = "the scale is made for a largest value of 448",
                  .cost = 1.0578,
                  .is_searched = [](const SearchCase& one) { return one.recipe().format != e4m3; },
                  .rule = make_for_largest_of<e4m3>,
                  .plant = {.recipe = "te_current_scaling_e5m2"}},
        Departure{.name = "largest_of_e2m1",
                  .words = "the scale is made for a largest value of 6",
                  .cost = 1.0585,
                  .is_searched = [](const SearchCase& one) { return one.recipe().format != e2m1; },
                  .rule = make_for_largest_of<e2m1>},
        Departure{
            .name = "largest_of_value",
            .words = "the scale is made for another largest value",
            .cost = 1.0592,
            .is_searched = [](const SearchCase& one) { return one.recipe().format == e4m3 && !is_given(one.recipe()); },
            .numbers = [](const SearchCase&) { return with_values(std::array{256.0F, 464.0F, 480.0F}); },
            .by_scales = other_largest,
            .details = tell_value,
            .constants =
                [](ScaleConstants& constants, const Deviation& own) {
                  constants.largest = own.value;
                  constants.inverse_largest = 1 / constants.largest;
                },
            .plant = {.value = 256}},
        Departure{.name = "block_scale_truncated",
                  .words = "the scales of blocks are truncated to E4M3",
                  .cost = 1.0445,
                  .makes_sense = scales_its_tensor,
                  .made = round_block_scale<Rounding::toward_zero>,
                  .plant = {.recipe = "te_nvfp4"}},
        Departure{.name = "block_scale_rounded_up",
                  .words = "the scales of blocks are rounded up to E4M3",
                  .cost = 1.0452,
                  .makes_sense = scales_its_tensor,
                  .made = round_block_scale<Rounding::upward>,
                  .plant = {.recipe = "te_nvfp4"}},
        // `value` is added to scale_inv before it is rounded.
        Departure{.name = "scale_plus",
                  .words = "a number is added to the scale",
                  .cost = 1.0459,
                  // Many numbers: in pairs alone, under a tensor's scale not even there.
                  .is_searched =
                      [](const SearchCase& one) {
                        const std::size_t most = has_tensor_scale(one.recipe()) ? 0 : 1;
                        return one.hypothesis().deviations.size() <= most &&
                               one.recipe().scale_type == ScaleType::float32 && !is_given(one.recipe());
                      },
                  .numbers = [](const SearchCase& one) { return small_numbers_above(one.least_scale()); },
                  .adds_small_number = true,
                  .details = tell_value,
                  .made = add_to_scale,
                  .plant = {.value = 1e-4F}},
        // From 1.5 times a power of two on to the next: rounding `even` to a mantissa of no bits.
        Departure{.name = "scale_nearest_power",
                  .words = "scales are rounded to the nearest power of two, by their value",
                  .cost = 1.0473,
                  .rounds_scales = true,
                  .makes_sense =
                      [](const ModelCase& model, const Deviation&) {
                        const Recipe& recipe = model.recipe;
                        return !has_tensor_scale(recipe) && !is_given(recipe) &&
                               recipe.scale_type != ScaleType::e4m3_code;
                      },
                  .rule = [](Recipe& rule) { rule.rounding = ScaleRounding::even; },
                  .constants = [](ScaleConstants& constants, const Deviation&) { constants.half_spacing = 0x400000; },
                  .made = round_by_value},
        // Where it is stored and where codes are made.
        Departure{
            .name = "scale_inv_squared",
            .words = "scale_inv is squared, where it is stored and where codes are made",
            .cost = 1.0520,
            .is_searched = [](const SearchCase& one) { return one.recipe().scale_type == ScaleType::float32; },
            .makes_sense = [](const ModelCase& model, const Deviation&) { return !is_given(model.recipe); },
            .made = [](TileScale& scale, const ScaleRule& rule,
                       const Deviation&) { take_scale_inv(scale, rule.recipe, scale.scale_inv * scale.scale_inv); }},
        Departure{.name = "scale_times",
                  .words = "scale_inv is multiplied by a number, where it is stored and where codes are made",
                  .cost = 1.1,
                  .is_searched = never,
                  .by_scales = factor_of_scales,
                  .details = tell_value,
                  .made = multiply_scale,
                  .plant = {.value = 1.05F}},
        Departure{.name = "tensor_scale_stale",
                  .words = "the scale of the tensor over those of tiles does not follow from the tensor (given, or "
                           "stale?)",
                  .cost = 1.5,
                  .is_searched = never,
                  .makes_sense = scales_its_tensor,
                  .details =
                      [](TextStream& text, const Deviation& own, const Hypothesis&) {
                        text << (own.place == 1 ? ": its inverse is " : ": it is ") << own.value;
                      },
                  .has_no_rule = true,
                  .tensor_scale = take_tensor_scale,
                  .plant = {.recipe = "te_nvfp4", .value = 300}},
        Departure{
            .name = "tensor_scale_given",
            .words = "the scale of the tensor is the given one",
            .cost = 0.4,
            .is_searched = never,
            .makes_sense = scales_its_tensor,
            .details = [](TextStream& text, const Deviation& own,
                          const Hypothesis&) { text << (own.place == 1 ? ": the inverse of " : ": ") << own.value; },
            .is_given = true,
            .tensor_scale = take_tensor_scale,
            .plant = {.recipe = "te_nvfp4", .value = 300}},
        Departure{.name = "scale_unrounded",
                  .words = "codes are made with the scale before it is rounded",
                  .cost = 1.0438,
                  .makes_sense = rounds_its_scales,
                  .used_rule = [](Recipe& rule) { rule = unrounded(rule); },
                  .plant = {.recipe = "te_mxfp8"}},
    });

}  // namespace

std::span<const Departure> scale_departures() { return scale_table; }

namespace rows {
constinit const Departure& tensor_scale_stale = row_named(scale_table, "tensor_scale_stale");
constinit const Departure& tensor_scale_given = row_named(scale_table, "tensor_scale_given");
}  // namespace rows

}  // namespace fp8lab::doctor
