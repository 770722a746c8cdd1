// SPDX-License-Identifier: Apache-2.0
// The tensor cores of real chips, as entries of a table. A new one is a constant, and its name in `models`.
#pragma once

#include <array>
#include <string_view>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/reference/tensor_core/mma_model.hpp"

namespace fp8lab {

inline constexpr std::array fp8_operands{e4m3, e5m2};
inline constexpr std::array fp8_fp6_fp4_operands{e4m3, e5m2, e2m3, e3m2, e2m1};
inline constexpr std::array fp4_operands{e2m1};
inline constexpr std::array fp16_operands{binary16};
inline constexpr std::array bf16_operands{bfloat16};
inline constexpr std::array tf32_operands{tf32};
inline constexpr std::array fp8_fnuz_operands{e4m3fnuz, e5m2fnuz};
inline constexpr std::array fp32_operands{binary32};
inline constexpr std::array fp64_operands{binary64};
inline constexpr std::array exact_operands{e4m3,     e5m2,     e8m0,     e2m3,     e3m2,    e2m1,
                                           binary16, bfloat16, binary32, e4m3fnuz, e5m2fnuz};

inline constexpr std::string_view published_by_mma_sim = "Xie et al., MMA-Sim, arXiv 2511.10909";
inline constexpr std::string_view published_by_both =
    "Xie et al., MMA-Sim, arXiv 2511.10909; Khattak and Mikaitis, arXiv 2512.07004";

// The devices whose rows Khattak and Mikaitis publish (model_validation of their MATLAB-tensor-core, 5,000 rows for
// each device, format and accumulator), as far as they cover a model: wmma and mma.sync of one K, |x| <= 4, no infinity
// or NaN. None of the rows decides zero_exponent.
inline constexpr std::string_view on_ampere = "A100 and A2";
inline constexpr std::string_view on_ada = "Ada and L40S";
inline constexpr std::string_view on_hopper = "H100 and H200 by mma.sync; wgmma is published";
inline constexpr std::string_view on_blackwell = "B200 by mma.sync; tcgen05.mma and RTX Blackwell are published";

/// The chips whose instructions are modelled. A name with a comma stands for several that are alike.
namespace chips {
inline constexpr Chip volta{"NVIDIA", "Volta"}, turing{"NVIDIA", "Turing"}, ampere{"NVIDIA", "Ampere"},
    ada{"NVIDIA", "Ada"}, hopper{"NVIDIA", "Hopper"}, blackwell{"NVIDIA", "Blackwell"},
    rtx_blackwell{"NVIDIA", "RTX Blackwell"}, hopper_and_blackwell{"NVIDIA", "Hopper, Blackwell"},
    any_blackwell{"NVIDIA", "Blackwell, RTX Blackwell"}, cdna1{"AMD", "CDNA1"}, cdna2{"AMD", "CDNA2"},
    cdna3{"AMD", "CDNA3"};
}  // namespace chips

/// The model, measured on the devices that `note` names, in rows that its source publishes.
[[nodiscard]] constexpr MmaModel measured(MmaModel model, std::string_view note) {
  model.evidence = Evidence::measured;
  model.evidence_note = note;
  return model;
}
/// The model, inferred from what `note` names.
[[nodiscard]] constexpr MmaModel inferred(MmaModel model, std::string_view note) {
  model.evidence = Evidence::inferred;
  model.evidence_note = note;
  return model;
}
/// The arithmetic of `model` under another name. The evidence of a device does not pass on: the result is published.
[[nodiscard]] constexpr MmaModel same_as(MmaModel model, std::string_view name) {
  model.name = name;
  model.evidence = Evidence::published;
  model.evidence_note = {};
  return model;
}
/// An instruction of the same arithmetic, of another chip.
[[nodiscard]] constexpr MmaModel same_as(MmaModel model, std::string_view name, Chip chip,
                                         std::string_view instruction) {
  model = same_as(model, name);
  model.chip = chip;
  model.instruction = instruction;
  return model;
}
/// The same instruction in a smaller shape of K = k: fewer steps, or one of fewer products.
[[nodiscard]] constexpr MmaModel with_k(MmaModel model, int k, std::string_view name, std::string_view instruction) {
  model = same_as(model, name, model.chip, instruction);
  model.products_per_step = k < model.products_per_step ? k : model.products_per_step;
  model.steps = k / model.products_per_step;
  return model;
}
/// The same instruction with a float16 accumulator.
[[nodiscard]] constexpr MmaModel with_float16(MmaModel model, std::string_view name) {
  model = same_as(model, name);
  model.output = binary16;
  model.zero_exponent += binary32.bias - binary16.bias;
  return model;
}

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
        "H100 and H200 with c = 0; it also reproduces the H100 outputs that Transformer Engine's FP8 primer prints"};
