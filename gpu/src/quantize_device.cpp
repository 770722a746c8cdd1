// SPDX-License-Identifier: Apache-2.0
// The quantizers on devices: which kernels start, in plain C++. The kernels' own files are quantize_*.cu.
#include <array>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/gpu/device.hpp"
#include "quantize_call.hpp"
#include "quantize_start.hpp"

namespace fp8lab::gpu {
namespace {

/// Starts kernels on a stream, one after the other.
struct DeviceLaunch {
  void* stream;

  template <typename Kernel>
  void operator()(const Kernel& kernel) const {
    start_kernel(kernel, stream);
  }
};

void check_buffers(std::span<const NamedBuffer> buffers) {
  for (const NamedBuffer& buffer : buffers) {
    check_device_buffer(
        DeviceBuffer{buffer.argument, reinterpret_cast<std::uint64_t>(buffer.address), buffer.bytes, buffer.alignment});
  }
}

}  // namespace

void quantize_on_device(const QuantizeCall& call, void* stream) {
  const DefaultEnvironment environment;
  check_call(call);
  check_buffers(buffers_of(call));
  launch_quantize(call, DeviceLaunch{stream});
}

void amax_on_device(const ElementMatrix& x, NanInAmax nan, float* amax, void* stream) {
  const DefaultEnvironment environment;
  check_matrix(x);
  if (amax == nullptr) refuse("amax must have a place");
  check_buffers(std::array{buffer_of(x), NamedBuffer{"amax", amax, sizeof(float), sizeof(float)}});
  launch_amax(x, nan, amax, DeviceLaunch{stream});
}

void dequantize_on_device(const QuantizedView& q, std::span<float> out, void* stream) {
  const DefaultEnvironment environment;
  check_view(q, out);
  check_buffers(buffers_of(q, out));
  launch_dequantize(q, out, DeviceLaunch{stream});
}

void update_scales_on_device(const Delayed& recipe, Pass pass, const DelayedStates& states, void* stream) {
  const DefaultEnvironment environment;
  check_states(recipe, states);
  check_buffers(buffers_of(states));
  launch_update(recipe, pass, states, DeviceLaunch{stream});
}

}  // namespace fp8lab::gpu
