// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kit/command_facts.hpp"

namespace fp8lab::experiments {

/// The manual page fp8lab(1), as troff with the macros of man.
[[nodiscard]] std::string man_page_of(std::span<const CommandFacts> commands, std::string_view version);

}  // namespace fp8lab::experiments
