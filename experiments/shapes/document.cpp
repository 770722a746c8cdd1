// SPDX-License-Identifier: Apache-2.0
// Registers the experiment `shapes`: the sizes of a Linear layer that a recipe's system takes.
#include <fmt/format.h>

#include <array>

#include "fp8lab/formats/environment.hpp"
#include "kit/experiment.hpp"
#include "shapes/shapes.hpp"

namespace fp8lab::experiments {
namespace {

/// A rule of a recipe.
struct RecipeFit {
  std::string_view recipe;
  const ShapeFit& fit;
};

/// The sizes of one dimension that a recipe takes.
struct RecipeNearest {
  std::string_view recipe;
  LinearDimension dimension;
  std::size_t size;
  std::optional<std::size_t> below, above;  // none: all sizes fit
};

constexpr std::array dimensions{LinearDimension::tokens, LinearDimension::in, LinearDimension::out};

std::vector<RecipeNearest> nearest_of(const ShapesResult& result) {
  std::vector<RecipeNearest> all;
  const ShapesArguments& arguments = result.arguments;
  const std::array sizes{arguments.tokens, arguments.in_features, arguments.out_features};
  for (const RecipeFits& recipe : result.recipes) {
    for (std::size_t i = 0; i < dimensions.size(); ++i) {
      RecipeNearest nearest{recipe.recipe.name, dimensions.at(i), sizes.at(i), {}, {}};
      for (const ShapeFit& fit : recipe.fits) {
        if (fit.rule.dimension != nearest.dimension) continue;
        nearest.below = fit.below == 0 ? std::nullopt : std::optional(fit.below);
        nearest.above = fit.above;
      }
      all.push_back(nearest);
    }
  }
  return all;
}

Table rules_table(const std::vector<RecipeFit>& rules, Table table) {
  return tabulate(rules, std::move(table))
      .column({"recipe"}, [](const RecipeFit& one) { return one.recipe; })
      .column({"pass"}, [](const RecipeFit& one) { return name_of(one.fit.rule.pass); })
      .column({"operand"}, [](const RecipeFit& one) { return name_of(one.fit.rule.tensor); })
      .column({"dimension"}, [](const RecipeFit& one) { return name_of(one.fit.rule.dimension); })
      .column({"size"}, [](const RecipeFit& one) { return one.fit.size; })
      .column({"multiple"}, [](const RecipeFit& one) { return one.fit.rule.multiple; })
      .column({"ranks"}, [](const RecipeFit& one) { return one.fit.rule.ranks; })
      .column({.name = "fits", .detail = true}, [](const RecipeFit& one) { return one.fit.fits(); })
      .column({"below"},
              [](const RecipeFit& one) { return one.fit.below == 0 ? std::nullopt : std::optional(one.fit.below); })
      .column({"above"}, [](const RecipeFit& one) { return one.fit.above; })
      .column({"check", "checked by"}, [](const RecipeFit& one) { return name_of(one.fit.rule.check); })
      .column({.name = "source", .detail = true}, [](const RecipeFit& one) { return one.fit.rule.source; });
}

Table nearest_table(const ShapesResult& result) {
  const std::vector<RecipeNearest> all = nearest_of(result);
  return tabulate(all, {.name = "nearest", .title = "The nearest sizes that fit"})
      .column({"recipe"}, [](const RecipeNearest& one) { return one.recipe; })
      .column({"dimension"}, [](const RecipeNearest& one) { return name_of(one.dimension); })
      .column({"size"}, [](const RecipeNearest& one) { return one.size; })
      .column({"below"}, [](const RecipeNearest& one) { return one.below; })
      .column({"above"}, [](const RecipeNearest& one) { return one.above; });
}

/// Says which recipes take the sizes, and names the first rule that each of the others breaks.
Text verdict_of(const ShapesResult& result) {
  Text text{.name = "verdict", .title = "Verdict"};
  for (const RecipeFits& recipe : result.recipes) {
    std::string line = fmt::format("{}: ", recipe.recipe.name);
    if (recipe.recipe.recipe.system == LinearSystem::none) {
      line += "all sizes fit: nothing is quantized";
    } else if (recipe.passed()) {
      line += "fits";
    }
    for (const ShapeFit& fit : recipe.fits) {
      if (fit.fits()) continue;
      line += fmt::format("{}: {}", name_of(fit.rule.pass), fp8lab::describe(fit));
      break;
    }
    text.paragraphs.push_back(std::move(line));
  }
  return text;
}

std::string words_of(const TensorParallel& parallel) {
  if (parallel.mode == ParallelMode::none) return "";
  return fmt::format(", {}-parallel on {} ranks{}", name_of(parallel.mode), parallel.ranks,
                     parallel.sequence_parallel ? ", each with a part of the sequence" : "");
}

void describe(ShapesArguments& arguments, ArgumentList& list) {
  list.add("tokens", arguments.tokens, "rows of x and dy: the product of all of x's dimensions but the last")
      .called("M")
      .needing({"in_features", "out_features"})
      .positional();
  list.add("in_features", arguments.in_features, "columns of x and of the weight")
      .called("K")
      .needing({"tokens", "out_features"})
      .positional();
  list.add("out_features", arguments.out_features, "rows of the weight, columns of dy")
      .called("N")
      .needing({"tokens", "in_features"})
      .positional();
  list.add("recipes", arguments.recipes, "linear recipes (fp8lab linear-recipes lists them)")
      .spelled("--recipe")
      .also_called("--recipes")
      .by_default("all");
  list.add("parallel", arguments.parallel.mode, "how the layer is split over ranks: none, column or row");
  list.add("ranks", arguments.parallel.ranks, "the ranks that share the layer").needing({"parallel"});
  list.add("sequence_parallel", arguments.parallel.sequence_parallel,
           "ranks share the tokens, too, where the layer is not split")
      .needing({"parallel"});
}

Document run(const ShapesArguments& arguments, const Context& /*context*/) {
  return document_of(run_shapes(arguments));
}

}  // namespace

Document document_of(const ShapesResult& result) {
  const DefaultEnvironment environment;
  const ShapesArguments& arguments = result.arguments;
  std::vector<RecipeFit> rules;
  std::vector<RecipeFit> broken;
  for (const RecipeFits& recipe : result.recipes) {
    for (const ShapeFit& fit : recipe.fits) {
      rules.push_back({recipe.recipe.name, fit});
      if (!fit.fits()) broken.push_back({recipe.recipe.name, fit});
    }
  }
  Text intro{"layer",
             "",
             {fmt::format("A Linear layer with x ({0}, {1}), w ({2}, {1}) and dy ({0}, {2}){3}", arguments.tokens,
                          arguments.in_features, arguments.out_features, words_of(arguments.parallel)),
              "Systems refuse sizes that their casts, or the rows of their GEMMs' operands, do not fit: which pass of "
              "which recipe?"}};
  Text reading{"reading",
               "How to read it",
               {"te.Linear itself checks x and w alone, before its first GEMM: sizes that it takes may stop the "
                "backward pass. Each of the ranks that share a dimension wants the multiple. A nearest size fits all "
                "rules of the recipe. \"split\" is the layer's division into "
                "ranks, \"module\" te.Linear, \"quantizer\" what casts the operand, \"gemm\" cuBLAS or DeepGEMM."}};
  Document document{.sections = sections_of(
                        std::move(intro), verdict_of(result),
                        rules_table(broken, {.name = "broken", .title = "What does not fit"}), nearest_table(result),
                        rules_table(rules, {.name = "rules", .title = "All that is checked", .detail = true}),
                        std::move(reading))};
  document.passed = result.passed();
  return document;
}

std::vector<Experiment> shapes_experiments() {
  return {experiment<ShapesArguments>(
      {.name = "shapes",
       .summary = "Say which sizes of a Linear layer a recipe's system refuses, and the nearest that it takes",
       .description =
           "FP8 GEMMs want multiples of 8, 16, 32 or 128 of some dimensions of some operands, which differ by recipe, "
           "pass and GPU. The rules are those of Transformer Engine with cuBLAS, and of DeepSeek-V3 with DeepGEMM. "
           "linear() and its like refuse the same sizes with the same words.",
       .result = "tables `rules` (a row for each check), `broken` (those that fail) and `nearest` (a row for each "
                 "dimension)",
       .not_passed = "a size that a recipe's system refuses",
       .examples = {{"shapes 1000 4096 4096 --recipe te_mxfp8_blackwell", "1000 is no multiple of 32"},
                    {"shapes 4096 4096 11008 --parallel column --ranks 8", "every rank has a part of the weight"}},
       .small = R"({"tokens": 40, "in_features": 64, "out_features": 96, "recipes": ["te_mxfp8_blackwell", "exact"]})"},
      describe, run)};
}

}  // namespace fp8lab::experiments
