// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/linear/fp8_layer.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <stdexcept>
#include <utility>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "linear/fp8_change.hpp"
#include "linear/with_name.hpp"

namespace fp8lab {
namespace {

/// The innermost region, if it is enabled.
const Autocast* enabled_region(const Fp8State& state) {
  return state.regions.empty() || !state.regions.back().enabled ? nullptr : &state.regions.back();
}

/// The recipe of an operand that is quantized and wanted; otherwise none.
const Recipe* wanted_recipe(const LinearCast& cast, bool wanted) {
  return wanted ? std::get_if<Recipe>(&cast) : nullptr;
}

/// The region that a forward runs in. The second one of a recomputed layer runs as its last one did: Transformer Engine
/// does not ask again.
const Autocast* region_of_forward(const Fp8State& state, const LayerState& layer, Recompute recompute) {
  if (recompute == Recompute::second && layer.region) return &*layer.region;
  return enabled_region(state);
}

/// How a tensor is quantized in each direction, and the history that its scale comes from.
struct Casting {
  const Recipe* rowwise;
  const Recipe* columnwise;
  const Delayed* delayed;  ///< where the scales are given
  Pass pass;
  AmaxHistory* history;
  QuantizeOptions options;

  [[nodiscard]] bool reads_history() const {
    return delayed != nullptr &&
           ((rowwise != nullptr && is_given(*rowwise)) || (columnwise != nullptr && is_given(*columnwise)));
  }
};
struct Directions {
  std::optional<Quantized> rowwise, columnwise;
};

void cast_with_history(const MatrixView& values, const Casting& how, Directions& out) {
  Delayed recipe = *how.delayed;
  recipe.amax_history_len = how.history->amaxes.size();  // of a stash, or of a call before the length was changed
  if (how.rowwise != nullptr && how.columnwise != nullptr) {
    return quantize_both(values, recipe, how.pass, *how.history, out.rowwise.emplace(), out.columnwise.emplace(),
                         how.options);
  }
  const Direction direction = how.rowwise != nullptr ? Direction::rowwise : Direction::columnwise;
  Quantized& one = (how.rowwise != nullptr ? out.rowwise : out.columnwise).emplace();
  quantize(values, recipe, how.pass, *how.history, direction, one, how.options);
}

/// The tensor in the directions that are wanted, each made of the values themselves.
Directions cast_values(const MatrixView& values, const Casting& how) {
  Directions out;
  if (how.reads_history()) {
    cast_with_history(values, how, out);
  } else if (how.rowwise != nullptr && how.columnwise != nullptr && *how.rowwise == *how.columnwise) {
    quantize_both(values, *how.rowwise, out.rowwise.emplace(), out.columnwise.emplace(), how.options);
  } else {
    if (how.rowwise != nullptr) out.rowwise = quantize(values, *how.rowwise, Direction::rowwise, how.options);
    if (how.columnwise != nullptr) {
      out.columnwise = quantize(values, *how.columnwise, Direction::columnwise, how.options);
    }
  }
  return out;
}

/// The same; messages begin with the tensor's name.
Directions cast(const std::string& name, const MatrixView& values, const Casting& how) {
  return with_name(name, [&] { return cast_values(values, how); });
}

/// A weight that was cast rowwise at least.
std::shared_ptr<const QuantizedWeight> as_weight(Directions codes) {
  if (!codes.rowwise) throw std::logic_error("a weight must be quantized rowwise");
  return std::make_shared<const QuantizedWeight>(
      QuantizedWeight{std::move(*codes.rowwise), std::move(codes.columnwise)});
}

/// The same codes with another scale_inv.
std::shared_ptr<const QuantizedWeight> with_inverse(const std::shared_ptr<const QuantizedWeight>& weight,
                                                    float scale_inv) {
  if (weight->rowwise.scale_inv == std::vector<float>{scale_inv}) return weight;
  QuantizedWeight other = *weight;
  other.rowwise.scale_inv.assign(1, scale_inv);
  if (other.columnwise) other.columnwise->scale_inv.assign(1, scale_inv);
  return std::make_shared<const QuantizedWeight>(std::move(other));
}

LinearInput input_of(const std::optional<Quantized>& quantized, const MatrixView& values) {
  if (quantized) return std::cref(*quantized);
  return values;
}

/// Begins the histories of a layer, or changes their length to that of the region's recipe.
void start_or_resize(LayerState& layer, const Delayed& recipe, bool change_resets) {
  if (!layer.recipe || (change_resets && !same_fields(*layer.recipe, recipe))) {
    layer.forward = {start_history(recipe), start_history(recipe)};
    layer.backward = start_history(recipe);
  }
  for (AmaxHistory* history : {&layer.forward.x, &layer.forward.w, &layer.backward}) {
    if (history->amaxes.size() != recipe.amax_history_len) resize_history(*history, recipe.amax_history_len);
  }
  layer.recipe = recipe;
}

/// Registers the layer for the updates of scales, once.
void register_layer(StateChange& change, LayerState& layer, const Autocast& region) {
  if (layer.buffer) return;
  const std::string key = buffer_key(change.state().rules, region.delayed, region.group);
  const auto known = std::ranges::find(change.buffers, key, &AmaxBuffer::key);
  layer.buffer = static_cast<std::size_t>(known - change.buffers.begin());
  if (known == change.buffers.end()) change.buffers.push_back({key, region.delayed});
}

/// The columnwise codes of a tensor with one scale, which are the rowwise ones, transposed.
Quantized transposed_codes(const Quantized& rowwise) {
  Quantized columnwise = rowwise;
  columnwise.direction = Direction::columnwise;
  columnwise.transposed = true;
  for (std::size_t row = 0; row < rowwise.rows; ++row) {
    for (std::size_t column = 0; column < rowwise.columns; ++column) {
      columnwise.codes[column * rowwise.rows + row] = rowwise.codes[row * rowwise.columns + column];
    }
  }
  return columnwise;
}

/// One forward while it runs.
class Forward {
 public:
  Forward(Fp8State& state, std::size_t index, const ForwardOptions& options)
      : change_(state, "forward"),
        index_(index),
        layer_(change_.layer(index)),
        options_(options),
        region_(region_of_forward(state, layer_, options.recompute)) {
    call_.layer = index;
    call_.recipe = region_ != nullptr ? region_->recipe : state.high_precision;
    call_.has_grad = state.grad_enabled && options.requires_grad;
    if (region_ != nullptr && is_delayed(call_.recipe)) call_.delayed = region_->delayed;
  }

