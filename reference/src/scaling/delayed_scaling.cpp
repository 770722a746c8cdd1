// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/delayed_scaling.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/scaling/delayed_rule.hpp"

namespace fp8lab {
namespace {

constexpr int largest_margin = 62;

constexpr std::array fp8_formats{Named<Fp8Format>{"hybrid", Fp8Format::hybrid},
                                 Named<Fp8Format>{"e4m3", Fp8Format::e4m3_only}};
constexpr std::array amax_compute_algos{Named<AmaxComputeAlgo>{"max", AmaxComputeAlgo::max},
                                        Named<AmaxComputeAlgo>{"most_recent", AmaxComputeAlgo::most_recent}};
static_assert(is_in_order(fp8_formats) && is_in_order(amax_compute_algos));

void check_length(std::size_t length) {
  if (length < 1 || length > longest_amax_history) {
    refuse("amax_history_len must be from 1 to ", longest_amax_history, ", not ", length);
  }
}

/// PyTorch's quotient of a number and a tensor, in eager mode and TorchScript.
template <typename Real>
Real torch_quotient(Real number, Real tensor) {
  const Real reciprocal = 1 / tensor;
  return reciprocal * number;
}

float formula_power_of_two(float largest, int margin, float amax, float old_scale) {
  // log2 in double, rounded to float32, is its correctly rounded value: a logarithm is not halfway between two floats.
  const float quotient = torch_quotient(largest, amax);
  const float exponent =
      std::floor(static_cast<float>(std::log2(static_cast<double>(quotient)))) - static_cast<float>(margin);
  float scale = old_scale;
  if (is_usable_amax(amax)) {
    const float magnitude = std::abs(exponent);
    scale = magnitude < 128 ? std::ldexp(1.0F, static_cast<int>(magnitude)) : std::numeric_limits<float>::infinity();
  }
  return exponent < 0 ? 1 / scale : scale;
}

template <typename Real>
float formula_clamped_quotient(Real largest, Real amax) {
  constexpr auto least = static_cast<Real>(1e-12);
  return static_cast<float>(torch_quotient(largest, amax < least ? least : amax));
}

/// The recipe's rules once a function for the amax has chosen the unfused path.
struct Rules {
  HistoryRule history;
  ScaleFormula formula;
};
Rules rules_of(const Delayed& recipe) {
  const DelayedVersion& version = recipe.version;
  const bool fused = version.history == HistoryRule::bulk_kernel || version.history == HistoryRule::single_kernel;
  if (fused && std::holds_alternative<AmaxFunction>(recipe.amax_compute_algo)) {
    return {HistoryRule::unfused, ScaleFormula::margin_last};
  }
  return {version.history, version.formula};
}

/// CUDA's fmaxf over the rows, starting from 0.
float largest_number(std::span<const float> amaxes) {
  float largest = 0;
  for (const float amax : amaxes) largest = std::fmax(largest, amax);
  return largest;
}

/// torch.max over the rows.
float largest_or_nan(std::span<const float> amaxes) {
  float largest = 0;
  for (const float amax : amaxes) {
    if (std::isnan(amax)) return amax;
    largest = std::max(largest, amax);
  }
  return largest;
}

/// Where the amax stands that makes the scale, or what it is, by torch's operations.
std::variant<float, AmaxRow> chosen_amax(const Delayed& recipe, std::span<const float> amaxes) {
  if (const auto* function = std::get_if<AmaxFunction>(&recipe.amax_compute_algo)) {
    const DefaultEnvironment environment;  // whatever it leaves behind
    return (*function)(amaxes);
  }
  switch (std::get<AmaxComputeAlgo>(recipe.amax_compute_algo)) {
    case AmaxComputeAlgo::max: return largest_or_nan(amaxes);
    case AmaxComputeAlgo::most_recent: break;
  }
  return amaxes.front();
}

/// Transformer Engine's way: row 0 becomes the last one, the others move up, and row 0 is zero again.
void roll(std::vector<float>& amaxes) {
  std::ranges::rotate(amaxes, amaxes.begin() + 1);
  amaxes.front() = 0;
}

/// The kernels compute the maximum while they roll: the oldest row takes part a last time.
float update_fused(const Delayed& recipe, std::vector<float>& amaxes, bool zero_rolls) {
  const float last = amaxes.front();
  if (last == 0 && !zero_rolls) return 0;
  const float amax =
      std::get<AmaxComputeAlgo>(recipe.amax_compute_algo) == AmaxComputeAlgo::max ? largest_number(amaxes) : last;
  roll(amaxes);
  return amax;
}

/// Whether a view of the window shows, after the update, what has moved.
bool moves_in_place(MovedWindow moved, std::size_t length) {
  switch (moved) {
    case MovedWindow::beside: return false;
    case MovedWindow::beside_unless_short: return length == 1;
    case MovedWindow::in_place: break;
  }
  return true;
}

float update_unfused(const Delayed& recipe, std::vector<float>& amaxes) {
  const std::variant<float, AmaxRow> chosen = chosen_amax(recipe, amaxes);
  const auto* row = std::get_if<AmaxRow>(&chosen);
  if (row != nullptr && row->index >= amaxes.size()) {
    refuse("what amax_compute_algo returns must be a row of the ", amaxes.size(), " amaxes, not ", row->index);
  }
  const float amax = row == nullptr ? std::get<float>(chosen) : amaxes[row->index];
  roll(amaxes);
  return row != nullptr && moves_in_place(recipe.version.moved_window, amaxes.size()) ? amaxes[row->index] : amax;
}

/// Row 0 stays until the next cast overwrites it or the caller clears it; row 1 keeps the first step's.
float update_torchao(std::vector<float>& amaxes, bool is_first) {
  if (is_first && amaxes.size() > 1) amaxes[1] = amaxes[0];
  return largest_or_nan(amaxes);
}

/// The optimizer's step: rows move toward the oldest, and row 0 is zero again.
float update_ms_amp(std::vector<float>& amaxes) {
  const float amax = largest_or_nan(amaxes);
  std::ranges::rotate(amaxes, amaxes.end() - 1);
  amaxes.front() = 0;
  return amax;
}

bool is_just_in_time(const AmaxHistory& history) {
  return history.amaxes.size() == 1 || history.position < history.amaxes.size();
}

/// Kernels take the larger of two amaxes as integers, by their bits: NaN is above all.
float larger_bits(float a, float b) {
  return std::bit_cast<float>(std::max(std::bit_cast<std::int32_t>(a), std::bit_cast<std::int32_t>(b)));
}

void check_history(const Delayed& recipe, const AmaxHistory& history) {
  check_length(recipe.amax_history_len);
  if (history.amaxes.size() != recipe.amax_history_len) {
    refuse("the history has ", history.amaxes.size(), " amaxes, and the recipe's amax_history_len is ",
           recipe.amax_history_len, ": resize it");
  }
}

}  // namespace

const DelayedVersion& find_delayed_version(std::string_view name) {
  return find_named(delayed_versions, "version of delayed scaling", name);
}
std::span<const Named<Fp8Format>> named_values(Fp8Format /*any*/) { return fp8_formats; }
std::span<const Named<AmaxComputeAlgo>> named_values(AmaxComputeAlgo /*any*/) { return amax_compute_algos; }

void check(const Delayed& recipe) {
  const DefaultEnvironment environment;
  check_length(recipe.amax_history_len);
  if (recipe.margin < -largest_margin || recipe.margin > largest_margin) {
    refuse("margin must be from ", -largest_margin, " to ", largest_margin, ", not ", recipe.margin);
  }
  if (recipe.interval < 1) refuse("interval must be at least 1, not ", recipe.interval);
  if (recipe.override_linear_precision.fprop || recipe.override_linear_precision.dgrad) {
    refuse("override_linear_precision may be true for wgrad alone, the last of fprop, dgrad, wgrad");
  }
  const auto* function = std::get_if<AmaxFunction>(&recipe.amax_compute_algo);
  if (function != nullptr && !*function) refuse("amax_compute_algo must be max, most_recent or a function");
  if (recipe.version.has_options()) return;
  if (recipe.margin != 0) refuse(recipe.version.name, " has no margin: it must be 0, not ", recipe.margin);
  const auto* algo = std::get_if<AmaxComputeAlgo>(&recipe.amax_compute_algo);
  if (algo == nullptr || *algo != AmaxComputeAlgo::max) {
    refuse(recipe.version.name, " takes the largest amax of its window: amax_compute_algo must be max");
  }
}

Format format_of(const Delayed& recipe, Pass pass) {
  return recipe.fp8_format == Fp8Format::hybrid && pass == Pass::backward ? e5m2 : e4m3;
}

float fp8_max(const Delayed& recipe, Pass pass) { return max_value(format_of(recipe, pass)); }

AmaxHistory start_history(const Delayed& recipe) {
  const DefaultEnvironment environment;
  check(recipe);
  AmaxHistory history;
  history.amaxes.assign(recipe.amax_history_len, 0);
  return history;
}

NanInAmax nan_in_amax(const Delayed& recipe, const AmaxHistory& history) {
  switch (rules_of(recipe).history) {
    case HistoryRule::bulk_kernel:
    case HistoryRule::single_kernel:
    case HistoryRule::unfused: break;
    case HistoryRule::ms_amp_0_1:
    case HistoryRule::ms_amp: return is_just_in_time(history) ? NanInAmax::counted : NanInAmax::dropped;
    case HistoryRule::torchao: return NanInAmax::counted;
  }
  return NanInAmax::dropped;
}

void record_amax(const Delayed& recipe, Pass pass, AmaxHistory& history, float amax) {
  const DefaultEnvironment environment;
  check_history(recipe, history);
  if (amax < 0) refuse("an amax must not be negative, and is ", amax);
  amax = std::abs(amax);  // of a NaN and of a zero with a sign
  float& row = history.amaxes.front();
  switch (rules_of(recipe).history) {
    case HistoryRule::bulk_kernel:
    case HistoryRule::single_kernel:
    case HistoryRule::unfused: row = larger_bits(row, amax); break;
    case HistoryRule::ms_amp_0_1:
    case HistoryRule::ms_amp:
      if (is_just_in_time(history)) {
        row = amax;
        history.scale = scale_of(recipe, pass, amax, history.scale);
      } else {
        row = std::fmax(row, amax);
      }
      break;
    case HistoryRule::torchao:
      row = amax;
      if (history.position == 0) history.scale = scale_of(recipe, pass, amax, history.scale);
      break;
  }
  if (recipe.version.inverse_is_of_the_cast) history.scale_inv = 1 / history.scale;
}

void update_scale(const Delayed& recipe, Pass pass, AmaxHistory& history) {
  const DefaultEnvironment environment;
  check_history(recipe, history);
  const bool is_finite = std::isfinite(history.amaxes.front());
  float amax = 0;
  bool begins_anew = false;
  bool keeps_scale = false;
  // 1. The window moves on. A function for the amax may throw, before anything has changed.
  switch (rules_of(recipe).history) {
    case HistoryRule::bulk_kernel: amax = update_fused(recipe, history.amaxes, false); break;
    case HistoryRule::single_kernel: amax = update_fused(recipe, history.amaxes, true); break;
    case HistoryRule::unfused: amax = update_unfused(recipe, history.amaxes); break;
    case HistoryRule::ms_amp_0_1:
      amax = update_ms_amp(history.amaxes);
      begins_anew = keeps_scale = !is_finite;
      break;
    case HistoryRule::ms_amp:
      if (!is_finite) history.amaxes.front() = 0;
      amax = update_ms_amp(history.amaxes);
      begins_anew = !is_finite;
      break;
    case HistoryRule::torchao: amax = update_torchao(history.amaxes, history.position == 0); break;
  }
  history.position = begins_anew ? 0 : history.position + 1;  // MS-AMP's amax_counter
  // 2. The scale.
  if (!keeps_scale) history.scale = scale_of(recipe, pass, amax, history.scale);
  if (!recipe.version.inverse_is_of_the_cast) history.scale_inv = 1 / history.scale;
}

float scale_of(const Delayed& recipe, Pass pass, float amax, float old_scale) {
  const DefaultEnvironment environment;
  const float largest = fp8_max(recipe, pass);
  float scale = old_scale;
  switch (rules_of(recipe).formula) {
    case ScaleFormula::power_of_two: scale = formula_power_of_two(largest, recipe.margin, amax, old_scale); break;
    case ScaleFormula::margin_first:
      scale = margin_first_scale(largest * std::ldexp(1.0F, -recipe.margin), amax, old_scale);
      break;
    case ScaleFormula::margin_last:
      if (is_usable_amax(amax)) scale = torch_quotient(largest, amax) / std::ldexp(1.0F, recipe.margin);
      break;
    case ScaleFormula::clamped_quotient: scale = formula_clamped_quotient(largest, amax); break;
    case ScaleFormula::clamped_quotient_in_double:
      scale = formula_clamped_quotient(static_cast<double>(largest), static_cast<double>(amax));
      break;
  }
  return limited_scale(scale, recipe.version.largest_scale);
}

void resize_history(AmaxHistory& history, std::size_t amax_history_len) {
  check_length(amax_history_len);
  history.amaxes.resize(amax_history_len, 0);
}

float reduced_amax(std::span<const float> of_ranks) {
  const DefaultEnvironment environment;
  if (of_ranks.empty()) refuse("there must be at least one rank's amax");
  float largest = of_ranks.front();
  for (const float amax : of_ranks) largest = std::fmax(largest, amax);
  return largest;
}

std::string describe(const Delayed& recipe) {
  const DefaultEnvironment environment;
  TextStream text;
  const auto* algo = std::get_if<AmaxComputeAlgo>(&recipe.amax_compute_algo);
  text << "delayed scaling of " << recipe.version.name << ": fp8_format " << name_of(recipe.fp8_format)
       << (recipe.fp8_format == Fp8Format::hybrid ? " (E4M3 forward, E5M2 backward)" : " (both passes)") << ", margin "
       << recipe.margin << ", amax_history_len " << recipe.amax_history_len << ", amax_compute_algo "
       << (algo != nullptr ? name_of(*algo) : "a function") << ", reduce_amax " << (recipe.reduce_amax ? "on" : "off")
       << (recipe.override_linear_precision.wgrad ? ", wgrad in high precision" : "");
  return text.str();
}

}  // namespace fp8lab
