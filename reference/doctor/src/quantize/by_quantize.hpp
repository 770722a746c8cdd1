// SPDX-License-Identifier: Apache-2.0
// What a recipe makes of a tensor by quantize(), for recipes that a KernelModel does not have all of.
#pragma once

#include <cstdint>
#include <vector>

#include "quantize/kernel_model.hpp"

namespace fp8lab::doctor {

/// Whether a KernelModel makes the same as quantize(), on a tensor with all kinds of elements. Answers are kept, by
/// thread.
[[nodiscard]] bool is_modelled(const Recipe& recipe);

/// Codes and scales as they are stored.
struct Stored {
  bool is_refused = false;          // quantize() takes no such tensor, or needs random words
  std::vector<std::uint8_t> codes;  // a byte each
  std::vector<float> scale_inv;
  std::vector<std::uint8_t> scale_codes;
};
[[nodiscard]] Stored stored_by_quantize(const MatrixView& x, const Recipe& recipe, Direction direction, int threads,
                                        std::optional<float> tensor_amax = {});

/// How many codes, and how many scales, of a dump differ.
[[nodiscard]] std::uint64_t code_mismatches(const Stored& stored, const Format& format, const StoredDump& dump,
                                            int threads);
[[nodiscard]] std::uint64_t scale_mismatches(const Stored& stored, const StoredDump& dump);

}  // namespace fp8lab::doctor
