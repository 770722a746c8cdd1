// SPDX-License-Identifier: Apache-2.0
// Registers the experiment `check`: what FP8 and FP4 would make of the weights of a model.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "check/check.hpp"
#include "check/plain_tensors.hpp"
#include "checkpoints/audit.hpp"
#include "checkpoints/audit_document.hpp"
#include "checkpoints/checkpoint.hpp"
#include "checkpoints/file_findings.hpp"
#include "checkpoints/recognize.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "kit/tensor_arguments.hpp"

namespace fp8lab::experiments {
namespace {

/// What the tables tell of a tensor: the recipe that loses most beside normal values, and the one that suits best.
struct TensorVerdict {
  std::size_t tensor;
  std::string name;
  double shortfall = 0;  ///< dB that the median row is below normal values by the recipe that loses most
  std::size_t worst = 0, best = 0;
  Suitability of_worst = Suitability::suits, of_best = Suitability::suits;
};

double share_zeroed(const CheckedTensor& tensor, std::size_t recipe) {
  return static_cast<double>(tensor.recipes[recipe].zeroed) / static_cast<double>(tensor.size());
}

double shortfall_of(const CheckResult& result, const CheckedTensor& tensor, std::size_t recipe) {
  const double own = tensor.recipes[recipe].median_row_sqnr_db;
  const double usual = result.normal.recipes[recipe].median_row_sqnr_db;
  if (suitability(result.arguments, result.normal, tensor, recipe) == Suitability::broken) {
    return std::numeric_limits<double>::infinity();
  }
  if (std::isnan(own) || (std::isinf(own) && own > 0)) return -std::numeric_limits<double>::infinity();
  return usual - own;
}

/// All tensors, worst first.
std::vector<TensorVerdict> verdicts_of(const CheckResult& result) {
  std::vector<SourceTensor> named;
  named.reserve(result.tensors.size());
  for (const CheckedTensor& one : result.tensors) named.push_back({.name = one.name, .type = {}, .shape = {}});
  const std::vector<std::string> names = names_in_tables(named);
  std::vector<TensorVerdict> all;
  for (std::size_t i = 0; i < result.tensors.size(); ++i) {
    const CheckedTensor& tensor = result.tensors[i];
    TensorVerdict verdict{.tensor = i, .name = names[i]};
    verdict.shortfall = -std::numeric_limits<double>::infinity();
    for (std::size_t recipe = 0; recipe < tensor.recipes.size(); ++recipe) {
      const double shortfall = shortfall_of(result, tensor, recipe);
      const Suitability suits = suitability(result.arguments, result.normal, tensor, recipe);
      if (recipe == 0 || std::pair(suits, shortfall) > std::pair(verdict.of_worst, verdict.shortfall)) {
        verdict.of_worst = suits;
        verdict.worst = recipe;
        verdict.shortfall = shortfall;
      }
      const double median = tensor.recipes[recipe].median_row_sqnr_db;
      const double before = tensor.recipes[verdict.best].median_row_sqnr_db;
      const bool is_better = suits < verdict.of_best || (suits == verdict.of_best && median > before);
      if (recipe == 0 || is_better) {
        verdict.best = recipe;
        verdict.of_best = suits;
      }
    }
    all.push_back(std::move(verdict));
  }
  std::ranges::stable_sort(all, [](const TensorVerdict& a, const TensorVerdict& b) {
    if (a.of_worst != b.of_worst) return a.of_worst > b.of_worst;
    return a.shortfall > b.shortfall;
  });
  return all;
}

/// Why a recipe does not suit a tensor, with the threshold; empty: it does.
std::string reason_of(const CheckResult& result, const CheckedTensor& tensor, std::size_t recipe) {
  const CheckedRecipe& one = tensor.recipes[recipe];
  const double usual = result.normal.recipes[recipe].median_row_sqnr_db;
  const CheckArguments& arguments = result.arguments;
  switch (suitability(arguments, result.normal, tensor, recipe)) {
    case Suitability::suits: return "";
    case Suitability::broken:
      if (tensor.not_finite > 0) return fmt::format("{} elements are infinite or NaN", tensor.not_finite);
      return "what comes back is not finite";
    case Suitability::hurts:
      return fmt::format("the median row has {:.1f} dB, normal values {:.1f}: more than {:g} below",
                         one.median_row_sqnr_db, usual, arguments.tolerance);
    case Suitability::small:
      return fmt::format("{:.1f} % of elements become zero, of normal values {:.1f} %: more than {:g} % above",
                         100 * share_zeroed(tensor, recipe), 100 * share_zeroed(result.normal, recipe),
                         100 * arguments.zeroed_tolerance);
    case Suitability::rows:
      return fmt::format("row {} has {:.1f} dB, normal values {:.1f}: more than {:g} below", one.worst_row,
                         one.worst_row_sqnr_db, usual, arguments.row_tolerance);
  }
  return "";
}

const std::string& recipe_name(const CheckResult& result, std::size_t recipe) {
  return result.arguments.recipes[recipe].name;
}

/// What a tensor is like, where that matters: its few largest, its rows of zeros.
std::string character_of(const CheckedTensor& tensor) {
  std::string words;
  if (tensor.concentration) words = concentration_words(*tensor.concentration, tensor.size());
  if (tensor.zero_rows > 0) {
    words += fmt::format("{}{} of {} rows {} zeros alone", words.empty() ? "" : "; ", tensor.zero_rows, tensor.rows,
                         tensor.zero_rows == 1 ? "has" : "have");
  }
  return words;
}

std::string verdict_words(const CheckResult& result, const TensorVerdict& verdict) {
  const CheckedTensor& tensor = result.tensors[verdict.tensor];
  std::string words;
  if (verdict.of_worst == Suitability::suits) {
    words = "every recipe suits it";
  } else {
    words = fmt::format("{}: {}", recipe_name(result, verdict.worst), reason_of(result, tensor, verdict.worst));
  }
  const std::string character = character_of(tensor);
  return character.empty() ? words : words + "; " + character;
}

Head decibel_head(const char* name, const char* title) {
  return {.name = name, .title = title, .unit = "dB", .notation = Notation::fixed, .digits = 2};
}

Table ranked_table(const CheckResult& result, std::span<const TensorVerdict> verdicts, Table facts) {
  const auto tensor = [&](const TensorVerdict& one) -> const CheckedTensor& { return result.tensors[one.tensor]; };
  return tabulate(verdicts, std::move(facts))
      .column({.name = "tensor"}, &TensorVerdict::name)
      .column({.name = "rows", .detail = true}, [=](const TensorVerdict& one) { return tensor(one).rows; })
      .column({.name = "columns", .detail = true}, [=](const TensorVerdict& one) { return tensor(one).columns; })
      .column({.name = "amax", .digits = 4}, [=](const TensorVerdict& one) { return tensor(one).amax; })
      .column({.name = "crest_factor", .title = "crest", .digits = 3},
              [=](const TensorVerdict& one) { return tensor(one).crest(); })
      .column({.name = "worst_recipe", .title = "loses most"},
              [&](const TensorVerdict& one) { return recipe_name(result, one.worst); })
      .column(decibel_head("worst_median_row_sqnr_db", "median row"),
              [=](const TensorVerdict& one) { return tensor(one).recipes[one.worst].median_row_sqnr_db; })
      .column(decibel_head("worst_row_sqnr_db", "worst row"),
              [=](const TensorVerdict& one) { return tensor(one).recipes[one.worst].worst_row_sqnr_db; })
      .column({.name = "best_recipe", .title = "best"},
              [&](const TensorVerdict& one) { return recipe_name(result, one.best); })
      .column(decibel_head("best_median_row_sqnr_db", "its median"),
              [=](const TensorVerdict& one) { return tensor(one).recipes[one.best].median_row_sqnr_db; })
      .column({.name = "suitability", .detail = true}, [](const TensorVerdict& one) { return name_of(one.of_worst); })
      .column({.name = "zero_rows", .detail = true}, [=](const TensorVerdict& one) { return tensor(one).zero_rows; })
      .column({.name = "not_finite", .detail = true}, [=](const TensorVerdict& one) { return tensor(one).not_finite; })
      .column({.name = "concentrated_elements", .detail = true},
              [=](const TensorVerdict& one) -> std::optional<std::uint64_t> {
                if (!tensor(one).concentration) return std::nullopt;
                return tensor(one).concentration->elements;
              })
      .column({.name = "concentrated_share", .detail = true},
              [=](const TensorVerdict& one) {
                return tensor(one).concentration ? tensor(one).concentration->share
                                                 : std::numeric_limits<double>::quiet_NaN();
              })
      .column({.name = "verdict", .detail = true},
              [&](const TensorVerdict& one) { return verdict_words(result, one); });
}

/// A row for each tensor and recipe.
Table measures_table(const CheckResult& result, const std::vector<TensorVerdict>& verdicts) {
  struct Row {
    const TensorVerdict& verdict;
    const CheckedTensor& tensor;
    std::size_t recipe;
  };
  std::vector<Row> rows;
  for (const TensorVerdict& one : verdicts) {
    for (std::size_t i = 0; i < result.arguments.recipes.size(); ++i)
      rows.push_back({one, result.tensors[one.tensor], i});
  }
  const auto of_recipe = [](auto CheckedRecipe::* member) {
    return [member](const Row& row) { return row.tensor.recipes[row.recipe].*member; };
  };
  const auto share_of = [](auto CheckedRecipe::* member) {
    return [member](const Row& row) {
      return static_cast<double>(row.tensor.recipes[row.recipe].*member) / static_cast<double>(row.tensor.size());
    };
  };
  return tabulate(rows, {.name = "measures", .title = "Every recipe on every tensor", .detail = true})
      .column({"tensor"}, [](const Row& row) { return row.verdict.name; })
      .column({"recipe"}, [&](const Row& row) { return recipe_name(result, row.recipe); })
      .column({.name = "sqnr_db", .unit = "dB"}, of_recipe(&CheckedRecipe::sqnr_db))
      .column({.name = "median_row_sqnr_db", .unit = "dB"}, of_recipe(&CheckedRecipe::median_row_sqnr_db))
      .column({.name = "worst_row_sqnr_db", .unit = "dB"}, of_recipe(&CheckedRecipe::worst_row_sqnr_db))
      .column({"worst_row"}, of_recipe(&CheckedRecipe::worst_row))
      .column({"zeroed_share"}, share_of(&CheckedRecipe::zeroed))
      .column({"subnormal_share"}, share_of(&CheckedRecipe::subnormal))
      .column({"blocks"}, of_recipe(&CheckedRecipe::blocks))
      .column({"clipped_blocks"}, of_recipe(&CheckedRecipe::clipped_blocks))
      .column({"bits_per_weight"}, of_recipe(&CheckedRecipe::bits_per_weight))
      .column(
          {"suitability"},
          [&](const Row& row) { return name_of(suitability(result.arguments, result.normal, row.tensor, row.recipe)); })
      .column({"reason"}, [&](const Row& row) { return reason_of(result, row.tensor, row.recipe); });
}

/// What a recipe makes of the model.
struct RecipeVerdict {
  std::size_t recipe;
  std::size_t suits = 0, not_suited = 0;  ///< tensors
  double weights_suited = 0;              ///< their share of all weights
  double bits = 0;                        ///< a weight
  double lowest = std::numeric_limits<double>::infinity();
};

std::vector<RecipeVerdict> recipe_verdicts(const CheckResult& result) {
  std::vector<RecipeVerdict> all;
  for (std::size_t i = 0; i < result.arguments.recipes.size(); ++i) {
    RecipeVerdict verdict{.recipe = i};
    double size = 0;
    for (const CheckedTensor& tensor : result.tensors) {
      const auto own = static_cast<double>(tensor.size());
      const bool suits = suitability(result.arguments, result.normal, tensor, i) == Suitability::suits;
      suits ? ++verdict.suits : ++verdict.not_suited;
      verdict.weights_suited += suits ? own : 0;
      verdict.bits += own * tensor.recipes[i].bits_per_weight;
      const double median = tensor.recipes[i].median_row_sqnr_db;
      if (!std::isnan(median)) verdict.lowest = std::min(verdict.lowest, median);
      size += own;
    }
    verdict.weights_suited /= size;
    verdict.bits /= size;
    all.push_back(verdict);
  }
  return all;
}

Table recipes_table(const CheckResult& result, const std::vector<RecipeVerdict>& verdicts) {
  return tabulate(verdicts, {.name = "recipes", .title = "The model by each recipe"})
      .column({"recipe"}, [&](const RecipeVerdict& one) { return recipe_name(result, one.recipe); })
      .column({.name = "bits_per_weight", .title = "bits", .notation = Notation::fixed, .digits = 2},
              &RecipeVerdict::bits)
      .column({.name = "suited_tensors", .title = "suits"}, &RecipeVerdict::suits)
      .column({.name = "not_suited_tensors", .title = "does not"}, &RecipeVerdict::not_suited)
      .column({.name = "suited_weights_share", .title = "weights", .notation = Notation::percent, .digits = 1},
              &RecipeVerdict::weights_suited)
      .column(decibel_head("lowest_median_row_sqnr_db", "lowest median"), &RecipeVerdict::lowest)
      .column(decibel_head("normal_median_row_sqnr_db", "normal values"),
              [&](const RecipeVerdict& one) { return result.normal.recipes[one.recipe].median_row_sqnr_db; });
}

/// "model.layers.3" of "model.layers.3.mlp.up_proj.weight": up to the first part that is a number; else the name.
std::string layer_of(const std::string& name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) return name.substr(0, end);
    begin = end + 1;
  }
  return name;
}

