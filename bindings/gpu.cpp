// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "fp8lab/gpu/device.hpp"
#include "fp8lab/gpu/kernel_list.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

/// index, name, major, minor, processors, memory.
using DeviceFields = std::tuple<int, std::string, int, int, int, std::uint64_t>;
/// count, driver, runtime, architectures, why_none.
using StatusFields = std::tuple<int, std::string, std::string, std::string, std::string>;
/// name, header, chips, computes, equals.
using KernelFields = std::tuple<std::string, std::string, std::string, std::string, std::string>;

std::vector<DeviceFields> device_fields() {
  std::vector<DeviceFields> all;
  for (const gpu::DeviceInfo& one : gpu::devices()) {
    all.emplace_back(one.index, one.name, one.major, one.minor, one.processors, one.memory);
  }
  return all;
}

StatusFields status_fields() {
  const auto text = [](int version) { return version == 0 ? std::string() : gpu::cuda_version_text(version); };
  gpu::DeviceStatus status = gpu::device_status();
  return {status.count, text(status.versions.driver), text(status.versions.runtime), std::move(status.architectures),
          std::move(status.why_none)};
}

std::vector<KernelFields> kernel_fields() {
  std::vector<KernelFields> all;
  for (const gpu::KernelInfo& one : gpu::kernels()) {
    all.emplace_back(one.name, one.header, one.chips, one.computes, one.equals);
  }
  return all;
}

}  // namespace

void bind_gpu(py::module_& module) {
  module.def("gpu_devices", &device_fields);
  module.def("gpu_status", &status_fields);
  module.def("gpu_kernels", &kernel_fields);
}

}  // namespace fp8lab::bindings
