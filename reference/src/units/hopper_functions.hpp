// SPDX-License-Identifier: Apache-2.0
// Single values of device_function() on sm_90 without options, for callers that already have the default arithmetic.
#pragma once

namespace fp8lab {

/// The number `words` float32 numbers further from 0 than a result of x; of a special x, and of 0 and NaN, the result.
[[nodiscard]] float words_off(float x, float result, int words);

/// While it lives, hopper_expf() and hopper_tanhf() are rounded correctly, and off by so many words, in this thread.
class FunctionsOff {
 public:
  explicit FunctionsOff(int words);
  FunctionsOff(FunctionsOff&&) = delete;  // and so no copies either
  ~FunctionsOff();
};

[[nodiscard]] float hopper_expf(float x);
[[nodiscard]] float hopper_tanhf(float x);

// Operators without bounds take these: no FunctionsOff changes them.
[[nodiscard]] float hopper_log1pf(float x);
[[nodiscard]] float hopper_sinf(float x);
[[nodiscard]] float hopper_cosf(float x);

}  // namespace fp8lab