/// A row for each layer: its worst tensor.
Table layers_table(const CheckResult& result, const std::vector<TensorVerdict>& verdicts) {
  struct Layer {
    std::string name;
    std::size_t tensors = 0, not_suited = 0;
    const TensorVerdict* worst = nullptr;
  };
  std::map<std::size_t, Layer> by_first;  // in the order of their first tensors
  std::map<std::string, std::size_t> firsts;
  for (std::size_t i = 0; i < result.tensors.size(); ++i) {
    firsts.try_emplace(layer_of(result.tensors[i].own_name), i);
  }
  for (const TensorVerdict& one : verdicts) {  // worst first
    const std::string name = layer_of(result.tensors[one.tensor].own_name);
    Layer& layer = by_first[firsts.at(name)];
    layer.name = name;
    ++layer.tensors;
    if (one.of_worst != Suitability::suits) ++layer.not_suited;
    if (layer.worst == nullptr) layer.worst = &one;
  }
  std::vector<Layer> layers;
  layers.reserve(by_first.size());
  for (auto& [first, layer] : by_first) layers.push_back(std::move(layer));
  return tabulate(layers, {.name = "layers", .title = "Layers", .detail = true})
      .column({"layer"}, &Layer::name)
      .column({"tensors"}, &Layer::tensors)
      .column({"not_suited"}, &Layer::not_suited)
      .column({"worst_tensor"}, [](const Layer& one) { return one.worst->name; })
      .column({"suitability"}, [](const Layer& one) { return name_of(one.worst->of_worst); })
      .column({"verdict"}, [&](const Layer& one) { return verdict_words(result, *one.worst); });
}

