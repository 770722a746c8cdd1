// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/quantize.hpp"

#include <cfenv>
#include <cmath>
#include <limits>

#include "formats/simd/memory.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/targets.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "plain_quantize.hpp"

namespace fp8lab::tests::quantization {
namespace {

template <typename Source>
void compare_with_plain(const std::vector<Source>& x, const Sizes& size, const Recipe& recipe, const Quantized& q) {
  const Plain<Source> plain(x, size.rows, size.columns, recipe, q.direction);
  Mismatches mismatches;
  // All of the small ones, a sample of the others: the plain model looks at a whole tile for each element.
  const std::size_t stride = x.size() < 1000 ? 1 : x.size() / 211;
  for (std::size_t i = 0; i < x.size(); i += stride) {
    const std::size_t row = i / size.columns;
    const std::size_t column = i % size.columns;
    mismatches.compare(i, bits(value_of(x[i])), code_at(q, row, column), plain.code(row, column), "code");
    const TileScale expected = plain.scale(row, column);
    const std::size_t at = scale_index(q, row, column);
    if (!q.scale_codes.empty()) {
      mismatches.compare(i, bits(value_of(x[i])), q.scale_codes[at], expected.code, "scale code");
    } else {
      mismatches.compare(i, bits(value_of(x[i])), word_of(q.scale_inv[at]), word_of(expected.scale_inv), "scale_inv");
    }
  }
  INFO(describe(recipe) << ", " << size.rows << " x " << size.columns
                        << (q.direction == Direction::rowwise ? ", rowwise" : ", columnwise"));
  REQUIRE_NO(mismatches);
}

}  // namespace

TEST_CASE("quantize is the plain formula for each element, by every recipe, direction and source") {
  std::size_t number = 0;
  for (const Recipe& recipe : many_recipes()) {
    for (const Sizes& size : some_sizes_of(recipe, number++)) {
      const std::vector<float> x = values(size.rows * size.columns, size.rows + 31 * size.columns);
      const std::vector<BFloat16> narrow = as_bfloats(x);
      for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
        if (recipe.format.bits() == 4 && (size.rows % 2 != 0 || size.columns % 2 != 0)) continue;
        compare_with_plain(x, size, recipe, quantize({x, size.rows, size.columns}, recipe, direction));
        compare_with_plain(narrow, size, recipe, quantize({narrow, size.rows, size.columns}, recipe, direction));
      }
    }
  }
}

TEST_CASE("halves are quantized as floats of the same values, and doubles are refused") {
  std::size_t number = 0;
  for (const Recipe& recipe : many_recipes()) {
    for (const Sizes& size : some_sizes_of(recipe, number++)) {
      std::vector<Half> halves(size.rows * size.columns);
      for (std::size_t i = 0; i < halves.size(); ++i) {
        const auto word = static_cast<std::uint16_t>(random_bits(5, i));
        halves[i].bits = i % 101 == 0 ? word : static_cast<std::uint16_t>(word & 0xBFFFU);  // some are no numbers
      }
      std::vector<float> floats(halves.size());
      std::ranges::transform(halves, floats.begin(), [](Half x) { return decode(binary16, x.bits); });
      QuantizeOptions as_floats;  // of a scale that is rounded to the type of the tensor, the type too
      if (recipe.arithmetic == ScaleArithmetic::input_type) as_floats.input_type = binary16;
      for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
        if (recipe.format.bits() == 4 && (size.rows % 2 != 0 || size.columns % 2 != 0)) continue;
        INFO(describe(recipe) << ", " << size.rows << " x " << size.columns);
        require_same(quantize({halves, size.rows, size.columns}, recipe, direction, {.threads = 2}),
                     quantize({floats, size.rows, size.columns}, recipe, direction, as_floats));
      }
    }
  }
  CHECK_THROWS_WITH(quantize({std::vector<double>(4), 2, 2}, JustInTime{}), ContainsSubstring("not float64"));
}

