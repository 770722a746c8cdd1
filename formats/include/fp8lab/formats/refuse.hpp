// SPDX-License-Identifier: Apache-2.0
// Throws std::invalid_argument with a message that is put together from its parts.
#pragma once

#include <stdexcept>

#include "fp8lab/formats/text_stream.hpp"

namespace fp8lab {

/// Throws std::invalid_argument whose message is all parts, one after the other.
template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  TextStream reason;
  (reason << ... << parts);
  throw std::invalid_argument(reason.str());
}

}  // namespace fp8lab
