// SPDX-License-Identifier: Apache-2.0
#include "cuda.cuh"
#include "fp8lab/gpu/device.hpp"
#include "fp8lab/gpu/encode_kernel.hpp"

namespace fp8lab::gpu {

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

void encode_on_device(const Format& format, const CastPolicy& policy, std::span<const float> in,
                      std::span<std::uint8_t> out) {
  if (in.size() != out.size()) {
    throw std::invalid_argument("out has " + std::to_string(out.size()) + " elements, the input " +
                                std::to_string(in.size()));
  }
  if (in.empty()) return;
  const DeviceArray<float> input(in);
  const DeviceArray<std::uint8_t> output(out.size());
  const EncodeKernel kernel{format, policy, input.get(), output.get(), in.size()};
  run_on_device(kernel);
  output.copy_to(out);
}

}  // namespace fp8lab::gpu
