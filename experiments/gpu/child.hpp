// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace fp8lab::experiments {

/// How a task ended in a child process.
struct TaskEnd {
  enum class Status : std::uint8_t { done, failed, timed_out, left_out };
  Status status = Status::failed;
  std::string text = {};  ///< done: what the task gave; otherwise why not
  double seconds = 0;
};

/// How long tasks may take.
struct TaskLimits {
  double seconds;                                           ///< each
  double budget = std::numeric_limits<double>::infinity();  ///< all of them, in seconds
};

/// Runs tasks one after the other in a child of fork(), and tells of each as it ends. The child is killed, with all
/// that it started, where a task takes more than its seconds; it ends where a task throws, or a signal ends it. A new
/// child goes on with the next task. When the budget is spent, the task that runs is killed, and it and all behind it
/// are left out. A child starts its own threads, and its own CUDA if this process has used none.
///
/// @param ended  called with the task's number; an exception from it, or from `alive`, kills the child
/// @param alive  called about ten times a second
void run_in_children(const std::vector<std::function<std::string()>>& tasks, const TaskLimits& limits,
                     const std::function<void(std::size_t, const TaskEnd&)>& ended,
                     const std::function<void()>& alive = {});

}  // namespace fp8lab::experiments
