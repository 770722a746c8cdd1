// SPDX-License-Identifier: Apache-2.0
// Products of quantized tensors: every recipe on every model that takes it, against a slow composition that unpacks,
// transposes and multiplies by hand, and against exact sums.
#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "reference/rational.hpp"
#include "reference/tensor_core/slow_models.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// What scales there are.
enum class Kind : std::uint8_t { tensor, row, tile, mx, nvfp4 };

/// One operand, taken apart by hand: rows of plain codes along K, and the scales of every element.
struct Plain {
  Kind kind = Kind::tensor;
  Format format = e4m3;
  std::size_t rows = 0, depth = 0;
  std::vector<std::uint8_t> codes;         // (rows, depth), a byte each
  std::vector<std::uint8_t> block_scales;  // (rows, depth / block)
  std::size_t block = 1;
  std::vector<float> scales;  // of tensor, rows or tiles: (rows, depth)
  float amax = 0;
  TensorScaleRule tensor_scale = TensorScaleRule::none;
};

Kind kind_of(const Recipe& recipe) {
  if (recipe.scale_type != ScaleType::float32)
    return recipe.scale_type == ScaleType::e8m0_code ? Kind::mx : Kind::nvfp4;
  if (recipe.tile_across == 0) return Kind::tensor;
  return recipe.tile_along == 0 ? Kind::row : Kind::tile;
}

Plain taken_apart(const Quantized& q) {
  const bool rowwise = q.direction == Direction::rowwise;
  Plain p;
  p.format = q.format;
  p.rows = rowwise ? q.rows : q.columns;
  p.depth = rowwise ? q.columns : q.rows;
  p.amax = q.amax;
  p.tensor_scale = q.recipe.tensor_scale;
  p.kind = kind_of(q.recipe);
  const bool along_rows = rowwise != q.transposed;  // whether a stored row lies along K
  const auto place = [&](std::size_t row, std::size_t k) { return along_rows ? row * p.depth + k : k * p.rows + row; };
  for (std::size_t row = 0; row < p.rows; ++row) {
    for (std::size_t k = 0; k < p.depth; ++k) {
      const std::size_t i = place(row, k);
      const int shift = i % 2 == 0 ? 0 : 4;
      p.codes.push_back(q.format.bits() == 4 ? static_cast<std::uint8_t>(q.codes[i / 2] >> shift & 15) : q.codes[i]);
    }
  }
  const std::size_t scale_rows = along_rows ? q.scale_rows : q.scale_columns;
  const std::size_t scale_depth = along_rows ? q.scale_columns : q.scale_rows;
  const auto scale = [&](const auto& all, std::size_t row, std::size_t k) {
    return all[along_rows ? row * scale_depth + k : k * scale_rows + row];
  };
  if (p.kind == Kind::mx || p.kind == Kind::nvfp4) {
    p.block = q.recipe.tile_along;
    for (std::size_t row = 0; row < p.rows; ++row) {
      for (std::size_t k = 0; k < p.depth / p.block; ++k) p.block_scales.push_back(scale(q.scale_codes, row, k));
    }
    return p;
  }
  for (std::size_t row = 0; row < p.rows; ++row) {
    const std::size_t i = scale_rows == 1 ? 0 : scale_rows == p.rows ? row : row / q.recipe.tile_across;
    for (std::size_t k = 0; k < p.depth; ++k) {
      p.scales.push_back(scale(q.scale_inv, i, scale_depth == 1 ? 0 : k / q.recipe.tile_along));
    }
  }
  return p;
}

/// Whether an instruction of the model can have the operand. (`exact` multiplies values.)
bool fits(const MmaModel& model, const Plain& p) {
  if (model.name == "exact") return true;
  if (p.kind == Kind::nvfp4) return model.name == "blackwell_nvf4" && p.block == 16;
  if (p.kind == Kind::mx) {
    if (p.block != 32) return false;
    return model.name == "blackwell_mxf8" || (model.name == "blackwell_mxf4" && p.format == e2m1);
  }
  const auto is_power = [](float x) {
    int exponent = 0;
    return std::isnan(x) || x == 0 || std::frexp(x, &exponent) == 0.5F;
  };
  if (model.name == "blackwell_mxf8") return p.kind == Kind::tile && std::ranges::all_of(p.scales, is_power);
  const SlowModel slow = slow_model_of(model);
  return slow.scale == SlowScale::none && slow_takes(slow.operands, p.format, p.format);
}

