// SPDX-License-Identifier: Apache-2.0
#include "delayed/delayed.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "kit/lists.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t most_scales = 1 << 24;
constexpr std::size_t steps_a_call = 4096;

std::uint32_t word_of(float x) { return std::bit_cast<std::uint32_t>(x); }

/// The pass, of the recipe's hybrid formats, whose format that is.
Pass pass_of(const ChosenFormat& format) {
  if (format.format == e4m3) return Pass::forward;
  if (format.format == e5m2) return Pass::backward;
  refuse("delayed scaling is for e4m3 and e5m2, not ", format.name);
}

/// A version's variants of one format.
void add_variants(const DelayedArguments& arguments, const DelayedVersion& version, Pass pass,
                  std::vector<DelayedVariant>& variants) {
  std::vector<AmaxComputeAlgo> algorithms{AmaxComputeAlgo::max};
  if (version.has_options()) algorithms = arguments.algorithms;
  for (const AmaxComputeAlgo algorithm : algorithms) {
    for (const long long length : arguments.histories) {
      Delayed recipe;
      recipe.version = version;
      recipe.margin = version.has_options() ? arguments.margin : 0;
      recipe.amax_history_len = static_cast<std::size_t>(length);
      recipe.amax_compute_algo = algorithm;
      recipe.reduce_amax = arguments.reduce_amax;
      check(recipe);
      variants.push_back({recipe, pass});
      if (algorithm == AmaxComputeAlgo::most_recent) break;
    }
  }
}

/// The tensors of a replay, still without scales.
std::vector<ReplayedTensor> tensors_of(const DelayedArguments& arguments) {
  std::vector<ReplayedTensor> tensors;
  for (const TracedTensor& traced : arguments.trace.tensors) {
    if (!arguments.reduce_amax && !traced.ranks.empty()) {
      for (std::size_t i = 0; i < traced.ranks.size(); ++i) {
        tensors.push_back({traced.name + "@" + std::to_string(traced.ranks[i]), traced.amaxes[i], {}});
      }
      continue;
    }
    ReplayedTensor& tensor = tensors.emplace_back(ReplayedTensor{traced.name, {}, {}});
    std::vector<float> of_ranks;
    for (std::size_t step = 0; step < arguments.trace.steps.size(); ++step) {
      checkpoint(step);
      of_ranks.clear();
      for (const std::vector<float>& amaxes : traced.amaxes) of_ranks.push_back(amaxes[step]);
      tensor.amaxes.push_back(reduced_amax(of_ranks));
    }
  }
  return tensors;
}

/// How far a scale is from another; NaN and infinities are further than all else.
double factor_of(float scale, float other) {
  if (word_of(scale) == word_of(other)) return 1;
  const double factor = static_cast<double>(scale) / static_cast<double>(other);
  return std::isnan(factor) ? std::numeric_limits<double>::infinity() : factor;
}
double width_of(double factor) { return factor < 1 ? 1 / factor : factor; }

/// Over the steps; the scale after the last is no cast's.
std::optional<Parting> parting_of(const std::vector<float>& scales, const std::vector<float>& others) {
  std::optional<Parting> parting;
  for (std::size_t step = 0; step + 1 < scales.size(); ++step) {
    if (word_of(scales[step]) == word_of(others[step])) continue;
    const double factor = factor_of(scales[step], others[step]);
    if (!parting) parting = Parting{step, factor, 0, step, factor};
    ++parting->count;
    if (width_of(factor) <= width_of(parting->widest_factor)) continue;
    parting->widest = step;
    parting->widest_factor = factor;
  }
  return parting;
}

