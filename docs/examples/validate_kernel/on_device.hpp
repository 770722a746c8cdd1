// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

enum class Outcome { ran, skipped, failed };

/// Runs the kernel where there is a device: codes, and a scale for every block_size of them.
Outcome quantize_on_device(const std::vector<float>& x, bool too_late, std::vector<std::uint8_t>& codes,
                           std::vector<float>& scale_inv);
