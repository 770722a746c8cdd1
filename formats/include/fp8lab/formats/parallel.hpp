// SPDX-License-Identifier: Apache-2.0
// Deals a loop over an array out to threads, so that their number changes no bit.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>

namespace fp8lab {

inline constexpr int most_threads = 1024;

/// Throws std::invalid_argument unless 1 <= threads <= most_threads.
void check_threads(int threads);

/// Elements of a large array that scalar code gets at a time, some milliseconds of work, so that it can be interrupted.
inline constexpr std::size_t scalar_piece = std::size_t{1} << 16;

/// Calls work(first, last) for contiguous pieces that together cover [0, count), on at most `threads` threads, each in
/// the DefaultEnvironment. Pieces of a thread follow each other and are of like size, at most `most`; the last ones run
/// on the calling thread. The other threads are kept for the next call; a child of fork() starts its own. Where the
/// system starts no more threads, the calling thread does their pieces. Where the calling thread's Interruptible ends
/// the call, all threads end at their next checkpoint(), at the latest after the piece they are at; where a piece
/// throws, those of the pieces after it do, and the exception of the first piece that has one is rethrown: the same,
/// however many threads there are.
///
/// Throws as check_threads() does.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t, std::size_t)>& work,
                  std::size_t most = std::numeric_limits<std::size_t>::max());

}  // namespace fp8lab
