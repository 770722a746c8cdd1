// SPDX-License-Identifier: Apache-2.0
// NVIDIA's tensor cores, as entries of the table of models (models.hpp).
#pragma once

#include "fp8lab/reference/tensor_core/model_parts.hpp"

namespace fp8lab {

// FP8 by wgmma on Hopper, and by mma.sync on Ada, whose accumulator is cut after each of two steps.
inline constexpr MmaModel hopper_wgmma_fp8{
    .name = "hopper_wgmma_fp8",
    .chip = chips::hopper,
    .instruction = "wgmma m64nNk32",
    .products_per_step = 32,
    .fraction_bits = 13,
    .zero_exponent = -133,
    .output = e8m13,
    .operands = fp8_operands,
    .source = published_by_both,
    .evidence = Evidence::measured,
    .evidence_note =
        "H100 and H200 with c = 0, an H200 with any (ledger); it also reproduces the H100 outputs that Transformer "
        "Engine's FP8 primer prints"};
inline constexpr MmaModel hopper_wgmma_fp8_f16 =
    measured(with_float16(hopper_wgmma_fp8, "hopper_wgmma_fp8_f16"), on_h200);
inline constexpr MmaModel ada_mma_fp8{.name = "ada_mma_fp8",
                                      .chip = chips::ada,
                                      .instruction = "mma.sync m16n8k32",
                                      .products_per_step = 16,
                                      .steps = 2,
                                      .fraction_bits = 13,
                                      .zero_exponent = -132,
                                      .output = e8m13,
                                      .operands = fp8_operands,
                                      .source = published_by_both,
                                      .evidence = Evidence::measured,
                                      .evidence_note = on_ada};
inline constexpr MmaModel ada_mma_fp8_f16 = measured(with_float16(ada_mma_fp8, "ada_mma_fp8_f16"), "Ada");
inline constexpr MmaModel ada_mma_fp8_k16 =
    with_source(with_k(ada_mma_fp8, 16, "ada_mma_fp8_k16", "mma.sync m16n8k16"), published_by_mma_sim);
inline constexpr MmaModel ada_mma_fp8_k16_f16 = with_float16(ada_mma_fp8_k16, "ada_mma_fp8_k16_f16");

// FP8 by mma.sync on Hopper and the data-centre Blackwell (sm_90, sm_100, sm_103), which have no such instruction:
// ptxas 12.8 to 13.5 emit F2FP, two HMMA, the second with the k whose bit 1 is set, and FADD or HADD2. Those of
// CUDA 12.4 to 12.6 let both HMMA begin at zero and add their sums, then c, by FADD: no model has that.
inline constexpr MmaModel hopper_mma_sync_fp8{
    .name = "hopper_mma_sync_fp8",
    .chip = chips::hopper_and_blackwell,
    .instruction = "mma.sync m16n8k32",
    .products_per_step = 16,
    .steps = 2,
    .fraction_bits = 25,
    .zero_exponent = -133,
    .output = binary32,
    .operands = fp8_operands,
    .order = StepOrder::pairs,
    .lowering = Lowering::fp16_add,
    .source =
        "machine code of ptxas 12.8 to 13.5; FP16 steps as hopper_fp16 has them; rows of Khattak and Mikaitis, arXiv "
        "2512.07004",
    .evidence = Evidence::measured,
    .evidence_note = "B200, an H200 (ledger); the order of the steps is that of the machine code, which both confirm"};
inline constexpr MmaModel hopper_mma_sync_fp8_f16 =
    measured(with_float16(hopper_mma_sync_fp8, "hopper_mma_sync_fp8_f16"), "H100, H200 and B200; an H200 (ledger)");
inline constexpr MmaModel hopper_mma_sync_fp8_k16{
    .name = "hopper_mma_sync_fp8_k16",
    .chip = chips::hopper_and_blackwell,
    .instruction = "mma.sync m16n8k16",
    .products_per_step = 8,
    .steps = 2,
    .fraction_bits = 25,
    .zero_exponent = -133,
    .output = binary32,
    .operands = fp8_operands,
    .order = StepOrder::pairs,
    .lowering = Lowering::fp16_add,
    .source = "machine code of ptxas 12.8 to 13.5; FP16 steps as hopper_fp16 has them",
    .evidence = Evidence::measured,
    .evidence_note = "an H200 (ledger); Blackwell's follows from the machine code and from m16n8k32"};
inline constexpr MmaModel hopper_mma_sync_fp8_k16_f16 = measured(
    with_float16(hopper_mma_sync_fp8_k16, "hopper_mma_sync_fp8_k16_f16"), hopper_mma_sync_fp8_k16.evidence_note);

// FP8, FP6 and FP4 on Blackwell, one step of 25 fraction bits.
inline constexpr MmaModel blackwell_tcgen05_fp8{.name = "blackwell_tcgen05_fp8",
                                                .chip = chips::blackwell,
                                                .instruction = "tcgen05.mma kind::f8f6f4",
                                                .products_per_step = 32,
                                                .fraction_bits = 25,
                                                .zero_exponent = -133,
                                                .output = binary32,
                                                .operands = fp8_fp6_fp4_operands,
                                                .source = published_by_mma_sim,
                                                .evidence = Evidence::published};
inline constexpr MmaModel blackwell_tcgen05_fp8_f16 = with_float16(blackwell_tcgen05_fp8, "blackwell_tcgen05_fp8_f16");
inline constexpr MmaModel rtx_blackwell_mma_fp8 =
    same_as(blackwell_tcgen05_fp8, "rtx_blackwell_mma_fp8", chips::rtx_blackwell,
            "mma.sync m16n8k32, with or without kind::f8f6f4");
inline constexpr MmaModel rtx_blackwell_mma_fp8_f16 = with_float16(rtx_blackwell_mma_fp8, "rtx_blackwell_mma_fp8_f16");
inline constexpr MmaModel rtx_blackwell_mma_fp8_k16 =
    with_k(with_operands(rtx_blackwell_mma_fp8, fp8_operands), 16, "rtx_blackwell_mma_fp8_k16", "mma.sync m16n8k16");
inline constexpr MmaModel rtx_blackwell_mma_fp8_k16_f16 =
    with_float16(rtx_blackwell_mma_fp8_k16, "rtx_blackwell_mma_fp8_k16_f16");

// With block scales. FP4 with K = 64 is four groups of 16 and the accumulator, whichever block the scales have.
inline constexpr MmaModel blackwell_mxf8{.name = "blackwell_mxf8",
                                         .chip = chips::any_blackwell,
                                         .instruction = "kind::mxf8f6f4",
                                         .products_per_step = 32,
                                         .fraction_bits = 25,
                                         .zero_exponent = -133,
                                         .output = binary32,
                                         .operands = fp8_fp6_fp4_operands,
                                         .scales = BlockScales{e8m0, 32},
                                         .source = published_by_mma_sim,
                                         .evidence = Evidence::published,
                                         .evidence_note = "no device has decided how zeros count"};
inline constexpr MmaModel blackwell_mxf4{
    .name = "blackwell_mxf4",
    .chip = chips::any_blackwell,
    .instruction = "kind::mxf4",
    .products_per_step = 64,
    .fraction_bits = 35,
    .zero_exponent = -139,
    .output = binary32,
    .operands = fp4_operands,
    .scales = BlockScales{e8m0, 32},
    .group = 16,
    .source = published_by_mma_sim,
    .evidence = Evidence::published,
    .evidence_note =
        "no device has decided the fraction bits (a probe of an RTX 5090 is said to have read 25), how groups of zeros "
        "count, and that an infinite c stays infinite"};
inline constexpr MmaModel blackwell_mxf4_block16 =
    with_scales(blackwell_mxf4, {e8m0, 16}, "blackwell_mxf4_block16", "kind::mxf4nvf4");
inline constexpr MmaModel blackwell_nvf4 = with_scales(blackwell_mxf4, {ue4m3, 16}, "blackwell_nvf4", "kind::mxf4nvf4");

// FP16, BF16 and TF32, of which a step takes 8 bytes of a row on Volta, 16 from Turing to Ada, 32 since Hopper.
inline constexpr MmaModel volta_fp16{.name = "volta_fp16",
                                     .chip = chips::volta,
                                     .instruction = "mma.sync m8n8k4",
                                     .products_per_step = 4,
                                     .fraction_bits = 23,
                                     .zero_exponent = -131,
                                     .output = binary32,
                                     .operands = fp16_operands,
                                     .source = published_by_both,
                                     .evidence = Evidence::measured,
                                     .evidence_note = "V100"};
inline constexpr MmaModel volta_fp16_f16 = measured(with_float16(volta_fp16, "volta_fp16_f16"), "V100");
inline constexpr MmaModel ampere_fp16{.name = "ampere_fp16",
                                      .chip = chips::ampere,
                                      .instruction = "mma.sync m16n8k16",
                                      .products_per_step = 8,
                                      .steps = 2,
                                      .fraction_bits = 24,
                                      .zero_exponent = -132,
                                      .output = binary32,
                                      .operands = fp16_operands,
                                      .source = published_by_both,
                                      .evidence = Evidence::measured,
                                      .evidence_note = on_ampere};
inline constexpr MmaModel ampere_fp16_f16 = measured(with_float16(ampere_fp16, "ampere_fp16_f16"), on_ampere);
inline constexpr MmaModel ampere_fp16_k8 = with_k(ampere_fp16, 8, "ampere_fp16_k8", "mma.sync m16n8k8");
inline constexpr MmaModel ampere_fp16_k8_f16 = with_float16(ampere_fp16_k8, "ampere_fp16_k8_f16");
inline constexpr MmaModel turing_fp16 = same_as(ampere_fp16_k8, "turing_fp16", chips::turing, "mma.sync m16n8k8");
inline constexpr MmaModel turing_fp16_f16 = with_float16(turing_fp16, "turing_fp16_f16");
inline constexpr MmaModel ampere_bf16 =
    measured(same_as(with_operands(ampere_fp16, bf16_operands), "ampere_bf16"), on_ampere);
inline constexpr MmaModel ampere_tf32 = measured(
    same_as(with_operands(ampere_fp16, tf32_operands), "ampere_tf32", chips::ampere, "mma.sync m16n8k8"), on_ampere);
inline constexpr MmaModel ada_fp16 =
    measured(same_as(ampere_fp16, "ada_fp16", chips::ada, "mma.sync m16n8k16"), on_ada);
inline constexpr MmaModel ada_fp16_f16 = measured(with_float16(ada_fp16, "ada_fp16_f16"), on_ada);
inline constexpr MmaModel ada_bf16 =
    measured(same_as(ampere_bf16, "ada_bf16", chips::ada, "mma.sync m16n8k16"), on_ada);
inline constexpr MmaModel ada_tf32 = measured(same_as(ampere_tf32, "ada_tf32", chips::ada, "mma.sync m16n8k8"), on_ada);
inline constexpr MmaModel hopper_fp16{.name = "hopper_fp16",
                                      .chip = chips::hopper,
                                      .instruction = "wgmma or mma.sync with K = 16",
                                      .products_per_step = 16,
                                      .fraction_bits = 25,
                                      .zero_exponent = -133,
                                      .output = binary32,
                                      .operands = fp16_operands,
                                      .source = published_by_both,
                                      .evidence = Evidence::measured,
                                      .evidence_note = on_hopper};
inline constexpr MmaModel hopper_fp16_f16 = measured(with_float16(hopper_fp16, "hopper_fp16_f16"), on_hopper);
inline constexpr MmaModel hopper_bf16 =
    measured(same_as(with_operands(hopper_fp16, bf16_operands), "hopper_bf16"), on_hopper);
inline constexpr MmaModel hopper_tf32 = measured(
    same_as(with_operands(hopper_fp16, tf32_operands), "hopper_tf32", chips::hopper, "wgmma or mma.sync with K = 8"),
    on_hopper);
inline constexpr MmaModel blackwell_fp16 = measured(
    same_as(hopper_fp16, "blackwell_fp16", chips::any_blackwell, "tcgen05.mma (not RTX) or mma.sync with K = 16"),
    on_blackwell);
inline constexpr MmaModel blackwell_fp16_f16 =
    measured(with_float16(blackwell_fp16, "blackwell_fp16_f16"), on_blackwell);
inline constexpr MmaModel blackwell_bf16 = measured(
    same_as(hopper_bf16, "blackwell_bf16", chips::any_blackwell, "tcgen05.mma (not RTX) or mma.sync with K = 16"),
    on_blackwell);
inline constexpr MmaModel blackwell_tf32 = measured(
    same_as(hopper_tf32, "blackwell_tf32", chips::any_blackwell, "tcgen05.mma (not RTX) or mma.sync with K = 8"),
    on_blackwell);

// The small shapes of mma.sync: one step of as many products as they have.
inline constexpr MmaModel ampere_bf16_k8 = with_k(ampere_bf16, 8, "ampere_bf16_k8", "mma.sync m16n8k8");
inline constexpr MmaModel ampere_tf32_k4 = with_k(ampere_tf32, 4, "ampere_tf32_k4", "mma.sync m16n8k4");
inline constexpr MmaModel ada_fp16_k8 = with_k(ada_fp16, 8, "ada_fp16_k8", "mma.sync m16n8k8");
inline constexpr MmaModel ada_fp16_k8_f16 = with_float16(ada_fp16_k8, "ada_fp16_k8_f16");
inline constexpr MmaModel ada_bf16_k8 = with_k(ada_bf16, 8, "ada_bf16_k8", "mma.sync m16n8k8");
inline constexpr MmaModel ada_tf32_k4 = with_k(ada_tf32, 4, "ada_tf32_k4", "mma.sync m16n8k4");
inline constexpr MmaModel hopper_fp16_k8 =
    measured(with_k(hopper_fp16, 8, "hopper_fp16_k8", "mma.sync m16n8k8"), on_h200);
inline constexpr MmaModel hopper_fp16_k8_f16 = measured(with_float16(hopper_fp16_k8, "hopper_fp16_k8_f16"), on_h200);
inline constexpr MmaModel hopper_bf16_k8 =
    measured(with_k(hopper_bf16, 8, "hopper_bf16_k8", "mma.sync m16n8k8"), on_h200);
inline constexpr MmaModel hopper_tf32_k4 =
    measured(with_k(hopper_tf32, 4, "hopper_tf32_k4", "mma.sync m16n8k4"), on_h200);
inline constexpr MmaModel blackwell_fp16_k8 = with_k(blackwell_fp16, 8, "blackwell_fp16_k8", "mma.sync m16n8k8");
inline constexpr MmaModel blackwell_fp16_k8_f16 = with_float16(blackwell_fp16_k8, "blackwell_fp16_k8_f16");
inline constexpr MmaModel blackwell_bf16_k8 = with_k(blackwell_bf16, 8, "blackwell_bf16_k8", "mma.sync m16n8k8");
inline constexpr MmaModel blackwell_tf32_k4 = with_k(blackwell_tf32, 4, "blackwell_tf32_k4", "mma.sync m16n8k4");

// FP64 (DMMA). The words of NaN are measured on Hopper, and taken to be the same elsewhere.
[[nodiscard]] constexpr MmaModel dmma(std::string_view name, Chip chip, std::string_view instruction, int k) {
  MmaModel model = fp64_chain(name, chip, instruction, k);
  model.nan = NanWord::propagated;
  model.evidence_note = "which word a NaN has is not known: that of Hopper here";
  return model;
}
inline constexpr MmaModel ampere_fp64 = dmma("ampere_fp64", chips::ampere, "mma.sync m8n8k4 (DMMA)", 4);
inline constexpr MmaModel ada_fp64 = dmma("ada_fp64", chips::ada, "mma.sync m8n8k4 (DMMA)", 4);
inline constexpr MmaModel hopper_fp64 =
    measured(dmma("hopper_fp64", chips::hopper, "mma.sync m16n8k16 (DMMA)", 16), on_h200);
inline constexpr MmaModel hopper_fp64_k8 =
    measured(dmma("hopper_fp64_k8", chips::hopper, "mma.sync m16n8k8 (DMMA)", 8), on_h200);
inline constexpr MmaModel hopper_fp64_k4 =
    measured(dmma("hopper_fp64_k4", chips::hopper, "mma.sync m16n8k4 or m8n8k4 (DMMA)", 4), on_h200);
inline constexpr MmaModel blackwell_fp64 = dmma("blackwell_fp64", chips::any_blackwell, "mma.sync m8n8k4 (DMMA)", 4);

}  // namespace fp8lab
