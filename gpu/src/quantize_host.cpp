// SPDX-License-Identifier: Apache-2.0
// The quantizers on the host team.
#include <stdexcept>

#include "fp8lab/formats/environment.hpp"
#include "quantize_call.hpp"

namespace fp8lab::gpu {
namespace {

/// Runs kernels on the host, one after the other.
struct HostLaunch {
  HostOrder order;

  template <typename Kernel>
  void operator()(const Kernel& kernel) const {
    run_on_host(kernel, order);
  }
};

}  // namespace

void quantize_on_host(const QuantizeCall& call, HostOrder order) {
  const DefaultEnvironment environment;
  check_call(call);
  launch_quantize(call, HostLaunch{order});
}

void amax_on_host(const ElementMatrix& x, NanInAmax nan, float* amax, HostOrder order) {
  const DefaultEnvironment environment;
  check_matrix(x);
  if (amax == nullptr) throw std::invalid_argument("amax must have a place");
  launch_amax(x, nan, amax, HostLaunch{order});
}

void dequantize_on_host(const QuantizedView& q, std::span<float> out, HostOrder order) {
  const DefaultEnvironment environment;
  check_view(q, out);
  launch_dequantize(q, out, HostLaunch{order});
}

void update_scales_on_host(const Delayed& recipe, Pass pass, const DelayedStates& states, HostOrder order) {
  const DefaultEnvironment environment;
  check_states(recipe, states);
  launch_update(recipe, pass, states, HostLaunch{order});
}

}  // namespace fp8lab::gpu
