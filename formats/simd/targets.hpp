// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace fp8lab {

/// Whether vector code may run. Throws std::invalid_argument where FP8LAB_TARGET names no target.
[[nodiscard]] bool vector_code_allowed();

}  // namespace fp8lab