Text intro(const CheckResult& result) {
  std::size_t weights = 0;
  for (const CheckedTensor& tensor : result.tensors) weights += tensor.size();
  return {"intro",
          "",
          {"Checking " + result.source, fmt::format("Tensors: {}; weights: {}; recipes: {}", result.tensors.size(),
                                                    weights, result.arguments.recipes.size())}};
}

/// The sentence that answers the question.
Text model_verdict(const CheckResult& result, const std::vector<RecipeVerdict>& recipes,
                   const std::vector<TensorVerdict>& tensors) {
  Text text{.name = "verdict", .title = "Verdict"};
  std::vector<const RecipeVerdict*> all;
  for (const RecipeVerdict& one : recipes) {
    if (one.not_suited == 0) all.push_back(&one);
  }
  if (!all.empty()) {
    const RecipeVerdict* fewest =
        *std::ranges::min_element(all, {}, [](const RecipeVerdict* one) { return one->bits; });
    std::string names;
    for (const RecipeVerdict* one : all) names += (names.empty() ? "" : ", ") + recipe_name(result, one->recipe);
    text.paragraphs.push_back(fmt::format(
        "No tensor loses more than normal values do by: {}. The fewest bits of these has {}, {:.2f} a weight.", names,
        recipe_name(result, fewest->recipe), fewest->bits));
  } else {
    const auto most = std::ranges::max_element(recipes, {}, &RecipeVerdict::weights_suited);
    text.paragraphs.push_back(fmt::format(
        "Every recipe loses more on some tensor than on normal values. {} suits most: {} of {} tensors, {:.1f} % of "
        "the weights.",
        recipe_name(result, most->recipe), most->suits, result.tensors.size(), 100 * most->weights_suited));
  }
  constexpr std::size_t most_told = 5;
  for (const TensorVerdict& one : std::span(tensors).first(std::min(most_told, tensors.size()))) {
    if (one.of_worst == Suitability::suits && character_of(result.tensors[one.tensor]).empty()) continue;
    text.paragraphs.push_back((one.name.empty() ? "" : one.name + ": ") + verdict_words(result, one) + ".");
  }
  return text;
}

