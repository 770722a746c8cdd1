// SPDX-License-Identifier: Apache-2.0
// The room where there is no CUDA compiler: kernels still run on the host team, and there is no device.
#include <stdexcept>

#include "fp8lab/gpu/device.hpp"

namespace fp8lab::gpu {

int device_count() { return 0; }

void encode_on_device(const Format& /*format*/, const CastPolicy& /*policy*/, std::span<const float> /*in*/,
                      std::span<std::uint8_t> /*out*/) {
  throw std::runtime_error("this fp8lab was built without a CUDA compiler");
}

}  // namespace fp8lab::gpu
