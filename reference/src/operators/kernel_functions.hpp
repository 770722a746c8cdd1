// SPDX-License-Identifier: Apache-2.0
// The elementary functions of kernels that are compiled without fast-math, each of one number.
#pragma once

#include "fp8lab/reference/operators/functions.hpp"
#include "units/hopper_functions.hpp"

namespace fp8lab {

struct KernelFunctions {
  float (*exp)(float);
  float (*log1p)(float);
  float (*sin)(float);
  float (*cos)(float);
};

/// Returns the functions that are asked for; the caller has the default arithmetic.
[[nodiscard]] inline KernelFunctions kernel_functions(Functions functions) {
  switch (functions) {
    case Functions::correctly_rounded: break;
    case Functions::hopper: return {hopper_expf, hopper_log1pf, hopper_sinf, hopper_cosf};
  }
  return {rounded_exp, rounded_log1p, rounded_sin, rounded_cos};
}

}  // namespace fp8lab
