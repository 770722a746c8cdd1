// SPDX-License-Identifier: Apache-2.0
// A recipe is its record: what makes no sense is refused by the field's name, every field counts, and the scale rule is
// the same by vectors and one by one for all combinations of parts.
#include <set>
#include <string>

#include "fp8lab/formats/targets.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/recipe_names.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// Another value of a field.
template <typename Value>
Value other_than(Value value) {
  if constexpr (std::is_enum_v<Value>) {
    return named_values(value)[static_cast<std::size_t>(value) == 0 ? 1 : 0].value;
  } else if constexpr (std::is_same_v<Value, bool>) {
    return !value;
  } else if constexpr (std::is_same_v<Value, Format>) {
    return value == e5m2 ? e4m3 : e5m2;
  } else if constexpr (std::is_same_v<Value, CastPolicy>) {
    value.overflow = Overflow::to_special;
    return value;
  } else {
    return value == Value{2} ? Value{3} : Value{2};
  }
}

}  // namespace

TEST_CASE("a recipe differs from one with another value in any field, and each value has a name of its own") {
  std::size_t fields = 0;
  Recipe changed;
  for_fields(changed, [&](const char* name, auto& field) {
    INFO(name);
    const auto before = field;
    field = other_than(field);
    CHECK(!(changed == Recipe{}));
    field = before;
    CHECK(changed == Recipe{});
    ++fields;
    if constexpr (std::is_enum_v<std::decay_t<decltype(field)>>) {
      std::set<std::string_view> names;
      std::size_t i = 0;
      for (const auto& one : named_values(before)) {
        CHECK(static_cast<std::size_t>(one.value) == i++);
        CHECK(find_value<std::decay_t<decltype(field)>>(name, one.name) == one.value);
        names.insert(one.name);
      }
      CHECK(names.size() == i);
      CHECK_THROWS_WITH((find_value<std::decay_t<decltype(field)>>(name, "up there")),
                        ContainsSubstring("unknown " + std::string(name) + " 'up there'; known: "));
    }
  });
  CHECK(fields == 38);
}

