// SPDX-License-Identifier: Apache-2.0
// The quantizers' own kernels, run by the host team: the bits of the reference's quantize() and dequantize().
#include "fp8lab/gpu/quantize.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "fp8lab/gpu/host_header.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "gpu/quantize_support.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// Sizes of whole tiles of every recipe, and odd ones for those that take them.
struct Size {
  std::size_t rows, columns;
};
constexpr std::array whole_sizes{Size{32, 32}, Size{128, 256}, Size{160, 96}};
constexpr std::array odd_sizes{Size{1, 1}, Size{3, 17}, Size{129, 131}, Size{48, 80}};

}  // namespace

TEST_CASE("every named recipe that has a kernel is quantized as by the reference, in both directions") {
  const std::vector<std::string_view> names = gpu::recipes_with_kernel();
  CHECK(names.size() >= 30);
  std::uint64_t seed = 1;
  std::size_t number = 0;
  for (const std::string_view name : names) {
    const Recipe recipe = find_recipe(name).recipe;
    INFO(name);
    for (const gpu::ElementType type : element_types) {
      const Size size = recipe.whole_tiles || recipe.pads_tiles ? whole_sizes[seed % 3] : odd_sizes[seed % 4];
      const bool fits =
          (!recipe.whole_tiles && !recipe.pads_tiles) || (recipe.tile_along != 128 && recipe.tile_across != 128);
      const Tensor x(type, fits ? size.rows : 128, fits ? size.columns : 256, seed++);
      const bool is_taken = number % 3 == number / 3 % 3;  // one type of each recipe, in turn
      ++number;
      if (!is_taken && !exhaustive()) continue;
      REQUIRE_NO(quantize_mismatches({recipe}, x, quantize_orders[seed % quantize_orders.size()]));
    }
  }
}

TEST_CASE("every order of the host team gives the same codes, scales and amaxes") {
  const Tensor x(gpu::ElementType::bfloat16, 160, 352, 7);
  for (const std::string_view name :
       {"te_mxfp8", "te_current_scaling", "te_block_1x128", "te_nvfp4_2d", "given_scale"}) {
    INFO(name);
    for (const gpu::HostOrder& order : quantize_orders)
      REQUIRE_NO(quantize_mismatches({find_recipe(name).recipe}, x, order));
  }
}

TEST_CASE("pointers of any alignment, and sizes that end within a run, write their arrays and nothing else") {
  std::size_t number = 0;
  for (const gpu::ElementType type : element_types) {
    for (const std::size_t shift : {0U, 1U, 3U}) {
      if (number++ % 4 != 0 && !exhaustive()) continue;  // each type and each shift once
      for (const std::size_t columns : {1U, 15U, 16U, 33U, 8200U}) {
        const Tensor x(type, columns > 1000 ? 1 : 5, columns, 11 + shift, shift);
        REQUIRE_NO(quantize_mismatches({.recipe = find_recipe("te_current_scaling").recipe, .shift = shift}, x, {}));
        REQUIRE_NO(quantize_mismatches({.recipe = find_recipe("te_block_1x128").recipe, .shift = shift}, x, {}));
      }
      const Tensor x(type, 64, 160, 17 + shift, shift);
      REQUIRE_NO(quantize_mismatches({.recipe = find_recipe("te_mxfp8").recipe, .shift = shift}, x, {}));
      REQUIRE_NO(quantize_mismatches({.recipe = find_recipe("te_nvfp4").recipe, .shift = shift}, x, {}));
    }
  }
}

TEST_CASE("blocks of threads that end beyond the tensor, in all types and directions") {
  std::uint64_t seed = 51;
  for (const std::string_view name :
       {"given_scale", "te_block_1x128", "te_block_1x128_fp32", "te_block_128x128", "te_current_scaling"}) {
    INFO(name);
    for (const gpu::ElementType type : element_types) {
      for (const Size size : {Size{128, 128}, Size{127, 129}, Size{131, 77}, Size{200, 304}}) {
        const Tensor x(type, size.rows, size.columns, seed++);
        if (seed % 3 != 0 && !exhaustive()) continue;  // each size in one type, by each recipe
        REQUIRE_NO(quantize_mismatches({find_recipe(name).recipe}, x, quantize_orders[seed % quantize_orders.size()]));
      }
    }
  }
}