TEST_CASE(
    "every target, thread count and rounding mode quantizes and dequantizes alike, both directions at once or not") {
  const UnforceTarget after;
  std::size_t number = 0;
  for (const Recipe& recipe : many_recipes()) {
    for (const Sizes& size : sizes_of(recipe)) {
      if (number++ % 17 != 0 && !exhaustive()) continue;
      const std::vector<float> x = values(size.rows * size.columns, 7 * size.rows + size.columns);
      force_target("scalar");
      const Quantized row = quantize({x, size.rows, size.columns}, recipe);
      const Quantized column = quantize({x, size.rows, size.columns}, recipe, Direction::columnwise);
      std::vector<float> back(x.size());
      dequantize(row, back);
      std::vector<float> back_columnwise(x.size());
      dequantize(column, back_columnwise);
      int threads = 1;
      for (const std::string_view target : targets()) {
        INFO(describe(recipe) << ", " << size.rows << " x " << size.columns << ", " << target << ", " << threads);
        force_target(target);
        Quantized rowwise;
        Quantized columnwise;
        std::fesetround(FE_UPWARD);
        quantize_both({x, size.rows, size.columns}, recipe, rowwise, columnwise, {.threads = threads});
        std::vector<float> again(x.size());
        std::vector<float> again_columnwise(x.size());
        dequantize(rowwise, again, threads);
        dequantize(columnwise, again_columnwise, threads);
        std::fesetround(FE_TONEAREST);
        require_same(rowwise, row);
        require_same(columnwise, column);
        require_same(quantize({x, size.rows, size.columns}, recipe, Direction::rowwise, {.threads = threads}), row);
        REQUIRE(words_of(again) == words_of(back));
        REQUIRE(words_of(again_columnwise) == words_of(back_columnwise));
        threads = threads % 3 + 1;
      }
    }
  }
}

TEST_CASE("NaN, infinity and -0 in MX blocks, by every switch") {
  std::vector<float> x(64, 1.0F);
  x[1] = NAN;
  x[2] = -0.0F;
  x[33] = -std::numeric_limits<float>::infinity();
  const Quantized kept = quantize({x, 1, 64}, MxBlock{});
  CHECK(kept.scale_codes == std::vector<std::uint8_t>{119, 254});
  CHECK(kept.codes[0] == 0x78);
  CHECK(kept.codes[1] == 0x7F);
  CHECK(kept.codes[2] == 0x80);
  CHECK(kept.codes[33] == 0xFE);
  CHECK(kept.codes[34] == 0);  // 2^-127 is far below the format
  const Quantized poisoned = quantize({x, 1, 64}, MxBlock{.nan = NanInAmax::counted, .drop_negative_zero = true});
  CHECK(poisoned.scale_codes == std::vector<std::uint8_t>{255, 254});
  for (std::size_t i = 0; i < 32; ++i) CHECK(poisoned.codes[i] == 0x7F);
  CHECK(quantize({x, 1, 64}, MxBlock{.rule = MxRule::rceil}).scale_codes[1] == 255);
  x[1] = 1;
  CHECK(quantize({x, 1, 64}, MxBlock{.drop_negative_zero = true}).codes[2] == 0);
  x[3] = -0x1p-149F;  // underflows, and keeps its sign
  CHECK(quantize({x, 1, 64}, MxBlock{.drop_negative_zero = true}).codes[3] == 0x80);
}

TEST_CASE("a NaN makes its tile NaN where PyTorch takes the maximum, and is alone where a kernel does") {
  std::vector<float> x(256, 2.0F);
  x[5] = NAN;
  const auto quantized = [&](const char* name) { return quantize({x, 2, 128}, find_recipe(name).recipe); };
  for (const char* name : {"deepgemm_cpu", "deepgemm_cuda", "torchao_blockwise"}) {
    INFO(name);
    const Quantized q = quantized(name);
    CHECK(std::isnan(q.scale_inv[0]));
    CHECK(std::ranges::count(q.codes, 0x7F) == 128);
    CHECK(q.codes[128] == 0x7E);
  }
  for (const char* name : {"te_block_1x128_fp32", "deepseek_v3_2024", "deepseek_v3_2025"}) {
    INFO(name);
    const Quantized q = quantized(name);
    CHECK(q.scale_inv[0] == q.scale_inv[1]);
    CHECK(std::ranges::count(q.codes, 0x7F) == 1);
  }
  // The exponent field of NaN and a fraction, limited to 254: UE8M0 has no NaN in DeepGEMM.
  const Quantized power = quantized("deepgemm_ue8m0");
  CHECK(power.scale_inv[0] == 0x1p127F);
  CHECK(power.codes[0] == 0);
  CHECK(power.codes[5] == 0x7F);
}