/// An NVIDIA GPU's NaN for every NaN.
float quiet(float x) { return std::isnan(x) ? std::bit_cast<float>(0x7FFFFFFFU) : x; }

/// The block scales of a row on that model: those of blocks, or the exponents of those of tiles.
std::vector<std::uint8_t> scales_of_row(const Plain& p, std::size_t row) {
  if (!p.block_scales.empty()) {
    const auto first = p.block_scales.begin() + static_cast<std::ptrdiff_t>(row * p.depth / p.block);
    return {first, first + static_cast<std::ptrdiff_t>(p.depth / p.block)};
  }
  std::vector<std::uint8_t> result;
  for (std::size_t k = 0; k < p.depth; k += 32) {
    const float scale = p.scales[row * p.depth + k];
    result.push_back(std::isnan(scale) ? 255 : static_cast<std::uint8_t>(std::ilogb(scale) + 127));
  }
  return result;
}

/// One instruction, from k on; what is beyond K is zero.
float instruction(const MmaModel& model, const Plain& a, std::size_t row, const Plain& b, std::size_t column,
                  std::size_t k, float c) {
  const auto width = static_cast<std::size_t>(model.k());
  const auto side = [&](const Plain& p, std::size_t i, std::vector<std::uint8_t>& codes,
                        std::vector<std::uint8_t>& scales) {
    codes.assign(width, 0);
    for (std::size_t j = k; j < std::min(p.depth, k + width); ++j) codes[j - k] = p.codes[i * p.depth + j];
    if (model.scales) {
      const auto block = static_cast<std::size_t>(model.scales->block);
      const std::vector<std::uint8_t> all = scales_of_row(p, i);
      scales.assign(width / block, 0);
      for (std::size_t j = 0; j < scales.size() && k / block + j < all.size(); ++j) scales[j] = all[k / block + j];
    }
    return Operand::codes(codes, p.format, 1, width, scales);
  };
  std::vector<std::uint8_t> x, y, scale_x, scale_y;
  const Operand left = side(a, row, x, scale_x);
  const Operand right = side(b, column, y, scale_y);
  if (model.accumulator() == binary16) {
    constexpr CastPolicy ieee{.overflow = Overflow::to_special, .infinity = Overflow::to_special};
    Half word{static_cast<std::uint16_t>(encode(binary16, ieee, c))};
    mma(model, left, right, std::span<const Half>(&word, 1), std::span<Half>(&word, 1));
    return quiet(decode(binary16, word.bits));
  }
  mma(model, left, right, std::span<const float>(&c, 1), std::span<float>(&c, 1));
  return c;
}

/// One element, scale by scale where each belongs.
float composed(const MmaModel& model, const Plain& a, std::size_t row, const Plain& b, std::size_t column) {
  const bool tiles = !model.scales && (a.kind == Kind::tile || b.kind == Kind::tile);
  const auto scale = [&](const Plain& p, std::size_t i, std::size_t k, Kind kind) {
    return p.kind == kind ? p.scales[i * p.depth + k] : 1.0F;
  };
  float accumulator = 0;
  float sum = 0;
  for (std::size_t k = 0; k < a.depth; k += static_cast<std::size_t>(model.k())) {
    accumulator = instruction(model, a, row, b, column, k, accumulator);
    const std::size_t next = k + static_cast<std::size_t>(model.k());
    if (!tiles || (next % 128 != 0 && next < a.depth)) continue;
    sum = std::fma(scale(a, row, k, Kind::tile) * scale(b, column, k, Kind::tile), accumulator, sum);
    accumulator = 0;
  }
  if (!tiles) sum = accumulator;
  sum = sum * scale(a, row, 0, Kind::row) * scale(b, column, 0, Kind::row);
  switch (a.tensor_scale) {
    case TensorScaleRule::largest_over_amax: return quiet(sum * (a.amax * b.amax * (1.0F / 7225344.0F)));
    case TensorScaleRule::amax_over_largest: return quiet(sum * (a.amax / 2688.0F * (b.amax / 2688.0F)));
    case TensorScaleRule::largest_times_inverse:
      return quiet(sum * (1 / (1 / a.amax * 2688.0F * (1 / b.amax * 2688.0F))));
    case TensorScaleRule::none: break;
  }
  if (a.kind == Kind::nvfp4) return quiet(sum);
  return quiet(sum * (scale(a, row, 0, Kind::tensor) * scale(b, column, 0, Kind::tensor)));
}

