// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/kernel_arrays.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

constexpr std::size_t kernel_rows = 256;
constexpr std::size_t kernel_columns = 384;

std::vector<float> kernel_values() {
  std::vector<float> x(kernel_rows * kernel_columns);
  sample(find_distribution("normal"), 5, 0, x);
  return x;
}

/// What a kernel would have written: the arrays of a Quantized, which must outlive them.
KernelArrays written_arrays(const Quantized& q) {
  KernelArrays arrays{.rows = q.rows, .columns = q.columns, .direction = q.direction, .transposed = q.transposed};
  arrays.codes = q.codes;
  arrays.scale_inv = q.scale_inv;
  arrays.scale_codes = q.scale_codes;
  if (q.recipe.tensor_scale_for_each_row) {
    arrays.row_amaxes = q.row_amaxes;
  } else {
    arrays.amax = q.amax;
  }
  return arrays;
}

bool same_tensor(const Quantized& a, const Quantized& b) {
  return a.recipe == b.recipe && a.direction == b.direction && a.rows == b.rows && a.columns == b.columns &&
         a.format == b.format && a.transposed == b.transposed && a.codes == b.codes && a.scale_rows == b.scale_rows &&
         a.scale_columns == b.scale_columns && a.scale_inv == b.scale_inv && a.scale_codes == b.scale_codes &&
         a.amax == b.amax && a.row_amaxes == b.row_amaxes;
}

}  // namespace

TEST_CASE("the arrays of every recipe's tensor, in both directions, are that tensor again") {
  const std::vector<float> x = kernel_values();
  for (const NamedRecipe& named : recipes()) {
    if (is_stochastic(named.recipe)) continue;
    for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
      INFO(named.name << ", direction " << static_cast<int>(direction));
      const Quantized q = quantize(MatrixView(x, kernel_rows, kernel_columns), named.recipe, direction);
      const KernelArrays arrays = written_arrays(q);
      REQUIRE(same_tensor(quantized_from(arrays, named.recipe), q));
      KernelArrays by_recipe = arrays;
      by_recipe.transposed.reset();
      REQUIRE(same_tensor(quantized_from(by_recipe, named.recipe), q));
    }
  }
}

TEST_CASE("scales of a kernel come in every layout, in both directions") {
  const std::vector<float> x = kernel_values();
  for (const char* name : {"te_mxfp8", "ocp_mxfp4", "te_nvfp4"}) {
    for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
      INFO(name << ", direction " << static_cast<int>(direction));
      const Recipe& recipe = find_recipe(name).recipe;
      const Quantized q = quantize(MatrixView(x, kernel_rows, kernel_columns), recipe, direction);
      // Rows across K, from the scale of each element's block.
      const bool turned = direction == Direction::columnwise && !q.transposed;
      const std::size_t across = turned ? q.scale_columns : q.scale_rows;
      const std::size_t along = turned ? q.scale_rows : q.scale_columns;
      std::vector<std::uint8_t> rows(across * along);
      for (std::size_t r = 0; r < across; ++r) {
        for (std::size_t c = 0; c < along; ++c) {
          rows[r * along + c] = turned ? q.scale_codes[c * across + r] : q.scale_codes[r * along + c];
        }
      }
      KernelArrays arrays = written_arrays(q);
      const std::vector<std::uint8_t> swizzled = swizzle_scales(rows, across, along);
      arrays.scale_codes = swizzled;
      arrays.layout = find_value<StoredScales>("scale_layout", "swizzled");
      CHECK(same_tensor(quantized_from(arrays, recipe), q));
      std::vector<std::uint8_t> padded = pad_scales(rows, across, along);
      if (turned) {
        const std::vector<std::uint8_t> lines = padded;
        const std::size_t high = (across + 127) / 128 * 128;
        const std::size_t width = lines.size() / high;
        for (std::size_t i = 0; i < lines.size(); ++i) padded[i % width * high + i / width] = lines[i];
      }
      arrays.scale_codes = padded;
      arrays.layout = find_value<StoredScales>("scale_layout", "padded");
      CHECK(same_tensor(quantized_from(arrays, recipe), q));
    }
  }
}

