// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace fp8lab {

/// Work in parts that run at the same time.
class Task {
 public:
  /// Does one part. Throws nothing.
  virtual void run(std::size_t part) = 0;
  /// Tells the caller that a part has ended; after the last one the task may be gone. Throws nothing.
  virtual void end() = 0;

 protected:
  ~Task() = default;
};

/// Has parts [0, count) run and ended, each by a thread of its own: one that waits for work, or a new one. No part ever
/// waits for another, also where a part calls this again or many threads do. Returns at once how many parts have a
/// thread: fewer than count where the system starts no more.
///
/// Threads wait for the next task afterwards. fork() ends those that wait, so that a child begins with none; both
/// processes start new ones. Signals to the process are delivered to other threads.
std::size_t run_on_threads(Task& task, std::size_t count);

}  // namespace fp8lab
