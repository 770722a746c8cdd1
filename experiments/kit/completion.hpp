// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "fp8lab/formats/named.hpp"
#include "kit/command_facts.hpp"

namespace fp8lab::experiments {

/// The shells that are known.
enum class Shell : std::uint8_t { bash, zsh, fish };
[[nodiscard]] std::span<const Named<Shell>> named_values(Shell of_type);

/// The script by which a shell completes the words of `fp8lab`: commands, options and the names of their values.
[[nodiscard]] std::string completion_of(Shell shell, std::span<const CommandFacts> commands);

}  // namespace fp8lab::experiments
