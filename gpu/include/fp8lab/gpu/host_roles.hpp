// SPDX-License-Identifier: Apache-2.0
// Roles of a team on the host: parts of a block that run at the same time and meet at barriers in shared memory.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <random>
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
  void run(const std::vector<std::function<void()>>& bodies);

  /// The role waits until `ready`, which others make true.
  void wait_until(std::size_t role, std::function<bool()> ready);
  /// Lets another role go on, where the order prefers it.
  void pass(std::size_t role);

  /// A copy that ends at any time from now on; the order decides when.
  void copy(std::function<void()> work);
  /// Work of the role that is done in order, at any time until finish() asks for it.
  void defer(std::size_t role, std::function<void()> work);
  /// Ends a group of the work deferred so far.
  void commit(std::size_t role);
  /// Does what is left of all the role's groups but the latest `groups`.
  void finish(std::size_t role, std::size_t groups);

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

  void live(std::size_t role, const std::function<void()>& body);
  void await(std::unique_lock<std::mutex>& lock, std::size_t role);

  /// The role whose turn it is. Some asynchronous work ends meanwhile.
  std::size_t next();
  /// One of `count`, by the order.
  std::size_t pick(std::size_t count);
  void end_some();
  void end_copy(std::size_t i);
  static void do_first(Role& role);

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
