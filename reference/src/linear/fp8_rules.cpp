// SPDX-License-Identifier: Apache-2.0
// The table of Transformer Engine's releases, as far as the state of their modules differs.
#include <array>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/linear/fp8_state.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view old_modules =
    "NVIDIA/TransformerEngine, transformer_engine/pytorch/module.py and fp8.py (module/base.py since 0.6)";
constexpr std::string_view new_modules =
    "NVIDIA/TransformerEngine, transformer_engine/pytorch/fp8.py (quantization.py since 2.9) and module/linear.py";

constexpr StateRules te_0_1{
    .name = "te_0_1",
    .scale_update = ScaleUpdate::next_pass,
    .update_needs_grad = true,
    .weight_takes_inverse_of_history = true,
    .every_cast_is_cached = true,
    .cast_without_grad_is_cached = false,
    .frozen_weight_is_columnwise = true,
    .cache_repair = CacheRepair::none,
    .refilled_cache_reaches_calls = false,
    .write_effect = WriteEffect::next,
    .recompute_repeats_first_layer = false,
    .recipe_change_resets = true,
    .description =
        "Transformer Engine 0.1 and 0.2: a layer's forward scales are made at the start of its next "
        "forward, if the last one ran in training and in grad mode, its backward scale at the start of its "
        "next backward; a changed recipe begins its histories anew",
    .source = old_modules};
// Each of the others is the one before it, and what changed.
constexpr StateRules te_0_3 =
    changed(te_0_1, "te_0_3", "Transformer Engine 0.3 to 0.6: the same, whatever the grad mode was",
            [](StateRules& rules) { rules.update_needs_grad = false; });
constexpr StateRules te_0_7 = changed(
    te_0_3, "te_0_7", "Transformer Engine 0.7 to 0.13: a changed recipe changes the length of the histories alone",
    [](StateRules& rules) { rules.recipe_change_resets = false; });
constexpr StateRules te_1_0 =
    changed(te_0_7, "te_1_0", "Transformer Engine 1.0 to 1.4: a weight is cached where is_first_microbatch is given",
            [](StateRules& rules) {
              rules.every_cast_is_cached = false;
              rules.refilled_cache_reaches_calls = true;
            });
constexpr StateRules te_1_5 =
    changed(te_1_0, "te_1_5", "Transformer Engine 1.5: a weight that is made in FP8 only leaves no amax in its history",
            [](StateRules& rules) {
              rules.cast_without_grad_is_cached = true;
              rules.first_write_records = false;
            });
constexpr StateRules te_1_6 = changed(
    te_1_5, "te_1_6",
    "Transformer Engine 1.6 and 1.7: forward scales are made at the exit of the outermost autocast region, "
    "backward ones at the end of the backward of its first layer, also while cached codes stay, whose GEMM then "
    "takes a scale_inv that is not theirs; weights in FP8 only make a scale when the last of them is written",
    [](StateRules& rules) {
      rules.scale_update = ScaleUpdate::end_of_region;
      rules.write_effect = WriteEffect::update;
      rules.key = BufferKey::interval;
      rules.source = new_modules;
    });
constexpr StateRules te_1_8 =
    changed(te_1_6, "te_1_8", "Transformer Engine 1.8: a cached weight keeps its scale_inv", [](StateRules& rules) {
      rules.weight_takes_inverse_of_history = false;
      rules.frozen_weight_is_columnwise = false;
      rules.cache_repair = CacheRepair::transpose;
      rules.key = BufferKey::reduction;
    });
constexpr StateRules te_1_9 = changed(
    te_1_8, "te_1_9", "Transformer Engine 1.9 to 1.11: recipes that differ in reduce_amax alone share their buffers",
    [](StateRules& rules) { rules.key = BufferKey::wgrad; });
constexpr StateRules te_1_12 =
    changed(te_1_9, "te_1_12",
            "Transformer Engine 1.12: the second forward of a recomputed layer is the first of its region if the first "
            "one was",
            [](StateRules& rules) { rules.recompute_repeats_first_layer = true; });
constexpr StateRules te_1_13 =
    changed(te_1_12, "te_1_13", "Transformer Engine 1.13: writing weights that exist in FP8 only makes no scale",
            [](StateRules& rules) { rules.write_effect = WriteEffect::none; });
constexpr StateRules te_2_0 = changed(
    te_1_13, "te_2_0",
    "Transformer Engine 2.0 to 2.3: after the second forward of a recomputed layer its scales and histories are "
    "those of before the first one; a weight that is made in FP8 only leaves its amax in its history",
    [](StateRules& rules) {
      rules.cache_repair = CacheRepair::none;
      rules.refilled_cache_reaches_calls = false;
      rules.first_write_records = true;
      rules.recompute_loses_updates = true;
      rules.key = BufferKey::length;
    });
constexpr StateRules te_2_4 =
    changed(te_2_0, "te_2_4", "Transformer Engine 2.4 and 2.5: after a second forward they are those of before it",
            [](StateRules& rules) {
              rules.cache_repair = CacheRepair::transpose;
              rules.refilled_cache_reaches_calls = true;
              rules.recompute_loses_updates = false;
            });
constexpr StateRules te_2_6 =
    changed(te_2_4, "te_2_6",
            "Transformer Engine 2.6 and 2.7: a weight that was cached without grad mode is quantized anew where a "
            "backward needs it",
            [](StateRules& rules) { rules.cache_repair = CacheRepair::quantize; });
constexpr StateRules te_2_8 = changed(
    te_2_6, "te_2_8", "Transformer Engine since 2.8: recipes that differ in reduce_amax have buffers of their own",
    [](StateRules& rules) { rules.key = BufferKey::reduction; });

constexpr std::array all_rules{te_0_1, te_0_3,  te_0_7,  te_1_0, te_1_5, te_1_6, te_1_8,
                               te_1_9, te_1_12, te_1_13, te_2_0, te_2_4, te_2_6, te_2_8};

}  // namespace

std::span<const StateRules> state_rules() { return all_rules; }

const StateRules& current_state_rules() { return all_rules.back(); }

const StateRules& find_state_rules(std::string_view name) { return find_named(all_rules, "state rules", name); }

}  // namespace fp8lab
