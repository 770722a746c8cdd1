// SPDX-License-Identifier: Apache-2.0
// What there is: each list with an explanation and a source for every entry.
#include <fmt/format.h>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/formats/targets.hpp"
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

Table models_table() {
  return tabulate(models, {.name = "models", .layout = TableLayout::records})
      .column({"name"}, [](const MmaModel& model) { return model.name; })
      .column({"description"}, [](const MmaModel& model) { return model.description; })
      .column({"source", "Source"}, [](const MmaModel& model) { return model.source; })
      .column({"evidence", "Evidence"}, [](const MmaModel& model) { return model.evidence; });
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

template <Table (*table)()>
Experiment list(const char* name, const char* summary) {
  return experiment<NoArguments>({.name = name, .summary = summary, .python = false}, describe,
                                 [](const NoArguments& /*none*/, const Context& /*context*/) {
                                   return Document{.sections = sections_of(table())};
                                 });
}

}  // namespace

std::vector<Experiment> lists_experiments() {
  return {
      list<formats_table>("formats", "List the formats"),
      list<profiles_table>("profiles", "List the profiles: what casts do with overflow, infinity, NaN, zero and sign"),
      list<models_table>("models", "List the tensor cores that are modelled, with their evidence"),
      list<recipes_table>("recipes", "List the scaling recipes: what shares a scale, and who makes it"),
      list<delayed_versions_table>("delayed-versions",
                                   "List the versions of delayed scaling: whose rules make a scale of an amax history"),
      list<distributions_table>("distributions", "List the distributions that can be drawn from"),
      list<targets_table>("targets", "List the vector instruction sets of this machine, best first")};
}

}  // namespace fp8lab::experiments
