// SPDX-License-Identifier: Apache-2.0
// How fast kernels run on the current device, beside a copy of as many bytes in the same run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fp8lab::gpu {

/// A kernel's time.
struct MeasuredSpeed {
  std::string what;              ///< the size of the tensor and the number of repetitions
  double bytes = 0;              ///< that it has to read and write at least
  double milliseconds = 0;       ///< the median
  double copy_milliseconds = 0;  ///< the median of a copy within the device that reads and writes as many bytes
};

/// The kernels that are measured, by name, in the order of their numbers.
[[nodiscard]] const std::vector<std::string>& speed_names();

/// Measures one: repetitions alternate with copies, and go around buffers of several GB, so that no cache has them.
/// `bytes` is how much memory the buffers may take; a third of what is free is the limit.
///
/// Throws NoDeviceError, DeviceMemoryError and CudaError.
[[nodiscard]] MeasuredSpeed measure_speed(std::size_t number, std::uint64_t bytes = std::uint64_t{8} << 30);

}  // namespace fp8lab::gpu
