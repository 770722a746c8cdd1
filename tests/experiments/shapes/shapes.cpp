// SPDX-License-Identifier: Apache-2.0
#include "shapes/shapes.hpp"

#include <algorithm>
#include <string>

#include "support.hpp"

namespace fp8lab::tests {
namespace {

using namespace fp8lab::experiments;

ShapesArguments arguments_for(const char* recipe, std::uint64_t tokens, std::uint64_t in, std::uint64_t out) {
  return {.tokens = tokens, .in_features = in, .out_features = out, .recipes = {choose_linear_recipe(recipe)}};
}

/// What the verdict says of the first recipe.
std::string verdict_of(const ShapesResult& result) {
  return std::get<Text>(document_of(result).sections[1]).paragraphs.at(0);
}

}  // namespace

TEST_CASE("shapes says which pass stops, at which operand and dimension, and the nearest sizes") {
  // 1000 = 8 * 125: te.Linear takes it, and the wgrad of Hopper, whose K is contiguous, does not.
  const ShapesResult result = run_shapes(arguments_for("te_current_scaling_hopper", 1000, 4096, 11008));
  CHECK_FALSE(result.passed());
  CHECK(verdict_of(result) ==
        "te_current_scaling_hopper: wgrad: x: tokens (rows) must be a multiple of 16, not 1000 (nearest: 992 or 1008), "
        "for cuBLAS's GEMM");
  CHECK(run_shapes(arguments_for("te_current_scaling_blackwell", 1000, 4096, 11008)).passed());
  const auto refused = std::ranges::count_if(result.recipes[0].fits, [](const ShapeFit& fit) { return !fit.fits(); });
  CHECK(refused == 2);  // x and dy of wgrad
}

TEST_CASE("shapes goes through all recipes where none is named, and those that quantize nothing fit") {
  const ShapesResult result = run_shapes({.tokens = 1, .in_features = 3, .out_features = 5});
  REQUIRE(result.recipes.size() == linear_recipes().size());
  for (const RecipeFits& recipe : result.recipes) {
    INFO(recipe.recipe.name);
    CHECK(recipe.passed() == (recipe.recipe.recipe.system == LinearSystem::none));
  }
  const Document document = document_of(result);
  CHECK(document.passed == false);
  CHECK(std::get<Table>(document.sections[3]).rows() == 3 * linear_recipes().size());
  CHECK(run_shapes({.tokens = 4096, .in_features = 4096, .out_features = 4096}).passed());
}

TEST_CASE("shapes refuses sizes that no layer has, and names the argument") {
  CHECK_THROWS_WITH(run_shapes(arguments_for("exact", 0, 1, 1)), "tokens must be from 1 to 1099511627776, not 0");
  CHECK_THROWS_WITH(run_shapes(arguments_for("exact", 1, 0, 1)), ContainsSubstring("in_features must be from 1 to"));
}

TEST_CASE("shapes counts a split dimension per rank") {
  ShapesArguments arguments = arguments_for("te_mxfp8_blackwell", 4096, 4096, 11008);
  CHECK(run_shapes(arguments).passed());
  arguments.parallel = {ParallelMode::column, 16, false};  // 688 = 21.5 * 32 rows of the weight each
  const ShapesResult result = run_shapes(arguments);
  CHECK_FALSE(result.passed());
  CHECK(verdict_of(result) ==
        "te_mxfp8_blackwell: fprop: w: out (rows) must be a multiple of 512 (32 on each of 16 ranks), not 11008 "
        "(nearest: 10752 or 11264), for Transformer Engine's quantizer");
  arguments.parallel.mode = ParallelMode::row;
  CHECK(run_shapes(arguments).passed());
}

}  // namespace fp8lab::tests
