// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/memory.hpp"
#include "fp8lab/reference/linear/tensor_parallel.hpp"

namespace fp8lab {

/// The sum of the ranks' results, one each, in the order of parallel.reduction; out has as many elements as each.
/// Precondition: check_tensor_parallel() accepts `parallel`; with sequence_parallel, ranks divide the rows.
void reduce_results(const std::vector<Buffer<float>>& results, const TensorParallel& parallel, std::span<float> out);
/// The same of codes of a 16-bit type.
void reduce_results(const std::vector<Buffer<std::uint16_t>>& results, const TensorParallel& parallel,
                    const Format& type, std::span<std::uint16_t> out);

}  // namespace fp8lab