void add_plan(const CheckResult& result, std::vector<Section>& sections) {
  if (!result.arguments.min_sqnr && !result.arguments.bits_per_weight) return;
  const Plan plan = plan_of(result);
  if (result.arguments.plan) write_plan(result, plan, *result.arguments.plan);
  struct Row {
    std::string module;
    const PlannedGroup& group;
  };
  std::vector<Row> rows;
  std::size_t as_is = 0;
  for (const PlannedGroup& group : plan.groups) {
    for (const std::string& module : group.modules) rows.push_back({module, group});
    if (!group.recipe) as_is += group.modules.size();
  }
  std::string words = fmt::format("Plan: {} of {} modules stay in bfloat16; {:.3f} bits a weight in all.", as_is,
                                  rows.size(), plan.bits_per_weight);
  if (result.arguments.plan) {
    words += " Its files are compressed_tensors.json (a quantization_config) and hf_quant_config.json (ModelOpt's).";
  }
  sections.emplace_back(Text{"plan_words", "", {std::move(words)}});
  sections.emplace_back(Table(
      tabulate(rows, {.name = "plan", .title = "What each module is stored as", .detail = rows.size() > 40})
          .column({"module"}, &Row::module)
          .column({"recipe"},
                  [&](const Row& row) {
                    return row.group.recipe ? recipe_name(result, *row.group.recipe) : std::string("bfloat16");
                  })
          .column(decibel_head("median_row_sqnr_db", "median row"), [](const Row& row) { return row.group.sqnr_db; })));
}