  LinearCall run(const MatrixView& x, const std::optional<MatrixView>& w, const LinearOutput& y) {
    prepare();
    call_.x = x;
    const Directions input = cast_input(x);
    take_weight(w);
    const LinearInput weight =
        call_.weight != nullptr ? LinearInput(std::cref(call_.weight->rowwise)) : LinearInput(call_.w);
    const LinearOptions how{.bias = options_.bias,
                            .zero_rule = options_.zero_rule,
                            .threads = options_.threads,
                            .check_shapes = options_.check_shapes};
    std::visit([&](auto out) { linear(call_.recipe, input_of(input.rowwise, x), weight, out, how); }, y);
    finish();
    change_.commit();
    return std::move(call_);
  }

 private:
  [[nodiscard]] bool is_second() const { return call_.delayed && options_.recompute == Recompute::second; }

  /// 1. The scales and the amaxes that this forward begins with.
  void prepare() {
    const StateRules& rules = change_.state().rules;
    remember_first_layer();
    if (is_second()) return take_stash();
    if (options_.recompute != Recompute::second) {
      layer_.region = region_ != nullptr ? std::optional(*region_) : std::nullopt;
    }
    if (call_.delayed) {
      check_format(*call_.delayed);
      start_or_resize(layer_, *call_.delayed, rules.recipe_change_resets);
    }
    if (rules.scale_update == ScaleUpdate::next_pass) {
      if (layer_.updates_next_forward && layer_.recipe) {
        change_.update_forward(index_, *layer_.recipe, options_.is_first_microbatch == false);
      }
      layer_.updates_next_forward =
          call_.delayed.has_value() && options_.training && (change_.state().grad_enabled || !rules.update_needs_grad);
    }
    if (!call_.delayed) return;
    register_layer(change_, layer_, *region_);
    if (options_.training && options_.recompute == Recompute::first) layer_.stashes.push_back(layer_.forward);
  }

