// SPDX-License-Identifier: Apache-2.0
// Single values of device_function() on sm_90 without options, for callers that already have the default arithmetic.
#pragma once

namespace fp8lab {

[[nodiscard]] float hopper_expf(float x);
[[nodiscard]] float hopper_tanhf(float x);

}  // namespace fp8lab
