// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/linear/fp8_state.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "linear/fp8_change.hpp"

namespace fp8lab {
namespace {

constexpr std::array passes{LinearPass::fprop, LinearPass::dgrad, LinearPass::wgrad};

/// Whether a history of that version is Transformer Engine's.
bool is_transformer_engine(const DelayedVersion& version) { return version.has_options(); }

/// Calls f(tensor, recipe) for each operand that is quantized.
void for_each_quantized(const LinearRecipe& recipe, const auto& f) {
  for (const LinearPass pass : passes) {
    const LinearGemm& gemm = gemm_of(recipe, pass);
    const LinearFactors factors = factors_of(pass);
    if (const auto* a = std::get_if<Recipe>(&gemm.a)) f(factors.a.tensor, *a);
    if (const auto* b = std::get_if<Recipe>(&gemm.b)) f(factors.b.tensor, *b);
  }
}

void check_open_ranks(std::span<Fp8State> ranks) {
  const auto due = [](const Fp8State& state) { return std::pair{state.forward_is_due, state.backward_is_due}; };
  const auto keys_of = [](const Fp8State& state) {
    std::vector<std::string> keys;
    keys.reserve(state.layers.size());
    for (const LayerState& layer : state.layers) {
      keys.push_back(layer.buffer ? state.buffers[*layer.buffer].key : std::string());
    }
    return keys;
  };
  for (const Fp8State& state : ranks) {
    if (static_cast<std::size_t>(state.ranks) != ranks.size()) {
      refuse("there must be ", state.ranks, " states, for one of them has as many ranks, not ", ranks.size());
    }
    if (due(state) != due(ranks.front())) {
      throw std::invalid_argument("all ranks must wait for the same update; one of them has not come so far");
    }
    if (keys_of(state) != keys_of(ranks.front())) {
      throw std::invalid_argument("all ranks must have run the same layers in regions of the same recipes");
    }
  }
}

/// The amax of the running step becomes the largest of the ranks', where the buffer's recipe has reduce_amax.
void reduce_running_amaxes(std::span<Fp8State> ranks, Pass pass) {
  const auto reduce = [&](const auto& history_of) {
    std::vector<float> amaxes;
    for (Fp8State& state : ranks) amaxes.push_back(history_of(state).amaxes.front());
    const float largest = reduced_amax(amaxes);
    for (Fp8State& state : ranks) history_of(state).amaxes.front() = largest;
  };
  for (std::size_t i = 0; i < ranks.front().layers.size(); ++i) {
    const LayerState& layer = ranks.front().layers[i];
    if (!layer.buffer || !ranks.front().buffers[*layer.buffer].recipe.reduce_amax) continue;
    if (pass == Pass::backward) {
      reduce([i](Fp8State& state) -> AmaxHistory& { return state.layers[i].backward; });
    } else {
      reduce([i](Fp8State& state) -> AmaxHistory& { return state.layers[i].forward.x; });
      reduce([i](Fp8State& state) -> AmaxHistory& { return state.layers[i].forward.w; });
    }
  }
}

bool same_bits(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

bool same(const AmaxHistory& a, const AmaxHistory& b) {
  return std::ranges::equal(a.amaxes, b.amaxes, same_bits) && same_bits(a.scale, b.scale) &&
         same_bits(a.scale_inv, b.scale_inv) && a.position == b.position;
}
bool same(const ForwardHistories& a, const ForwardHistories& b) { return same(a.x, b.x) && same(a.w, b.w); }

bool same(const Delayed& a, const Delayed& b) { return same_fields(a, b); }
bool same(const LinearRecipe& a, const LinearRecipe& b) {
  return std::ranges::all_of(passes, [&](LinearPass pass) {
    const LinearGemm& one = gemm_of(a, pass);
    const LinearGemm& other = gemm_of(b, pass);
    return one.recipe == other.recipe && one.a == other.a && one.b == other.b;
  });
}
bool same(const Autocast& a, const Autocast& b) {
  return a.enabled == b.enabled && same(a.recipe, b.recipe) && same(a.delayed, b.delayed) && a.group == b.group;
}
bool same(const AmaxBuffer& a, const AmaxBuffer& b) { return a.key == b.key && same(a.recipe, b.recipe); }

bool same(const Quantized& a, const Quantized& b) {
  return a.recipe == b.recipe && a.direction == b.direction && a.rows == b.rows && a.columns == b.columns &&
         a.codes == b.codes && std::ranges::equal(a.scale_inv, b.scale_inv, same_bits) &&
         a.scale_codes == b.scale_codes && same_bits(a.amax, b.amax);
}
bool same(const std::shared_ptr<const QuantizedWeight>& a, const std::shared_ptr<const QuantizedWeight>& b) {
  if (a == b) return true;
  if (a == nullptr || b == nullptr || a->columnwise.has_value() != b->columnwise.has_value()) return false;
  return same(a->rowwise, b->rowwise) && (!a->columnwise || same(*a->columnwise, *b->columnwise));
}
bool same(const LayerState& a, const LayerState& b) {
  const auto equal = [](const auto& one, const auto& other) { return same(one, other); };
  return a.recipe.has_value() == b.recipe.has_value() && (!a.recipe || same(*a.recipe, *b.recipe)) &&
         a.region.has_value() == b.region.has_value() && (!a.region || same(*a.region, *b.region)) &&
         same(a.forward, b.forward) && same(a.backward, b.backward) && a.buffer == b.buffer &&
         same(a.cached, b.cached) && same(a.parameter, b.parameter) && a.is_written == b.is_written &&
         a.updates_next_forward == b.updates_next_forward && std::ranges::equal(a.stashes, b.stashes, equal);
}

}  // namespace

bool same_fields(const Delayed& a, const Delayed& b) {
  return a.margin == b.margin && a.fp8_format == b.fp8_format && a.amax_history_len == b.amax_history_len &&
         std::get<AmaxComputeAlgo>(a.amax_compute_algo) == std::get<AmaxComputeAlgo>(b.amax_compute_algo) &&
         a.reduce_amax == b.reduce_amax && a.interval == b.interval &&
         a.override_linear_precision.wgrad == b.override_linear_precision.wgrad && a.version.name == b.version.name;
}
bool is_delayed(const LinearRecipe& recipe) {
  bool result = false;
  for_each_quantized(recipe, [&](LinearTensor /*tensor*/, const Recipe& one) { result = result || is_given(one); });
  return result;
}

void check_region(const Autocast& region) {
  check_linear_recipe(region.recipe);
  check(region.delayed);
  if (std::holds_alternative<AmaxFunction>(region.delayed.amax_compute_algo)) {
    throw std::invalid_argument("amax_compute_algo must be max or most_recent, not a function: a state is a value");
  }
  if (!is_transformer_engine(region.delayed.version)) {
    refuse("the version of delayed scaling must be one of Transformer Engine, not ", region.delayed.version.name);
  }
  for_each_quantized(region.recipe, [&](LinearTensor tensor, const Recipe& recipe) {
    const Format format = format_of(region.delayed, tensor == LinearTensor::dy ? Pass::backward : Pass::forward);
    if (!is_given(recipe) || recipe.format == format) return;
    refuse("the linear recipe casts ", name_of(tensor), " to ", format_name(recipe.format), ", but fp8_format ",
           name_of(region.delayed.fp8_format), " to ", format_name(format));
  });
}

std::string buffer_key(const StateRules& rules, const Delayed& recipe, const std::string& group) {
  std::string key = "margin=" + std::to_string(recipe.margin) + ",format=" + std::string(name_of(recipe.fp8_format)) +
                    ",amax_history_len=" + std::to_string(recipe.amax_history_len);
  if (rules.key >= BufferKey::wgrad) {
    key += std::string(",wgrad_override=") + (recipe.override_linear_precision.wgrad ? "1" : "0");
  }
  if (rules.key >= BufferKey::reduction) key += std::string(",reduce_amax=") + (recipe.reduce_amax ? "1" : "0");
  if (rules.key >= BufferKey::interval) key += ",interval=" + std::to_string(recipe.interval);
  return key + ",group=" + group;
}

bool equal_states(const Fp8State& a, const Fp8State& b) {
  const auto equal = [](const auto& one, const auto& other) { return same(one, other); };
  return a.rules.name == b.rules.name && a.ranks == b.ranks && a.grad_enabled == b.grad_enabled &&
         same(a.high_precision, b.high_precision) && std::ranges::equal(a.layers, b.layers, equal) &&
         std::ranges::equal(a.regions, b.regions, equal) && a.outer_flags == b.outer_flags &&
         std::ranges::equal(a.buffers, b.buffers, equal) && a.is_first_layer == b.is_first_layer &&
         a.recomputed_first == b.recomputed_first && a.forward_is_due == b.forward_is_due &&
         a.backward_is_due == b.backward_is_due;
}

Fp8State start_fp8_state(std::size_t layers, const StateRules& rules, int ranks) {
  if (layers == 0) throw std::invalid_argument("layers must be at least 1, not 0");
  if (ranks < 1) refuse("ranks must be at least 1, not ", ranks);
  if (ranks > 1 && rules.scale_update == ScaleUpdate::next_pass) {
    refuse("the rules ", rules.name, " are modelled for one rank, not ", ranks);
  }
  Fp8State state;
  state.rules = rules;
  state.layers.resize(layers);
  state.ranks = ranks;
  state.high_precision = find_linear_recipe("bf16_hopper").recipe;
  return state;
}

Delayed default_delayed(const LinearRecipe& recipe) {
  Delayed delayed;
  for_each_quantized(recipe, [&](LinearTensor tensor, const Recipe& one) {
    const bool is_e4m3 = tensor == LinearTensor::dy && is_given(one) && one.format == e4m3;
    if (is_e4m3) delayed.fp8_format = Fp8Format::e4m3_only;
  });
  return delayed;
}

void enter_autocast(Fp8State& state, const Autocast& region) {
  const DefaultEnvironment environment;
  StateChange change(state, "enter_autocast");
  check_region(region);
  const std::string key = buffer_key(state.rules, region.delayed, region.group);
  for (AmaxBuffer& buffer : change.buffers) {
    if (buffer.key == key) buffer.recipe = region.delayed;
  }
  std::vector<Autocast> regions = state.regions;
  std::vector<bool> outer_flags = state.outer_flags;
  regions.push_back(region);
  outer_flags.push_back(state.is_first_layer);
  if (regions.size() == 1) change.is_first_layer = true;
  change.commit();
  state.regions = std::move(regions);
  state.outer_flags = std::move(outer_flags);
}

void exit_autocast(Fp8State& state) {
  const DefaultEnvironment environment;
  if (state.regions.empty()) throw std::logic_error("no autocast region is open");
  StateChange change(state, "exit_autocast");
  const bool updates = state.regions.size() == 1 && state.regions.back().enabled && state.grad_enabled &&
                       state.rules.scale_update == ScaleUpdate::end_of_region;
  if (updates && state.ranks == 1) change.update_registered(Pass::forward);
  change.is_first_layer = state.outer_flags.back();
  change.commit();
  state.regions.pop_back();
  state.outer_flags.pop_back();
  state.forward_is_due = updates && state.ranks > 1;
}

void reduce_and_update(std::span<Fp8State> ranks) {
  const DefaultEnvironment environment;
  if (ranks.empty()) throw std::invalid_argument("there must be a state for each rank, not none");
  check_open_ranks(ranks);
  std::vector<Fp8State> results(ranks.begin(), ranks.end());
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const bool is_due = pass == Pass::forward ? ranks.front().forward_is_due : ranks.front().backward_is_due;
    if (!is_due) continue;
    reduce_running_amaxes(results, pass);
    for (Fp8State& state : results) {
      (pass == Pass::forward ? state.forward_is_due : state.backward_is_due) = false;
    }
    for (Fp8State& state : results) {
      StateChange change(state, "reduce_and_update");
      change.update_registered(pass);
      change.commit();
    }
  }
  std::ranges::move(results, ranks.begin());
}

}  // namespace fp8lab