TEST_CASE("an amax from before the rounding to the input's type makes another scale than one from after") {
  const std::vector<float> x{1.00390625F, 0.5F};  // in bfloat16, 1
  const QuantizeOptions before{.input_type = bfloat16, .amax_before_rounding = true};
  const QuantizeOptions after{.input_type = bfloat16};
  CHECK(quantize({x, 1, 2}, JustInTime{}, Direction::rowwise, before).amax == 1.00390625F);
  CHECK(quantize({x, 1, 2}, JustInTime{}, Direction::rowwise, after).amax == 1);
  CHECK(quantize({x, 1, 2}, JustInTime{}).amax == 1.00390625F);
  CHECK_THROWS_WITH(quantize({x, 1, 2}, Block{}, Direction::rowwise, before),
                    ContainsSubstring("amax_before_rounding is for one scale of the tensor"));
}

TEST_CASE("NVFP4 rounds stochastically with the word of each code, in the order of the codes") {
  const NvFp4 recipe{.stochastic_rounding = true};
  const std::vector<float> x = values(std::size_t{32} * 48, 5, true);
  std::vector<std::uint8_t> words(x.size());
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint8_t>(random_bits(6, i));
  const RandomSource random{std::span<const std::uint8_t>(words), 8};
  const Quantized nearest = quantize({x, 32, 48}, NvFp4{}, Direction::columnwise);
  const UnforceTarget after;
  for (const std::string_view target : targets()) {
    force_target(target);
    const Quantized q = quantize({x, 32, 48}, recipe, Direction::columnwise, {.random = random, .threads = 2});
    REQUIRE(q.scale_codes == nearest.scale_codes);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t row = i / 48;
      const std::size_t column = i % 48;
      const TileScale scale = Plain<float>(x, 32, 48, recipe, Direction::columnwise).scale(row, column);
      const std::size_t code = column * 32 + row;
      REQUIRE(code_at(q, row, column) ==
              encode(e2m1, {.rounding = Rounding::stochastic}, x[i] * scale.factor, RandomBits{words[code], 8}));
    }
  }
  CHECK_THROWS_WITH(quantize({x, 32, 48}, recipe), ContainsSubstring("needs random bits"));
  CHECK_THROWS_WITH(quantize({x, 32, 48}, NvFp4{}, Direction::rowwise, {.random = random}),
                    ContainsSubstring("stochastic_rounding only"));
}

TEST_CASE("the Hadamard option turns columns alone, by Sylvester's matrix with Transformer Engine's signs") {
  std::vector<float> x(std::size_t{32} * 16);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(static_cast<int>(random_bits(8, i) % 4001) - 2000) / 64;  // whose sums are exact
  }
  const std::vector<float> turned = turned_columns(x, 32, 16);
  const NvFp4 recipe{.with_rht = true, .round_rht = false};
  Quantized rowwise;
  Quantized columnwise;
  quantize_both({x, 32, 16}, recipe, rowwise, columnwise);
  require_same(rowwise, quantize({x, 32, 16}, NvFp4{}));
  require_same(columnwise, quantize({turned, 32, 16}, NvFp4{}, Direction::columnwise));
  const NvFp4 rounds{.with_rht = true};
  CHECK(find_recipe("te_nvfp4_rht").recipe == Recipe(rounds));
  require_same(quantize({x, 32, 16}, rounds, Direction::columnwise),
               quantize({turned, 32, 16}, NvFp4{}, Direction::columnwise, {.input_type = bfloat16}));
}