inline constexpr MmaModel hopper_wgmma_fp8_f16 = with_float16(hopper_wgmma_fp8, "hopper_wgmma_fp8_f16");
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
inline constexpr MmaModel ada_mma_fp8_k16{.name = "ada_mma_fp8_k16",
                                          .chip = chips::ada,
                                          .instruction = "mma.sync m16n8k16",
                                          .products_per_step = 16,
                                          .fraction_bits = 13,
                                          .zero_exponent = -132,
                                          .output = e8m13,
                                          .operands = fp8_operands,
                                          .source = published_by_mma_sim,
                                          .evidence = Evidence::published};
inline constexpr MmaModel ada_mma_fp8_k16_f16 = with_float16(ada_mma_fp8_k16, "ada_mma_fp8_k16_f16");

// FP8 by mma.sync on Hopper and the data-centre Blackwell (sm_90, sm_100, sm_103), which have no such instruction:
// ptxas 13.0 emits F2FP, two HMMA, the second with the k whose bit 1 is set, and FADD or HADD2.
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
        "machine code of ptxas 13.0; FP16 steps as hopper_fp16 has them; rows of Khattak and Mikaitis, arXiv "
        "2512.07004",
    .evidence = Evidence::measured,
    .evidence_note = "B200; the order of the steps is that of the machine code, which the float16 rows confirm"};
inline constexpr MmaModel hopper_mma_sync_fp8_f16 =
    measured(with_float16(hopper_mma_sync_fp8, "hopper_mma_sync_fp8_f16"), "H100, H200 and B200");
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
    .source = "machine code of ptxas 13.0; FP16 steps as hopper_fp16 has them",
    .evidence = Evidence::inferred,
    .evidence_note = "from the machine code and from m16n8k32"};
