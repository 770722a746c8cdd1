// SPDX-License-Identifier: Apache-2.0
// Registers the lists of formats, models, recipes and others, with an explanation and a source for every entry.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/formats/targets.hpp"
#include "fp8lab/reference/linear/linear_recipe.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "fp8lab/reference/scaling/delayed_scaling.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "kit/experiment.hpp"

namespace fp8lab::experiments {
namespace {

struct NoArguments {};

Table formats_table() {
  const auto words = [](const NamedFormat& named) {
    const Format& f = named.format;
    return fmt::format("{} bits: {}, {} exponent bits with bias {}, {} mantissa bits", f.bits(),
                       f.is_signed ? "sign" : "no sign", f.exponent_bits, f.bias, f.mantissa_bits);
  };
  const auto fact = [](const char* name) { return Head{.name = name, .detail = true}; };
  return tabulate(named_formats, {.name = "formats", .layout = TableLayout::records})
      .column({"name"}, [](const NamedFormat& named) { return named.name; })
      .column({"description"}, [](const NamedFormat& named) { return named.description; })
      .column({"layout"}, words)
      .column(fact("bits"), [](const NamedFormat& named) { return named.format.bits(); })
      .column(fact("is_signed"), [](const NamedFormat& named) { return named.format.is_signed; })
      .column(fact("exponent_bits"), [](const NamedFormat& named) { return named.format.exponent_bits; })
      .column(fact("bias"), [](const NamedFormat& named) { return named.format.bias; })
      .column(fact("mantissa_bits"), [](const NamedFormat& named) { return named.format.mantissa_bits; });
}

Table profiles_table() {
  return tabulate(profiles, {.name = "profiles", .layout = TableLayout::records})
      .column({"name"}, [](const Profile& profile) { return profile.name; })
      .column({"description"}, [](const Profile& profile) { return fp8lab::describe(profile.policy); })
      .column({"source", "Source"}, [](const Profile& profile) { return profile.source; });
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

std::string operands_of(const MmaModel& model) {
  std::vector<std::string> names;
  for (const Format& format : model.operands) names.push_back(format_name(format));
  return joined(names);
}

/// A number that models with a fused step have, and `exact` has not.
std::optional<int> of_step(const MmaModel& model, int value) {
  return model.k() == 0 ? std::nullopt : std::optional(value);
}

Table models_table() {
  const auto number = [](const char* name, const char* title, int MmaModel::* member) {
    return std::pair{Head{.name = name,
                          .title = title,
                          .detail = std::string_view(name) == "group" || std::string_view(name) == "steps"},
                     [member](const MmaModel& model) { return of_step(model, model.*member); }};
  };
  const auto [products, products_of] = number("products_per_step", "products", &MmaModel::products_per_step);
  const auto [steps, steps_of] = number("steps", "steps", &MmaModel::steps);
  const auto [fraction, fraction_of] = number("fraction_bits", "fraction", &MmaModel::fraction_bits);
  const auto [group, group_of] = number("group", "group", &MmaModel::group);
  return tabulate(models, {.name = "models"})
      .column({"name"}, [](const MmaModel& model) { return model.name; })
      .column({.name = "maker", .detail = true}, [](const MmaModel& model) { return model.chip.maker; })
      .column({.name = "chip", .detail = true}, [](const MmaModel& model) { return model.chip.name; })
      .column({.name = "instruction", .detail = true}, [](const MmaModel& model) { return model.instruction; })
      .column({.name = "operands", .detail = true}, operands_of)
      .column({.name = "accumulator", .detail = true},
              [](const MmaModel& model) { return format_name(model.accumulator()); })
      .column({"k", "K"}, [](const MmaModel& model) { return of_step(model, model.k()); })
      .column(products, products_of)
      .column(steps, steps_of)
      .column(fraction, fraction_of)
      .column({"zero_exponent", "zero"},
              [](const MmaModel& model) {
                return model.zero_exponent == no_zero_exponent ? std::nullopt : std::optional(model.zero_exponent);
              })
      .column({.name = "result_bits", .title = "result", .detail = true},
              [](const MmaModel& model) { return model.output.mantissa_bits; })
      .column(group, group_of)
      .column({.name = "scale_format", .title = "scales", .detail = true},
              [](const MmaModel& model) {
                return model.scales ? std::optional(format_name(model.scales->format)) : std::nullopt;
              })
      .column({.name = "scale_block", .title = "block", .detail = true},
              [](const MmaModel& model) { return model.scales ? std::optional(model.scales->block) : std::nullopt; })
      .column({.name = "arithmetic", .detail = true}, [](const MmaModel& model) { return name_of(model.arithmetic); })
      .column({.name = "order", .detail = true}, [](const MmaModel& model) { return name_of(model.order); })
      .column({.name = "lowering", .detail = true}, [](const MmaModel& model) { return name_of(model.lowering); })
      .column({"evidence"}, [](const MmaModel& model) { return name_of(model.evidence); })
      .column({.name = "evidence_note", .detail = true}, [](const MmaModel& model) { return model.evidence_note; })
      .column({.name = "source", .detail = true}, [](const MmaModel& model) { return model.source; })
      .column({.name = "description", .detail = true}, [](const MmaModel& model) { return fp8lab::describe(model); });
}

Text columns_text() {
  return {
      .name = "columns",
      .title = "Columns",
      .paragraphs = {
          "An instruction adds K products in steps, each of so many products. A fused step aligns its products and the "
          "accumulator to the largest exponent among them, cuts them, and adds them exactly.",
          "fraction: bits that are kept below that exponent. zero: the exponent of a term that is zero, which bounds "
          "it from below. evidence: who has seen it, see below.",
          "zero comes from MMA-Sim 2.1.1, which counts it where a term is zero, and, without block scales, from "
          "Khattak and Mikaitis "
          "(code of August 2026), who always count it. No row measured on a device decides it."}};
}

/// A table of long texts about models, which would not fit into theirs: each once, with the models that share it.
template <typename TextOf>
Table shared_by(const char* name, const char* title, const TextOf& text_of) {
  struct Shared {
    std::string text;
    std::vector<std::string> names;
  };
  std::vector<Shared> all;
  for (const MmaModel& model : models) {
    const std::string text(text_of(model));
    auto found = std::ranges::find(all, text, &Shared::text);
    if (found == all.end()) found = all.insert(found, {text, {}});
    found->names.emplace_back(model.name);
  }
  return tabulate(all, {.name = name, .title = title, .layout = TableLayout::records})
      .column({"text"}, [](const Shared& shared) { return shared.text; })
      .column({"models"}, [](const Shared& shared) { return joined(shared.names); });
}

Table recipes_table() {
  struct Entry {
    std::string name, description, source;
  };
  std::vector<Entry> entries;
  for (const NamedRecipe& one : recipes()) {
    entries.push_back({std::string(one.name), fp8lab::describe(one.recipe), std::string(one.source)});
  }
  // The one recipe whose scales come from a state: its casts are those of given_scale.
  entries.push_back({"Delayed",
                     fp8lab::describe(Delayed{}) +
                         ". Its state is a history of amaxes: fp8lab delayed-versions lists " +
                         "its versions, fp8lab delayed replays them",
                     std::string(te_kernels)});
  return tabulate(entries, {.name = "recipes", .layout = TableLayout::records})
      .column({"name"}, [](const Entry& entry) { return entry.name; })
      .column({"description"}, [](const Entry& entry) { return entry.description; })
      .column({"source", "Source"}, [](const Entry& entry) { return entry.source; });
}

/// How a linear recipe casts a tensor: the name of the recipe with the codes' format, or the type it is rounded to.
std::string words_of(const LinearCast& cast) {
  if (const auto* format = std::get_if<Format>(&cast)) return format_name(*format);
  const auto& recipe = std::get<Recipe>(cast);
  for (const NamedRecipe& named : recipes()) {
    Recipe same = named.recipe;
    same.format = recipe.format;
    if (same != recipe) continue;
    const std::string name(named.name);
    return named.recipe.format == recipe.format ? name : name + " in " + format_name(recipe.format);
  }
  return fp8lab::describe(recipe);
}

Table linear_recipes_table() {
  using One = NamedLinearRecipe;
  return tabulate(linear_recipes(), {.name = "linear_recipes"})
      .column({"name"}, [](const One& one) { return one.name; })
      .column({"model", "tensor core"}, [](const One& one) { return one.recipe.fprop.recipe.model.name; })
      .column({"x"}, [](const One& one) { return words_of(one.recipe.fprop.a); })
      .column({"w"}, [](const One& one) { return words_of(one.recipe.fprop.b); })
      .column({"dy"}, [](const One& one) { return words_of(one.recipe.dgrad.a); })
      .column({.name = "description", .detail = true}, [](const One& one) { return fp8lab::describe(one.recipe); })
      .column({.name = "source", .detail = true}, [](const One& one) { return one.source; });
}

Table delayed_versions_table() {
  return tabulate(delayed_versions, {.name = "delayed_versions", .layout = TableLayout::records})
      .column({"name"}, [](const DelayedVersion& version) { return version.name; })
      .column({"description"}, [](const DelayedVersion& version) { return version.description; })
      .column({"source", "Source"}, [](const DelayedVersion& version) { return version.source; });
}

Table distributions_table() {
  return tabulate(distributions, {.name = "distributions", .layout = TableLayout::records})
      .column({"name"}, [](const Distribution& distribution) { return distribution.name; })
      .column({"description"}, [](const Distribution& distribution) { return distribution.description; });
}

Table targets_table() {
  const auto names = targets();
  return tabulate(names, {.name = "targets", .layout = TableLayout::records})
      .column({"name"}, [](std::string_view name) { return name; });
}

void describe(NoArguments& /*none*/, ArgumentList& /*list*/) {}

std::vector<Section> models_sections() {
  return sections_of(models_table(), columns_text(), shared_by("evidence", "Evidence", evidence_of),
                     shared_by("sources", "Sources", [](const MmaModel& model) { return model.source; }));
}

template <Table (*table)()>
std::vector<Section> only() {
  return sections_of(table());
}

template <std::vector<Section> (*sections)()>
Experiment list(const char* name, const char* summary) {
  return experiment<NoArguments>(
      {.name = name, .summary = summary, .python = false}, describe,
      [](const NoArguments& /*none*/, const Context& /*context*/) { return Document{.sections = sections()}; });
}

}  // namespace

std::vector<Experiment> lists_experiments() {
  return {list<only<formats_table>>("formats", "List the formats"),
          list<only<profiles_table>>("profiles",
                                     "List the profiles: what casts do with overflow, infinity, NaN, zero and sign"),
          list<models_sections>("models", "List the tensor cores that are modelled, with their evidence"),
          list<only<recipes_table>>("recipes", "List the scaling recipes: what shares a scale, and who makes it"),
          list<only<linear_recipes_table>>(
              "linear-recipes", "List the linear recipes: how a Linear layer casts and multiplies in each pass"),
          list<only<delayed_versions_table>>(
              "delayed-versions", "List the versions of delayed scaling: whose rules make a scale of an amax history"),
          list<only<distributions_table>>("distributions", "List the distributions that can be drawn from"),
          list<only<targets_table>>("targets", "List the vector instruction sets of this machine, best first")};
}

}  // namespace fp8lab::experiments
