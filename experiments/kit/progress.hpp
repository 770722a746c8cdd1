// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace fp8lab::experiments {

/// Called now and then with the share done; an exception from it cancels the run.
using Progress = std::function<void(double)>;

/// Draws a progress bar on stderr once a run has taken a second, where stderr is a terminal, and wipes it at its end.
class ProgressBar {
 public:
  ProgressBar() = default;
  ProgressBar(ProgressBar&&) = delete;  // and so no copies either
  ~ProgressBar() { clear(); }

  void operator()(double share);
  void clear();
  /// A line that stays, where stderr is a terminal: what a long run has done so far.
  void note(const std::string& line);

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool shown_ = false;
};

}  // namespace fp8lab::experiments