inline constexpr MmaModel hopper_mma_sync_fp8_k16_f16 = inferred(
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
inline constexpr MmaModel rtx_blackwell_mma_fp8_k16{.name = "rtx_blackwell_mma_fp8_k16",
                                                    .chip = chips::rtx_blackwell,
                                                    .instruction = "mma.sync m16n8k16",
                                                    .products_per_step = 16,
                                                    .fraction_bits = 25,
                                                    .zero_exponent = -133,
                                                    .output = binary32,
                                                    .operands = fp8_operands,
                                                    .source = published_by_mma_sim,
                                                    .evidence = Evidence::published};
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
inline constexpr MmaModel blackwell_mxf4_block16{.name = "blackwell_mxf4_block16",
                                                 .chip = chips::any_blackwell,
                                                 .instruction = "kind::mxf4nvf4",
                                                 .products_per_step = 64,
                                                 .fraction_bits = 35,
                                                 .zero_exponent = -139,
                                                 .output = binary32,
                                                 .operands = fp4_operands,
                                                 .scales = BlockScales{e8m0, 16},
                                                 .group = 16,
                                                 .source = published_by_mma_sim,
                                                 .evidence = Evidence::published,
                                                 .evidence_note = blackwell_mxf4.evidence_note};
inline constexpr MmaModel blackwell_nvf4{.name = "blackwell_nvf4",
                                         .chip = chips::any_blackwell,
                                         .instruction = "kind::mxf4nvf4",
                                         .products_per_step = 64,
                                         .fraction_bits = 35,
                                         .zero_exponent = -139,
                                         .output = binary32,
                                         .operands = fp4_operands,
                                         .scales = BlockScales{ue4m3, 16},
                                         .group = 16,
                                         .source = published_by_mma_sim,
                                         .evidence = Evidence::published,
                                         .evidence_note = blackwell_mxf4.evidence_note};

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
inline constexpr MmaModel turing_fp16{.name = "turing_fp16",
                                      .chip = chips::turing,
                                      .instruction = "mma.sync m16n8k8",
                                      .products_per_step = 8,
                                      .fraction_bits = 24,
                                      .zero_exponent = -132,
                                      .output = binary32,
                                      .operands = fp16_operands,
                                      .source = published_by_both,
                                      .evidence = Evidence::published};
inline constexpr MmaModel turing_fp16_f16 = with_float16(turing_fp16, "turing_fp16_f16");
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
inline constexpr MmaModel ampere_bf16{.name = "ampere_bf16",
                                      .chip = chips::ampere,
                                      .instruction = "mma.sync m16n8k16",
                                      .products_per_step = 8,
                                      .steps = 2,
                                      .fraction_bits = 24,
                                      .zero_exponent = -132,
                                      .output = binary32,
                                      .operands = bf16_operands,
                                      .source = published_by_both,
                                      .evidence = Evidence::measured,
                                      .evidence_note = on_ampere};
inline constexpr MmaModel ampere_tf32{.name = "ampere_tf32",
                                      .chip = chips::ampere,
                                      .instruction = "mma.sync m16n8k8",
                                      .products_per_step = 4,
                                      .steps = 2,
                                      .fraction_bits = 24,
                                      .zero_exponent = -132,
                                      .output = binary32,
                                      .operands = tf32_operands,
                                      .source = published_by_both,
                                      .evidence = Evidence::measured,
                                      .evidence_note = on_ampere};
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
inline constexpr MmaModel hopper_bf16{.name = "hopper_bf16",
                                      .chip = chips::hopper,
                                      .instruction = "wgmma or mma.sync with K = 16",
                                      .products_per_step = 16,
                                      .fraction_bits = 25,
                                      .zero_exponent = -133,
                                      .output = binary32,
                                      .operands = bf16_operands,
                                      .source = published_by_both,
                                      .evidence = Evidence::measured,
                                      .evidence_note = on_hopper};
inline constexpr MmaModel hopper_tf32{.name = "hopper_tf32",
                                      .chip = chips::hopper,
                                      .instruction = "wgmma or mma.sync with K = 8",
                                      .products_per_step = 8,
                                      .fraction_bits = 25,
                                      .zero_exponent = -133,
                                      .output = binary32,
                                      .operands = tf32_operands,
                                      .source = published_by_both,
                                      .evidence = Evidence::measured,
                                      .evidence_note = on_hopper};
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
inline constexpr MmaModel ampere_fp16_k8 = with_k(ampere_fp16, 8, "ampere_fp16_k8", "mma.sync m16n8k8");
inline constexpr MmaModel ampere_fp16_k8_f16 = with_float16(ampere_fp16_k8, "ampere_fp16_k8_f16");
inline constexpr MmaModel ampere_bf16_k8 = with_k(ampere_bf16, 8, "ampere_bf16_k8", "mma.sync m16n8k8");
inline constexpr MmaModel ampere_tf32_k4 = with_k(ampere_tf32, 4, "ampere_tf32_k4", "mma.sync m16n8k4");
inline constexpr MmaModel ada_fp16_k8 = with_k(ada_fp16, 8, "ada_fp16_k8", "mma.sync m16n8k8");
inline constexpr MmaModel ada_fp16_k8_f16 = with_float16(ada_fp16_k8, "ada_fp16_k8_f16");
inline constexpr MmaModel ada_bf16_k8 = with_k(ada_bf16, 8, "ada_bf16_k8", "mma.sync m16n8k8");
inline constexpr MmaModel ada_tf32_k4 = with_k(ada_tf32, 4, "ada_tf32_k4", "mma.sync m16n8k4");
inline constexpr MmaModel hopper_fp16_k8 = with_k(hopper_fp16, 8, "hopper_fp16_k8", "mma.sync m16n8k8");
inline constexpr MmaModel hopper_fp16_k8_f16 = with_float16(hopper_fp16_k8, "hopper_fp16_k8_f16");
inline constexpr MmaModel hopper_bf16_k8 = with_k(hopper_bf16, 8, "hopper_bf16_k8", "mma.sync m16n8k8");
inline constexpr MmaModel hopper_tf32_k4 = with_k(hopper_tf32, 4, "hopper_tf32_k4", "mma.sync m16n8k4");
inline constexpr MmaModel blackwell_fp16_k8 = with_k(blackwell_fp16, 8, "blackwell_fp16_k8", "mma.sync m16n8k8");
inline constexpr MmaModel blackwell_fp16_k8_f16 = with_float16(blackwell_fp16_k8, "blackwell_fp16_k8_f16");
inline constexpr MmaModel blackwell_bf16_k8 = with_k(blackwell_bf16, 8, "blackwell_bf16_k8", "mma.sync m16n8k8");
inline constexpr MmaModel blackwell_tf32_k4 = with_k(blackwell_tf32, 4, "blackwell_tf32_k4", "mma.sync m16n8k4");

// AMD's matrix cores (MFMA). The largest K has no suffix; smaller shapes have fewer steps, or one of fewer products.
inline constexpr std::string_view published_by_mma_sim_2 = "Xie et al., MMA-Sim 2.1.1 (PyPI mmasim)";
[[nodiscard]] constexpr MmaModel mfma(std::string_view name, Chip chip, std::string_view instruction,
                                      Arithmetic arithmetic, int products, int steps,
                                      std::span<const Format> operands) {
  return {.name = name,
          .chip = chip,
          .instruction = instruction,
          .arithmetic = arithmetic,
          .products_per_step = products,
          .steps = steps,
          .output = binary32,
          .operands = operands,
          .underflow = UnderflowSign::kept,
          .source = published_by_mma_sim_2,
          .evidence = Evidence::published,
          .evidence_note = "which word a NaN has is not known: 7FFFFFFF here"};
}
/// The same by CDNA3: 24 bits of products and of c are kept, 31 of their sum.
[[nodiscard]] constexpr MmaModel with_bits(MmaModel model) {
  model.fraction_bits = 24;
  model.sum_bits = 31;
  return model;
}
[[nodiscard]] constexpr MmaModel with_note(MmaModel model, std::string_view note) {
  model.evidence_note = note;
  return model;
}
[[nodiscard]] constexpr MmaModel with_two_sums(MmaModel model) {
  model.sums = 2;
  model.drops_small_c = true;
  return model;
}
/// FP64 by NVIDIA or AMD: a chain of K fused multiply-adds.
[[nodiscard]] constexpr MmaModel fp64_chain(std::string_view name, Chip chip, std::string_view instruction, int k) {
  MmaModel model = mfma(name, chip, instruction, Arithmetic::fma_chain, 1, k, fp64_operands);
  model.output = binary64;
  model.evidence_note = "which word a NaN has is not known: 7FFFFFFFFFFFFFFF here";
  return model;
}
inline constexpr MmaModel ampere_fp64 = fp64_chain("ampere_fp64", chips::ampere, "mma.sync m8n8k4 (DMMA)", 4);
inline constexpr MmaModel ada_fp64 = fp64_chain("ada_fp64", chips::ada, "mma.sync m8n8k4 (DMMA)", 4);
inline constexpr MmaModel hopper_fp64 = fp64_chain("hopper_fp64", chips::hopper, "mma.sync m16n8k16 (DMMA)", 16);
inline constexpr MmaModel hopper_fp64_k8 = fp64_chain("hopper_fp64_k8", chips::hopper, "mma.sync m16n8k8 (DMMA)", 8);
inline constexpr MmaModel hopper_fp64_k4 =
    fp64_chain("hopper_fp64_k4", chips::hopper, "mma.sync m16n8k4 or m8n8k4 (DMMA)", 4);
inline constexpr MmaModel blackwell_fp64 =
    fp64_chain("blackwell_fp64", chips::any_blackwell, "mma.sync m8n8k4 (DMMA)", 4);

inline constexpr MmaModel cdna1_fp16 =
    mfma("cdna1_fp16", chips::cdna1, "MFMA 16x16x16", Arithmetic::exact, 4, 4, fp16_operands);
inline constexpr MmaModel cdna1_bf16 =
    mfma("cdna1_bf16", chips::cdna1, "MFMA 16x16x8", Arithmetic::exact, 2, 4, bf16_operands);
inline constexpr MmaModel cdna1_fp32 =
    mfma("cdna1_fp32", chips::cdna1, "MFMA 16x16x4", Arithmetic::fma_chain, 1, 4, fp32_operands);
inline constexpr MmaModel cdna2_fp16 =
    mfma("cdna2_fp16", chips::cdna2, "MFMA 16x16x16", Arithmetic::flushed_pairs, 4, 4, fp16_operands);
inline constexpr MmaModel cdna2_bf16 =
    mfma("cdna2_bf16", chips::cdna2, "MFMA 16x16x8", Arithmetic::flushed_pairs, 2, 4, bf16_operands);
inline constexpr MmaModel cdna2_bf16_1k =
    mfma("cdna2_bf16_1k", chips::cdna2, "MFMA 16x16x16 _1k", Arithmetic::flushed_pairs, 4, 4, bf16_operands);
inline constexpr MmaModel cdna2_fp32 =
    mfma("cdna2_fp32", chips::cdna2, "MFMA 16x16x4", Arithmetic::fma_chain, 1, 4, fp32_operands);
inline constexpr MmaModel cdna3_fp16 =
    with_bits(mfma("cdna3_fp16", chips::cdna3, "MFMA 16x16x16", Arithmetic::products_first, 8, 2, fp16_operands));
inline constexpr MmaModel cdna3_bf16 =
    with_bits(mfma("cdna3_bf16", chips::cdna3, "MFMA 16x16x16", Arithmetic::products_first, 8, 2, bf16_operands));
inline constexpr MmaModel cdna3_xf32 = with_note(
    with_bits(mfma("cdna3_xf32", chips::cdna3, "MFMA 16x16x8 XF32", Arithmetic::products_first, 4, 2, tf32_operands)),
    "which word a NaN has is not known: 7FFFFFFF here; the instruction cuts float32, and whether a library rounds it "
    "before is not known (tf32_rounding)");
inline constexpr MmaModel cdna3_fp8 = with_note(
    with_two_sums(with_bits(mfma("cdna3_fp8", chips::cdna3, "MFMA 16x16x32, FP8 and BF8", Arithmetic::products_first,
                                 16, 2, fp8_fnuz_operands))),
    "which word a NaN has is not known: 7FFFFFFF here; an infinite or NaN c stays so, which MMA-Sim 2.1.1 drops beside "
    "products of 2^25 and more");
inline constexpr MmaModel cdna3_fp32 =
    mfma("cdna3_fp32", chips::cdna3, "MFMA 16x16x4", Arithmetic::fma_chain, 1, 4, fp32_operands);

/// A smaller shape of an AMD instruction, about which the same is not known.
[[nodiscard]] constexpr MmaModel small_mfma(const MmaModel& model, int k, std::string_view name,
                                            std::string_view instruction) {
  return with_note(with_k(model, k, name, instruction), model.evidence_note);
}
inline constexpr MmaModel cdna1_fp16_k8 = small_mfma(cdna1_fp16, 8, "cdna1_fp16_k8", "MFMA 32x32x8");
inline constexpr MmaModel cdna1_fp16_k4 = small_mfma(cdna1_fp16, 4, "cdna1_fp16_k4", "MFMA 32x32x4, 16x16x4 and 4x4x4");
inline constexpr MmaModel cdna1_bf16_k4 = small_mfma(cdna1_bf16, 4, "cdna1_bf16_k4", "MFMA 32x32x4");
inline constexpr MmaModel cdna1_bf16_k2 = small_mfma(cdna1_bf16, 2, "cdna1_bf16_k2", "MFMA 32x32x2, 16x16x2 and 4x4x2");
inline constexpr MmaModel cdna1_fp32_k2 = small_mfma(cdna1_fp32, 2, "cdna1_fp32_k2", "MFMA 32x32x2");
inline constexpr MmaModel cdna1_fp32_k1 = small_mfma(cdna1_fp32, 1, "cdna1_fp32_k1", "MFMA 32x32x1, 16x16x1 and 4x4x1");
inline constexpr MmaModel cdna2_fp16_k8 = small_mfma(cdna2_fp16, 8, "cdna2_fp16_k8", "MFMA 32x32x8");
inline constexpr MmaModel cdna2_fp16_k4 = small_mfma(cdna2_fp16, 4, "cdna2_fp16_k4", "MFMA 32x32x4, 16x16x4 and 4x4x4");
inline constexpr MmaModel cdna2_bf16_k4 = small_mfma(cdna2_bf16, 4, "cdna2_bf16_k4", "MFMA 32x32x4");
inline constexpr MmaModel cdna2_bf16_k2 = small_mfma(cdna2_bf16, 2, "cdna2_bf16_k2", "MFMA 32x32x2, 16x16x2 and 4x4x2");
inline constexpr MmaModel cdna2_bf16_1k_k8 = small_mfma(cdna2_bf16_1k, 8, "cdna2_bf16_1k_k8", "MFMA 32x32x8 _1k");
inline constexpr MmaModel cdna2_bf16_1k_k4 =
    small_mfma(cdna2_bf16_1k, 4, "cdna2_bf16_1k_k4", "MFMA 32x32x4, 16x16x4 and 4x4x4 _1k");
inline constexpr MmaModel cdna2_fp32_k2 = small_mfma(cdna2_fp32, 2, "cdna2_fp32_k2", "MFMA 32x32x2");
inline constexpr MmaModel cdna2_fp32_k1 = small_mfma(cdna2_fp32, 1, "cdna2_fp32_k1", "MFMA 32x32x1, 16x16x1 and 4x4x1");
inline constexpr MmaModel cdna3_fp16_k8 = small_mfma(cdna3_fp16, 8, "cdna3_fp16_k8", "MFMA 32x32x8");
inline constexpr MmaModel cdna3_fp16_k4 = small_mfma(cdna3_fp16, 4, "cdna3_fp16_k4", "MFMA 32x32x4, 16x16x4 and 4x4x4");
inline constexpr MmaModel cdna3_bf16_k8 = small_mfma(cdna3_bf16, 8, "cdna3_bf16_k8", "MFMA 32x32x8");
inline constexpr MmaModel cdna3_bf16_k4 = small_mfma(cdna3_bf16, 4, "cdna3_bf16_k4", "MFMA 32x32x4, 16x16x4 and 4x4x4");
inline constexpr MmaModel cdna3_xf32_k4 = small_mfma(cdna3_xf32, 4, "cdna3_xf32_k4", "MFMA 32x32x4 XF32");
inline constexpr MmaModel cdna3_fp8_k16 = small_mfma(cdna3_fp8, 16, "cdna3_fp8_k16", "MFMA 32x32x16, FP8 and BF8");
inline constexpr MmaModel cdna3_fp32_k2 = small_mfma(cdna3_fp32, 2, "cdna3_fp32_k2", "MFMA 32x32x2");
inline constexpr MmaModel cdna3_fp32_k1 = small_mfma(cdna3_fp32, 1, "cdna3_fp32_k1", "MFMA 32x32x1, 16x16x1 and 4x4x1");

inline constexpr MmaModel cdna2_fp64 = fp64_chain("cdna2_fp64", chips::cdna2, "MFMA 16x16x4 and 4x4x4", 4);
inline constexpr MmaModel cdna3_fp64 = fp64_chain("cdna3_fp64", chips::cdna3, "MFMA 16x16x4 and 4x4x4", 4);

// The real sum.
inline constexpr MmaModel exact{.name = "exact",
                                .instruction = "real dot product, rounded once, nearest even",
                                .arithmetic = Arithmetic::exact,
                                .operands = exact_operands,
                                .source = "definition",
                                .evidence = Evidence::by_definition};

inline constexpr std::array models{hopper_wgmma_fp8,
                                   hopper_wgmma_fp8_f16,
                                   ada_mma_fp8,
                                   ada_mma_fp8_f16,
                                   ada_mma_fp8_k16,
                                   ada_mma_fp8_k16_f16,
                                   hopper_mma_sync_fp8,
                                   hopper_mma_sync_fp8_f16,
                                   hopper_mma_sync_fp8_k16,
                                   hopper_mma_sync_fp8_k16_f16,
                                   blackwell_tcgen05_fp8,
                                   blackwell_tcgen05_fp8_f16,
                                   rtx_blackwell_mma_fp8,
                                   rtx_blackwell_mma_fp8_f16,
                                   rtx_blackwell_mma_fp8_k16,
                                   rtx_blackwell_mma_fp8_k16_f16,
                                   blackwell_mxf8,
                                   blackwell_mxf4,
                                   blackwell_mxf4_block16,
                                   blackwell_nvf4,
                                   volta_fp16,
                                   volta_fp16_f16,
                                   turing_fp16,
                                   turing_fp16_f16,
                                   ampere_fp16,
                                   ampere_fp16_f16,
                                   ampere_bf16,
                                   ampere_tf32,
                                   ada_fp16,
                                   ada_fp16_f16,
                                   ada_bf16,
                                   ada_tf32,
                                   hopper_fp16,
                                   hopper_fp16_f16,
                                   hopper_bf16,
                                   hopper_tf32,
                                   blackwell_fp16,
                                   blackwell_fp16_f16,
                                   blackwell_bf16,
                                   blackwell_tf32,
                                   ampere_fp16_k8,
                                   ampere_fp16_k8_f16,
                                   ampere_bf16_k8,
                                   ampere_tf32_k4,
                                   ada_fp16_k8,
                                   ada_fp16_k8_f16,
                                   ada_bf16_k8,
                                   ada_tf32_k4,
                                   hopper_fp16_k8,
                                   hopper_fp16_k8_f16,
                                   hopper_bf16_k8,
                                   hopper_tf32_k4,
                                   blackwell_fp16_k8,
                                   blackwell_fp16_k8_f16,
                                   blackwell_bf16_k8,
                                   blackwell_tf32_k4,
                                   ampere_fp64,
                                   ada_fp64,
                                   hopper_fp64,
                                   hopper_fp64_k8,
                                   hopper_fp64_k4,
                                   blackwell_fp64,
                                   cdna1_fp16,
                                   cdna1_fp16_k8,
                                   cdna1_fp16_k4,
                                   cdna1_bf16,
                                   cdna1_bf16_k4,
                                   cdna1_bf16_k2,
                                   cdna1_fp32,
                                   cdna1_fp32_k2,
                                   cdna1_fp32_k1,
                                   cdna2_fp16,
                                   cdna2_fp16_k8,
                                   cdna2_fp16_k4,
                                   cdna2_bf16,
                                   cdna2_bf16_k4,
                                   cdna2_bf16_k2,
                                   cdna2_bf16_1k,
                                   cdna2_bf16_1k_k8,
                                   cdna2_bf16_1k_k4,
                                   cdna2_fp32,
                                   cdna2_fp32_k2,
                                   cdna2_fp32_k1,
                                   cdna3_fp16,
                                   cdna3_fp16_k8,
                                   cdna3_fp16_k4,
                                   cdna3_bf16,
                                   cdna3_bf16_k8,
                                   cdna3_bf16_k4,
                                   cdna3_xf32,
                                   cdna3_xf32_k4,
                                   cdna3_fp8,
                                   cdna3_fp8_k16,
                                   cdna3_fp32,
                                   cdna3_fp32_k2,
                                   cdna3_fp32_k1,
                                   cdna2_fp64,
                                   cdna3_fp64,
                                   exact};

/// The model called `name`. Throws std::invalid_argument that lists the known names.
[[nodiscard]] const MmaModel& find_model(std::string_view name);

}  // namespace fp8lab
