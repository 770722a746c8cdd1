// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "fp8lab/reference/linear/linear.hpp"

namespace fp8lab {

/// A pass of a layer that is split as options.parallel says, whose mode is not none: every rank computes its part by
/// linear() or its like. Throws as they do; out is then as it was.
void run_parallel_pass(const LinearRecipe& recipe, LinearPass pass, const LinearInput& a, const LinearInput& b,
                       std::span<float> out, const LinearOptions& options);
void run_parallel_pass(const LinearRecipe& recipe, LinearPass pass, const LinearInput& a, const LinearInput& b,
                       std::span<std::uint16_t> out, const LinearOptions& options);

}  // namespace fp8lab
