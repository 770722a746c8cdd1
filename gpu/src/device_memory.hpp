// SPDX-License-Identifier: Apache-2.0
// Memory of the current device, for plain C++.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace fp8lab::gpu {

/// New memory. All throw NoDeviceError, DeviceMemoryError and CudaError.
[[nodiscard]] std::shared_ptr<std::byte> device_memory(std::size_t bytes);
/// Copies between host and device, behind what runs on the device's default stream.
void copy_to_device(std::byte* to, std::span<const std::byte> from);
void copy_from_device(std::span<std::byte> to, const std::byte* from);

}  // namespace fp8lab::gpu
