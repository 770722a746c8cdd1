// SPDX-License-Identifier: Apache-2.0
// The sizes that systems refuse, against a second writing of their checks: each in the words of its own code, with the
// leading dimensions and scaling modes of the GEMM that it sees.
#include "fp8lab/reference/linear/shape_rules.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "fp8lab/reference/linear/linear.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// A row-major matrix as te.Linear has it.
struct ViewSizes {
  std::size_t rows, columns;
};
/// An operand of a GEMM, as Transformer Engine's general_gemm() gets it: (rows, columns) of the tensor, and whether the
/// GEMM reads it transposed.
struct TeOperand {
  ViewSizes tensor;
  bool transposed, is_1d;
};

enum class TeMode : std::uint8_t { tensor_tn, tensor_all, block_hopper, block_blackwell, mxfp8, nvfp4 };

/// cuBLAS is column-major: A is (k, m) where it is transposed, else (m, k), each with rows of the first number.
bool gemm_takes(TeMode mode, const TeOperand& a, const TeOperand& b) {
  const std::size_t m = a.transposed ? a.tensor.rows : a.tensor.columns;
  const std::size_t k = a.transposed ? a.tensor.columns : a.tensor.rows;
  const std::size_t n = b.transposed ? b.tensor.columns : b.tensor.rows;
  std::size_t lda = a.transposed ? k : m;
  std::size_t ldb = b.transposed ? n : k;
  switch (mode) {
    case TeMode::tensor_tn: lda = ldb = k; [[fallthrough]];
    case TeMode::tensor_all: return lda % 16 == 0 && ldb % 16 == 0;
    case TeMode::block_hopper: return k % 16 == 0 && m % 8 == 0 && (!b.is_1d || n % 8 == 0);
    case TeMode::block_blackwell: return k % 16 == 0 && (!a.is_1d || m % 4 == 0) && (!b.is_1d || n % 4 == 0);
    case TeMode::mxfp8: return true;
    case TeMode::nvfp4: return k * 4 % (16 * 8) == 0;
  }
  return false;
}

bool quantizer_takes(TeMode mode, const ViewSizes& tensor) {
  std::size_t block = 1;
  if (mode == TeMode::mxfp8) block = 32;
  if (mode == TeMode::nvfp4) block = 16;
  return tensor.rows % block == 0 && tensor.columns % block == 0;
}

/// The passes that te.Linear computes, of what one rank has: x as its cast sees it, and all of its tokens.
std::array<bool, 3> te_takes(TeMode mode, std::size_t own_tokens, std::size_t tokens, std::size_t in, std::size_t out) {
  const ViewSizes own_x{own_tokens, in}, x{tokens, in}, w{out, in}, dy{tokens, out};
  const auto module = [](const ViewSizes& tensor) { return tensor.rows % 8 == 0 && tensor.columns % 16 == 0; };
  const auto cast = [&](const ViewSizes& tensor) { return quantizer_takes(mode, tensor); };
  return {module(own_x) && module(w) && cast(own_x) && cast(w) && gemm_takes(mode, {w, true, false}, {x, false, true}),
          cast(dy) && cast(w) && gemm_takes(mode, {w, false, false}, {dy, false, true}),
          cast(dy) && cast(own_x) && gemm_takes(mode, {x, false, true}, {dy, true, true})};
}

/// The passes whose rules all hold.
std::array<bool, 3> rules_take(const LinearRecipe& recipe, const LinearShape& shape, const TensorParallel& parallel) {
  std::array<bool, 3> takes{true, true, true};
  for (const ShapeFit& fit : shape_fits(recipe, shape, parallel)) {
    takes.at(static_cast<std::size_t>(fit.rule.pass)) &= fit.fits();
  }
  return takes;
}

