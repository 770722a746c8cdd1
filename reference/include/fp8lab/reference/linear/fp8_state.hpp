// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/reference/linear/linear_recipe.hpp"
#include "fp8lab/reference/scaling/delayed_scaling.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"

namespace fp8lab {

/// When the amaxes of a pass make the next scales.
enum class ScaleUpdate : std::uint8_t {
  next_pass,      ///< at the start of the layer's next forward, and of its next backward
  end_of_region,  ///< forward ones at the exit of the outermost autocast region, backward ones at the end of the
                  ///< backward of the first layer that ran forward in it
};

/// The facts of a recipe that the key of a buffer has; each enumerator adds one to those of the one before.
enum class BufferKey : std::uint8_t {
  length,     ///< margin, format and amax_history_len
  wgrad,      ///< override_linear_precision
  reduction,  ///< reduce_amax
  interval,
};

/// What becomes of a cached weight that has no columnwise codes, for it was quantized without grad mode, where a
/// backward needs them.
enum class CacheRepair : std::uint8_t {
  quantize,   ///< the weight is quantized anew, with the scale of now
  transpose,  ///< the codes are transposed
  none,       ///< the GEMM reads memory that nothing wrote
};

/// What happens when the optimizer writes a weight that exists in FP8 only.
enum class WriteEffect : std::uint8_t {
  none,    ///< its amax waits for the next update
  next,    ///< the layer's next forward begins with an update
  update,  ///< once all such weights of a buffer are written, their layers' forward scales are made
};

/// How a release of Transformer Engine treats the FP8 state of its modules, apart from the formulas of the scales,
/// which are those of the recipe's DelayedVersion.
struct StateRules {
  std::string_view name;
  ScaleUpdate scale_update = ScaleUpdate::end_of_region;
  /// next_pass alone: a forward without grad mode is not followed by an update.
  bool update_needs_grad = false;
  /// The GEMM takes the scale_inv of the weight's history, also for cached codes that were made with an older scale.
  bool weight_takes_inverse_of_history = false;
  /// A forward without is_first_microbatch fills the cache, too.
  bool every_cast_is_cached = false;
  /// A forward without grad mode fills it where is_first_microbatch is given; otherwise what was cached stays.
  bool cast_without_grad_is_cached = true;
  /// In grad mode a weight is cast columnwise, too, where no tensor requires a gradient.
  bool frozen_weight_is_columnwise = false;
  CacheRepair cache_repair = CacheRepair::quantize;
  /// A cache that is filled again replaces the codes of calls whose backward is to come; otherwise such a backward
  /// fails.
  bool refilled_cache_reaches_calls = true;
  WriteEffect write_effect = WriteEffect::none;
  /// The cast of a weight that is made in FP8 only records its amax.
  bool first_write_records = true;
  /// The second forward of a recomputed layer is the first of its region if the first one was, and leaves that so;
  /// otherwise it is where no layer ran before it.
  bool recompute_repeats_first_layer = true;
  /// After that second forward the histories stay what the first forward had put aside, with the second one's amax.
  bool recompute_loses_updates = false;
  BufferKey key = BufferKey::length;
  /// Another recipe than the one before begins a layer's histories anew.
  bool recipe_change_resets = false;
  std::string_view description = {};
  std::string_view source = {};
};

/// The rules of all releases, in their order.
[[nodiscard]] std::span<const StateRules> state_rules();
/// The rules of the newest release.
[[nodiscard]] const StateRules& current_state_rules();
/// The rules called `name`. Throws std::invalid_argument that lists the known names.
[[nodiscard]] const StateRules& find_state_rules(std::string_view name);

/// A weight as its layer keeps it between calls.
struct QuantizedWeight {
  Quantized rowwise;
  std::optional<Quantized> columnwise;  ///< for dgrad; none where it was quantized without grad mode
};

/// The histories of a layer's forward tensors, in the order of Transformer Engine's scaling_fwd.
struct ForwardHistories {
  AmaxHistory x, w;
};

/// An autocast region.
struct Autocast {
  bool enabled = true;
  LinearRecipe recipe = {};  ///< how the layers in it compute
  Delayed delayed = {};      ///< for operands whose scale is given: the scale comes of their histories
  std::string group = {};    ///< over which ranks share their amaxes, as part of the key of the buffer
};

/// One Linear layer's part of the state.
struct LayerState {
  std::optional<Autocast> region;     ///< of its last forward, where that was an enabled one
  std::optional<Delayed> recipe;      ///< the last one of delayed scaling that it ran under
  ForwardHistories forward;           ///< of x and w
  AmaxHistory backward;               ///< of dy
  std::optional<std::size_t> buffer;  ///< which of Fp8State::buffers it was registered in, at its first forward
  std::shared_ptr<const QuantizedWeight> cached;     ///< of is_first_microbatch
  std::shared_ptr<const QuantizedWeight> parameter;  ///< a weight that exists in FP8 only
  bool is_written = false;                           ///< the parameter has been, since the optimizer's last step began
  bool updates_next_forward = false;                 ///< by ScaleUpdate::next_pass
  std::deque<ForwardHistories> stashes;              ///< of first forwards whose second ones are to come
};

/// A buffer of amaxes: the layers that were registered under one recipe and group share it. A new recipe object of the
/// same key replaces the old one.
struct AmaxBuffer {
  std::string key;
  Delayed recipe;
};

/// One thing that a call read or wrote.
struct StateEvent {
  std::uint64_t call = 0;  ///< the number of the call, from 1
  std::string name;        ///< of the call, such as forward
  std::optional<std::size_t> layer;
  std::string tensor;  ///< x, w or dy, or empty
  std::string action;  ///< such as cast, reuse or update
  float amax = 0;      ///< in row 0 of the history, afterwards
  float scale = 1;
  float scale_inv = 1;
};

/// The FP8 state of one rank: what Transformer Engine's modules and its FP8GlobalStateManager keep between calls. It is
/// a value: a copy is a checkpoint, and the same calls on equal states give equal states and results.
///
/// The functions below are the calls; each one either does all that it says or throws and leaves the state as it was.
///
/// Source: NVIDIA/TransformerEngine, transformer_engine/pytorch/quantization.py (fp8.py before 2.9), module/base.py and
/// module/linear.py, at the tags of the rules.
struct Fp8State {
  StateRules rules = current_state_rules();
  std::vector<LayerState> layers;
  LinearRecipe high_precision = {};  ///< outside of enabled regions
  bool grad_enabled = true;          ///< torch's grad mode
  /// How many ranks there are. With more than one, the updates of scales wait for reduce_and_update(), which the ranks
  /// call together.
  int ranks = 1;

