// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "fp8lab/doctor/diagnose.hpp"

namespace fp8lab::doctor {

/// A diagnosis in one sentence or two.
[[nodiscard]] std::string verdict_of(const Diagnosis& diagnosis);

}  // namespace fp8lab::doctor