LinearRecipe on(const char* name, const MmaModel& model) {
  LinearRecipe recipe = find_linear_recipe(name).recipe;
  recipe.fprop.recipe.model = recipe.dgrad.recipe.model = recipe.wgrad.recipe.model = model;
  return recipe;
}

struct TeCase {
  TeMode mode;
  LinearRecipe recipe;
};
std::vector<TeCase> te_cases() {
  return {{TeMode::tensor_tn, find_linear_recipe("te_delayed_hopper").recipe},
          {TeMode::tensor_tn, find_linear_recipe("te_current_scaling_hopper").recipe},
          {TeMode::tensor_tn, on("te_delayed_hopper", ada_mma_fp8)},
          {TeMode::tensor_tn, on("te_current_scaling_blackwell", rtx_blackwell_mma_fp8)},
          {TeMode::tensor_all, find_linear_recipe("te_delayed_blackwell").recipe},
          {TeMode::tensor_all, find_linear_recipe("te_current_scaling_blackwell").recipe},
          {TeMode::block_hopper, find_linear_recipe("te_block_hopper").recipe},
          {TeMode::block_blackwell, find_linear_recipe("te_block_blackwell").recipe},
          {TeMode::mxfp8, find_linear_recipe("te_mxfp8_blackwell").recipe},
          {TeMode::nvfp4, find_linear_recipe("te_nvfp4_blackwell").recipe}};
}

/// Calls f(tokens, in, out) for sizes of every remainder that matters.
template <typename Function>
void for_sizes(const Function& f) {
  constexpr std::array sizes{1, 4, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 100, 128, 160, 256};
  for (const std::size_t tokens : sizes) {
    for (const std::size_t in : sizes) {
      for (const std::size_t out : sizes) f(tokens, in, out);
    }
  }
}

}  // namespace

TEST_CASE("the sizes that Transformer Engine refuses are those of its checks, pass by pass") {
  for (const auto& [mode, recipe] : te_cases()) {
    const std::string words = describe(recipe);
    for_sizes([&](std::size_t tokens, std::size_t in, std::size_t out) {
      INFO(words << ": " << tokens << ", " << in << ", " << out);
      REQUIRE(rules_take(recipe, {tokens, in, out}, {}) == te_takes(mode, tokens, tokens, in, out));
    });
  }
}

TEST_CASE("a split layer is checked rank by rank, and what ranks share must be divisible by them") {
  constexpr std::size_t ranks = 4;
  for (const auto& [mode, recipe] : te_cases()) {
    const std::string words = describe(recipe);
    for (const ParallelMode split : {ParallelMode::column, ParallelMode::row}) {
      for (const bool sequence : {false, true}) {
        const bool column = split == ParallelMode::column;
        for_sizes([&](std::size_t tokens, std::size_t in, std::size_t out) {
          const auto part = [&](bool is_split, std::size_t size) { return is_split ? size / ranks : size; };
          std::array<bool, 3> expected =
              te_takes(mode, part(column && sequence, tokens), tokens, part(!column, in), part(column, out));
          if ((column ? out : in) % ranks != 0 || (sequence && tokens % ranks != 0)) expected[0] = false;
          const std::array<bool, 3> actual = rules_take(recipe, {tokens, in, out}, {split, ranks, sequence});
          INFO(words << ": " << tokens << ", " << in << ", " << out << " " << name_of(split) << sequence);
          // A dimension that cannot be split has no parts: the forward pass says so, and the others do not count.
          REQUIRE(actual[0] == expected[0]);
          if (actual[0]) REQUIRE(actual == expected);
        });
      }
    }
  }
}

TEST_CASE("DeepSeek-V3's casts want K in whole tiles of 128, and DeepGEMM rows of the result of 16 bytes") {
  const LinearRecipe& recipe = find_linear_recipe("deepseek_v3_hopper").recipe;
  for_sizes([&](std::size_t tokens, std::size_t in, std::size_t out) {
    const std::array<bool, 3> expected{in % 128 == 0 && out * 2 % 16 == 0, out % 128 == 0 && in * 2 % 16 == 0,
                                       tokens % 128 == 0 && in * 4 % 16 == 0};
    INFO(tokens << ", " << in << ", " << out);
    REQUIRE(rules_take(recipe, {tokens, in, out}, {}) == expected);
  });
}

