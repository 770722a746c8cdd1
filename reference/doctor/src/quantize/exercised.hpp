// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "fp8lab/doctor/exercised.hpp"
#include "quantize/kernel_model.hpp"

namespace fp8lab::doctor {

/// Counts what a tensor shows of a hypothesis without departures. Where no KernelModel computes it, the elements alone
/// are counted.
[[nodiscard]] std::vector<Exercised> exercised_by(const Source& source, const Hypothesis& hypothesis, bool is_modelled);

}  // namespace fp8lab::doctor
