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

constexpr StateRules te_0_1{.name = "te_0_1",
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
                                "Transformer Engine 0.1 and 0.2: a layer's forward scales are made at the start of its "
                                "next forward, if the last one ran in training and in grad mode, its backward scale at "
                                "the start of its next backward; a changed recipe begins its histories anew",
                            .source = old_modules};
constexpr StateRules te_0_3{.name = "te_0_3",
                            .scale_update = ScaleUpdate::next_pass,
                            .weight_takes_inverse_of_history = true,
                            .every_cast_is_cached = true,
                            .cast_without_grad_is_cached = false,
                            .frozen_weight_is_columnwise = true,
                            .cache_repair = CacheRepair::none,
                            .refilled_cache_reaches_calls = false,
                            .write_effect = WriteEffect::next,
                            .recompute_repeats_first_layer = false,
                            .recipe_change_resets = true,
                            .description = "Transformer Engine 0.3 to 0.6: the same, whatever the grad mode was",
                            .source = old_modules};
constexpr StateRules te_0_7{
    .name = "te_0_7",
    .scale_update = ScaleUpdate::next_pass,
    .weight_takes_inverse_of_history = true,
    .every_cast_is_cached = true,
    .cast_without_grad_is_cached = false,
    .frozen_weight_is_columnwise = true,
    .cache_repair = CacheRepair::none,
    .refilled_cache_reaches_calls = false,
    .write_effect = WriteEffect::next,
    .recompute_repeats_first_layer = false,
    .description = "Transformer Engine 0.7 to 0.13: a changed recipe changes the length of the histories alone",
    .source = old_modules};
constexpr StateRules te_1_0{
    .name = "te_1_0",
    .scale_update = ScaleUpdate::next_pass,
    .weight_takes_inverse_of_history = true,
    .cast_without_grad_is_cached = false,
    .frozen_weight_is_columnwise = true,
    .cache_repair = CacheRepair::none,
    .write_effect = WriteEffect::next,
    .recompute_repeats_first_layer = false,
    .description = "Transformer Engine 1.0 to 1.4: a weight is cached where is_first_microbatch is given",
    .source = old_modules};
constexpr StateRules te_1_5{
    .name = "te_1_5",
    .scale_update = ScaleUpdate::next_pass,
    .weight_takes_inverse_of_history = true,
    .frozen_weight_is_columnwise = true,
    .cache_repair = CacheRepair::none,
    .write_effect = WriteEffect::next,
    .first_write_records = false,
    .recompute_repeats_first_layer = false,
    .description = "Transformer Engine 1.5: a weight that is made in FP8 only leaves no amax in its history",
    .source = old_modules};
constexpr StateRules te_1_6{
    .name = "te_1_6",
    .weight_takes_inverse_of_history = true,
    .frozen_weight_is_columnwise = true,
    .cache_repair = CacheRepair::none,
    .write_effect = WriteEffect::update,
    .first_write_records = false,
    .recompute_repeats_first_layer = false,
    .key = BufferKey::interval,
    .description =
        "Transformer Engine 1.6 and 1.7: forward scales are made at the exit of the outermost autocast region, "
        "backward ones at the end of the backward of its first layer, also while cached codes stay, whose GEMM then "
        "takes a scale_inv that is not theirs; weights in FP8 only make a scale when the last of them is written",
    .source = new_modules};
constexpr StateRules te_1_8{.name = "te_1_8",
                            .cache_repair = CacheRepair::transpose,
                            .write_effect = WriteEffect::update,
                            .first_write_records = false,
                            .recompute_repeats_first_layer = false,
                            .key = BufferKey::reduction,
                            .description = "Transformer Engine 1.8: a cached weight keeps its scale_inv",
                            .source = new_modules};
constexpr StateRules te_1_9{
    .name = "te_1_9",
    .cache_repair = CacheRepair::transpose,
    .write_effect = WriteEffect::update,
    .first_write_records = false,
    .recompute_repeats_first_layer = false,
    .key = BufferKey::wgrad,
    .description = "Transformer Engine 1.9 to 1.11: recipes that differ in reduce_amax alone share their buffers",
    .source = new_modules};
constexpr StateRules te_1_12{.name = "te_1_12",
                             .cache_repair = CacheRepair::transpose,
                             .write_effect = WriteEffect::update,
                             .first_write_records = false,
                             .key = BufferKey::wgrad,
                             .description =
                                 "Transformer Engine 1.12: the second forward of a recomputed layer is the first of "
                                 "its region if the first one was",
                             .source = new_modules};
constexpr StateRules te_1_13{
    .name = "te_1_13",
    .cache_repair = CacheRepair::transpose,
    .first_write_records = false,
    .key = BufferKey::wgrad,
    .description = "Transformer Engine 1.13: writing weights that exist in FP8 only makes no scale",
    .source = new_modules};
constexpr StateRules te_2_0{
    .name = "te_2_0",
    .cache_repair = CacheRepair::none,
    .refilled_cache_reaches_calls = false,
    .recompute_loses_updates = true,
    .description =
        "Transformer Engine 2.0 to 2.3: after the second forward of a recomputed layer its scales and histories are "
        "those of before the first one; a weight that is made in FP8 only leaves its amax in its history",
    .source = new_modules};
constexpr StateRules te_2_4{
    .name = "te_2_4",
    .cache_repair = CacheRepair::transpose,
    .description = "Transformer Engine 2.4 and 2.5: after a second forward they are those of before it",
    .source = new_modules};
constexpr StateRules te_2_6{.name = "te_2_6",
                            .description =
                                "Transformer Engine 2.6 and 2.7: a weight that was cached without grad mode is "
                                "quantized anew where a backward needs it",
                            .source = new_modules};
constexpr StateRules te_2_8{
    .name = "te_2_8",
    .key = BufferKey::reduction,
    .description = "Transformer Engine since 2.8: recipes that differ in reduce_amax have buffers of their own",
    .source = new_modules};

constexpr std::array all_rules{te_0_1, te_0_3,  te_0_7,  te_1_0, te_1_5, te_1_6, te_1_8,
                               te_1_9, te_1_12, te_1_13, te_2_0, te_2_4, te_2_6, te_2_8};

}  // namespace

std::span<const StateRules> state_rules() { return all_rules; }

const StateRules& current_state_rules() { return all_rules.back(); }

const StateRules& find_state_rules(std::string_view name) { return find_named(all_rules, "state rules", name); }

}  // namespace fp8lab