Text reading(const CheckResult& result) {
  const CheckArguments& arguments = result.arguments;
  return {"reading",
          "How to read it",
          {"SQNR: 10 log10(sum of value^2 / sum of error^2) of what comes back in float32. Few large elements decide "
           "that of a whole tensor; the median row is what they cannot hide. Crest: amax over the root mean square, 4 "
           "to 6 for normal values.",
           fmt::format("A recipe suits a tensor where the median row is at most {:g} dB below what the same recipe "
                       "makes of 256 x 4096 normal values, every row at most {:g} dB below it, and at most {:g} % more "
                       "elements become zero (tolerance, row_tolerance, zeroed_tolerance).",
                       arguments.tolerance, arguments.row_tolerance, 100 * arguments.zeroed_tolerance),
           "That is a statement about weights. What it means for a model's answers, only the model tells."}};
}

/// The names of tensors in tables, by their numbers.
std::vector<std::string> names_by_tensor(const CheckResult& result, const std::vector<TensorVerdict>& verdicts) {
  std::vector<std::string> names(result.tensors.size());
  for (const TensorVerdict& one : verdicts) names[one.tensor] = one.name;
  return names;
}

/// NaN, where there is nothing to compare, is no loss.
double ranked_sqnr(const CheckedOutputs& one) {
  return std::isnan(one.sqnr_db) ? std::numeric_limits<double>::infinity() : one.sqnr_db;
}

/// Worst first.
Table outputs_table(const CheckResult& result, const std::vector<std::string>& names) {
  constexpr std::size_t most_shown = 40;
  std::vector<CheckedOutputs> rows = result.outputs;
  std::ranges::stable_sort(rows, {}, ranked_sqnr);
  return tabulate(rows, {.name = "outputs",
                         .title = "Outputs of layers, worst first, and what each cause alone leaves",
                         .detail = rows.size() > most_shown})
      .column({.name = "layer"}, [&](const CheckedOutputs& one) { return names[one.tensor]; })
      .column({.name = "recipe"}, [&](const CheckedOutputs& one) { return recipe_name(result, one.recipe); })
      .column({.name = "tensor_core", .detail = true}, &CheckedOutputs::core)
      .column(decibel_head("sqnr_db", "output"), &CheckedOutputs::sqnr_db)
      .column(decibel_head("weight_sqnr_db", "weight"), &CheckedOutputs::weight_sqnr_db)
      .column(decibel_head("activations_sqnr_db", "inputs"), &CheckedOutputs::inputs_sqnr_db)
      .column(decibel_head("accumulation_sqnr_db", "sums"), &CheckedOutputs::accumulation_sqnr_db)
      .column(decibel_head("worst_row_sqnr_db", "worst row"), &CheckedOutputs::worst_row_sqnr_db)
      .column({.name = "worst_row", .title = "row"}, &CheckedOutputs::worst_row)
      .column({.name = "rows", .detail = true}, &CheckedOutputs::rows)
      .column({.name = "of_rows", .detail = true}, &CheckedOutputs::of_rows)
      .column({.name = "not_finite", .detail = true}, &CheckedOutputs::not_finite);
}

