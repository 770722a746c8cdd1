// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "fp8lab/reference/linear/tensor_parallel.hpp"
#include "module.hpp"

namespace fp8lab::bindings {

/// A TensorParallel as Python has it: mode, ranks, sequence_parallel, and of its reduction order, ranks and in_float32.
using ParallelFields = std::tuple<std::string, int, bool, std::string, std::vector<int>, bool>;
TensorParallel parallel_of(const ParallelFields& fields);

}  // namespace fp8lab::bindings
