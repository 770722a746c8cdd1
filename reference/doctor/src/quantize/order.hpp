// SPDX-License-Identifier: Apache-2.0
// Rows or columns of codes that stand in another order than those of the tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/doctor/diagnose.hpp"

namespace fp8lab::doctor {

/// A dump whose codes were put in the order of x.
struct Reordered {
  std::vector<std::uint8_t> codes;  ///< a byte for each
  std::vector<std::byte> scales;    ///< in the order of rows, where each row has as many; otherwise empty
  std::string note;                 ///< which order they had
};

/// Signs tell where each row, or column, of x stands among the codes, whatever the scales are. Nothing where that is
/// its own place or the signs do not tell.
[[nodiscard]] std::optional<Reordered> put_in_order(const MatrixView& x, const Dump& dump);

}  // namespace fp8lab::doctor
