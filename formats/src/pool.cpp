// SPDX-License-Identifier: Apache-2.0
#include "pool.hpp"

#include <pthread.h>
#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

namespace fp8lab {
namespace {

/// Threads that wait for work; those beyond end.
constexpr std::size_t most_waiting = 64;

/// A thread of the pool. The pool's mutex guards all members.
struct Worker {
  Task* task;  ///< null: waits
  std::size_t part;
  bool leaves = false;
  Worker* next = nullptr;  ///< that waits
  std::condition_variable called = {};
  std::thread thread = {};
};

/// While it lives, signals to the process are blocked in this thread, and for good in those that it starts: a handler,
/// and a program that waits for a signal, expect its own threads. Signals of errors in the thread itself stay.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int own : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP, SIGPROF}) sigdelset(&all, own);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(SignalsBlocked&&) = delete;  // and so no copies either
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

class Pool {
 public:
  /// Never destroyed: its threads may wait until the process ends.
  static Pool& instance() {
    static Pool& only = *new Pool;
    return only;
  }

  std::size_t run(Task& task, std::size_t count) {
    const std::scoped_lock lock(mutex_);
    for (std::size_t part = 0; part < count; ++part) {
      if (waiting_ != nullptr) {
        Worker& worker = take();
        worker.task = &task;
        worker.part = part;
        worker.called.notify_one();
      } else if (!start(task, part)) {
        return part;
      }
    }
    return count;
  }

 private:
  Pool() { pthread_atfork(&before_fork, &after_fork, &after_fork); }

  Worker& take() {
    --waiting_count_;
    return *std::exchange(waiting_, waiting_->next);
  }

  /// False where the system starts no thread.
  [[nodiscard]] bool start(Task& task, std::size_t part) {
    try {
      auto worker = std::make_unique<Worker>(&task, part);
      const SignalsBlocked of_thread;
      worker->thread = std::thread(&Pool::work, this, worker.get());
      worker.release();  // its thread's NOLINT(bugprone-unused-return-value)
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    } catch (const std::system_error&) {
      return false;
    }
  }

  void work(Worker* worker) {
    std::unique_lock lock(mutex_);
    while (worker->task != nullptr) {
      Task& task = *worker->task;
      const std::size_t part = worker->part;
      lock.unlock();
      task.run(part);
      lock.lock();
      wait_or_leave(*worker);  // before the caller knows: its next call finds this thread
      lock.unlock();
      task.end();
      lock.lock();
      worker->called.wait(lock, [&] { return worker->task != nullptr || worker->leaves; });
    }
    if (!worker->thread.joinable()) delete worker;
  }

  void wait_or_leave(Worker& worker) {
    worker.task = nullptr;
    if (waiting_count_ < most_waiting) {
      worker.next = std::exchange(waiting_, &worker);
      ++waiting_count_;
    } else {
      worker.leaves = true;
      worker.thread.detach();
    }
  }

  /// Ends the threads that wait, and keeps the mutex.
  static void before_fork() {
    Pool& pool = instance();
    std::unique_lock lock(pool.mutex_);
    while (pool.waiting_ != nullptr) {
      const std::unique_ptr<Worker> worker(&pool.take());
      worker->leaves = true;
      worker->called.notify_one();
      lock.unlock();
      worker->thread.join();
      lock.lock();
    }
    static_cast<void>(lock.release());
  }
  /// In the parent and in the child. Threads that worked during the fork are missing in the child, and in no list.
  static void after_fork() { instance().mutex_.unlock(); }

  std::mutex mutex_;
  Worker* waiting_ = nullptr;
  std::size_t waiting_count_ = 0;
};

}  // namespace

std::size_t run_on_threads(Task& task, std::size_t count) { return Pool::instance().run(task, count); }

}  // namespace fp8lab
