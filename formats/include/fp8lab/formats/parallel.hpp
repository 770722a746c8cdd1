// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <limits>

#include "fp8lab/formats/memory.hpp"

namespace fp8lab {

inline constexpr int most_threads = 1024;

/// Throws std::invalid_argument unless 1 <= threads <= most_threads.
void check_threads(int threads);

/// Elements of a large array that scalar code, or vector code, gets at a time, so that it can be interrupted: both take
/// some milliseconds. Half of the latter is enough for output to go past the caches.
inline constexpr std::size_t scalar_piece = std::size_t{1} << 16;
inline constexpr std::size_t vector_piece = 2 * streaming_bytes;

/// Calls work(first, last) for contiguous pieces that together cover [0, count), on at most `threads` threads, each in
/// the DefaultEnvironment. Pieces of a thread follow each other and are of like size, at most `most`; the last ones run
/// on the calling thread. Where the calling thread's Interruptible ends the call, all threads end at their next
/// checkpoint(), at the latest after the piece they are at; where a piece throws, those of the pieces after it do, and
/// the exception of the first piece that has one is rethrown: the same, however many threads there are.
///
/// Throws as check_threads() does.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t, std::size_t)>& work,
                  std::size_t most = std::numeric_limits<std::size_t>::max());

}  // namespace fp8lab