TEST_CASE("columnwise codes of a kernel that does not transpose mean the same values") {
  const std::vector<float> x = kernel_values();
  const Recipe& recipe = find_recipe("te_block_1x128").recipe;
  const Quantized q = quantize(MatrixView(x, kernel_rows, kernel_columns), recipe, Direction::columnwise);
  REQUIRE(q.transposed);
  std::vector<std::uint8_t> codes(q.codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i % kernel_rows * kernel_columns + i / kernel_rows] = q.codes[i];
  std::vector<float> scales(q.scale_inv.size());
  const std::size_t down = q.scale_columns;
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i % down * kernel_columns + i / down] = q.scale_inv[i];
  KernelArrays arrays = written_arrays(q);
  arrays.transposed = false;
  arrays.codes = codes;
  arrays.scale_inv = scales;
  const Quantized plain = quantized_from(arrays, recipe);
  CHECK(!plain.transposed);
  std::vector<float> expected(x.size());
  std::vector<float> values(x.size());
  dequantize(q, expected);
  dequantize(plain, values);
  CHECK(values == expected);
}

TEST_CASE("a given scale of the tensor need not be that of an amax") {
  const std::vector<float> x = kernel_values();
  for (const char* name :
       {"te_nvfp4", "torchao_nvfp4", "flashinfer_nvfp4", "compressed_tensors_nvfp4", "quark_nvfp4"}) {
    INFO(name);
    const Recipe& recipe = find_recipe(name).recipe;
    for (const auto& [e, d] : {std::pair{937.3F, 0.0F}, {0.0F, 0.00123F}, {512.0F, 0.00201F}}) {
      const Quantized q = quantize(MatrixView(x, kernel_rows, kernel_columns), recipe, Direction::rowwise,
                                   {.given = {.tensor_scale = e, .tensor_scale_inv = d}});
      KernelArrays arrays = written_arrays(q);
      arrays.amax.reset();
      if (e != 0) arrays.tensor_scale = e;
      if (d != 0) arrays.tensor_scale_inv = d;
      const Quantized again = quantized_from(arrays, recipe);
      std::vector<float> expected(x.size());
      std::vector<float> values(x.size());
      dequantize(q, expected);
      dequantize(again, values);
      REQUIRE(values == expected);
      // By the formula. Of both, some systems divide by E and some multiply with D.
      if (e != 0 && d != 0) continue;
      const float inverse = d != 0 ? d : 1 / e;
      const unsigned code = q.codes[5] & 0xFU;
      const float element = decode(e2m1, code);
      const float exact = element * (decode(e4m3, q.scale_codes[0]) * inverse);
      CHECK(std::abs(values[10] - exact) <= std::abs(exact) * 0x1p-22F);
    }
  }
}

TEST_CASE("a tensor's scale that an amax makes gives the same values as the amax") {
  const std::vector<float> x = kernel_values();
  const Recipe& torchao = find_recipe("torchao_nvfp4").recipe;
  REQUIRE(torchao.tensor_scale == TensorScaleRule::amax_over_largest);
  for (int i = 0; i < 200; ++i) {
    const float amax = static_cast<float>(1 + random_bits(9, static_cast<std::uint64_t>(i)) % 100000) * 0.00137F;
    Quantized q = quantize(MatrixView(x, kernel_rows, kernel_columns), torchao);
    q.amax = amax;
    KernelArrays arrays = written_arrays(q);
    arrays.amax.reset();
    arrays.tensor_scale_inv = amax / (448.0F * 6.0F);
    const Quantized found = quantized_from(arrays, torchao);
    std::vector<float> expected(x.size());
    std::vector<float> values(x.size());
    dequantize(q, expected);
    dequantize(found, values);
    REQUIRE(values == expected);
  }
}