/// The real dot product of dequantized values, rounded once.
float exact_dot(const Quantized& a, const std::vector<float>& x, std::size_t row, const Quantized& b,
                const std::vector<float>& y, std::size_t column) {
  const auto at = [](const Quantized& q, const std::vector<float>& values, std::size_t i, std::size_t k) {
    return values[q.direction == Direction::rowwise ? i * q.columns + k : k * q.columns + i];
  };
  const std::size_t depth = a.direction == Direction::rowwise ? a.columns : a.rows;
  double specials = 0;
  Integer sum = 0;  // in units of 2^-300
  for (std::size_t k = 0; k < depth; ++k) {
    const double product = static_cast<double>(at(a, x, row, k)) * static_cast<double>(at(b, y, column, k));
    if (!std::isfinite(product)) {
      specials += product;
      continue;
    }
    int exponent = 0;
    const auto whole = static_cast<std::int64_t>(std::ldexp(std::frexp(product, &exponent), 53));
    const int shift = exponent - 53 + 400;
    if (product != 0) sum += Integer(whole) * (Integer(1) << shift);
  }
  if (specials != 0) return quiet(static_cast<float>(specials));
  return nearest_float(Rational(sum) * power_of_two(-400));
}

/// Elements to look at: corners, and some between.
std::vector<std::pair<std::size_t, std::size_t>> places(std::size_t rows, std::size_t columns, std::size_t count) {
  std::vector<std::pair<std::size_t, std::size_t>> result{{0, 0}, {rows - 1, columns - 1}};
  for (std::uint64_t i = 0; result.size() < count; ++i) {
    result.emplace_back(random_bits(1, 2 * i) % rows, random_bits(1, 2 * i + 1) % columns);
  }
  return result;
}

/// Values of three binades, a row and a tile of zeros, and some NaN and infinities where `special`.
std::vector<float> tensor(std::size_t rows, std::size_t columns, std::uint64_t seed, bool special) {
  std::vector<float> x(rows * columns);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto word = static_cast<std::uint32_t>(random_bits(seed, i));
    x[i] = std::bit_cast<float>((word & 0x80FFFFFFU) + 0x3E000000U);
    if (i / columns == 1 || (i / columns < 3 && i % columns < 16)) x[i] = 0;
  }
  if (special) {
    x[x.size() / 2 + columns / 3] = NAN;
    x[x.size() / 3] = seed % 2 == 0 ? inf : 1e30F;
  }
  return x;
}

/// Codes and scales of both directions, and what they were made of.
struct Tensor {
  Quantized rowwise, columnwise;
};
Tensor quantized(std::size_t rows, std::size_t columns, const Recipe& recipe, std::uint64_t seed, bool special) {
  Tensor result;
  const std::vector<float> x = tensor(rows, columns, seed, special);
  quantize_both({x, rows, columns}, recipe, result.rowwise, result.columnwise);
  return result;
}

/// A layer's sizes, the smallest and oddest of some that the recipe takes.
struct Layer {
  std::size_t tokens, in, out;
};
Layer layer_for(const Recipe& recipe) {
  for (const Layer& one : {Layer{5, 300, 7}, Layer{48, 80, 144}, Layer{32, 160, 64}, Layer{128, 256, 384}}) {
    try {
      (void)quantized(one.tokens, one.in, recipe, 1, false);
      (void)quantized(one.out, one.in, recipe, 1, false);
      return one;
    } catch (const std::invalid_argument&) {
      continue;
    }
  }
  throw std::logic_error("no layer fits the recipe");
}

