// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/interruption.hpp"

#include <utility>

namespace fp8lab {
namespace {

thread_local Interruptible* innermost = nullptr;

}  // namespace

Interruptible::Interruptible(std::function<void()> poll, std::chrono::steady_clock::duration every)
    : poll_(std::move(poll)), every_(every), outer_(std::exchange(innermost, this)) {}
Interruptible::~Interruptible() { innermost = outer_; }

void checkpoint() {
  Interruptible* const scope = innermost;
  if (scope == nullptr) return;
  if (scope->every_ != std::chrono::steady_clock::duration::zero()) {
    const auto now = std::chrono::steady_clock::now();
    if (now - scope->last_ < scope->every_) return;
    scope->last_ = now;
  }
  // While poll() runs, the functions that it calls poll for the scope around this one.
  innermost = scope->outer_;
  try {
    scope->poll_();
  } catch (...) {
    innermost = scope;
    throw;
  }
  innermost = scope;
}

}  // namespace fp8lab
