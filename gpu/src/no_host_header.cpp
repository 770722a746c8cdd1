// SPDX-License-Identifier: Apache-2.0
// Where there is no CUDA toolkit, there are no headers to compare with.
#include "fp8lab/gpu/host_header.hpp"

namespace fp8lab::gpu {

std::optional<HostConversion> host_conversion(const Format& /*format*/, const CastPolicy& /*policy*/) {
  return std::nullopt;
}

}  // namespace fp8lab::gpu