  /// The second forward of a recomputed layer sees the flag of its first one.
  void remember_first_layer() {
    if (!change_.state().rules.recompute_repeats_first_layer) return;
    std::deque<bool>& flags = change_.recomputed_first;
    if (options_.recompute == Recompute::first) flags.push_back(change_.is_first_layer);
    if (options_.recompute != Recompute::second || flags.empty()) return;
    change_.is_first_layer = flags.front();
    flags.pop_front();
  }

  /// Releases keep the format of the first recipe for some tensors and take that of the newest for others.
  void check_format(const Delayed& recipe) const {
    if (!layer_.recipe || layer_.recipe->fp8_format == recipe.fp8_format) return;
    if (change_.state().rules.recipe_change_resets) return;
    refuse("layer ", index_, " has run with fp8_format ", name_of(layer_.recipe->fp8_format), ", which cannot become ",
           name_of(recipe.fp8_format), " in the middle of a run");
  }

  void take_stash() {
    if (layer_.stashes.empty() || !layer_.region) {
      refuse("layer ", index_, " has no first forward under recomputation that a second one could repeat");
    }
    updated_ = std::exchange(layer_.forward, std::move(layer_.stashes.front()));
    layer_.stashes.pop_front();
    change_.tell(index_, "x", "take stash", layer_.forward.x);
    change_.tell(index_, "w", "take stash", layer_.forward.w);
  }

  [[nodiscard]] Casting casting(const LinearCast& rowwise, const LinearCast& columnwise, AmaxHistory& history) const {
    return {.rowwise = wanted_recipe(rowwise, true),
            .columnwise = wanted_recipe(columnwise, call_.has_grad),
            .delayed = call_.delayed ? &*call_.delayed : nullptr,
            .pass = Pass::forward,
            .history = &history,
            .options = {.threads = options_.threads}};
  }

  /// 2. The input: rowwise for fprop, columnwise for wgrad.
  Directions cast_input(const MatrixView& x) {
    const Casting how = casting(call_.recipe.fprop.a, call_.recipe.wgrad.b, layer_.forward.x);
    Directions input = cast("x", x, how);
    if (how.reads_history()) change_.tell(index_, "x", "cast", layer_.forward.x);
    call_.x_columnwise = std::move(input.columnwise);
    return input;
  }

  /// 3. The weight: quantized, out of the cache, or the one that exists in FP8 only.
  void take_weight(const std::optional<MatrixView>& w) {
    if (w && layer_.parameter != nullptr) {
      refuse("layer ", index_, " keeps its weight in FP8 only: w must not be given");
    }
    Casting how = casting(call_.recipe.fprop.b, call_.recipe.dgrad.b, layer_.forward.w);
    if (change_.state().rules.frozen_weight_is_columnwise) {
      how.columnwise = wanted_recipe(call_.recipe.dgrad.b, change_.state().grad_enabled);
    }
    if (w) return cast_weight(*w, how);
    if (layer_.parameter == nullptr) refuse("layer ", index_, " has no weight of its own: w must be given");
    if (how.rowwise != nullptr) {
      call_.weight = layer_.parameter;
    } else {
      dequantize_weight(layer_.parameter->rowwise);
    }
  }

  void cast_weight(const MatrixView& w, const Casting& how) {
    call_.w = w;
    if (how.rowwise == nullptr) return;
    if (options_.is_first_microbatch == false && layer_.cached != nullptr) {
      if (how.columnwise != nullptr && !layer_.cached->columnwise) repair_cache(how);
    }
    if (options_.is_first_microbatch == false && layer_.cached != nullptr) {
      call_.weight = call_.cache = layer_.cached;
      if (how.reads_history()) change_.tell(index_, "w", "reuse", layer_.forward.w);
    } else {
      call_.weight = as_weight(cast("w", w, how));
      if (how.reads_history()) change_.tell(index_, "w", "cast", layer_.forward.w);
      const StateRules& rules = change_.state().rules;
      const bool is_kept = change_.state().grad_enabled
                               ? options_.is_first_microbatch || rules.every_cast_is_cached
                               : options_.is_first_microbatch && rules.cast_without_grad_is_cached;
      if (is_kept) layer_.cached = call_.cache = call_.weight;
    }
    if (how.reads_history() && change_.state().rules.weight_takes_inverse_of_history) {
      call_.weight = with_inverse(call_.weight, layer_.forward.w.scale_inv);
    }
  }

