// SPDX-License-Identifier: Apache-2.0
// The tensors of GGUF files and .npz archives that hold numbers as they are.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "files/stored_tensors.hpp"

namespace fp8lab::experiments {

/// The tensors of these paths that one of `names` names (none: all), where one of the paths is a GGUF file, an .npz
/// archive or a folder of these; none where find_stored_tensors() reads all of them. What is quantized, or of another
/// dtype, is left out.
///
/// Throws what Checkpoint does, and std::invalid_argument where a name or a pattern names no tensor.
[[nodiscard]] std::optional<FoundTensors> find_plain_tensors(std::span<const std::filesystem::path> paths,
                                                             std::span<const std::string> names);

/// Throws std::invalid_argument where one of the paths is a file of torch.save, or an index of these: Python reads
/// them.
void refuse_pickled(std::span<const std::filesystem::path> paths);

}  // namespace fp8lab::experiments