TEST_CASE("a record that makes no sense is refused, and the message names the field and what is allowed") {
  const Recipe mx = find_recipe("te_mxfp8").recipe;
  const Recipe nvfp4 = find_recipe("te_nvfp4").recipe;
  const auto refused = [](Recipe recipe, const auto& change, const char* message) {
    change(recipe);
    CHECK_THROWS_WITH(check_recipe(recipe), ContainsSubstring(message));
  };
  refused({}, [](Recipe& r) { r.tile_along = 4; }, "tile_along must be 0 where tile_across is, not 4");
  refused({}, [](Recipe& r) { r.whole_tiles = true; }, "whole_tiles is for tiles of a size");
  refused({}, [](Recipe& r) { r.pads_tiles = true; }, "pads_tiles is for tiles of a size");
  refused(mx, [](Recipe& r) { r.pads_tiles = true; }, "pads_tiles is for tiles of a size");
  refused(mx, [](Recipe& r) { r.tile_across = 2; }, "tile_across (rows of a block) must be 0, 1 or as tile_along, 32");
  refused(mx, [](Recipe& r) { r.scale_for_each_row = true; }, "scale_for_each_row is for square tiles");
  refused(
      {}, [](Recipe& r) { r.transform = Transform::hadamard_columnwise; }, "a Hadamard transform is for whole_tiles");
  refused(
      {}, [](Recipe& r) { r.least_amax = NAN; }, "least_amax (amax_epsilon) must be 0 or more, and finite, not nan");
  refused({}, [](Recipe& r) { r.largest_amax = 0; }, "largest_amax must be above least_amax, 0, not 0");
  refused({}, [](Recipe& r) { r.given_scale = 2; }, "given_scale is for the quotients given_scale and given_scale_inv");
  refused({}, [](Recipe& r) { r.quotient = Quotient::amax_over_power; }, "scale_type must be e8m0");
  refused({}, [](Recipe& r) { r.least_scale_inv = 1; }, "least_scale_inv is for quotients that make scale_inv");
  refused({}, [](Recipe& r) { r.edges = E8m0Edges::zero_at_ends; }, "edges are for scale_type e8m0");
  refused({}, [](Recipe& r) { r.nan_amax = SpecialScale::nan; }, "nan_amax may be nan or smallest for scale_type e8m0");
  refused({}, [](Recipe& r) { r.block_factor = BlockFactor::product; }, "are for a tensor_scale");
  refused({}, [](Recipe& r) { r.factor = FactorRule::largest_over_amax; }, "factor largest_over_amax is for a float32");
  refused(mx, [](Recipe& r) { r.rounding = ScaleRounding::none; }, "needs a rounding to a power of two, not none");
  refused(mx, [](Recipe& r) { r.even_mantissa_bits = 1; }, "even_mantissa_bits is for rounding even");
  refused(mx, [](Recipe& r) { r.even_mantissa_bits = 23; }, "even_mantissa_bits must be from 0 to 22, not 23");
  refused(mx, [](Recipe& r) { r.limit = ScaleLimit::float32; }, "limit is for quotients that make the scale");
  refused(mx, [](Recipe& r) { r.quotient = Quotient::largest_over_amax; }, "store a scale_inv");
  refused(
      mx, [](Recipe& r) { r.operation = TileOperation::divide; }, "operation must not be divide for scale_type e8m0");
  refused(
      mx, [](Recipe& r) { r.infinite_amax = SpecialScale::epsilon; }, "infinite_amax may be epsilon for scale_type");
  refused(nvfp4, [](Recipe& r) { r.rounding = ScaleRounding::up; }, "rounding must be none");
  refused(nvfp4, [](Recipe& r) { r.infinite_amax = SpecialScale::one; }, "infinite_amax must be computed");
  refused(nvfp4, [](Recipe& r) { r.tensor_range = 449; }, "tensor_range must be above 0 and at most 448, not 449");
  refused({}, [](Recipe& r) { r.tensor_range = 256; }, "block_choice are for a tensor_scale");
  refused({}, [](Recipe& r) { r.least_divisor = 1; }, "least_divisor is for a scale_inv of float32 or e8m0");
  refused({}, [](Recipe& r) { r.zero_amax = SpecialScale::type_epsilon; }, "zero_amax may be type_epsilon for");
  refused({}, [](Recipe& r) { r.zero_amax = SpecialScale::zero_factor; }, "zero_amax may be zero_factor for a zero");
  refused({}, [](Recipe& r) { r.infinite_amax = SpecialScale::as_infinity; }, "may be as_infinity for a NaN amax only");
  refused(
      {}, [](Recipe& r) { r.least_amax_type = ScaleArithmetic::bfloat16_type; }, "least_amax_type is for a least_amax");
  refused(
      {},
      [](Recipe& r) {
        r.float32_steps = true;
        r.cast.rounding = Rounding::upward;
      },
      "float32_steps are for a cast that rounds to nearest_even");
  refused({}, [](Recipe& r) { r.largest_factor = 0; }, "largest_factor must be above 0, not 0");
  refused({}, [](Recipe& r) { r.largest_factor = 1; }, "largest_factor is for the factor largest_over_amax");
  refused(
      nvfp4,
      [](Recipe& r) {
        r.format = e4m3;
        r.block_choice = BlockChoice::four_or_six_squared;
      },
      "block_choice is for whole_tiles of e2m1");
  refused(
      nvfp4,
      [](Recipe& r) {
        r.tile_across = 16;
        r.tensor_scale_for_each_row = true;
      },
      "is for tiles of one row");
  refused(nvfp4, [](Recipe& r) { r.block_factor = BlockFactor::product; }, "operation must be divide");
  refused(nvfp4, [](Recipe& r) { r.scale_type = ScaleType::float32; }, "scale_type must be e4m3");
}

