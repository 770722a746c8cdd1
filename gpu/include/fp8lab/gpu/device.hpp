// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/gpu/cuda_error.hpp"

namespace fp8lab::gpu {

/// The state of CUDA on this machine.
struct DeviceStatus {
  int count = 0;              ///< devices that this process may use
  CudaVersions versions;      ///< of the driver, and of the CUDA that fp8lab was built with
  std::string architectures;  ///< those that the kernels were compiled for, such as "90"; empty without CUDA
  std::string why_none;       ///< where count is 0: why, and what to do
};
/// Asks CUDA; throws nothing where there is no device.
[[nodiscard]] DeviceStatus device_status();

/// Number of CUDA devices that this process may use; where it is 0, device_status() tells why.
[[nodiscard]] int device_count();
/// Throws NoDeviceError where device_count() is 0.
void require_device();

/// A CUDA device.
struct DeviceInfo {
  int index = 0;
  std::string name;          ///< as NVIDIA names it
  int major = 0, minor = 0;  ///< its compute capability
  int processors = 0;        ///< streaming multiprocessors
  std::uint64_t memory = 0;  ///< bytes in all
};
/// Lists all devices; the list is empty where there is none. Throws CudaError.
[[nodiscard]] std::vector<DeviceInfo> devices();

/// The compute capability of the current device, 90 for 9.0. Throws NoDeviceError and CudaError.
[[nodiscard]] int device_capability();

/// check_device_buffer() of what CUDA says of the buffer's address, on the current device. Throws
/// std::invalid_argument, NoDeviceError and CudaError.
void check_device_buffer(const DeviceBuffer& buffer);

/// Encodes `in` on the current device with EncodeKernel.
///
/// Throws std::invalid_argument where the sizes differ, NoDeviceError, DeviceMemoryError and CudaError.
void encode_on_device(const Format& format, const CastPolicy& policy, std::span<const float> in,
                      std::span<std::uint8_t> out);

}  // namespace fp8lab::gpu
