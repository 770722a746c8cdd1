// SPDX-License-Identifier: Apache-2.0
#include "kit/stop_signals.hpp"

namespace fp8lab::experiments {
namespace {

volatile std::sig_atomic_t stop_signal = 0;

void take_stop_signal(int signal) { stop_signal = signal; }

void set_handler(int signal, struct sigaction& before) {
  if (::sigaction(signal, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) return;
  struct sigaction action{};
  action.sa_handler = take_stop_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  stop_signal = 0;
  set_handler(SIGINT, interrupt_);
  set_handler(SIGTERM, terminate_);
  scope_.emplace([] {
    if (stop_signal != 0) throw Stopped(stop_signal);
  });
}

StopSignals::~StopSignals() {
  ::sigaction(SIGINT, &interrupt_, nullptr);
  ::sigaction(SIGTERM, &terminate_, nullptr);
}

}  // namespace fp8lab::experiments
