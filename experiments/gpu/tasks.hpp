// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/gpu.hpp"

namespace fp8lab::experiments {

/// Something to ask a device. `skipped` tells why it is not asked, if it is not.
struct GpuTask {
  std::string part, name;
  std::string skipped;
  std::function<TaskResult()> run;
};

/// The recorder of the device or of the host team, made in the process that uses it.
[[nodiscard]] std::unique_ptr<gpu::Recorder> recorder_of(const GpuArguments& arguments);

/// All tasks of the parts that the arguments name, for such a device.
[[nodiscard]] std::vector<GpuTask> tasks_of(const GpuArguments& arguments, const gpu::RecordedDevice& device);

}  // namespace fp8lab::experiments