TEST_CASE("what is not quantized has no rules, nor has a recipe of no system") {
  for (const auto& name : {"bf16_hopper", "bf16_blackwell", "tf32_hopper", "exact"}) {
    CHECK(shape_fits(find_linear_recipe(name).recipe, {1, 3, 5}).empty());
  }
  LinearRecipe own = find_linear_recipe("te_mxfp8_blackwell").recipe;
  own.system = LinearSystem::none;
  CHECK(shape_fits(own, {1, 3, 5}).empty());
  // The layer's own check of x and w stays where one of three GEMMs is in high precision.
  const LinearRecipe mixed = override_linear_precision(find_linear_recipe("te_delayed_hopper").recipe, {.wgrad = true},
                                                       find_linear_recipe("bf16_hopper").recipe);
  CHECK(rules_take(mixed, {8, 16, 16}, {}) == std::array{true, true, true});
  CHECK(rules_take(mixed, {8, 24, 16}, {}) == std::array{false, true, true});
}

TEST_CASE("the nearest sizes fit every rule of the recipe, and none between them does") {
  for (const NamedLinearRecipe& named : linear_recipes()) {
    for (const TensorParallel& parallel :
         {TensorParallel{}, TensorParallel{ParallelMode::column, 3, true}, TensorParallel{ParallelMode::row, 2}}) {
      for (const std::size_t size : {1U, 31U, 96U, 100U, 1000U}) {
        const LinearShape shape{size, size + 60, size + 7};
        for (const ShapeFit& fit : shape_fits(named.recipe, shape, parallel)) {
          const auto fits_at = [&](std::size_t one) {
            LinearShape changed = shape;
            switch (fit.rule.dimension) {
              case LinearDimension::tokens: changed.tokens = one; break;
              case LinearDimension::in: changed.in = one; break;
              case LinearDimension::out: changed.out = one; break;
            }
            return std::ranges::all_of(shape_fits(named.recipe, changed, parallel), [&](const ShapeFit& other) {
              return other.rule.dimension != fit.rule.dimension || other.fits();
            });
          };
          INFO(named.name << ": " << describe(fit));
          REQUIRE((fit.below == 0 || fits_at(fit.below)));
          REQUIRE(fits_at(fit.above));
          for (std::size_t one = fit.below + 1; one < fit.above; ++one) REQUIRE_FALSE(fits_at(one));
        }
      }
    }
  }
}

TEST_CASE("a broken rule names the tensor, the dimension, the nearest sizes and who checks") {
  const auto first_misfit = [](const char* name, const LinearShape& shape, const TensorParallel& parallel) {
    for (const ShapeFit& fit : shape_fits(find_linear_recipe(name).recipe, shape, parallel)) {
      if (!fit.fits()) return std::string(name_of(fit.rule.pass)) + ": " + describe(fit);
    }
    return std::string();
  };
  CHECK(first_misfit("te_mxfp8_blackwell", {1000, 4096, 4096}, {}) ==
        "fprop: x: tokens (rows) must be a multiple of 32, not 1000 (nearest: 992 or 1024), for Transformer Engine's "
        "quantizer");
  CHECK(first_misfit("te_delayed_hopper", {1000, 4096, 4096}, {}) ==
        "wgrad: x: tokens (rows) must be a multiple of 16, not 1000 (nearest: 992 or 1008), for cuBLAS's GEMM");
  CHECK(first_misfit("te_delayed_blackwell", {1000, 4096, 4096}, {}).empty());
  CHECK(first_misfit("te_delayed_blackwell", {10, 16, 16}, {}) ==
        "fprop: x: tokens (rows) must be a multiple of 8, not 10 (nearest: 8 or 16), for te.Linear, of x and w");
  // A weight's part per rank: https://github.com/NVIDIA/TransformerEngine/issues/2966
  CHECK(first_misfit("te_mxfp8_blackwell", {1024, 4096, 11008}, {ParallelMode::column, 16}) ==
        "fprop: w: out (rows) must be a multiple of 512 (32 on each of 16 ranks), not 11008 (nearest: 10752 or 11264), "
        "for Transformer Engine's quantizer");
  CHECK(first_misfit("deepseek_v3_hopper", {100, 4, 8}, {}) ==
        "fprop: x: in (columns) must be a multiple of 128, not 4 (nearest: 128), for DeepSeek's cast");
  CHECK(first_misfit("te_current_scaling_hopper", {1024, 100, 64}, {ParallelMode::row, 8}) ==
        "fprop: w: in (columns) must be a multiple of 8 (1 on each of 8 ranks), not 100 (nearest: 128), for the split "
        "into ranks");
}

