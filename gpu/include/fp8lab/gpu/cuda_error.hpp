// SPDX-License-Identifier: Apache-2.0
// Turns errors of CUDA into exceptions, by plain functions of its codes and texts that need no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fp8lab::gpu {

/// The result of a CUDA call.
struct CudaResult {
  int code = 0;           ///< the number of the cudaError_t; 0: success
  std::string_view name;  ///< its enumerator, as cudaGetErrorName has it
  std::string_view text;  ///< its meaning, as cudaGetErrorString has it
};

/// Whether CUDA answers every further call of the process with this error, until the process is started again.
///
/// Source: driver_types.h of CUDA 13.0, which says so at each of these enumerators.
[[nodiscard]] bool ends_process(int code);

/// A CUDA call failed. Where ends_process() is true, so will every further one.
class CudaError : public std::runtime_error {
 public:
  CudaError(const std::string& message, int code) : std::runtime_error(message), code_(code) {}

  [[nodiscard]] int code() const { return code_; }
  [[nodiscard]] bool ends_process() const { return gpu::ends_process(code_); }

 private:
  int code_;
};
/// There is no device to run on; the message says why, and what to do.
class NoDeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// A device has too little memory left; the context is whole, and smaller requests succeed.
class DeviceMemoryError : public CudaError {
 public:
  using CudaError::CudaError;
};

/// The message about a CUDA call in `function` that failed.
[[nodiscard]] std::string failure_message(std::string_view function, const CudaResult& result);

/// Bytes of a device's memory.
struct DeviceMemory {
  std::uint64_t free = 0;
  std::uint64_t total = 0;
};
/// The message about `asked` bytes of device memory that CUDA could not allocate.
[[nodiscard]] std::string out_of_memory_message(std::uint64_t asked, const DeviceMemory& memory);

/// CUDA versions as CUDA numbers them: 13000 is 13.0.
struct CudaVersions {
  int driver = 0;   ///< the newest that the driver supports; 0: there is no driver
  int runtime = 0;  ///< that fp8lab was built with; 0: it was built without CUDA
};
/// "13.0" for 13000.
[[nodiscard]] std::string cuda_version_text(int version);

/// Why there is no device, and what to do; empty where there is one. `result` and `count` are what cudaGetDeviceCount
/// gave.
[[nodiscard]] std::string why_no_device(const CudaResult& result, int count, const CudaVersions& versions);

/// The facts that cudaPointerGetAttributes returns about an address.
struct PointerFacts {
  enum class Kind : std::uint8_t { unregistered, host, device, managed };
  Kind kind = Kind::unregistered;
  int device = 0;  ///< where memory of the kinds device and managed lies
};
/// A buffer that a kernel is to read or write.
struct DeviceBuffer {
  std::string_view argument;  ///< what a message calls it
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  std::size_t alignment = 1;  ///< of its elements
};
/// Throws std::invalid_argument where a kernel on the device of that number cannot use the buffer: memory of the host
/// or of another device, no memory, or a place that its elements' type does not allow. An empty buffer is allowed.
void check_device_buffer(const DeviceBuffer& buffer, const PointerFacts& facts, int device);

}  // namespace fp8lab::gpu
