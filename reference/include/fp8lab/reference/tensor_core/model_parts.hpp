// SPDX-License-Identifier: Apache-2.0
// Defines the parts of entries of the table of models: formats of operands, chips, sources, and records made of
// records.
#pragma once

#include <array>
#include <span>
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
inline constexpr std::string_view published_by_mma_sim_2 = "Xie et al., MMA-Sim 2.1.1 (PyPI mmasim)";
inline constexpr std::string_view published_by_both =
    "Xie et al., MMA-Sim, arXiv 2511.10909; Khattak and Mikaitis, arXiv 2512.07004";

// The devices whose rows Khattak and Mikaitis publish (model_validation of their MATLAB-tensor-core, 5,000 rows for
// each device, format and accumulator), as far as they cover a model: wmma and mma.sync of one K, |x| <= 4, no infinity
// or NaN. None of the rows decides zero_exponent: of Hopper, the ledger of an H200 does.
inline constexpr std::string_view on_ampere = "A100 and A2";
inline constexpr std::string_view on_ada = "Ada and L40S";
inline constexpr std::string_view on_hopper = "H100 and H200 by mma.sync; an H200 by mma.sync and wgmma (ledger)";
inline constexpr std::string_view on_blackwell = "B200 by mma.sync; tcgen05.mma and RTX Blackwell are published";

/// The devices of fp8lab's ledgers (tests/vectors/device): 10^8 dot products of each pair of formats, with infinities,
/// NaN, subnormal numbers and any c.
inline constexpr std::string_view on_h200 = "an H200 (ledger)";

/// The chips whose instructions are modelled. A name with a comma stands for several that are alike.
namespace chips {
inline constexpr Chip volta{"NVIDIA", "Volta"}, turing{"NVIDIA", "Turing"}, ampere{"NVIDIA", "Ampere"},
    ada{"NVIDIA", "Ada"}, hopper{"NVIDIA", "Hopper"}, blackwell{"NVIDIA", "Blackwell"},
    rtx_blackwell{"NVIDIA", "RTX Blackwell"}, hopper_and_blackwell{"NVIDIA", "Hopper, Blackwell"},
    any_blackwell{"NVIDIA", "Blackwell, RTX Blackwell"}, cdna1{"AMD", "CDNA1"}, cdna2{"AMD", "CDNA2"},
    cdna3{"AMD", "CDNA3"};
}  // namespace chips

/// The model, measured on the devices that `note` names, in rows that its source publishes or in ledgers.
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
/// The model, whose numbers `source` publishes.
[[nodiscard]] constexpr MmaModel with_source(MmaModel model, std::string_view source) {
  model.source = source;
  return model;
}
/// The same arithmetic for other operands. As many bytes of a row are a step: half as many products of tf32 as of
/// 16-bit formats.
[[nodiscard]] constexpr MmaModel with_operands(MmaModel model, std::span<const Format> operands) {
  if (operands.data() == tf32_operands.data()) model.products_per_step /= 2;
  model.operands = operands;
  return model;
}
/// The same arithmetic with other block scales, of the same evidence.
[[nodiscard]] constexpr MmaModel with_scales(MmaModel model, const BlockScales& scales, std::string_view name,
                                             std::string_view instruction) {
  model.name = name;
  model.instruction = instruction;
  model.scales = scales;
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

/// FP64 by NVIDIA or AMD: a chain of k fused multiply-adds.
[[nodiscard]] constexpr MmaModel fp64_chain(std::string_view name, Chip chip, std::string_view instruction, int k) {
  return {.name = name,
          .chip = chip,
          .instruction = instruction,
          .arithmetic = Arithmetic::fma_chain,
          .products_per_step = 1,
          .steps = k,
          .output = binary64,
          .operands = fp64_operands,
          .underflow = UnderflowSign::kept,
          .source = published_by_mma_sim_2,
          .evidence = Evidence::published,
          .evidence_note = "which word a NaN has is not known: 7FFFFFFFFFFFFFFF here"};
}

}  // namespace fp8lab
