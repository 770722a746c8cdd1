// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <exception>
#include <optional>

#include "fp8lab/formats/interruption.hpp"

namespace fp8lab::experiments {

/// Thrown where a signal ended a run.
struct Stopped : std::exception {
  explicit Stopped(int which) : signal(which) {}
  [[nodiscard]] const char* what() const noexcept override { return "stopped by a signal"; }

  int signal;
};

/// While it lives, SIGINT and SIGTERM end long calls of this thread by Stopped; a second one ends the process at once.
/// Signals that were ignored before stay ignored. One lives at a time.
class StopSignals {
 public:
  StopSignals();
  StopSignals(StopSignals&&) = delete;  // and so no copies either
  ~StopSignals();

 private:
  struct sigaction interrupt_{}, terminate_{};
  std::optional<Interruptible> scope_;
};

}  // namespace fp8lab::experiments
