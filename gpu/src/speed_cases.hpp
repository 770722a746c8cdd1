// SPDX-License-Identifier: Apache-2.0
// Kernels whose time is measured, for plain C++.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "fp8lab/gpu/quantize.hpp"

namespace fp8lab::gpu {

struct SpeedCase {
  std::string name;
  bool is_bfloat16;                 ///< the type of the tensor; else float32
  std::size_t in_bytes, out_bytes;  ///< of a tensor and of its result
  double bytes;                     ///< that must be read and written at least
  /// Makes the call of quantize_on_device(), which reads and writes memory of the device.
  std::function<QuantizeCall(const std::byte* in, std::byte* out)> call;
};

/// Lists all cases.
[[nodiscard]] const std::vector<SpeedCase>& speed_cases();

}  // namespace fp8lab::gpu
