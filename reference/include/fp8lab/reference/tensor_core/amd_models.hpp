// SPDX-License-Identifier: Apache-2.0
// AMD's matrix cores, as entries of the table of models (models.hpp).
#pragma once

#include "fp8lab/reference/tensor_core/model_parts.hpp"

namespace fp8lab {

// AMD's matrix cores (MFMA). The largest K has no suffix; smaller shapes have fewer steps, or one of fewer products.
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

}  // namespace fp8lab