/// Compares some elements of one product on all models; returns how many models took it.
std::size_t compare_product(const Quantized& a, std::string_view name_a, const Quantized& b, std::string_view name_b,
                            const std::string& what) {
  const Plain left = taken_apart(a);
  const Plain right = taken_apart(b);
  std::vector<float> x(a.rows * a.columns);
  std::vector<float> y(b.rows * b.columns);
  dequantize(a, x);
  dequantize(b, y);
  std::size_t taken = 0;
  for (const MmaModel& model : models) {
    INFO(name_a << ", " << name_b << ": " << what << " on " << model.name);
    const bool both = fits(model, left) && fits(model, right);
    REQUIRE(takes(model, a) == fits(model, left));
    REQUIRE(takes(model, b) == fits(model, right));
    std::vector<float> out(left.rows * right.rows);
    if (!both) {
      REQUIRE_THROWS_AS(gemm(model, a, b, out), std::invalid_argument);
      continue;
    }
    if (model.scales && left.depth % static_cast<std::size_t>(model.scales->block) != 0) continue;
    ++taken;
    gemm(model, a, b, out);
    const bool is_exact = model.k() == 0;
    for (const auto& [row, column] : places(left.rows, right.rows, is_exact ? 6 : 7)) {
      const float expected = is_exact ? exact_dot(a, x, row, b, y, column) : composed(model, left, row, right, column);
      INFO(row << ", " << column << ": " << out[row * right.rows + column] << " " << expected);
      REQUIRE(bits(out[row * right.rows + column]) == bits(expected));
    }
  }
  return taken;
}

}  // namespace

TEST_CASE("a product of quantized tensors is the slow composition, for every recipe, pass and model that takes it") {
  for (const NamedRecipe& named : recipes()) {
    // No tensor core takes E8M0 scales of 128.
    if (named.recipe.scale_type == ScaleType::e8m0_code && named.recipe.tile_along != 32) continue;
    const Layer layer = layer_for(named.recipe);
    std::size_t taken = 0;
    for (const bool special : {false, true}) {
      const Tensor x = quantized(layer.tokens, layer.in, named.recipe, 2, special);
      const Tensor w = quantized(layer.out, layer.in, named.recipe, 3, false);
      const Tensor dy = quantized(layer.tokens, layer.out, named.recipe, 4, special);
      const std::string_view name = named.name;
      taken += compare_product(x.rowwise, name, w.rowwise, name, "y = x w^T");
      if (name.find("rht") == name.npos) taken += compare_product(dy.rowwise, name, w.columnwise, name, "dx = dy w");
      taken += compare_product(dy.columnwise, name, x.columnwise, name, "dw = dy^T x");
    }
    INFO(named.name);
    CHECK(taken >= 2 * 2 * 2);  // two data sets, two passes, `exact` and a tensor core
  }
}

TEST_CASE("the two of a product may have recipes that differ, where a model takes both") {
  const auto compare = [](std::string_view left, std::string_view right, std::size_t models_that_take,
                          std::size_t size = 128) {
    INFO(left << " " << right);
    const Tensor x = quantized(size, size, find_recipe(left).recipe, 5, false);
    const Tensor w = quantized(size, size, find_recipe(right).recipe, 6, true);
    CHECK(compare_product(x.rowwise, left, w.rowwise, right, "y = x w^T") == models_that_take);
    CHECK(compare_product(x.columnwise, left, w.columnwise, right, "dw = dy^T x") == models_that_take);
    CHECK(compare_product(x.rowwise, left, w.columnwise, right, "dx = dy w") == models_that_take);
  };
  const auto takes_fp8 = [](const MmaModel& model) {
    const SlowModel slow = slow_model_of(model);
    return slow.scale == SlowScale::none && slow_takes(slow.operands, e4m3, e5m2);
  };
  const auto fp8 = static_cast<std::size_t>(std::ranges::count_if(models, takes_fp8));
  compare("te_current_scaling", "te_current_scaling_e5m2", fp8);
  compare("torchao_rowwise", "te_current_scaling", fp8);
  compare("te_block_1x128", "te_block_128x128", fp8 + 1, 256);
  compare("deepseek_v3_2024", "torchao_rowwise", fp8, 256);
  compare("te_mxfp8", "ocp_mxfp4", 2);
  compare("te_mxfp8", "deepgemm_ue8m0", 2);
  compare("te_nvfp4", "te_nvfp4_2d", 2);
  compare("te_nvfp4", "te_mxfp8", 1);
}

TEST_CASE("delayed scaling's scale may be infinite, 0 or NaN, and the product has it") {
  for (const float scale : {3.0F, inf, 0.0F, nan}) {
    AmaxHistory history = start_history(Delayed{});
    history.scale = scale;
    Quantized x, w;
    const std::vector<float> values = tensor(5, 96, 1, false);
    quantize({values, 5, 96}, Delayed{}, Pass::forward, history, Direction::rowwise, x);
    history.scale = 0.3F;
    const std::vector<float> weights = tensor(96, 7, 2, false);
    quantize({weights, 96, 7}, Delayed{}, Pass::forward, history, Direction::columnwise, w);
    INFO(scale);
    CHECK(compare_product(x, "delayed", w, "delayed", "y = x w") == 17);
  }
}

