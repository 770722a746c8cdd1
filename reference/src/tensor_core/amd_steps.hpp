// SPDX-License-Identifier: Apache-2.0
// The steps of AMD's matrix cores, on words of binary32; fma_chain_step() is that of FP64, too, on words of binary64.
// `a` and `b` have the step's products; those that are missing are zeros. Source: MMA-Sim 2.1.1.
#pragma once

#include <cstdint>

#include "tensor_core/factors.hpp"

namespace fp8lab {

/// Arithmetic::products_first.
[[nodiscard]] std::uint32_t products_first_step(const MmaModel& model, const FactorSpan& a, const FactorSpan& b,
                                                std::uint32_t c);
/// Arithmetic::flushed_pairs; `first` for the first step of an instruction, which flushes c.
[[nodiscard]] std::uint32_t flushed_pairs_step(const MmaModel& model, const FactorSpan& a, const FactorSpan& b,
                                               std::uint32_t c, bool first);
/// Arithmetic::fma_chain.
[[nodiscard]] std::uint64_t fma_chain_step(const MmaModel& model, const FactorSpan& a, const FactorSpan& b,
                                           std::uint64_t c);

}  // namespace fp8lab