  std::vector<Autocast> regions;  ///< the open ones, outermost first
  std::vector<bool> outer_flags;  ///< is_first_layer as it was before each of them
  std::vector<AmaxBuffer> buffers;
  bool is_first_layer = false;        ///< no layer has run in the outermost region that a gradient will come back to
  std::deque<bool> recomputed_first;  ///< is_first_layer at first forwards whose second ones are to come
  bool forward_is_due = false, backward_is_due = false;  ///< which updates wait for the other ranks
  std::uint64_t calls = 0;
  bool is_traced = false;         ///< whether calls add to the trace
  std::vector<StateEvent> trace;  ///< no part of the comparison
};

/// Whether rules, histories, buffers, regions, flags and codes are equal, bit for bit. Recipes are compared by the keys
/// of their buffers and their fields, not by the number of calls and the trace.
[[nodiscard]] bool equal_states(const Fp8State& a, const Fp8State& b);

/// A state before the first step: every scale 1, no amaxes. Throws std::invalid_argument for no layers or ranks < 1.
[[nodiscard]] Fp8State start_fp8_state(std::size_t layers, const StateRules& rules = current_state_rules(),
                                       int ranks = 1);

/// Transformer Engine's defaults with the fp8_format that the linear recipe casts to.
[[nodiscard]] Delayed default_delayed(const LinearRecipe& recipe);

/// Enters an autocast region. Throws std::invalid_argument where the region's Delayed takes a function for the amax,
/// is of another system than Transformer Engine, or casts to other formats than its linear recipe, and as
/// check_linear_recipe() and check() do.
void enter_autocast(Fp8State& state, const Autocast& region);
/// Leaves the innermost region. At the exit of the outermost one, in grad mode and where that one is enabled, the
/// forward amaxes of all layers make new scales. Throws std::logic_error where no region is open.
void exit_autocast(Fp8State& state);

/// Does the updates for which several ranks wait: amaxes become the largest of the ranks', where the recipe
/// has reduce_amax, then the scales are made. All ranks must have the same layers, buffers and updates due; otherwise
/// throws std::invalid_argument. Where none is due, nothing happens.
void reduce_and_update(std::span<Fp8State> ranks);

}  // namespace fp8lab