TEST_CASE("special values: tensors of zeros, -0, subnormals, infinities and NaNs") {
  std::size_t number = 0;
  for (const std::string_view name : {"te_mxfp8", "te_mxfp8_2d", "ocp_mxfp8_e5m2", "torchao_mxfp8_even", "te_nvfp4",
                                      "te_current_scaling", "torchao_tensorwise", "te_block_1x128",
                                      "te_block_1x128_fp32", "given_scale", "te_block_128x128", "flashinfer_mxfp8"}) {
    const Recipe recipe = find_recipe(name).recipe;
    if (!gpu::has_kernel(recipe)) continue;
    INFO(name);
    for (const gpu::ElementType type : element_types) {
      for (const float value : {0.0F, -0.0F, 0x1p-24F, 0x1p-140F, inf, -inf, nan, -nan, 448.0F, 65504.0F}) {
        if (number++ % 3 != 0 && !exhaustive()) continue;  // each value in one type, by each recipe
        INFO(value);
        Tensor x(type, 32, 64, 23);
        x.fill(value);
        REQUIRE_NO(quantize_mismatches({recipe}, x, {}));
        x.put(5, 1.5F);
        x.put(64 * 3 + 40, -0.0F);
        REQUIRE_NO(quantize_mismatches({recipe}, x, {}));
      }
    }
  }
}

TEST_CASE("special values: a NaN has the code of the recipe, in each format") {
  Tensor x(gpu::ElementType::float32, 2, 40, 41);
  x.put(3, nan);
  x.put(44, -nan);
  for (const Format& format : {e4m3, e5m2}) {
    for (const NanCode code : {NanCode::positive_all_ones, NanCode::sign_all_ones, NanCode::largest}) {
      Recipe recipe = GivenScale{.format = format, .scale = 1};
      recipe.cast.nan = code;
      REQUIRE(gpu::has_kernel(recipe));
      REQUIRE_NO(quantize_mismatches({recipe}, x, {}));
    }
  }
}

TEST_CASE("scales of one byte may be swizzled for tensor cores") {
  for (const std::string_view name : {"te_mxfp8", "te_mxfp8_2d", "te_nvfp4", "te_nvfp4_2d", "ocp_mxfp4"}) {
    INFO(name);
    for (const Size size : {Size{32, 32}, Size{160, 224}, Size{288, 96}}) {
      const Tensor x(gpu::ElementType::bfloat16, size.rows, size.columns, 29);
      REQUIRE_NO(quantize_mismatches({.recipe = find_recipe(name).recipe, .layout = ScaleLayout::swizzled}, x,
                                     quantize_orders[2]));
    }
  }
}

TEST_CASE("NVFP4 with a Hadamard matrix, and rounded stochastically by Philox words") {
  std::size_t number = 0;
  for (const gpu::ElementType type : element_types) {
    const Tensor x(type, 160, 96, 31);
    for (const bool turned : {false, true}) {
      for (const bool square : {false, true}) {
        for (const bool rounded : {false, true}) {
          if (!turned && !rounded) continue;
          const std::size_t own = number++;
          if ((own + own / 6) % 3 != 0 && !exhaustive()) continue;  // each of the six in one type
          Recipe recipe = NvFp4{
              .with_2d_quantization = square, .stochastic_rounding = true, .with_rht = turned, .round_rht = rounded};
          REQUIRE_NO(
              quantize_mismatches({.recipe = recipe, .random = gpu::PhiloxState{0x123456789ABCDEFU, 77}}, x, {}));
          recipe.cast.rounding = Rounding::nearest_even;
          REQUIRE_NO(quantize_mismatches({recipe}, x, quantize_orders[3]));
        }
      }
    }
  }
}

TEST_CASE("a given scale may lie in memory, and casts raise an amax") {
  const Tensor x(gpu::ElementType::float32, 7, 5010, 37);  // of several blocks
  for (const float scale : {0.5F, 3.7F, 0.0F, inf, nan}) {
    const Recipe recipe = cast_recipe(Delayed{}, Pass::backward, scale);
    std::vector<std::uint8_t> codes(x.size());
    float scale_inv = -1;
    float amax = 2;
    const Recipe other = GivenScale{.format = e5m2, .scale = 1};
    gpu::quantize_on_host({.x = x.matrix(),
                           .recipe = other,
                           .rowwise = gpu::QuantizedArrays{codes, {&scale_inv, 1}, {}, &amax},
                           .scale = &scale});
    CHECK(word_of(scale_inv) == word_of(1 / scale));
    CHECK(amax == std::max(2.0F, amax_of(x)));
    amax = 1000;
    gpu::quantize_on_host({.x = x.matrix(),
                           .recipe = other,
                           .rowwise = gpu::QuantizedArrays{codes, {&scale_inv, 1}, {}, &amax},
                           .scale = &scale});
    CHECK(amax == 1000);
    Mismatches wrong;
    for (std::size_t i = 0; i < x.size(); ++i) {
      wrong.compare(i, bits(x[i]), codes[i], encode(recipe.format, recipe.cast, x[i] * scale));
    }
    REQUIRE_NO(wrong);
  }
}

