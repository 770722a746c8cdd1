// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "pool.hpp"

namespace fp8lab {
namespace {

using Work = std::function<void(std::size_t, std::size_t)>;

/// Thrown to end a thread after another one has failed, or after the call was interrupted. It is no std::exception,
/// which the work might catch.
struct Stopped {};
[[noreturn]] void stop() { throw Stopped{}; }  // NOLINT(bugprone-std-exception-baseclass)

void run_pieces(std::size_t first, std::size_t last, std::size_t most, const Work& work) {
  const std::size_t size = last - first;
  if (size <= most) return work(first, last);
  const std::size_t pieces = (size - 1) / most + 1;
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    checkpoint();
    work(first + size * piece / pieces, first + size * (piece + 1) / pieces);
  }
}

/// A call on some threads: pieces of [0, count), in parts of like size.
class Team final : public Task {
 public:
  Team(std::size_t parts, std::size_t count, std::size_t most, const Work& work)
      : errors_(parts), parts_(parts), count_(count), most_(most), work_(work), running_(parts) {}

  /// A part ends early where one before it has failed: the exception that is rethrown is the first.
  void run(std::size_t part) override {
    const DefaultEnvironment environment;
    try {
      const Interruptible scope(
          [this, part] {
            if (interrupted_ || first_failed_ < part) stop();
            poll_around();
          },
          std::chrono::steady_clock::duration::zero());
      run_pieces(count_ * part / parts_, count_ * (part + 1) / parts_, most_, work_);
    } catch (const Stopped&) {
      stopped_ = true;
    } catch (...) {
      errors_[part] = std::current_exception();
      std::size_t first = first_failed_;
      while (part < first && !first_failed_.compare_exchange_weak(first, part)) continue;
    }
  }

  void end() override {
    const std::scoped_lock lock(mutex_);
    --running_;
    ended_.notify_all();
  }

  /// Polls on the calling thread until all parts have ended.
  void wait() {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, std::chrono::milliseconds(25), [this] { return running_ == 0; })) {
      if (interrupted_) continue;
      lock.unlock();
      try {
        poll_around();
      } catch (const Stopped&) {
        stopped_ = true;
      }
      lock.lock();
    }
  }

  /// Rethrows the exception that interrupted the call, or else that of the first piece that failed.
  void rethrow() const {
    if (interruption_) std::rethrow_exception(interruption_);
    for (const std::exception_ptr& error : errors_) {
      if (error) std::rethrow_exception(error);
    }
    if (stopped_) stop();  // by a team around this one
  }

 private:
  /// Polls for the scope around the call, which only its own thread has; what that throws ends all threads.
  void poll_around() {
    try {
      checkpoint();
    } catch (...) {
      interruption_ = std::current_exception();
      interrupted_ = true;
      stop();
    }
  }

  std::vector<std::exception_ptr> errors_;  // by part
  std::size_t parts_, count_, most_;
  const Work& work_;
  std::exception_ptr interruption_;
  std::atomic<std::size_t> first_failed_ = std::numeric_limits<std::size_t>::max();
  std::atomic<bool> interrupted_ = false;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t running_;
};

}  // namespace

void check_threads(int threads) {
  if (threads >= 1 && threads <= most_threads) return;
  refuse("threads must be from 1 to ", most_threads, ", not ", threads);
}

void parallel_for(std::size_t count, int threads, const Work& work, std::size_t most) {
  check_threads(threads);
  const DefaultEnvironment environment;
  if (threads == 1) return run_pieces(0, count, most, work);
  const std::size_t parts = std::min<std::size_t>(static_cast<std::size_t>(threads), std::max<std::size_t>(count, 1));
  Team team(parts, count, most, work);
  // The last part is this thread's, and those for which there is no other.
  for (std::size_t part = run_on_threads(team, parts - 1); part < parts; ++part) {
    team.run(part);
    team.end();
  }
  team.wait();
  team.rethrow();
}

}  // namespace fp8lab