TEST_CASE("a Linear layer refuses the sizes that its recipe's system refuses, and computes them where it is told to") {
  const std::vector<float> values(40 * 48, 1.0F);
  const MatrixView x{std::span(values).first(40 * 32), 40, 32}, w{std::span(values).first(48 * 32), 48, 32};
  const MatrixView dy{std::span(values), 40, 48};
  std::vector<std::uint16_t> codes(40 * 48);
  std::vector<float> dw(48 * 32);
  const LinearRecipe& hopper = find_linear_recipe("te_delayed_hopper").recipe;
  linear(hopper, x, w, std::span(codes));
  linear_dgrad(hopper, dy, w, std::span(codes).first(40 * 32));
  CHECK_THROWS_WITH(linear_wgrad(hopper, dy, x, std::span(dw)),
                    "wgrad: x: tokens (rows) must be a multiple of 16, not 40 (nearest: 32 or 48), for cuBLAS's GEMM; "
                    "check_shapes = false computes what it refuses");
  linear_wgrad(hopper, dy, x, std::span(dw), {.check_shapes = false});
  CHECK(dw[0] == 40);
  linear_wgrad(find_linear_recipe("te_delayed_blackwell").recipe, dy, x, std::span(dw));
  CHECK_THROWS_WITH(linear(find_linear_recipe("te_mxfp8_blackwell").recipe, x, w, std::span(codes)),
                    ContainsSubstring("fprop: x: tokens (rows) must be a multiple of 32, not 40"));
}

TEST_CASE("sizes and ranks out of range are refused") {
  const LinearRecipe& recipe = find_linear_recipe("te_delayed_hopper").recipe;
  CHECK_THROWS_WITH(shape_fits(recipe, {0, 16, 16}), "tokens must be from 1 to 1099511627776, not 0");
  CHECK_THROWS_WITH(shape_fits(recipe, {16, most_size + 1, 16}), ContainsSubstring("in must be from 1 to"));
  const auto split = [&](const TensorParallel& parallel) { return shape_fits(recipe, {16, 16, 16}, parallel); };
  CHECK_THROWS_WITH(split({ParallelMode::row, 0}), "ranks must be from 1 to 65536, not 0");
  CHECK_THROWS_WITH(split({ParallelMode::none, 2}), "ranks must be 1 where the parallel mode is none, not 2");
  CHECK_THROWS_WITH(split({ParallelMode::none, 1, true}), "sequence_parallel is for the parallel modes column and row");
  CHECK_THROWS_WITH(find_value<ParallelMode>("parallel mode", "rows"), ContainsSubstring("known: none, column, row"));
  CHECK(shape_fits(recipe, {most_size, most_size, most_size}, {ParallelMode::column, most_ranks, true})[0].fits());
}

}  // namespace fp8lab::tests
