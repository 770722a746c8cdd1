// SPDX-License-Identifier: Apache-2.0
#include "cuda.cuh"
#include "fp8lab/gpu/device.hpp"
#include "recorded_kernels.hpp"

namespace fp8lab::gpu {

// Each is in a file of its own.
template <>
void sweep_on_device<FunctionVariant::units>(const FunctionSweep&);
template <>
void sweep_on_device<FunctionVariant::plain>(const FunctionSweep&);
template <>
void sweep_on_device<FunctionVariant::ftz>(const FunctionSweep&);
template <>
void sweep_on_device<FunctionVariant::fast>(const FunctionSweep&);
template <>
void sweep_on_device<FunctionVariant::precdiv>(const FunctionSweep&);
template <>
void sweep_on_device<FunctionVariant::precsqrt>(const FunctionSweep&);

namespace {

/// The current device as a machine.
class DeviceMachine {
 public:
  template <typename T>
  class Array : public DeviceArray<T> {
   public:
    using DeviceArray<T>::DeviceArray;
    void copy_from(std::span<const T> values) const {
      check(cudaMemcpy(this->get(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice));
    }
  };

  template <typename Kernel>
  void run(const Kernel& kernel) const {
    run_on_device(kernel);
  }
  void sweep(FunctionVariant variant, const FunctionSweep& sweep) const {
    visit_variant(variant, [&](auto constant) { sweep_on_device<decltype(constant)::value>(sweep); });
  }
};

}  // namespace

std::unique_ptr<Recorder> device_recorder() {
  require_device();
  int device = 0;
  check(cudaGetDevice(&device));
  const DeviceInfo info = devices().at(static_cast<std::size_t>(device));
  const CudaVersions versions = device_status().versions;
  return std::make_unique<recorded::RecorderOn<DeviceMachine>>(
      DeviceMachine(), RecordedDevice{.name = info.name,
                                      .capability = info.major * 10 + info.minor,
                                      .multiprocessors = info.processors,
                                      .driver = cuda_version_text(versions.driver),
                                      .runtime = cuda_version_text(versions.runtime),
                                      .memory = info.memory});
}

}  // namespace fp8lab::gpu