std::string outputs_words(const CheckResult& result, const CheckedOutputs& one, const std::string& name) {
  return fmt::format(
      "{} by {} on {}: {:.1f} dB (the weight's cast alone leaves {:.1f} dB, the inputs' {:.1f}, the core's sums "
      "{:.1f})",
      name, recipe_name(result, one.recipe), one.core, one.sqnr_db, one.weight_sqnr_db, one.inputs_sqnr_db,
      one.accumulation_sqnr_db);
}

/// How many outputs by a recipe have less than min_sqnr; empty: none has.
std::string below_words(const CheckResult& result, double min_sqnr, std::size_t recipe,
                        const std::vector<std::string>& names) {
  std::size_t all = 0;
  std::size_t below = 0;
  const CheckedOutputs* lowest = nullptr;
  for (const CheckedOutputs& one : result.outputs) {
    if (one.recipe != recipe) continue;
    ++all;
    if (!(one.sqnr_db < min_sqnr)) continue;
    ++below;
    if (lowest == nullptr || one.sqnr_db < lowest->sqnr_db) lowest = &one;
  }
  if (below == 0) return "";
  return fmt::format("{} of {} outputs by {} have less than {:g} dB (min_sqnr); the worst, {}, has {:.1f} dB.", below,
                     all, recipe_name(result, recipe), min_sqnr, names[lowest->tensor], lowest->sqnr_db);
}

void add_outputs(const CheckResult& result, const std::vector<TensorVerdict>& verdicts,
                 std::vector<Section>& sections) {
  if (result.outputs.empty()) return;
  const std::vector<std::string> names = names_by_tensor(result, verdicts);
  const auto worst = std::ranges::min_element(result.outputs, {}, ranked_sqnr);
  Text text{.name = "outputs_verdict"};
  text.paragraphs.push_back("Worst of all outputs are those of " + outputs_words(result, *worst, names[worst->tensor]) +
                            ".");
  if (const std::optional<double>& least = result.arguments.min_sqnr) {
    for (std::size_t recipe = 0; recipe < result.arguments.recipes.size(); ++recipe) {
      if (std::string words = below_words(result, *least, recipe, names); !words.empty()) {
        text.paragraphs.push_back(std::move(words));
      }
    }
  }
  sections.emplace_back(std::move(text));
  sections.emplace_back(outputs_table(result, names));
}

/// The arguments as a user gives them.
struct CheckOptions {
  CheckArguments arguments;
  TensorArguments inputs = {};  ///< of layers
  TensorArguments tensors{.draws = {.rows = 256, .columns = 1024}};
  std::optional<std::filesystem::path> original = {};  ///< of a quantized model
};

void describe(CheckOptions& options, ArgumentList& list) {
  CheckArguments& arguments = options.arguments;
  TensorArguments& tensors = options.tensors;
  tensors.add_arrays(list, "bfloat16 as such, float16 as float32, float64 rounded to float32");
  list.add(
          "file", tensors.files,
          "the model: .safetensors, .npy, .npz or GGUF files, the *.index.json of a checkpoint, or a folder with these")
      .called("MODEL")
      .also_called("--files")
      .positional()
      .excluding({"x"});
  list.add("original", options.original, "the model before it was quantized, which each weight is held against")
      .called("MODEL")
      .by_default("a quantized model is judged by its own files")
      .needing({"file"});
  list.add("tensors", tensors.names,
           "names of the tensors to measure, or patterns such as 'model.layers.[0-3].*_proj.weight'")
      .called("NAME ...")
      .as_words()
      .by_default("all")
      .needing({"file"});
  list.add("recipes", arguments.recipes, "what to quantize by (fp8lab recipes lists them)");
  list.add("ignore", arguments.ignore, "patterns of tensors that stay as they are, or none").or_none();
  list.add("tolerance", arguments.tolerance, "dB below normal values that the median row may have");
  list.add("row_tolerance", arguments.row_tolerance, "dB below normal values that the worst row may have");
  list.add("zeroed_tolerance", arguments.zeroed_tolerance,
           "the share of elements that may become zero, above that of normal values");
  list.add("activations", options.inputs.arrays,
           "inputs of layers, (tokens, columns of the weight), by the names of their weights; or a path, which means "
           "`activations_file`")
      .by_default("outputs are not measured")
      .only_python();
  list.add("activations_file", options.inputs.files,
           "inputs of layers, whose outputs are measured, too: NAME.npy, or tensors NAME or NAME.input of .safetensors "
           "files, NAME that of the weight, with or without .weight")
      .called("DIR")
      .spelled("--activations")
      .by_default("outputs are not measured")
      .excluding({"activations", "scheduler", "original"});
  list.add("activation_rows", arguments.activation_rows,
           "how many rows of inputs are taken, in equal steps; a scale of the tensor is made of them alone");
  list.add("tensor_cores", arguments.tensor_cores, "models that multiply (fp8lab models lists them)")
      .by_default("one of H100 or B200 that takes the recipe");
  list.add("min_sqnr", arguments.min_sqnr,
           "plan: the fewest bits by which the median row of each tensor has so many dB, or bfloat16")
      .by_default("no plan")
      .excluding({"bits_per_weight"});
  list.add("bits_per_weight", arguments.bits_per_weight, "plan: the least noise with so many bits a weight")
      .by_default("no plan");
  list.add("plan", arguments.plan, "a folder where the plan is written as compressed-tensors and ModelOpt read it")
      .by_default("nothing is written");
  list.add("checkpoint", arguments.checkpoint,
           "a file where the result of each tensor, or weight, is kept as soon as it is known")
      .by_default("nothing is kept")
      .needing({"file"});
  list.add("resume", arguments.resume, "go on from the checkpoint").needing({"checkpoint"});
  list.add("scheduler", arguments.scheduler,
           "measure or audit on the workers of a Dask cluster, which read the same files: tcp://HOST:PORT of its "
           "scheduler")
      .called("ADDRESS")
      .by_default("this process measures")
      .needing({"file"});
  tensors.add_draws(list);
  tensors.add_shape(list);
  tensors.add_outliers(list);
  list.add_threads(arguments.threads);
}