  /// The cache gets columnwise codes, or is emptied so that the weight is quantized anew.
  void repair_cache(const Casting& how) {
    const StateRules& rules = change_.state().rules;
    if (rules.cache_repair == CacheRepair::none) {
      refuse("w was cached without gradients, and by the rules ", rules.name,
             " its backward reads memory that nothing wrote");
    }
    if (rules.cache_repair == CacheRepair::quantize || !how.reads_history()) {
      layer_.cached = nullptr;
    } else {
      const Quantized& codes = layer_.cached->rowwise;
      layer_.cached = std::make_shared<const QuantizedWeight>(QuantizedWeight{codes, transposed_codes(codes)});
    }
  }

  void dequantize_weight(const Quantized& codes) {
    auto values = std::make_shared<std::vector<float>>(codes.rows * codes.columns);
    dequantize(codes, *values, options_.threads);
    call_.w = {*values, codes.rows, codes.columns};
    call_.dequantized = std::move(values);
  }

  /// 4. What a second forward leaves, and whether the region's backward update is this layer's.
  void finish() {
    const StateRules& rules = change_.state().rules;
    if (is_second() && !rules.recompute_loses_updates) layer_.forward = std::move(updated_);
    if (!call_.has_grad || region_ == nullptr) return;
    call_.updates_backward = change_.is_first_layer && rules.scale_update == ScaleUpdate::end_of_region;
    const bool keeps = options_.recompute == Recompute::second && rules.recompute_repeats_first_layer;
    if (!keeps) change_.is_first_layer = false;
  }

