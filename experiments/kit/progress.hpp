// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace fp8lab::experiments {

/// Called now and then with the share done; an exception from it cancels the run.
using Progress = std::function<void(double)>;

/// How many bytes of files a run has been through.
struct BytesDone {
  double done = 0;    ///< all of them, those that an earlier run was through included
  double all = 0;     ///< when the run ends
  double before = 0;  ///< those that an earlier run was through, which took no time now
};
/// "1.20 of 3.40 GB, 512 MB/s, 4 s left" after so many seconds.
[[nodiscard]] std::string words_of(const BytesDone& bytes, double seconds);

/// Draws a progress bar on stderr once a run has taken a second, where stderr is a terminal, and wipes it at its end.
class ProgressBar {
 public:
  ProgressBar() = default;
  ProgressBar(ProgressBar&&) = delete;  // and so no copies either
  ~ProgressBar() { clear(); }

  void operator()(double share);
  /// The same with the bytes, their rate and the time that remains.
  void operator()(const BytesDone& bytes);
  void clear();
  /// A line that stays, where stderr is a terminal: what a long run has done so far.
  void note(const std::string& line);

 private:
  void draw(double share, const std::string& words);

  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point drawn_ = {};
  bool shown_ = false;
};

}  // namespace fp8lab::experiments
