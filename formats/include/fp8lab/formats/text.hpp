// SPDX-License-Identifier: Apache-2.0
// Makes text of unknown origin safe to print in a message, and suggests the name that was meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fp8lab {

/// Text of unknown origin, for a message: in single quotes, other than printable ASCII as \xNN, and of what is longer
/// than 80 characters the beginning and the end.
[[nodiscard]] std::string in_quotes(std::string_view text);

/// A message as one line of printable ASCII: line ends and tabs become blanks, what else is not printable \xNN, and of
/// more than 300 characters the beginning and the end are left.
[[nodiscard]] std::string one_line(std::string_view message);

/// Throws std::invalid_argument: `name` is none of the known ones, of which the message lists as many as fit, the most
/// similar first where not all do, and names the one that is meant most likely. `kind` says what kind of thing was
/// looked up.
[[noreturn]] void refuse_name(std::string_view kind, std::string_view name, std::span<const std::string_view> known);

}  // namespace fp8lab