TEST_CASE("both directions of a cast raise the amaxes that have a place") {
  const Tensor x(gpu::ElementType::bfloat16, 40, 48, 38);
  for (const bool first : {false, true}) {
    for (const bool second : {false, true}) {
      std::vector<std::uint8_t> codes(2 * x.size());
      std::array<float, 2> scale_inv{};
      std::array<float, 2> amaxes{1, 1000};
      const std::span all(codes);
      gpu::quantize_on_host(
          {.x = x.matrix(),
           .recipe = GivenScale{},
           .rowwise =
               gpu::QuantizedArrays{all.first(x.size()), {scale_inv.data(), 1}, {}, first ? amaxes.data() : nullptr},
           .columnwise =
               gpu::QuantizedArrays{all.last(x.size()), {&scale_inv[1], 1}, {}, second ? &amaxes[1] : nullptr}});
      CHECK(amaxes[0] == (first ? amax_of(x) : 1.0F));
      CHECK(amaxes[1] == 1000.0F);
      if (!second) continue;
      CHECK(amax_of(x) < 1000.0F);
      amaxes[1] = 0;
      gpu::quantize_on_host(
          {.x = x.matrix(),
           .recipe = GivenScale{},
           .rowwise = gpu::QuantizedArrays{all.first(x.size()), {scale_inv.data(), 1}, {}, {}},
           .columnwise = gpu::QuantizedArrays{all.last(x.size()), {&scale_inv[1], 1}, {}, &amaxes[1]}});
      CHECK(amaxes[1] == amax_of(x));
    }
  }
}

TEST_CASE(
    "a scale or an amax in memory that is also written is refused: later blocks would read what the first wrote") {
  const Tensor x(gpu::ElementType::float32, 3, 8192, 39);
  std::vector<std::uint8_t> codes(x.size());
  float scale = 4;
  float other = 0;
  const auto cast = [&](float* scale_inv, float* amax, std::span<std::uint8_t> to) {
    gpu::quantize_on_host({.x = x.matrix(),
                           .recipe = GivenScale{},
                           .rowwise = gpu::QuantizedArrays{to, {scale_inv, 1}, {}, amax},
                           .scale = &scale});
  };
  CHECK_THROWS_WITH(cast(&scale, nullptr, codes), ContainsSubstring("scale and rowwise.scale_inv overlap"));
  CHECK_THROWS_WITH(cast(&other, &scale, codes), ContainsSubstring("scale and rowwise.amax overlap"));
  CHECK_NOTHROW(cast(&other, nullptr, codes));

  std::vector<float> values(16 * 16);
  std::vector<std::uint8_t> pairs(16 * 8);
  std::vector<std::uint8_t> scales(16);
  const gpu::QuantizedView four_bits{.recipe = NvFp4{},
                                     .rows = 16,
                                     .columns = 16,
                                     .codes = pairs,
                                     .scale_inv = {},
                                     .scale_codes = scales,
                                     .amax = &values[3]};
  CHECK_THROWS_WITH(gpu::dequantize_on_host(four_bits, values), ContainsSubstring("amax and out overlap"));
}

TEST_CASE("casts by a scale of 1 are those of NVIDIA's header") {
  std::vector<float> all;
  for (std::uint32_t high = 0; high < 0x10000; ++high) all.push_back(from_bits(high << 16 | (high * 40503U & 0xFFFFU)));
  for (const Format& format : {e4m3, e5m2}) {
    const auto own = gpu::host_conversion(format, {});
    if (!own) continue;
    std::vector<std::uint8_t> expected(all.size());
    (*own)(all, expected);
    std::vector<std::uint8_t> codes(all.size());
    float scale_inv = 0;
    gpu::quantize_on_host({.x = {std::as_bytes(std::span(all)), gpu::ElementType::float32, 1, all.size()},
                           .recipe = GivenScale{.format = format},
                           .rowwise = gpu::QuantizedArrays{codes, {&scale_inv, 1}, {}}});
    Mismatches wrong;
    for (std::size_t i = 0; i < all.size(); ++i) wrong.compare(i, bits(all[i]), codes[i], expected[i]);
    REQUIRE_NO(wrong);
  }
}

