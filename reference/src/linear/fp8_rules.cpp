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
    .recipe_change_resets = true,
    .cache_repair = CacheRepair::none,
    .description =
        "Transformer Engine 0.1 to 0.3: a layer's forward scales are made at the start of its next forward, if the "
        "last one ran in training and in grad mode, its backward scale at the start of its next backward; a changed "
        "recipe begins its histories anew",
    .source = old_modules};
constexpr StateRules te_0_4{
    .name = "te_0_4",
    .scale_update = ScaleUpdate::next_pass,
    .recipe_change_resets = true,
    .cache_repair = CacheRepair::none,
    .description =
        "Transformer Engine 0.4 to 0.6: the same, whatever the grad mode was; the scale_inv of a cached "
        "weight stays that of its codes",
    .source = old_modules};
constexpr StateRules te_0_7{
    .name = "te_0_7",
    .scale_update = ScaleUpdate::next_pass,
    .cache_repair = CacheRepair::none,
    .description = "Transformer Engine 0.7 to 1.3: a changed recipe changes the length of the histories alone",
    .source = old_modules};
constexpr StateRules te_1_4{
    .name = "te_1_4",
    .scale_update = ScaleUpdate::next_pass,
    .first_write_records = false,
    .cache_repair = CacheRepair::none,
    .description = "Transformer Engine 1.4 and 1.5: a weight that is made in FP8 only leaves no amax in its history",
    .source = old_modules};
constexpr StateRules te_1_6{
    .name = "te_1_6",
    .cached_weight_takes_new_inverse = true,
    .writing_weights_updates = true,
    .recompute_keeps_first_layer = false,
    .key = BufferKey::interval,
    .first_write_records = false,
    .cache_repair = CacheRepair::none,
    .description =
        "Transformer Engine 1.6 and 1.7: forward scales are made at the exit of the outermost autocast region, "
        "backward "
        "ones at the end of the backward of its first layer; the GEMM of a cached weight takes the scale_inv of the "
        "newest scale, which is not that of its codes; weights in FP8 only make a scale when the last of them is "
        "written",
    .source = new_modules};
constexpr StateRules te_1_8{.name = "te_1_8",
                            .writing_weights_updates = true,
                            .recompute_keeps_first_layer = false,
                            .key = BufferKey::reduction,
                            .first_write_records = false,
                            .cache_repair = CacheRepair::transpose,
                            .description = "Transformer Engine 1.8: a cached weight keeps its scale_inv",
                            .source = new_modules};
constexpr StateRules te_1_9{
    .name = "te_1_9",
    .writing_weights_updates = true,
    .recompute_keeps_first_layer = false,
    .key = BufferKey::wgrad,
    .first_write_records = false,
    .cache_repair = CacheRepair::transpose,
    .description = "Transformer Engine 1.9 to 1.11: recipes that differ in reduce_amax alone share their buffers",
    .source = new_modules};
constexpr StateRules te_1_12{
    .name = "te_1_12",
    .writing_weights_updates = true,
    .key = BufferKey::wgrad,
    .first_write_records = false,
    .cache_repair = CacheRepair::transpose,
    .description =
        "Transformer Engine 1.12: after the second forward of a recomputed layer the region's first layer is "
        "still to come",
    .source = new_modules};
constexpr StateRules te_1_13{
    .name = "te_1_13",
    .key = BufferKey::wgrad,
    .first_write_records = false,
    .cache_repair = CacheRepair::transpose,
    .description = "Transformer Engine 1.13: writing weights that exist in FP8 only makes no scale",
    .source = new_modules};
constexpr StateRules te_2_0{
    .name = "te_2_0",
    .recompute_loses_updates = true,
    .cache_repair = CacheRepair::none,
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
                                "Transformer Engine since 2.6: a weight that was cached without grad mode is "
                                "quantized anew where a backward needs it",
                            .source = new_modules};

constexpr std::array all_rules{te_0_1, te_0_4,  te_0_7,  te_1_4, te_1_6, te_1_8,
                               te_1_9, te_1_12, te_1_13, te_2_0, te_2_4, te_2_6};

}  // namespace

std::span<const StateRules> state_rules() { return all_rules; }

const StateRules& current_state_rules() { return all_rules.back(); }

const StateRules& find_state_rules(std::string_view name) { return find_named(all_rules, "state rules", name); }

}  // namespace fp8lab
