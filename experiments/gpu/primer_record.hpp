// SPDX-License-Identifier: Apache-2.0
// The FP8 primer as a device runs it: quantizers and GEMM by the kernels, TF32 by single instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fp8lab/gpu/recorder/recorder.hpp"
#include "gpu/ledger.hpp"
#include "kit/primer.hpp"

namespace fp8lab::experiments {

/// A tensor of the primer, and what computed it: a model, or "encode" and "decode" for the casts.
struct PrimerTensor {
  std::string name, model;
  std::vector<std::uint32_t> words;  ///< codes, or float32 words
};

/// The tensors that a ledger has: the codes and representable values of x and w, all of out_fp8, and of out_fp32 and
/// out_fp8_representable the 36 values that PyTorch prints. The first function computes them with the models, that of
/// the FP8 product being arguments.mma; the second one on the recorder's device, or on the host team.
///
/// `tf32` is the model, or in the second function the recorder's instruction, of the TF32 products.
[[nodiscard]] std::vector<PrimerTensor> primer_by_models(const PrimerArguments& arguments, const MmaModel& tf32);
[[nodiscard]] std::vector<PrimerTensor> primer_by_kernels(const PrimerArguments& arguments, gpu::Recorder& recorder,
                                                          std::size_t tf32);

/// Throws std::invalid_argument where a record's tensor or model is unknown, or its sizes are not those of a primer.
void check_primer_record(const PrimerRecord& record);
/// The digest of a record as a model of that name has it, which may be another one than fp8lab's.
[[nodiscard]] std::uint64_t model_digest(const PrimerRecord& record, const MmaModel& model);

/// Runs the primer on the recorder's device, and compares with the models and, for the published arguments on the
/// published chip, with what NVIDIA's documentation prints. arguments.mma is replaced by the model of the device.
/// Throws std::invalid_argument where the arguments do not fit or the chip has no FP8.
[[nodiscard]] TaskResult record_primer(gpu::Recorder& recorder, PrimerArguments arguments = {});

}  // namespace fp8lab::experiments
