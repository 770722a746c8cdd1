// SPDX-License-Identifier: Apache-2.0
// Lets a caller end a long call from outside, at the checkpoints of its loops.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

namespace fp8lab {

/// A scope in which long calls can be ended: while it lives, functions of this library that take long call `poll` on
/// this thread about every 25 ms, and end with the exception that it throws; so do the threads that they have started.
///
/// A call that is ended may leave its output written in part; a state that it was given is as it was. Without a scope
/// nothing is polled. Scopes nest, the innermost counts. No result depends on it.
class Interruptible {
 public:
  explicit Interruptible(std::function<void()> poll,
                         std::chrono::steady_clock::duration every = std::chrono::milliseconds(25));
  Interruptible(Interruptible&&) = delete;  // and so no copies either
  ~Interruptible();

 private:
  friend void checkpoint();

  std::function<void()> poll_;
  std::chrono::steady_clock::duration every_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  Interruptible* outer_;
};

/// Where a long call can end: polls for the Interruptible of this thread, if there is one and it is time again. Loops
/// come by after a microsecond to 25 ms of work: it costs a look at the clock.
void checkpoint();

/// The same for step i of a loop of short steps: comes by every 4096 of them.
inline void checkpoint(std::size_t i) {
  if (i % 4096 == 0) checkpoint();
}

}  // namespace fp8lab