TEST_CASE("the amax of a tensor drops NaN or counts it") {
  for (const gpu::ElementType type : element_types) {
    Tensor x(type, 3, 4099, 41);
    float amax = -1;
    gpu::amax_on_host(x.matrix(), NanInAmax::dropped, &amax, quantize_orders[3]);
    CHECK(amax == amax_of(x));
    x.put(12'000, nan);
    gpu::amax_on_host(x.matrix(), NanInAmax::dropped, &amax);
    CHECK(amax == amax_of(x));
    gpu::amax_on_host(x.matrix(), NanInAmax::counted, &amax);
    CHECK(std::isnan(amax));
  }
}

TEST_CASE("the delayed update of many tensors is that of each") {
  constexpr std::size_t tensors = 5;
  for (const std::size_t length : {1U, 2U, 256U, 257U, 600U}) {
    for (const AmaxComputeAlgo algo : {AmaxComputeAlgo::max, AmaxComputeAlgo::most_recent}) {
      for (const DelayedVersion& version : {te_1_6, te_1_7, te_current}) {
        const Delayed recipe{.margin = 3, .amax_history_len = length, .amax_compute_algo = algo, .version = version};
        std::vector<AmaxHistory> expected(tensors, start_history(recipe));
        std::vector<float> amaxes(length * tensors);
        std::vector<float> scale(tensors, 1);
        std::vector<float> scale_inv(tensors, 1);
        for (std::uint64_t step = 0; step < 4; ++step) {
          for (std::size_t t = 0; t < tensors; ++t) {
            const std::array amaxes_of_step{0.0F, 3.5F, inf, nan, 0x1p-140F};
            const float amax = t == 4 ? 1.0F + static_cast<float>(step) : amaxes_of_step[(step * 3 + t) % 5];
            for (std::size_t row = 1; step == 0 && row < length; ++row) {
              expected[t].amaxes[row] = static_cast<float>(random_bits(t, row) % 1000) / 8;
            }
            record_amax(recipe, Pass::forward, expected[t], amax);
            for (std::size_t row = 0; row < length; ++row) amaxes[row * tensors + t] = expected[t].amaxes[row];
            scale_inv[t] = expected[t].scale_inv;
            update_scale(recipe, Pass::forward, expected[t]);
          }
          gpu::update_scales_on_host(recipe, Pass::forward, {amaxes, scale, scale_inv}, quantize_orders[step]);
          Mismatches wrong;
          for (std::size_t t = 0; t < tensors; ++t) {
            wrong.compare(t, step, bits(scale[t]), bits(expected[t].scale), "scale");
            wrong.compare(t, step, bits(scale_inv[t]), bits(expected[t].scale_inv), "scale_inv");
            for (std::size_t row = 0; row < length; ++row) {
              wrong.compare(row, step, bits(amaxes[row * tensors + t]), bits(expected[t].amaxes[row]), "history");
            }
          }
          REQUIRE_NO(wrong);
        }
      }
    }
  }
}

TEST_CASE("the delayed update writes scale_inv by the versions that do, and needs it by these alone") {
  // delayed_scaling.cu of Transformer Engine: the kernel for all tensors stores 1 / scale up to 1.13, and has no
  // scale_inv since 2.0; casts write it since 1.11.
  const auto inverse_after = [](const DelayedVersion& version) {
    std::vector<float> amaxes{3};
    std::vector<float> scale{1};
    std::vector<float> scale_inv{1};
    gpu::update_scales_on_host({.amax_history_len = 1, .version = version}, Pass::forward, {amaxes, scale, scale_inv});
    CHECK(scale[0] == 448.0F / 3);
    return scale_inv[0];
  };
  CHECK(inverse_after(te_1_7) == 1 / (448.0F / 3));
  CHECK(inverse_after(te_current) == 1);
  std::vector<float> amaxes{3};
  std::vector<float> scale{1};
  gpu::update_scales_on_host({.amax_history_len = 1}, Pass::forward, {amaxes, scale});
  CHECK(scale[0] == 448.0F / 3);
  CHECK_THROWS_WITH(
      gpu::update_scales_on_host({.amax_history_len = 1, .version = te_1_7}, Pass::forward, {amaxes, scale}),
      ContainsSubstring("scale_inv"));
}

}  // namespace fp8lab::tests
