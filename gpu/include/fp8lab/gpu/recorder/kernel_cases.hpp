// SPDX-License-Identifier: Apache-2.0
// Every kernel on the device, held against the models: a table, to which each new kernel adds a case.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fp8lab::gpu {

/// The result of comparing a kernel's output with the model.
struct KernelCheck {
  std::uint64_t compared = 0, wrong = 0;  ///< bytes of the output
  std::string first = {};                 ///< the first byte that is wrong: its number, and both
};

/// A kernel, and inputs for it.
struct KernelCase {
  std::string name;             ///< of the kernel and what it is asked, such as "encode to e4m3"
  std::vector<int> chips = {};  ///< the compute capabilities that have its instructions, such as 90; none: any
  int least = 0;                ///< the least one that has
  /// Runs it on the current device, or the host team, into memory full of 0xA5, and gives all bytes of its output. The
  /// host team's are the model's: other tests hold them equal. Throws CudaError where CUDA fails.
  std::function<std::vector<std::uint8_t>(bool on_device)> output;

  /// Whether a device of that compute capability has its instructions.
  [[nodiscard]] bool runs_on(int device) const {
    return device >= least && (chips.empty() || std::ranges::find(chips, device) != chips.end());
  }
};

/// All cases. tests/gpu/device.cpp and `fp8lab gpu` go through them.
[[nodiscard]] const std::vector<KernelCase>& kernel_cases();

/// The output of the current device beside the host team's.
[[nodiscard]] KernelCheck check_on_device(const KernelCase& one);

}  // namespace fp8lab::gpu