TEST_CASE("a Quantized that a model does not take is refused, with the models that take it") {
  const Tensor mx = quantized(32, 64, find_recipe("te_mxfp8").recipe, 1, false);
  const Tensor fp4 = quantized(32, 64, find_recipe("ocp_mxfp4").recipe, 1, false);
  const Tensor nvfp4 = quantized(32, 64, find_recipe("te_nvfp4").recipe, 1, false);
  const Tensor turned = quantized(32, 64, find_recipe("te_nvfp4_rht").recipe, 1, false);
  const Tensor current = quantized(32, 64, find_recipe("te_current_scaling").recipe, 1, false);
  const Tensor tiles = quantized(32, 64, find_recipe("te_block_1x128_fp32").recipe, 1, false);
  std::vector<float> out(32 * 32);
  const auto refused = [&](const MmaModel& model, const Quantized& a, const Quantized& b, const std::string& message) {
    CHECK_THROWS_WITH(gemm(model, a, b, out), message);
  };
  const std::string words = describe(mx.rowwise.recipe);
  refused(hopper_wgmma_fp8, mx.rowwise, mx.rowwise,
          "a was quantized by \"" + words +
              "\", which hopper_wgmma_fp8 does not take: scale_a has 64 codes; "
              "hopper_wgmma_fp8 has no block scales. Models that take it: blackwell_mxf8, exact");
  refused(blackwell_nvf4, fp4.rowwise, nvfp4.rowwise,
          "a was quantized by \"" + describe(fp4.rowwise.recipe) +
              "\", which blackwell_nvf4 does not take: scale_a is "
              "e8m0, one for every 32 of K; blackwell_nvf4 takes ue4m3, one for every 16 of K. Models that take it: "
              "blackwell_mxf8, blackwell_mxf4, exact");
  CHECK_THROWS_WITH(
      gemm(blackwell_mxf8, mx.rowwise, current.rowwise, out),
      ContainsSubstring("which blackwell_mxf8 does not take: scale_b is left out; blackwell_mxf8 takes e8m0, "
                        "one for every 32 of K. Models that take it: hopper_wgmma_fp8, "));
  CHECK_THROWS_WITH(gemm(blackwell_mxf8, tiles.rowwise, mx.rowwise, out),
                    ContainsSubstring("scale_a must be powers of two, of which blackwell_mxf8 gets the exponents"));
  CHECK_THROWS_WITH(gemm(hopper_fp16, current.rowwise, current.rowwise, out),
                    ContainsSubstring("which hopper_fp16 does not take: a is e4m3; hopper_fp16 takes float16."));
  refused(blackwell_mxf8, mx.rowwise, mx.columnwise,
          "a and b must have the same K: of a it is 64, its columns (32 x 64, rowwise), of b 32, its rows (32 x 64, "
          "columnwise)");
  out.resize(64 * 64);
  refused(blackwell_nvf4, turned.columnwise, nvfp4.columnwise,
          "a Hadamard matrix turned a along K, and not b: their product would be of no tensors");
  refused(exact, nvfp4.columnwise, turned.columnwise,
          "a Hadamard matrix turned b along K, and not a: their product would be of no tensors");
  CHECK_THROWS_WITH(gemm(exact, mx.rowwise, mx.rowwise, out), "out must have 32 * 32 elements, not 4096");
  Quantized broken = mx.rowwise;
  broken.codes.pop_back();
  CHECK_THROWS_WITH(gemm(blackwell_mxf8, broken, mx.rowwise, out), ContainsSubstring("codes must have 2048 elements"));
}