  StateChange change_;
  std::size_t index_;
  LayerState& layer_;
  const ForwardOptions& options_;
  const Autocast* region_;
  ForwardHistories updated_;
  LinearCall call_;
};

bool is_wanted(const LinearOutput& out) {
  return std::visit([](auto span) { return !span.empty(); }, out);
}

/// The weight of a call: where its cache was filled again since, what is there now.
std::shared_ptr<const QuantizedWeight> weight_of_backward(const LinearCall& call, const LayerState& layer,
                                                          const StateRules& rules) {
  if (call.cache == nullptr || layer.cached == call.cache || layer.cached == nullptr) return call.weight;
  if (!rules.refilled_cache_reaches_calls) {
    refuse("the cached weight of this call was filled again since, and by the rules ", rules.name,
           " its backward fails");
  }
  if (!layer.cached->columnwise) return call.weight;
  const std::vector<float>& inverse = call.weight->rowwise.scale_inv;
  const bool keeps_inverse = rules.weight_takes_inverse_of_history && call.delayed && inverse.size() == 1;
  return keeps_inverse ? with_inverse(layer.cached, inverse.front()) : layer.cached;
}

/// Tells which scale_inv the product of a backward takes for the weight.
void tell_read(StateChange& change, std::size_t layer, const QuantizedWeight& weight) {
  if (!weight.columnwise || weight.columnwise->scale_inv.size() != 1) return;
  AmaxHistory read = change.layer(layer).forward.w;
  read.scale_inv = weight.columnwise->scale_inv.front();
  change.tell(layer, "w", "read", read);
}

/// The weights that the optimizer writes make a scale once all of a buffer are written.
void update_written(StateChange& change, std::size_t index) {
  LayerState& layer = change.layer(index);
  if (!layer.buffer) return;
  if (change.state().ranks > 1) {
    refuse("the rules ", change.state().rules.name, " write weights for one rank, not ", change.state().ranks);
  }
  layer.is_written = true;
  std::vector<std::size_t> written;
  for (std::size_t i = 0; i < change.state().layers.size(); ++i) {
    const LayerState& other = change.layer(i);
    if (other.buffer != layer.buffer || other.parameter == nullptr) continue;
    if (!other.is_written) return;
    written.push_back(i);
  }
  const Delayed& recipe = change.buffers[*layer.buffer].recipe;
  for (const std::size_t i : written) {
    change.layer(i).is_written = false;
    change.update_forward(i, recipe);
  }
}

}  // namespace

std::span<const Named<Recompute>> named_values(Recompute /*any*/) {
  static constexpr std::array all{Named{"none", Recompute::none}, Named{"first", Recompute::first},
                                  Named{"second", Recompute::second}};
  static_assert(is_in_order(all));
  return all;
}

const LinearRecipe& recipe_of_forward(const Fp8State& state, std::size_t layer, Recompute recompute) {
  if (layer >= state.layers.size()) refuse("layer must be from 0 to ", state.layers.size() - 1, ", not ", layer);
  const Autocast* region = region_of_forward(state, state.layers[layer], recompute);
  return region != nullptr ? region->recipe : state.high_precision;
}

LinearCall forward(Fp8State& state, std::size_t layer, const MatrixView& x, const std::optional<MatrixView>& w,
                   LinearOutput y, const ForwardOptions& options) {
  const DefaultEnvironment environment;
  return Forward(state, layer, options).run(x, w, y);
}

void backward(Fp8State& state, const LinearCall& call, const MatrixView& dy, LinearOutput dx, LinearOutput dw,
              const BackwardOptions& options) {
  const DefaultEnvironment environment;
  StateChange change(state, "backward");
  LayerState& layer = change.layer(call.layer);
  if (!call.has_grad) throw std::invalid_argument("the forward of this call ran without gradients");
  if (!is_wanted(dx) && !is_wanted(dw)) throw std::invalid_argument("dx or dw must be wanted, or both");
  // 1. By the old rules the backward begins with the update.
  const bool updates_first = call.delayed && state.rules.scale_update == ScaleUpdate::next_pass;
  if (updates_first && layer.recipe) change.update_backward(call.layer, *layer.recipe);
  // 2. The gradient: rowwise for dgrad, columnwise for wgrad.
  const Casting how{.rowwise = wanted_recipe(call.recipe.dgrad.a, is_wanted(dx)),
                    .columnwise = wanted_recipe(call.recipe.wgrad.a, is_wanted(dw)),
                    .delayed = call.delayed ? &*call.delayed : nullptr,
                    .pass = Pass::backward,
                    .history = &layer.backward,
                    .options = {.random = options.random, .threads = options.threads}};
  const Directions gradient = cast("dy", dy, how);
  if (how.reads_history()) change.tell(call.layer, "dy", "cast", layer.backward);
  // 3. The products.
  LinearOptions product{
      .zero_rule = options.zero_rule, .threads = options.threads, .check_shapes = options.check_shapes};
  if (is_wanted(dx)) {
    const auto weight = weight_of_backward(call, layer, state.rules);
    if (call.delayed && weight != nullptr) tell_read(change, call.layer, *weight);
    const LinearInput w = weight != nullptr ? input_of(weight->columnwise, call.w) : LinearInput(call.w);
    std::visit([&](auto out) { linear_dgrad(call.recipe, input_of(gradient.rowwise, dy), w, out, product); }, dx);
  }
  product.accumulate = options.accumulate;
  if (is_wanted(dw)) {
    const LinearInput x = input_of(call.x_columnwise, call.x);
    std::visit([&](auto out) { linear_wgrad(call.recipe, input_of(gradient.columnwise, dy), x, out, product); }, dw);
  }
  // 4. The region's update.
  if (call.updates_backward && state.ranks == 1) change.update_registered(Pass::backward);
  change.commit();
  state.backward_is_due = call.updates_backward && state.ranks > 1;
}

void write_weight(Fp8State& state, std::size_t layer, const MatrixView& w, const Autocast& region, int threads) {
  const DefaultEnvironment environment;
  StateChange change(state, "write_weight");
  check_region(region);
  LayerState& next = change.layer(layer);
  const bool delayed = is_delayed(region.recipe);
  if (delayed && !next.recipe) start_or_resize(next, region.delayed, false);
  const bool is_first = next.parameter == nullptr;
  const Casting how{.rowwise = wanted_recipe(region.recipe.fprop.b, true),
                    .columnwise = wanted_recipe(region.recipe.dgrad.b, true),
                    .delayed = delayed ? &region.delayed : nullptr,
                    .pass = Pass::forward,
                    .history = &next.forward.w,
                    .options = {.threads = threads}};
  if (how.rowwise == nullptr) throw std::invalid_argument("the recipe must quantize w in fprop");
  auto weight = as_weight(cast("w", w, how));
  if (is_first && !state.rules.first_write_records && how.reads_history()) next.forward.w.amaxes.front() = 0;
  if (how.reads_history()) change.tell(layer, "w", "cast", next.forward.w);
  next.parameter = std::move(weight);
  if (state.rules.write_effect == WriteEffect::update) update_written(change, layer);
  if (state.rules.write_effect == WriteEffect::next && how.reads_history()) next.updates_next_forward = true;
  change.commit();
}

}  // namespace fp8lab