/// Counts how often a variant's scales clip, and how much of the format's range they leave unused.
void judge(const DelayedVariant& variant, const std::vector<float>& amaxes, ReplayedScales& replayed) {
  const auto largest = static_cast<double>(fp8_max(variant.recipe, variant.pass));
  const int mantissa_bits = (variant.pass == Pass::forward ? e4m3 : e5m2).mantissa_bits;
  const double rounds_to_more = largest + std::ldexp(0.5, std::ilogb(largest) - mantissa_bits);
  double sum = 0;
  std::size_t count = 0;
  for (std::size_t step = 0; step < amaxes.size(); ++step) {
    const double scaled = static_cast<double>(amaxes[step]) * static_cast<double>(replayed.scales[step]);
    if (scaled > rounds_to_more) ++replayed.clipped;
    if (!std::isfinite(scaled) || scaled <= 0) continue;
    sum += std::log2(largest / scaled);
    ++count;
  }
  replayed.unused_binades = count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
}

/// Calls step() every so many casts.
template <typename Call>
ReplayedScales replay(const DelayedVariant& variant, const std::vector<float>& amaxes, const Call& call) {
  ReplayedScales replayed;
  AmaxHistory history = start_history(variant.recipe);
  for (std::size_t step = 0; step < amaxes.size(); ++step) {
    checkpoint();
    record_amax(variant.recipe, variant.pass, history, amaxes[step]);
    replayed.scales.push_back(history.scale);
    update_scale(variant.recipe, variant.pass, history);
    if ((step + 1) % steps_a_call == 0) call(step + 1);
  }
  replayed.scales.push_back(history.scale);
  judge(variant, amaxes, replayed);
  return replayed;
}

}  // namespace

std::vector<DelayedVariant> variants_of(const DelayedArguments& arguments) {
  check_filled_list("formats", arguments.formats);
  check_filled_list("versions", arguments.versions);
  check_filled_list("algorithms", arguments.algorithms);
  check_filled_list("history", arguments.histories);
  for (const long long length : arguments.histories) {
    if (length < 1 || std::cmp_greater(length, longest_amax_history)) {
      refuse("history must be from 1 to ", longest_amax_history, ", not ", length);
    }
  }
  std::vector<DelayedVariant> variants;
  for (const ChosenFormat& format : arguments.formats) {
    const Pass pass = pass_of(format);
    for (const DelayedVersion& version : arguments.versions) add_variants(arguments, version, pass, variants);
  }
  constexpr auto last_step = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!arguments.trace.steps.empty() && arguments.trace.steps.back() > last_step) {
    refuse("a step must be at most ", last_step, ", not ", arguments.trace.steps.back());
  }
  std::size_t columns = 0;
  for (const TracedTensor& tensor : arguments.trace.tensors) {
    columns += arguments.reduce_amax ? 1 : std::max<std::size_t>(1, tensor.ranks.size());
  }
  const std::size_t scales = arguments.trace.steps.size() * columns * variants.size();
  if (scales > most_scales) refuse("steps * tensors * variants must be at most ", most_scales, ", not ", scales);
  return variants;
}

DelayedResult run_delayed(const DelayedArguments& arguments, const Progress& progress) {
  const DefaultEnvironment environment;
  DelayedResult result{arguments, variants_of(arguments), tensors_of(arguments)};
  const auto all = static_cast<double>(result.tensors.size() * result.variants.size());
  std::size_t done = 0;
  for (ReplayedTensor& tensor : result.tensors) {
    std::optional<std::size_t> first;  // variant of the same format
    for (std::size_t i = 0; i < result.variants.size(); ++i) {
      const DelayedVariant& variant = result.variants[i];
      tensor.variants.push_back(replay(variant, tensor.amaxes, [&](std::size_t steps) {
        const double share = static_cast<double>(steps) / static_cast<double>(tensor.amaxes.size());
        if (progress) progress((static_cast<double>(done) + share) / all);
      }));
      if (!first || result.variants[*first].pass != variant.pass) first = i;
      tensor.variants[i].parting = parting_of(tensor.variants[i].scales, tensor.variants[*first].scales);
      if (progress) progress(static_cast<double>(++done) / all);
    }
  }
  return result;
}

}  // namespace fp8lab::experiments
