// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"

namespace fp8lab::gpu {

/// A conversion of NVIDIA's cuda_fp8.h, cuda_fp6.h or cuda_fp4.h as it runs on the host: float32 to codes of one byte.
using HostConversion = void (*)(std::span<const float> in, std::span<std::uint8_t> out);

/// NVIDIA's own conversion to `format` under `policy`, for comparison: nullopt where the headers have none, or where
/// fp8lab was built without the CUDA toolkit.
[[nodiscard]] std::optional<HostConversion> host_conversion(const Format& format, const CastPolicy& policy);

}  // namespace fp8lab::gpu
