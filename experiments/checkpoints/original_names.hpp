// SPDX-License-Identifier: Apache-2.0
// Where the original of a weight is found: layouts have names of their own.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "checkpoints/checkpoint.hpp"
#include "checkpoints/recognize.hpp"

namespace fp8lab::experiments {

/// The tensor of an original that holds an expert of a weight, and the number of its matrix in it; nullptr where there
/// is none. Names of GGUF files are those of Hugging Face's models of Llama's kind.
[[nodiscard]] std::pair<const StoredTensor*, std::uint64_t> find_original(const Checkpoint& original,
                                                                          const Weight& weight, std::uint64_t expert);

}  // namespace fp8lab::experiments