TEST_CASE("a product of quantized tensors is encoded, split and given a bias as one of arrays is") {
  const Tensor x = quantized(48, 128, find_recipe("te_nvfp4").recipe, 1, false);
  std::vector<float> plain(48 * 48), c(48 * 48, 0.25F), bias(48, -1.5F), out(48 * 48);
  gemm(blackwell_nvf4, x.rowwise, x.rowwise, plain);
  gemm(blackwell_nvf4, x.rowwise, x.rowwise, out, {.scale_out = 0.5F, .c = c, .bias = bias, .threads = 2});
  for (std::size_t i = 0; i < out.size(); ++i) REQUIRE(bits(out[i]) == bits((plain[i] + 0.25F - 1.5F) * 0.5F));
  std::vector<std::uint8_t> bytes(out.size());
  std::vector<std::uint16_t> words(out.size());
  gemm(blackwell_nvf4, x.rowwise, x.rowwise, e4m3, {}, bytes);
  gemm(blackwell_nvf4, x.rowwise, x.rowwise, bfloat16, {}, words);
  for (std::size_t i = 0; i < out.size(); ++i) {
    REQUIRE(bytes[i] == encode(e4m3, {}, plain[i]));
    REQUIRE(words[i] == encode(bfloat16, {}, plain[i]));
  }
}

TEST_CASE("codes that are packed, or swizzled scales, are the same operand") {
  std::vector<std::uint8_t> codes(140 * 128), scales(140 * 8);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(random_bits(1, i) % 16);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::uint8_t>(random_bits(2, i) % 127);
  std::vector<std::uint8_t> pairs(codes.size() / 2);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    pairs[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
  const Operand plain = Operand::codes(codes, e2m1, 140, 128, scales);
  std::vector<float> expected(140 * 140), out(140 * 140);
  gemm(blackwell_nvf4, plain, plain, expected);
  Operand packed = Operand::codes(pairs, e2m1, 140, 128, scales);
  packed.packed = true;
  gemm(blackwell_nvf4, packed, plain, out);
  CHECK(out == expected);
  const std::vector<std::uint8_t> swizzled = swizzle_scales(scales, 140, 8);
  packed.scales = {.codes = swizzled, .layout = ScaleLayout::swizzled};
  gemm(blackwell_nvf4, plain, packed, out);
  CHECK(out == expected);
  packed.scales.codes = std::span(swizzled).first(1120);
  CHECK_THROWS_WITH(gemm(blackwell_nvf4, plain, packed, out),
                    "scale_b must have 140 * 8 codes, one for every 16 of K, swizzled to 2048, not 1120");
  packed.format = e4m3;
  CHECK_THROWS_WITH(gemm(hopper_wgmma_fp8, packed, packed, out), "a is e4m3; codes of 4 bits alone are packed");
  Operand transposed = Operand::codes(pairs, e2m1, 128, 140);  // the same bytes as (K, rows)
  transposed.packed = transposed.transposed = true;
  Operand bytes = Operand::codes(codes, e2m1, 128, 140);
  bytes.transposed = true;
  expected.resize(128 * 128);
  out.resize(128 * 128);
  gemm(blackwell_tcgen05_fp8, bytes, bytes, expected);
  gemm(blackwell_tcgen05_fp8, transposed, transposed, out);
  CHECK(out == expected);
}

TEST_CASE("scales of rows multiply in the epilogue, in the order asked for") {
  std::vector<std::uint8_t> codes(3 * 200);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(random_bits(1, i) % 120);
  const std::vector<float> rows{0.1F, 3e-4F, 1.7F};
  Operand a = Operand::codes(codes, e4m3, 3, 200);
  std::vector<float> plain(9), out(9);
  gemm(hopper_wgmma_fp8, a, a, plain, {.promote_k = 64});
  Operand b = a;
  a.row_scales = b.row_scales = rows;
  a.tensor_scale = {3, 7};
  b.tensor_scale = {0.3F, 11};
  for (const auto order : {std::optional<ScaleOrder>(), std::optional(ScaleOrder::scales_first)}) {
    gemm(hopper_wgmma_fp8, a, b, out, {.promote_k = 64, .scale_order = order});
    for (std::size_t i = 0; i < 9; ++i) {
      const float left = rows[i / 3];
      const float right = rows[i % 3];
      const float scaled = order ? plain[i] * (left * right) : plain[i] * left * right;
      REQUIRE(bits(out[i]) == bits(scaled * (3 * 0.3F * (1.0F / 77))));
    }
  }
  a.row_scales = std::span(rows).first(2);
  CHECK_THROWS_WITH(gemm(hopper_wgmma_fp8, a, b, out), "row scales of a must be 3, one a row, not 2");
  CHECK_THROWS_WITH(mma(hopper_wgmma_fp8, b, b, std::span<const float>(), std::span(out).first(3)),
                    ContainsSubstring("scales of tiles, rows and tensors are for gemm"));
}

}  // namespace fp8lab::tests
