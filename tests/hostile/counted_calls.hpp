// SPDX-License-Identifier: Apache-2.0
// counted_calls.cpp takes the place of the C library's functions that change files, in the whole program: it counts
// their calls, and lets one of them kill the process, fail, or be interrupted.
#pragma once

#include <cstdint>

namespace fp8lab::tests {

/// What happens at the chosen call: the process is killed, the call fails, or a SIGTERM comes.
enum class End : std::uint8_t { kill, error, interrupt };

/// How many calls come before the chosen one; -1: no call is chosen.
extern long calls_until_end;
extern End end;

}  // namespace fp8lab::tests
