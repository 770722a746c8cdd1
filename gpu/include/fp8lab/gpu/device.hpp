// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"

namespace fp8lab::gpu {

/// Number of CUDA devices; 0 without a driver, without a device, or where fp8lab was built without CUDA.
[[nodiscard]] int device_count();

/// Encodes `in` on the current device with EncodeKernel.
///
/// Throws std::invalid_argument where the sizes differ, std::runtime_error where there is no device or CUDA fails.
void encode_on_device(const Format& format, const CastPolicy& policy, std::span<const float> in,
                      std::span<std::uint8_t> out);

}  // namespace fp8lab::gpu
