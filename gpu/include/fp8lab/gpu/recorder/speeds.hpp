// SPDX-License-Identifier: Apache-2.0
// How fast kernels run on the current device, beside a copy of as many bytes or a library in the same run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fp8lab/gpu/gemm.hpp"
#include "fp8lab/gpu/recorder/cublaslt.hpp"

namespace fp8lab::gpu {

/// A kernel's time, and that of what it is measured beside, in turn.
struct MeasuredSpeed {
  std::string what;               ///< sizes, and the number of repetitions
  double amount = 0;              ///< bytes that it has to read and write at least, or floating-point operations
  double milliseconds = 0;        ///< the median
  double other_milliseconds = 0;  ///< the median of the other; 0: there is none
};

/// The kernels that are measured beside a copy within the device, by name, in the order of their numbers.
[[nodiscard]] const std::vector<std::string>& speed_names();

/// Measures one beside a copy that reads and writes as many bytes: repetitions alternate with copies, and go around
/// buffers of several GB, so that no cache has them. `bytes` is how much memory the buffers may take; a third of what
/// is free is the limit.
///
/// Throws NoDeviceError, DeviceMemoryError and CudaError.
[[nodiscard]] MeasuredSpeed measure_speed(std::size_t number, std::uint64_t bytes = std::uint64_t{8} << 30);

/// Measures a GEMM kernel that takes no tile scales at M = N = K = `size`, of Gaussian values in E4M3 with float32
/// outputs, beside cuBLASLt's product, which accumulates fast where the kernel does. `library` may be null. `what`
/// tells of how many words both outputs are equal.
///
/// Throws also what gemm_on_device() and CublasLt throw.
[[nodiscard]] MeasuredSpeed measure_gemm_speed(GemmKernel kernel, const CublasLt* library, std::size_t size = 8192);

}  // namespace fp8lab::gpu