TEST_CASE("named recipes count NaN and cast as their systems do") {
  const std::set<std::string_view> clamps{"torchao_tensorwise",      "torchao_rowwise",
                                          "torchao_blockwise",       "torchao_0_18_mxfp8_floor",
                                          "torchao_0_18_mxfp8_ceil", "torchao_0_18_mxfp8_even"};
  const std::set<std::string_view> torch{"deepgemm_cpu", "deepgemm_cuda", "deepgemm_ue8m0"};
  for (const NamedRecipe& one : recipes()) {
    if (one.name == "vllm_per_tensor") break;  // what follows has words of its own
    INFO(one.name);
    const bool counts = one.name.starts_with("torchao") || torch.contains(one.name);
    CHECK(one.recipe.nan_in_amax == (counts ? NanInAmax::counted : NanInAmax::dropped));
    const char* profile = clamps.contains(one.name) ? "clamp_then_cast" : "cuda_satfinite";
    CHECK(one.recipe.cast == find_profile(torch.contains(one.name) ? "torch_2_13" : profile).policy);
  }
}

TEST_CASE("scales of many tiles are those of each, for every combination of the scale's parts that is a recipe") {
  const UnforceTarget at_end;
  std::vector<std::uint32_t> amaxes{0, 1, 0x00400000U, 0x00400001U, 0x007FFFFFU, 0x7F7FFFFFU, 0x7F800000U, 0x7FC00000U};
  for (std::uint64_t i = 0; i < 253; ++i) amaxes.push_back(static_cast<std::uint32_t>(random_bits(12, i) >> 33));
  std::size_t tried = 0;
  Mismatches wrong;
  const auto check = [&](const Recipe& recipe) {
    try {
      check_recipe(recipe);
    } catch (const std::invalid_argument&) {
      return;
    }
    ++tried;
    std::vector<float> factors(amaxes.size());
    std::vector<float> scale_inv(amaxes.size());
    std::vector<std::uint8_t> codes(amaxes.size());
    tile_scales(recipe, amaxes, {.amax = 3, .input_type = bfloat16}, {factors, scale_inv, codes});
    for (std::size_t i = 0; i < amaxes.size(); ++i) {
      const TileScale one = tile_scale(recipe, from_bits(amaxes[i]), {.amax = 3, .input_type = bfloat16});
      wrong.compare(i, amaxes[i], word_of(factors[i]), word_of(one.factor), "factor");
      if (recipe.scale_type != ScaleType::float32) {
        wrong.compare(i, amaxes[i], codes[i], one.code, "code");
      } else {
        wrong.compare(i, amaxes[i], word_of(scale_inv[i]), word_of(one.scale_inv), "scale_inv");
      }
    }
  };
  for (const auto& quotient : named_values(Quotient{})) {
    for (const auto& rounding : named_values(ScaleRounding{})) {
      for (const auto& special : named_values(SpecialScale{})) {
        for (const auto& type : named_values(ScaleType{})) {
          for (const double least : {0.0, 1e-12, 1e-3}) {
            for (const TileOperation operation : {TileOperation::multiply, TileOperation::divide}) {
              Recipe recipe{.tile_across = 1,
                            .tile_along = 32,
                            .least_amax = least,
                            .quotient = quotient.value,
                            .rounding = rounding.value,
                            .zero_amax = special.value,
                            .infinite_amax = special.value,
                            .nan_amax = special.value,
                            .scale_type = type.value,
                            .operation = operation};
              check(recipe);
              recipe.nan_amax = SpecialScale::computed;
              recipe.limit = ScaleLimit::input_type;
              check(recipe);
            }
          }
        }
      }
    }
  }
  REQUIRE_NO(wrong);
  CHECK(tried > 300);
}

}  // namespace fp8lab::tests
