// SPDX-License-Identifier: Apache-2.0
// Every kernel on the device, held against the models: a table, to which each new kernel adds a case.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fp8lab::gpu {

/// What comparing a kernel's output with the model gave.
struct KernelCheck {
  std::uint64_t compared = 0, wrong = 0;
  std::string first;  ///< the first element that is wrong: its index, input, and both words
};

struct KernelCase {
  std::string name;                    ///< of the kernel and what it is asked, such as "encode to e4m3"
  std::function<KernelCheck()> check;  ///< runs it on the current device; throws CudaError where CUDA fails
};

/// All cases. tests/gpu/device.cpp and `fp8lab gpu` go through them.
[[nodiscard]] const std::vector<KernelCase>& kernel_cases();

}  // namespace fp8lab::gpu