/// The files of a model, each as a checkpoint; what cannot be opened as one is told by the reader of numbers.
std::vector<Checkpoint> checkpoints_of(const CheckOptions& options) {
  std::vector<Checkpoint> all;
  for (const std::filesystem::path& path : options.tensors.files) {
    try {
      all.emplace_back(path);
    } catch (const std::runtime_error&) {
      if (options.original) throw;
    }
  }
  return all;
}

/// The audit of a quantized model; none where its files hold numbers alone.
std::optional<Document> audit_of(const CheckOptions& options, std::span<const Checkpoint> checkpoints,
                                 const Context& context) {
  if (options.tensors.files.size() != 1) {
    if (options.original) refuse("original goes with one model, not with ", options.tensors.files.size());
    return {};
  }
  if (checkpoints.empty()) return {};
  const Checkpoint& quantized = checkpoints.front();
  const Recognition recognition = recognize(quantized);
  const bool is_quantized =
      !recognition.weights.empty() || !recognition.incomplete.empty() || !recognition.method.empty();
  if (!is_quantized && !options.original) return {};
  if (!options.inputs.files.empty()) refuse("activations go with a model that is not quantized");
  const CheckArguments& arguments = options.arguments;
  if (arguments.scheduler) check_cluster(context);
  std::optional<Checkpoint> original;
  if (options.original) original.emplace(*options.original);
  const Checkpoint* beside = original ? &*original : nullptr;
  AuditRun run(quantized, recognition, beside,
               {.threads = arguments.threads,
                .progress = context.progress,
                .checkpoint = arguments.checkpoint,
                .resume = arguments.resume,
                .kept = context.kept});
  if (arguments.scheduler) context.cluster(*arguments.scheduler, run);
  return document_of(run.result(), quantized, recognition, beside);
}

/// What is wrong with the files of a model that is measured, but for tensors that are not asked for.
std::vector<CheckpointFinding> damage_of(std::span<const Checkpoint> checkpoints,
                                         const std::vector<std::string>& names) {
  const auto is_asked_for = [&](const std::string& tensor) {
    return std::ranges::any_of(names, [&](const std::string& name) { return names_tensor(name, tensor); });
  };
  std::vector<CheckpointFinding> all;
  for (const Checkpoint& checkpoint : checkpoints) {
    std::vector<CheckpointFinding> some = findings_of_files(checkpoint, [&](const FileProblem& problem) {
      return names.empty() || problem.tensors.empty() || std::ranges::any_of(problem.tensors, is_asked_for);
    });
    std::ranges::move(some, std::back_inserter(all));
  }
  return all;
}

