// SPDX-License-Identifier: Apache-2.0
// The tensor cores as the slow oracle has them: the same numbers as the library's, typed a second time from the sources
// that slow_mma.hpp names.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/tensor_core/mma_model.hpp"
#include "reference/tensor_core/slow_mma.hpp"

namespace fp8lab::tests {

// What an instruction takes (PTX ISA).
inline constexpr std::array slow_fp8{e4m3, e5m2};
inline constexpr std::array slow_fp8_fp6_fp4{e4m3, e5m2, e2m3, e3m2, e2m1};
inline constexpr std::array slow_fp4{e2m1};
inline constexpr std::array slow_fp16{binary16};
inline constexpr std::array slow_bf16{bfloat16};
inline constexpr std::array slow_tf32{tf32};

/// FP8 for which ptxas emits F2FP, two HMMA and FADD or HADD2.
constexpr SlowModel slow_lowered(SlowModel model) {
  model.lowered = true;
  model.order = SlowOrder::pairs;
  return model;
}

inline constexpr std::array slow_fnuz{e4m3fnuz, e5m2fnuz};
inline constexpr std::array slow_fp32{binary32};
inline constexpr std::array slow_fp64{binary64};

/// An AMD matrix core: name, operands, products a step, steps.
constexpr SlowModel slow_amd(SlowSum sum, std::string_view name, std::span<const Format> operands, int products,
                             int steps) {
  SlowModel model{name, operands, products, steps, 24, SlowOutput::binary32};
  model.sum = sum;
  return model;
}
/// FP64: K fused multiply-adds. NVIDIA's have NaNs with a payload.
constexpr SlowModel slow_chain(std::string_view name, int k) {
  SlowModel model{name, slow_fp64, 1, k, 0, SlowOutput::binary64};
  model.sum = SlowSum::fma_chain;
  model.keeps_nans = !name.starts_with("cdna");
  return model;
}
constexpr SlowModel slow_two_sums(SlowModel model) {
  model.has_two_sums = true;
  return model;
}

/// Every instruction by name: operands, products per step, steps, fraction bits, result, and of scaled ones the scales'
/// format, their block, and the group of products summed before alignment. K is the largest the PTX instruction has.
inline constexpr std::array slow_models{
    // FP8 on Ada: two steps of 16, the accumulator converted after each. By wgmma on Hopper: one of 32.
    SlowModel{"ada_mma_fp8", slow_fp8, 16, 2, 13, SlowOutput::e8m13},
    SlowModel{"ada_mma_fp8_k16", slow_fp8, 16, 1, 13, SlowOutput::e8m13},
    SlowModel{"ada_mma_fp8_f16", slow_fp8, 16, 2, 13, SlowOutput::binary16},
    SlowModel{"ada_mma_fp8_k16_f16", slow_fp8, 16, 1, 13, SlowOutput::binary16},
    SlowModel{"hopper_wgmma_fp8", slow_fp8, 32, 1, 13, SlowOutput::e8m13},
    SlowModel{"hopper_wgmma_fp8_f16", slow_fp8, 32, 1, 13, SlowOutput::binary16},
    // FP8 by mma.sync on Hopper and the data-centre Blackwell.
    slow_lowered({"hopper_mma_sync_fp8", slow_fp8, 16, 2, 25, SlowOutput::binary32}),
    slow_lowered({"hopper_mma_sync_fp8_k16", slow_fp8, 8, 2, 25, SlowOutput::binary32}),
    slow_lowered({"hopper_mma_sync_fp8_f16", slow_fp8, 16, 2, 25, SlowOutput::binary16}),
    slow_lowered({"hopper_mma_sync_fp8_k16_f16", slow_fp8, 8, 2, 25, SlowOutput::binary16}),
    // FP8, FP6 and FP4 on Blackwell.
    SlowModel{"blackwell_tcgen05_fp8", slow_fp8_fp6_fp4, 32, 1, 25, SlowOutput::binary32},
    SlowModel{"blackwell_tcgen05_fp8_f16", slow_fp8_fp6_fp4, 32, 1, 25, SlowOutput::binary16},
    SlowModel{"rtx_blackwell_mma_fp8", slow_fp8_fp6_fp4, 32, 1, 25, SlowOutput::binary32},
    SlowModel{"rtx_blackwell_mma_fp8_f16", slow_fp8_fp6_fp4, 32, 1, 25, SlowOutput::binary16},
    SlowModel{"rtx_blackwell_mma_fp8_k16", slow_fp8, 16, 1, 25, SlowOutput::binary32},
    SlowModel{"rtx_blackwell_mma_fp8_k16_f16", slow_fp8, 16, 1, 25, SlowOutput::binary16},
    SlowModel{"blackwell_mxf8", slow_fp8_fp6_fp4, 32, 1, 25, SlowOutput::binary32, SlowScale::ue8m0, 32, 1},
    // FP4 with K = 64: four groups of 16 and the accumulator, whichever block the scales have.
    SlowModel{"blackwell_mxf4", slow_fp4, 64, 1, 35, SlowOutput::binary32, SlowScale::ue8m0, 32, 16},
    SlowModel{"blackwell_mxf4_block16", slow_fp4, 64, 1, 35, SlowOutput::binary32, SlowScale::ue8m0, 16, 16},
    SlowModel{"blackwell_nvf4", slow_fp4, 64, 1, 35, SlowOutput::binary32, SlowScale::ue4m3, 16, 16},
    // FP16, BF16 and TF32, of which a step takes 8 bytes a row on Volta, 16 from Turing to Ada, 32 since Hopper.
    SlowModel{"volta_fp16", slow_fp16, 4, 1, 23, SlowOutput::binary32},
    SlowModel{"volta_fp16_f16", slow_fp16, 4, 1, 23, SlowOutput::binary16},
    SlowModel{"turing_fp16", slow_fp16, 8, 1, 24, SlowOutput::binary32},
    SlowModel{"turing_fp16_f16", slow_fp16, 8, 1, 24, SlowOutput::binary16},
    SlowModel{"ampere_fp16", slow_fp16, 8, 2, 24, SlowOutput::binary32},
    SlowModel{"ampere_fp16_f16", slow_fp16, 8, 2, 24, SlowOutput::binary16},
    SlowModel{"ampere_bf16", slow_bf16, 8, 2, 24, SlowOutput::binary32},
    SlowModel{"ampere_tf32", slow_tf32, 4, 2, 24, SlowOutput::binary32},
    SlowModel{"ada_fp16", slow_fp16, 8, 2, 24, SlowOutput::binary32},
    SlowModel{"ada_fp16_f16", slow_fp16, 8, 2, 24, SlowOutput::binary16},
    SlowModel{"ada_bf16", slow_bf16, 8, 2, 24, SlowOutput::binary32},
    SlowModel{"ada_tf32", slow_tf32, 4, 2, 24, SlowOutput::binary32},
    SlowModel{"hopper_fp16", slow_fp16, 16, 1, 25, SlowOutput::binary32},
    SlowModel{"hopper_fp16_f16", slow_fp16, 16, 1, 25, SlowOutput::binary16},
    SlowModel{"hopper_bf16", slow_bf16, 16, 1, 25, SlowOutput::binary32},
    SlowModel{"hopper_tf32", slow_tf32, 8, 1, 25, SlowOutput::binary32},
    SlowModel{"blackwell_fp16", slow_fp16, 16, 1, 25, SlowOutput::binary32},
    SlowModel{"blackwell_fp16_f16", slow_fp16, 16, 1, 25, SlowOutput::binary16},
    SlowModel{"blackwell_bf16", slow_bf16, 16, 1, 25, SlowOutput::binary32},
    SlowModel{"blackwell_tf32", slow_tf32, 8, 1, 25, SlowOutput::binary32},
    // The small shapes of mma.sync (m16n8k8, and m16n8k4 of TF32): one step of that many products.
    SlowModel{"ampere_fp16_k8", slow_fp16, 8, 1, 24, SlowOutput::binary32},
    SlowModel{"ampere_fp16_k8_f16", slow_fp16, 8, 1, 24, SlowOutput::binary16},
    SlowModel{"ampere_bf16_k8", slow_bf16, 8, 1, 24, SlowOutput::binary32},
    SlowModel{"ampere_tf32_k4", slow_tf32, 4, 1, 24, SlowOutput::binary32},
    SlowModel{"ada_fp16_k8", slow_fp16, 8, 1, 24, SlowOutput::binary32},
    SlowModel{"ada_fp16_k8_f16", slow_fp16, 8, 1, 24, SlowOutput::binary16},
    SlowModel{"ada_bf16_k8", slow_bf16, 8, 1, 24, SlowOutput::binary32},
    SlowModel{"ada_tf32_k4", slow_tf32, 4, 1, 24, SlowOutput::binary32},
    SlowModel{"hopper_fp16_k8", slow_fp16, 8, 1, 25, SlowOutput::binary32},
    SlowModel{"hopper_fp16_k8_f16", slow_fp16, 8, 1, 25, SlowOutput::binary16},
    SlowModel{"hopper_bf16_k8", slow_bf16, 8, 1, 25, SlowOutput::binary32},
    SlowModel{"hopper_tf32_k4", slow_tf32, 4, 1, 25, SlowOutput::binary32},
    SlowModel{"blackwell_fp16_k8", slow_fp16, 8, 1, 25, SlowOutput::binary32},
    SlowModel{"blackwell_fp16_k8_f16", slow_fp16, 8, 1, 25, SlowOutput::binary16},
    SlowModel{"blackwell_bf16_k8", slow_bf16, 8, 1, 25, SlowOutput::binary32},
    SlowModel{"blackwell_tf32_k4", slow_tf32, 4, 1, 25, SlowOutput::binary32},
    // AMD's MFMA, of each type the largest K (MMA-Sim 2.1.1 lists the shapes).
    slow_amd(SlowSum::exact, "cdna1_fp16", slow_fp16, 4, 4),
    slow_amd(SlowSum::exact, "cdna1_bf16", slow_bf16, 2, 4),
    slow_amd(SlowSum::fma_chain, "cdna1_fp32", slow_fp32, 1, 4),
    slow_amd(SlowSum::flushed_pairs, "cdna2_fp16", slow_fp16, 4, 4),
    slow_amd(SlowSum::flushed_pairs, "cdna2_bf16", slow_bf16, 2, 4),
    slow_amd(SlowSum::flushed_pairs, "cdna2_bf16_1k", slow_bf16, 4, 4),
    slow_amd(SlowSum::fma_chain, "cdna2_fp32", slow_fp32, 1, 4),
    slow_amd(SlowSum::products_first, "cdna3_fp16", slow_fp16, 8, 2),
    slow_amd(SlowSum::products_first, "cdna3_bf16", slow_bf16, 8, 2),
    slow_amd(SlowSum::products_first, "cdna3_xf32", slow_tf32, 4, 2),
    slow_two_sums(slow_amd(SlowSum::products_first, "cdna3_fp8", slow_fnuz, 16, 2)),
    slow_amd(SlowSum::fma_chain, "cdna3_fp32", slow_fp32, 1, 4),
    // The smaller shapes.
    slow_amd(SlowSum::exact, "cdna1_fp16_k8", slow_fp16, 4, 2),
    slow_amd(SlowSum::exact, "cdna1_fp16_k4", slow_fp16, 4, 1),
    slow_amd(SlowSum::exact, "cdna1_bf16_k4", slow_bf16, 2, 2),
    slow_amd(SlowSum::exact, "cdna1_bf16_k2", slow_bf16, 2, 1),
    slow_amd(SlowSum::fma_chain, "cdna1_fp32_k2", slow_fp32, 1, 2),
    slow_amd(SlowSum::fma_chain, "cdna1_fp32_k1", slow_fp32, 1, 1),
    slow_amd(SlowSum::flushed_pairs, "cdna2_fp16_k8", slow_fp16, 4, 2),
    slow_amd(SlowSum::flushed_pairs, "cdna2_fp16_k4", slow_fp16, 4, 1),
    slow_amd(SlowSum::flushed_pairs, "cdna2_bf16_k4", slow_bf16, 2, 2),
    slow_amd(SlowSum::flushed_pairs, "cdna2_bf16_k2", slow_bf16, 2, 1),
    slow_amd(SlowSum::flushed_pairs, "cdna2_bf16_1k_k8", slow_bf16, 4, 2),
    slow_amd(SlowSum::flushed_pairs, "cdna2_bf16_1k_k4", slow_bf16, 4, 1),
    slow_amd(SlowSum::fma_chain, "cdna2_fp32_k2", slow_fp32, 1, 2),
    slow_amd(SlowSum::fma_chain, "cdna2_fp32_k1", slow_fp32, 1, 1),
    slow_amd(SlowSum::products_first, "cdna3_fp16_k8", slow_fp16, 8, 1),
    slow_amd(SlowSum::products_first, "cdna3_fp16_k4", slow_fp16, 4, 1),
    slow_amd(SlowSum::products_first, "cdna3_bf16_k8", slow_bf16, 8, 1),
    slow_amd(SlowSum::products_first, "cdna3_bf16_k4", slow_bf16, 4, 1),
    slow_amd(SlowSum::products_first, "cdna3_xf32_k4", slow_tf32, 4, 1),
    slow_two_sums(slow_amd(SlowSum::products_first, "cdna3_fp8_k16", slow_fnuz, 16, 1)),
    slow_amd(SlowSum::fma_chain, "cdna3_fp32_k2", slow_fp32, 1, 2),
    slow_amd(SlowSum::fma_chain, "cdna3_fp32_k1", slow_fp32, 1, 1),
    // FP64, as MMA-Sim 2.1.1 lists it by chip.
    slow_chain("ampere_fp64", 4),
    slow_chain("ada_fp64", 4),
    slow_chain("hopper_fp64", 16),
    slow_chain("hopper_fp64_k8", 8),
    slow_chain("hopper_fp64_k4", 4),
    slow_chain("blackwell_fp64", 4),
    slow_chain("cdna2_fp64", 4),
    slow_chain("cdna3_fp64", 4),
};

/// The record called `name`. Throws std::invalid_argument that lists the known names.
inline const SlowModel& find_slow_model(std::string_view name) { return find_named(slow_models, "slow model", name); }

/// Whether the oracle has its own record of the model.
inline bool has_slow_model(std::string_view name) {
  return std::ranges::find(slow_models, name, &SlowModel::name) != slow_models.end();
}

/// The oracle's own record of the model. For a model that it has no record of, one is made of the library's: the oracle
/// then checks the arithmetic, and nothing checks the numbers.
inline SlowModel slow_model_of(const MmaModel& model) {
  if (has_slow_model(model.name)) return find_slow_model(model.name);
  SlowModel slow{model.name,  model.operands,      model.products_per_step,
                 model.steps, model.fraction_bits, SlowOutput::binary32};
  if (model.output == binary16) slow.output = SlowOutput::binary16;
  if (model.output == e8m13) slow.output = SlowOutput::e8m13;
  if (model.scales) {
    slow.scale = model.scales->format == e8m0 ? SlowScale::ue8m0 : SlowScale::ue4m3;
    slow.scale_block = model.scales->block;
  }
  slow.group = model.group;
  slow.lowered = model.lowering == Lowering::fp16_add;
  if (model.order == StepOrder::pairs) slow.order = SlowOrder::pairs;
  return slow;
}

}  // namespace fp8lab::tests
