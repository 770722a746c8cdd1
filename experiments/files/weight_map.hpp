// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace fp8lab::experiments {

/// The file of each tensor of a checkpoint that several .safetensors files hold, as its model.safetensors.index.json
/// tells: {"weight_map": {"tensor": "file", ...}, ...}, at most 2^26 bytes. The files lie beside it.
///
/// Throws std::runtime_error, one line with the file's name, where it cannot be read or is not of that form.
[[nodiscard]] std::map<std::string, std::string> read_weight_map(const std::filesystem::path& index);

}  // namespace fp8lab::experiments