TEST_CASE("arrays that are no tensor of the recipe are refused, by name and size") {
  const std::vector<float> x = kernel_values();
  const auto refused = [&](const char* name, const auto& change, const char* message) {
    const Recipe& recipe = find_recipe(name).recipe;
    const Quantized q = quantize(MatrixView(x, kernel_rows, kernel_columns), recipe);
    KernelArrays arrays = written_arrays(q);
    std::vector<float> scales = q.scale_inv;
    std::vector<std::uint8_t> codes = q.scale_codes;
    change(arrays, scales, codes);
    CHECK_THROWS_WITH(quantized_from(arrays, recipe), ContainsSubstring(message));
  };
  using ScaleNumbers = std::vector<float>;
  using ScaleBytes = std::vector<std::uint8_t>;
  refused(
      "te_mxfp8", [](KernelArrays& a, ScaleNumbers&, ScaleBytes&) { a.codes = a.codes.first(9); },
      "codes must have 98304 elements, a tensor of 256 x 384, not 9");
  refused(
      "te_mxfp8", [](KernelArrays& a, ScaleNumbers&, ScaleBytes&) { a.scale_codes = a.scale_codes.first(9); },
      "scale_codes must have 3072 elements, 256 x 12 for these tiles, not 9");
  refused(
      "te_mxfp8", [](KernelArrays& a, ScaleNumbers&, ScaleBytes&) { a.columns = 33; },
      "columns must be a multiple of 32");
  refused(
      "ocp_mxfp8_e4m3",
      [](KernelArrays& a, ScaleNumbers&, ScaleBytes&) {
        a.layout = StoredScales::swizzled;
        a.scale_codes = a.scale_codes.first(5);
      },
      "swizzled scale_codes must have 3072 elements, those of 256 x 12 scales, not 5");
  refused(
      "te_mxfp8",
      [](KernelArrays& a, ScaleNumbers& s, ScaleBytes&) {
        s.assign(3072, 1);
        a.scale_inv = s;
      },
      "scale_inv is given, and the recipe's scales are e8m0 codes");
  refused(
      "te_block_1x128",
      [](KernelArrays& a, ScaleNumbers&, ScaleBytes& c) {
        c.assign(768, 1);
        a.scale_codes = c;
      },
      "scale_codes are given, and the recipe's scales are float32 numbers");
  refused(
      "te_block_1x128",
      [](KernelArrays& a, ScaleNumbers& s, ScaleBytes&) {
        s[7] = nan;
        a.scale_inv = s;
      },
      "scale 7 of scale_inv is NaN");
  refused(
      "te_block_1x128",
      [](KernelArrays& a, ScaleNumbers& s, ScaleBytes&) {
        s[7] = -1.5F;
        a.scale_inv = s;
      },
      "scale 7 of scale_inv is -1.5: no scale is negative");
  refused(
      "te_mxfp8",
      [](KernelArrays& a, ScaleNumbers&, ScaleBytes& c) {
        c[70] = 255;
        a.scale_codes = c;
      },
      "scale 70 of scale_codes is NaN");
  refused(
      "te_nvfp4",
      [](KernelArrays& a, ScaleNumbers&, ScaleBytes& c) {
        c[70] = 0x80;
        a.scale_codes = c;
      },
      "scale_codes");
  refused(
      "te_nvfp4", [](KernelArrays& a, ScaleNumbers&, ScaleBytes&) { a.amax.reset(); },
      "amax, tensor_scale or tensor_scale_inv");
  refused(
      "te_nvfp4", [](KernelArrays& a, ScaleNumbers&, ScaleBytes&) { a.tensor_scale = 1.0F; },
      "give the one or the other");
  refused(
      "te_nvfp4",
      [](KernelArrays& a, ScaleNumbers&, ScaleBytes&) {
        a.amax.reset();
        a.tensor_scale_inv = 0.0F;
      },
      "tensor_scale_inv must be positive and finite, not 0");
  refused(
      "te_mxfp8",
      [](KernelArrays& a, ScaleNumbers&, ScaleBytes&) {
        a.amax.reset();
        a.tensor_scale = 1.0F;
      },
      "tensor_scale and tensor_scale_inv are for recipes with a scale of the tensor");
  refused(
      "te_mxfp8", [](KernelArrays& a, ScaleNumbers&, ScaleBytes&) { a.transposed = true; },
      "transposed is for columnwise codes");
  refused(
      "te_nvfp4_row_scaled", [](KernelArrays& a, ScaleNumbers&, ScaleBytes&) { a.row_amaxes = {}; },
      "row_amaxes must have 256 elements, one for every row along K, not 0");
  refused(
      "te_mxfp8",
      [](KernelArrays& a, ScaleNumbers& numbers, ScaleBytes&) {
        numbers.assign(3, 1.0F);
        a.row_amaxes = numbers;
      },
      "row_amaxes are for recipes where each row");
  refused(
      "te_mxfp8", [](KernelArrays& a, ScaleNumbers&, ScaleBytes&) { a.rows = 0; },
      "rows and columns must be 1 or more, not 0 x 384");
  CHECK_THROWS_WITH(find_value<StoredScales>("scale_layout", "swirled"), ContainsSubstring("scale_layout"));
}

}  // namespace fp8lab::tests