void add_damage(const std::vector<CheckpointFinding>& damage, Document& document) {
  if (damage.empty()) return;
  document.passed = false;
  Text text{.name = "files_verdict"};
  text.paragraphs.push_back(
      damage.size() == 1
          ? std::string("The files of the model are damaged, as the finding below tells. What can be read is measured.")
          : fmt::format("The files of the model are damaged, as the {} findings below tell. What can be read is "
                        "measured.",
                        damage.size()));
  const auto behind_verdict = document.sections.begin() + 2;
  const auto at = document.sections.insert(behind_verdict, findings_table_of(damage));
  document.sections.insert(at, std::move(text));
}

Document run(const CheckOptions& options, const Context& context) {
  refuse_pickled(options.tensors.files);
  const std::vector<Checkpoint> checkpoints = checkpoints_of(options);
  if (std::optional<Document> audited = audit_of(options, checkpoints, context)) return *std::move(audited);
  CheckArguments arguments = options.arguments;
  arguments.source = options.tensors.source();
  const TensorArguments& inputs = options.inputs;
  if (!inputs.arrays.empty() || !inputs.files.empty()) arguments.activations = inputs.source();
  if (arguments.activations && arguments.scheduler) refuse("activations cannot be given with scheduler");
  Document document = document_of(run_check(arguments, context));
  add_damage(damage_of(checkpoints, options.tensors.names), document);
  return document;
}

}  // namespace

Document document_of(const CheckResult& result) {
  const DefaultEnvironment environment;
  constexpr std::size_t most_shown = 25;
  const std::vector<TensorVerdict> verdicts = verdicts_of(result);
  const std::vector<RecipeVerdict> recipes = recipe_verdicts(result);
  Document document;
  std::vector<Section>& sections = document.sections;
  sections = sections_of(intro(result), model_verdict(result, recipes, verdicts), recipes_table(result, recipes));
  add_outputs(result, verdicts, sections);
  if (verdicts.size() > most_shown) {
    sections.emplace_back(ranked_table(result, std::span(verdicts).first(most_shown),
                                       {.name = "worst", .title = fmt::format("The worst {} tensors", most_shown)}));
  }
  sections.emplace_back(ranked_table(
      result, verdicts, {.name = "tensors", .title = "Tensors, worst first", .detail = verdicts.size() > most_shown}));
  sections.emplace_back(layers_table(result, verdicts));
  add_plan(result, sections);
  sections.emplace_back(measures_table(result, verdicts));
  add_left_out(result.left_out, result.tensors.size(), sections);
  sections.emplace_back(reading(result));
  return document;
}

std::vector<Experiment> check_experiments() {
  return {experiment<CheckOptions>(
      {.name = "check",
       .summary = "Tell what FP8 and FP4 make of the weights of a model: verdict, ranked tensors, plan",
       .description =
           "Every recipe is measured on every tensor of two dimensions or more, a band of rows at a time; a stack of "
           "experts is a matrix for each. The median and the worst row tell what the few largest elements hide. What a "
           "recipe makes of normal values says what it must lose; a tensor that loses more is told with the reason.",
       .result =
           "of a quantized model: text `verdict`, tables `findings` (tensor, kind, words, where, loss), `weights` "
           "and `warnings` of what loaders misread; else texts `verdict`, where files are damaged `files_verdict` with "
           "table `findings`, and, with min_sqnr or bits_per_weight, `plan_words`; with activations text "
           "`outputs_verdict` and table `outputs` (layer, recipe, tensor core, "
           "causes); tables `recipes`, `tensors` (worst first), `worst` where these are many, `layers`, `plan`, "
           "`measures` "
           "(a row for each tensor and recipe) and `left_out`",
       .passed = "nothing is wrong",
       .not_passed = "something is wrong with the files, or with a quantized model",
       .status_not_passed = 1,
       .passed_in_part = "its layout is not known",
       .status_in_part = 4,
       .examples = {{"check model.safetensors.index.json", "will FP8 hurt my model?"},
                    {"check DIR --tensors 'model.layers.[0-3].*' --recipes ocp_mxfp8_e4m3,modelopt_nvfp4", ""},
                    {"check QUANTIZED --original DIR", "which recipe made each weight, and what is damaged?"},
                    {"check DIR --bits-per-weight 5 --plan OUT", "which tensors to keep in bfloat16"},
                    {"check DIR --activations INPUTS --recipes modelopt_fp8", "what layers' outputs lose, and why"}},
       .small = R"({"rows": 128, "columns": 256, "outlier_rows": [1, 20], "recipes": ["modelopt_fp8", "ocp_mxfp4"],
"min_sqnr": 20})",
       .saves_when_stopped = true},
      describe, run)};
}

}  // namespace fp8lab::experiments
