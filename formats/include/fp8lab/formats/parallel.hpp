// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace fp8lab {

/// Calls work(first, last) for contiguous pieces that together cover [0, count), on at most `threads` threads; the last
/// piece runs on the calling thread. The first exception of any piece is rethrown after all have ended. Every piece runs
/// in the DefaultEnvironment.
///
/// Throws std::invalid_argument where threads < 1.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t, std::size_t)>& work);

}  // namespace fp8lab
