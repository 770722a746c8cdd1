// SPDX-License-Identifier: Apache-2.0
// The change of an Fp8State that a call prepares and then commits, which all calls share.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/reference/linear/fp8_state.hpp"

namespace fp8lab {

/// Collects the changes of a call. The state changes in commit() alone, so that a call that throws leaves it as it was.
class StateChange {
 public:
  /// Throws std::logic_error while an update waits for the other ranks.
  StateChange(Fp8State& state, std::string name);

  std::vector<AmaxBuffer> buffers;
  bool is_first_layer;
  std::deque<bool> recomputed_first;

  [[nodiscard]] const Fp8State& state() const { return state_; }
  /// The layer as it will be. Throws std::invalid_argument for one that the state does not have.
  [[nodiscard]] LayerState& layer(std::size_t index);
  /// Adds to the trace: what became of a tensor whose history is now `history`.
  void tell(std::optional<std::size_t> layer, std::string tensor, std::string action, const AmaxHistory& history);
  /// Makes the next scales of a layer.
  void update_forward(std::size_t layer, const Delayed& recipe, bool keeps_weight_inverse = false);
  void update_backward(std::size_t layer, const Delayed& recipe);
  /// Makes those of all layers that are registered, each by the recipe of its buffer.
  void update_registered(Pass pass);
  /// Throws only std::bad_alloc, before it changes anything.
  void commit();

 private:
  void update(std::size_t layer, const std::string& tensor, const Delayed& recipe, Pass pass, AmaxHistory& history);

  Fp8State& state_;
  std::string name_;
  std::deque<std::pair<std::size_t, LayerState>> layers_;  ///< references to them stay valid
  std::vector<StateEvent> events_;
};

/// The key of the buffer that a layer is registered in, which says less than the recipe: not which amax makes the
/// scale.
[[nodiscard]] std::string buffer_key(const StateRules& rules, const Delayed& recipe, const std::string& group);

/// Whether an operand's scale is given, so that it comes from a history.
[[nodiscard]] bool is_delayed(const LinearRecipe& recipe);

/// Whether two recipes of a state have the same fields.
[[nodiscard]] bool same_fields(const Delayed& a, const Delayed& b);

/// Throws std::invalid_argument for a region that enter_autocast() refuses.
void check_region(const Autocast& region);

}  // namespace fp8lab
