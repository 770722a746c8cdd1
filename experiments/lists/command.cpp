// SPDX-License-Identifier: Apache-2.0
// What there is: each list with an explanation and a source for every entry.
#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/formats/targets.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "fp8lab/reference/scaling/delayed_scaling.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "kit/commands.hpp"

namespace fp8lab::experiments {
namespace {

std::string entry(std::string_view name, const std::string& text) { return std::string(name) + "\n    " + text + "\n"; }

std::string list_formats() {
  std::string text;
  for (const NamedFormat& named : named_formats) {
    const Format& f = named.format;
    text += entry(named.name, std::string(named.description) + "\n    " + std::to_string(f.bits()) +
                                  " bits: " + (f.is_signed ? "sign, " : "no sign, ") + std::to_string(f.exponent_bits) +
                                  " exponent bits with bias " + std::to_string(f.bias) + ", " +
                                  std::to_string(f.mantissa_bits) + " mantissa bits");
  }
  return text;
}

std::string list_profiles() {
  std::string text;
  for (const Profile& profile : profiles) {
    text += entry(profile.name, describe(profile.policy) + "\n    Source: " + std::string(profile.source));
  }
  return text;
}

std::string list_models() {
  std::string text;
  for (const MmaModel& model : models) {
    text += entry(model.name, std::string(model.description) + "\n    Source: " + std::string(model.source) +
                                  "\n    Evidence: " + std::string(model.evidence));
  }
  return text;
}

std::string list_delayed_versions() {
  std::string text;
  for (const DelayedVersion& version : delayed_versions) {
    text += entry(version.name, std::string(version.description) + "\n    Source: " + std::string(version.source));
  }
  return text;
}

std::string list_recipes() {
  std::string text;
  for (const NamedRecipe& one : recipes()) {
    text += entry(one.name, describe(one.recipe) + "\n    Source: " + std::string(one.source));
  }
  // The one recipe whose scales come from a state: its casts are those of given_scale.
  return text + entry("Delayed",
                      describe(Delayed{}) + "\n    Its state is a history of amaxes; fp8lab delayed-versions " +
                          "lists its versions, fp8lab delayed replays them\n    Source: " + std::string(te_kernels));
}

std::string list_distributions() {
  std::string text;
  for (const Distribution& distribution : distributions) {
    text += entry(distribution.name, std::string(distribution.description));
  }
  return text;
}

std::string list_targets() {
  std::string text;
  for (const std::string_view name : targets()) text += std::string(name) + "\n";
  return text;
}

void add_list_command(CLI::App& app, Command& chosen, const std::string& name, const std::string& help,
                      std::string (*list)()) {
  app.add_subcommand(name, help)->callback([list, &chosen] {
    chosen = [list] {
      print(list());
      return 0;
    };
  });
}

}  // namespace

void add_lists(CLI::App& app, Command& chosen) {
  add_list_command(app, chosen, "formats", "List the formats", list_formats);
  add_list_command(app, chosen, "profiles",
                   "List the profiles: what casts do with overflow, infinity, NaN, zero and sign", list_profiles);
  add_list_command(app, chosen, "models", "List the tensor cores that are modelled, with their evidence", list_models);
  add_list_command(app, chosen, "recipes", "List the scaling recipes: what shares a scale, and who makes it",
                   list_recipes);
  add_list_command(app, chosen, "delayed-versions",
                   "List the versions of delayed scaling: whose rules make a scale of an amax history",
                   list_delayed_versions);
  add_list_command(app, chosen, "distributions", "List the distributions that can be drawn from", list_distributions);
  add_list_command(app, chosen, "targets", "List the vector instruction sets of this machine, best first",
                   list_targets);
}

}  // namespace fp8lab::experiments