TEST_CASE("a block of subnormals has the smallest scale, under which bfloat16's are codes and float32's mostly not") {
  std::vector<float> x(32, 0x1p-133F);  // bfloat16's smallest
  x[1] = 0x1p-149F;
  x[2] = -0x1p-149F;
  const Quantized q = quantize({x, 1, 32}, find_recipe("torchao_mxfp8_rceil").recipe);
  CHECK(q.scale_codes == std::vector<std::uint8_t>{0});
  CHECK(q.codes[0] == 0x08);
  CHECK(q.codes[1] == 0x00);
  CHECK(q.codes[2] == 0x80);
  CHECK(quantize({as_bfloats(x), 1, 32}, MxBlock{}).codes[0] == 0x08);
}

TEST_CASE("codes of large tensors, which go past the caches, are those of their parts") {
  constexpr std::size_t height = 128;  // of a part
  for (const std::size_t columns : {std::size_t{2048}, std::size_t{2080}}) {
    const std::size_t rows = (streaming_bytes / columns / height + 1) * height;
    const std::vector<float> x = values(rows * columns, 77);
    for (const Recipe& recipe : {Recipe(MxBlock{}), Recipe(Block{})}) {
      for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
        CAPTURE(columns, describe(recipe), static_cast<int>(direction));
        const Quantized whole = quantize({x, rows, columns}, recipe, direction, {.threads = 3});
        REQUIRE(whole.codes.size() >= streaming_bytes);
        Mismatches wrong;
        for (std::size_t first = 0; first < rows; first += height) {
          const auto part = std::span(x).subspan(first * columns, height * columns);
          const Quantized own = quantize({part, height, columns}, recipe, direction);
          REQUIRE(own.transposed == whole.transposed);
          for (std::size_t i = 0; i < own.codes.size(); ++i) {
            const std::size_t row = i / own.code_columns();
            const std::size_t column = i % own.code_columns();
            const std::size_t in_whole =
                own.transposed ? row * rows + first + column : (first + row) * columns + column;
            wrong.compare(in_whole, 0, whole.codes[in_whole], own.codes[i]);
          }
        }
        REQUIRE_NO(wrong);
      }
    }
  }
}

TEST_CASE("a tile larger than any tensor is the tensor, or its row") {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  const std::vector<float> x = values(std::size_t{9} * 40, 4, true);
  for (const bool square : {false, true}) {
    const auto quantized = [&](std::size_t columns) {
      const Block recipe{.rule = BlockRule::deepgemm_cuda, .rows = square ? columns : 1, .columns = columns};
      return quantize({x, 9, 40}, recipe);
    };
    const Quantized q = quantized(most);
    require_same(q, quantized(64));
    std::vector<float> back(x.size());
    std::vector<float> expected(x.size());
    dequantize(q, back);
    dequantize(quantized(64), expected);
    CHECK(back == expected);
  }
}

TEST_CASE("a Quantized that does not fit together is refused, not read beyond its end") {
  const std::vector<float> x(std::size_t{64} * 32, 1.0F);
  const Quantized good = quantize({x, 64, 32}, MxBlock{});
  std::vector<float> out(x.size());
  const auto refused = [&](auto change, std::size_t size, const char* why) {
    Quantized q = good;
    change(q);
    CHECK_THROWS_WITH(dequantize(q, std::span(out).first(size)), ContainsSubstring(why));
    CHECK_THROWS_WITH(check_quantized(q), ContainsSubstring(why));
  };
  check_quantized(good);
  refused([](Quantized& q) { std::swap(q.scale_rows, q.scale_columns); }, x.size(),
          "scale_rows and scale_columns must be 64 and 1, not 1 and 64");
  refused([](Quantized& q) { q.format = e2m1; }, x.size(), "format and transposed must be as the recipe");
  refused([](Quantized& q) { q.transposed = true; }, x.size(), "format and transposed must be as the recipe");
  refused([](Quantized& q) { q = {}; }, 0, "must be 1 or more, and make a size, not 0 x 0");
  refused([](Quantized& q) { q = Quantized{}, q.scale_rows = q.scale_columns = 1, q.scale_inv = {1}; }, 0, "not 0 x 0");
  const auto overflowing = [](Quantized& q) {
    q = Quantized{};
    q.rows = q.columns = std::size_t{1} << 32;
    q.scale_rows = q.scale_columns = 1;
    q.scale_inv = {1};
  };
  refused(overflowing, 0, "not 4294967296 x 4294967296");
}

