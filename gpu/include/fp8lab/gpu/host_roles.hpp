// SPDX-License-Identifier: Apache-2.0
// Roles of a team on the host: parts of a block that run at the same time and meet at barriers in shared memory.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fp8lab::gpu {

/// In which order the host runs what the device runs at the same time: threads within a collective, blocks, roles of a
/// team, and copies that nobody waits for. A kernel whose result depends on it has a race.
struct HostOrder {
  enum class Kind : std::uint8_t {
    ascending,   ///< of roles the first one that can go on; copies end when every role waits
    descending,  ///< of roles the last one that can go on; copies end at once
    shuffled,    ///< all at random
  };
  Kind kind = Kind::ascending;
  std::uint64_t seed = 0;  ///< of the shuffled order
  int threads = 1;         ///< host threads that share out each collective; blocks and roles follow one another
};

/// Runs roles in turn, each on a thread of its own: one goes on until it waits, or until it passes the turn to another
/// that the order prefers. So a run depends on nothing but the order and its seed, and roles that wait for one another
/// forever are seen at once.
class HostRoles {
 public:
  HostRoles(HostOrder order, std::size_t count) : order_(order), random_(order.seed), roles_(count) {}

  /// Runs bodies[i] as role i and returns when all are done.
  ///
  /// Throws what a body threw, or std::logic_error where all roles wait, or where asynchronous work is left that no
  /// role waited for.
  void run(const std::vector<std::function<void()>>& bodies) {
    turn_ = next();
    std::vector<std::thread> threads;
    threads.reserve(bodies.size());
    for (std::size_t i = 0; i < bodies.size(); ++i) threads.emplace_back([this, &bodies, i] { live(i, bodies[i]); });
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
    if (!copies_.empty()) throw std::logic_error("a kernel ended before its bulk copies");
  }

  /// The role waits until `ready`, which others make true.
  void wait_until(std::size_t role, std::function<bool()> ready) {
    roles_[role].ready = std::move(ready);
    pass(role);
    roles_[role].ready = nullptr;
  }
  /// Lets another role go on, where the order prefers it.
  void pass(std::size_t role) {
    std::unique_lock lock(mutex_);
    turn_ = next();
    changed_.notify_all();
    await(lock, role);
  }

  /// A copy that ends at any time from now on; the order decides when.
  void copy(std::function<void()> work) {
    copies_.push_back(std::move(work));
    if (order_.kind == HostOrder::Kind::descending) end_copy(0);
  }
  /// Work of the role that is done in order, at any time until finish() asks for it.
  void defer(std::size_t role, std::function<void()> work) { roles_[role].deferred.push_back(std::move(work)); }
  /// Ends a group of the work deferred so far.
  void commit(std::size_t role) { roles_[role].groups.push_back(roles_[role].done + roles_[role].deferred.size()); }
  /// Does what is left of all the role's groups but the latest `groups`.
  void finish(std::size_t role, std::size_t groups) {
    Role& own = roles_[role];
    if (own.groups.size() <= groups) return;
    const std::size_t until = own.groups[own.groups.size() - 1 - groups];
    while (own.done < until) do_first(own);
  }

 private:
  struct Role {
    std::function<bool()> ready;  // what it waits for; empty: nothing
    std::deque<std::function<void()>> deferred;
    std::size_t done = 0;             // pieces of deferred work
    std::vector<std::size_t> groups;  // pieces of work up to the end of each
    bool ended = false;
  };
  struct Stopped : std::exception {};  // ends a role because another one failed
  static constexpr std::size_t nobody = ~std::size_t{0};

  void live(std::size_t role, const std::function<void()>& body) {
    try {
      {
        std::unique_lock lock(mutex_);
        await(lock, role);
      }
      body();
      if (!roles_[role].deferred.empty()) throw std::logic_error("a role ended before its matrix instructions");
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
    const std::scoped_lock lock(mutex_);
    roles_[role].ended = true;
    try {
      turn_ = next();
    } catch (...) {  // from a copy
      failure_ = std::current_exception();
    }
    changed_.notify_all();
  }
  void await(std::unique_lock<std::mutex>& lock, std::size_t role) {
    changed_.wait(lock, [&] { return turn_ == role || failure_; });
    if (failure_) throw Stopped{};
  }

  /// The role whose turn it is. Some asynchronous work ends meanwhile.
  std::size_t next() {
    if (failure_ || std::ranges::all_of(roles_, &Role::ended)) return nobody;
    if (order_.kind == HostOrder::Kind::shuffled) end_some();
    while (true) {
      std::vector<std::size_t> able;
      for (std::size_t i = 0; i < roles_.size(); ++i) {
        if (!roles_[i].ended && (!roles_[i].ready || roles_[i].ready())) able.push_back(i);
      }
      if (!able.empty()) return able[pick(able.size())];
      if (copies_.empty()) {
        failure_ = std::make_exception_ptr(std::logic_error("every role of the team waits at a barrier: a hang"));
        return nobody;
      }
      end_copy(pick(copies_.size()));
    }
  }
  /// One of `count`, by the order.
  std::size_t pick(std::size_t count) {
    switch (order_.kind) {
      case HostOrder::Kind::ascending: return 0;
      case HostOrder::Kind::descending: return count - 1;
      case HostOrder::Kind::shuffled: return random_() % count;
    }
    return 0;
  }
  void end_some() {
    while (!copies_.empty() && random_() % 2 == 0) end_copy(random_() % copies_.size());
    for (Role& role : roles_) {
      while (!role.deferred.empty() && random_() % 2 == 0) do_first(role);
    }
  }
  void end_copy(std::size_t i) {
    const auto work = std::move(copies_[i]);
    copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(i));
    work();
  }
  static void do_first(Role& role) {
    const auto work = std::move(role.deferred.front());
    role.deferred.pop_front();
    ++role.done;
    work();
  }

  HostOrder order_;
  std::mt19937_64 random_;
  std::vector<Role> roles_;
  std::vector<std::function<void()>> copies_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t turn_ = nobody;
  std::exception_ptr failure_;
};

}  // namespace fp8lab::gpu