TEST_CASE("what cannot be quantized is refused with the sizes that can") {
  const std::vector<float> x(std::size_t{33} * 40);
  const auto refused = [&](const Recipe& recipe, Direction direction, const std::string& why) {
    CHECK_THROWS_WITH(quantize({x, 33, 40}, recipe, direction), ContainsSubstring(why));
  };
  refused(MxBlock{}, Direction::rowwise,
          "columns must be a multiple of 32, the recipe's block, not 40 (nearest: 32 or 64)");
  refused(MxBlock{}, Direction::columnwise,
          "rows must be a multiple of 32, the recipe's block, not 33 (nearest: 32 or 64)");
  refused(NvFp4{}, Direction::columnwise,
          "rows must be a multiple of 16, the recipe's block, not 33 (nearest: 32 or 48)");
  refused(Block{.rule = BlockRule::torchao}, Direction::rowwise, "not 40 (nearest: 128)");
  refused(JustInTime{.format = e2m1}, Direction::columnwise, "rows must be a multiple of 2");
  refused(GivenScale{.scale = 0}, Direction::rowwise, "scale must be positive and finite, not 0");
  refused(GivenScale{.scale = -1}, Direction::rowwise, "scale must be positive and finite, not -1");
  refused(GivenScale{.scale = NAN}, Direction::rowwise, "scale must be positive and finite, not nan");
  refused(GivenScale{.scale = std::numeric_limits<float>::infinity()}, Direction::rowwise, "not inf");
  refused(JustInTime{.amax_epsilon = -1}, Direction::rowwise, "least_amax (amax_epsilon) must be 0 or more");
  refused(JustInTime{.format = e8m0}, Direction::rowwise, "format must have a sign");
  refused(Block{.rows = 3}, Direction::rowwise,
          "tile_across (rows of a block) must be 0, 1 or as tile_along, 128, not 3");
  CHECK_THROWS_WITH(quantize({x, 33, 41}, JustInTime{}), ContainsSubstring("33 x 41 elements, not 1320"));
  CHECK_THROWS_WITH(quantize({std::span(x).first(0), 0, 5}, JustInTime{}), ContainsSubstring("empty: it is 0 x 5"));
  CHECK_THROWS_WITH(quantize({x, 33, 40}, JustInTime{}, Direction::rowwise, {.threads = 0}),
                    ContainsSubstring("threads must be from 1 to 1024, not 0"));
  Quantized q = quantize({x, 33, 40}, JustInTime{});
  std::vector<float> out(5);
  CHECK_THROWS_WITH(dequantize(q, out), ContainsSubstring("out must have 1320 elements, not 5"));
  q.codes.pop_back();
  out.resize(1320);
  CHECK_THROWS_WITH(dequantize(q, out), ContainsSubstring("codes must have 1320 elements, not 1319"));
}

TEST_CASE("recipes are found by name and explain themselves") {
  CHECK(find_recipe("te_mxfp8").recipe == Recipe(MxBlock{}));
  CHECK_THROWS_WITH(find_recipe("fp7"), ContainsSubstring("unknown recipe 'fp7'; known: te_mxfp8, "));
  for (const NamedRecipe& one : recipes()) {
    CHECK(!one.source.empty());
    CHECK_FALSE(describe(one.recipe).empty());
    CHECK_NOTHROW(check_recipe(one.recipe));
  }
  CHECK(describe(Block{}) ==
        "e4m3, a float32 scale for 1 x 128: scale = largest / amax, at most the largest of the tensor's type, rounded "
        "down to a power of two; 1 where the amax is 0, infinite or NaN");
}

}  // namespace fp8lab::tests::quantization
