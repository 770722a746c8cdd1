// SPDX-License-Identifier: Apache-2.0
// Kernels on the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "fp8lab/gpu/host_fences.hpp"
#include "fp8lab/gpu/host_races.hpp"
#include "fp8lab/gpu/host_roles.hpp"
#include "fp8lab/gpu/team.hpp"

namespace fp8lab::gpu {

/// The chip whose matrix instructions the host computes, where one instruction differs from chip to chip.
enum class HostChip : std::uint8_t { ampere, ada, hopper, blackwell, rtx_blackwell };

class HostRole;

/// The team of a block on the host: every collective is a loop over its threads.
class HostTeam {
 public:
  static constexpr bool on_device = false;

  /// `shared` is the beginning of the block's shared memory, whose addresses matrix instructions are given. Behind its
  /// `bytes` lie as many more, which are what asynchronous instructions see of it: all that bulk copies wrote, and what
  /// threads wrote before the last publish(). 0 bytes: they see the memory itself.
  HostTeam(unsigned threads, HostOrder order, HostChip chip = HostChip::hopper, const void* shared = nullptr,
           std::size_t bytes = 0)
      : threads_(threads),
        order_(order),
        chip_(chip),
        shared_(shared),
        bytes_(bytes),
        races_(std::make_shared<HostRaces>(shared, bytes)),
        random_(order.seed) {}
  /// A role of a team: `threads` of its threads, from `first` on.
  HostTeam(const HostTeam& team, HostRaces::Part role, unsigned first, unsigned threads)
      : threads_(threads),
        order_{team.order_.kind, team.order_.seed + first / threads},
        chip_(team.chip_),
        shared_(team.shared_),
        bytes_(team.bytes_),
        races_(team.races_),
        part_(role),
        first_(first),
        random_(order_.seed) {}

  /// A value of each thread.
  template <typename T>
  class Each {
   public:
    explicit Each(unsigned threads) : values_(threads) {}
    [[nodiscard]] T& operator[](std::size_t thread) { return values_[thread]; }
    [[nodiscard]] const T& operator[](std::size_t thread) const { return values_[thread]; }

   private:
    std::vector<T> values_;
  };

  [[nodiscard]] unsigned threads() const { return threads_; }
  [[nodiscard]] const HostOrder& order() const { return order_; }
  [[nodiscard]] HostChip chip() const { return chip_; }
  [[nodiscard]] const std::byte* shared() const { return static_cast<const std::byte*>(shared_); }
  [[nodiscard]] const std::byte* async_shared() const { return shared() + bytes_; }
  [[nodiscard]] std::size_t shared_bytes() const { return bytes_; }
  [[nodiscard]] HostRaces& races() const { return *races_; }
  /// A thread of the team runs, or all of them do the same.
  [[nodiscard]] HostRaces::Running running(std::size_t thread) const {
    return {races_.get(), {part_, static_cast<std::uint16_t>(first_ + thread)}};
  }
  [[nodiscard]] HostRaces::Running running() const { return {races_.get(), {part_}}; }
  [[nodiscard]] HostRaces::Part part() const { return part_; }
  /// Shared memory that an instruction of this part reads asynchronously: wgmma as the part itself, or tcgen05.
  [[nodiscard]] const std::byte* read_async(std::size_t place, std::size_t bytes, HostRaces::Part by) const {
    races_->access(HostRaces::Access::read, shared() + place, bytes, {by}, races_->known(part_));
    races_->check();
    return async_shared() + place;
  }
  // The effects of fences follow.
  void publish() const {
    const HostRaces::Running nobody;
    if (bytes_ != 0) std::memcpy(const_cast<std::byte*>(async_shared()), shared(), bytes_);
    if (part_ == HostRaces::Part::block) meet();  // as fence_shared() says
  }
  void publish_barriers() const { barriers_known_ = true; }
  [[nodiscard]] bool barriers_known() const { return barriers_known_; }

  template <typename Body>
  void for_each(std::size_t count, const Body& body) const {
    call_each(count, {&body, [](const void* own, std::size_t i) { (*static_cast<const Body*>(own))(i); }});
    meet();
  }
  template <typename Body>
  void for_each_thread(const Body& body) const {
    for_each(threads_, body);
  }
  /// Does the same without a barrier at the end.
  template <typename Body>
  void go_on_each_thread(const Body& body) const {
    call_each(threads_, {&body, [](const void* own, std::size_t i) { (*static_cast<const Body*>(own))(i); }});
  }
  /// The barrier of the block, or of a role.
  void meet() const { races_->meet(part_); }
  template <typename T>
  [[nodiscard]] Each<T> each() const {
    return Each<T>(threads_);
  }
  template <typename Integer>
  [[nodiscard]] Integer max(const Each<Integer>& values) const {
    static_assert(std::is_unsigned_v<Integer>);
    Integer largest = 0;
    for (unsigned thread = 0; thread < threads_; ++thread) largest = std::max(largest, values[thread]);
    meet();
    return largest;
  }
  template <typename Integer>
  [[nodiscard]] Integer sum(const Each<Integer>& values) const {
    static_assert(std::is_unsigned_v<Integer>);
    Integer total = 0;
    for (unsigned thread = 0; thread < threads_; ++thread) total += values[thread];
    meet();
    return total;
  }
  template <unsigned kLanes, typename Integer>
  void max_of_lanes(Each<Integer>& values) const {
    static_assert(std::is_unsigned_v<Integer> && kLanes <= 32 && (kLanes & (kLanes - 1)) == 0);
    for (unsigned first = 0; first < threads_; first += kLanes) {
      Integer largest = 0;
      for (unsigned lane = 0; lane < kLanes; ++lane) largest = std::max(largest, values[first + lane]);
      for (unsigned lane = 0; lane < kLanes; ++lane) values[first + lane] = largest;
    }
  }
  template <unsigned kGroups, typename... Bodies>
  void roles(const Bodies&... bodies) const;
  template <unsigned kLanes, typename Integer, unsigned kCount>
  void max_of_lanes(Each<Vector<Integer, kCount>>& values) const {
    for (unsigned i = 0; i < kCount; ++i) {
      Each<Integer> own(threads_);
      for (unsigned thread = 0; thread < threads_; ++thread) own[thread] = values[thread][i];
      max_of_lanes<kLanes>(own);
      for (unsigned thread = 0; thread < threads_; ++thread) values[thread][i] = own[thread];
    }
  }

 private:
  /// A body whose type is forgotten, so that it is compiled once and not once an order.
  struct AnyBody {
    const void* body;
    void (*call)(const void* body, std::size_t i);
  };
  void call_each(std::size_t count, AnyBody body) const;

  unsigned threads_;
  HostOrder order_;
  HostChip chip_;
  const void* shared_;
  std::size_t bytes_;
  std::shared_ptr<HostRaces> races_;
  HostRaces::Part part_ = HostRaces::Part::block;
  unsigned first_ = 0;
  mutable bool barriers_known_ = false;
  mutable std::mt19937_64 random_;
  mutable std::vector<std::size_t> places_;
};

/// Holds back what the threads of a role have written to shared memory since its last barrier.
class HostWithheld {
 public:
  /// Before threads write, and when all did.
  void begin(const HostTeam& team);
  void end(const HostTeam& team);
  /// A fence: asynchronous instructions see it behind the barrier, too.
  void publish();
  /// The barrier.
  void release(const HostTeam& team);

 private:
  struct Write {
    std::size_t place;
    std::byte value;
    bool is_published;
  };
  std::vector<std::byte> before_;
  std::vector<Write> writes_;
};

/// A part of a host team that runs at the same time as others.
class HostRole {
 public:
  static constexpr bool on_device = false;
  template <typename T>
  using Each = HostTeam::Each<T>;

  HostRole(const HostTeam& team, HostRoles& roles, std::size_t index, unsigned threads)
      : team_(team, static_cast<HostRaces::Part>(index + 1), static_cast<unsigned>(index) * threads, threads),
        roles_(&roles),
        index_(index),
        fences_(team.barriers_known()) {}

  [[nodiscard]] unsigned threads() const { return team_.threads(); }
  template <typename T>
  [[nodiscard]] Each<T> each() const {
    return team_.each<T>();
  }
  /// Runs body(thread) for each thread. Other threads see what it writes to shared memory after sync(), and a pattern
  /// until then.
  template <typename Body>
  void for_each_thread(const Body& body) const {
    fences_.use_registers();
    fences_.go_on_together();
    withheld_.begin(team_);
    team_.go_on_each_thread(body);
    withheld_.end(team_);
  }
  /// The barrier of its threads.
  void sync() const {
    fences_.come_to_barrier();
    fences_.pass_barrier();
    fences_.meet();
    team_.meet();
    withheld_.release(team_);
  }
  template <typename Body>
  void once(const Body& body) const {
    const auto one = team_.running(0);
    is_one_thread_ = true;
    body();
    is_one_thread_ = false;
  }

  [[nodiscard]] const HostTeam& team() const { return team_; }
  [[nodiscard]] HostFences& fences() const { return fences_; }
  void publish() const {
    team_.publish();
    withheld_.publish();
  }
  /// Ends the role: all of the block meet at a barrier.
  void end() const { fences_.come_to_barrier(); }
  // The effects of this role's instructions follow.
  void arrive(const void* barrier) const { team_.races().arrive(team_.part(), barrier); }
  void wait_until(const void* barrier, std::function<bool()> ready) const {
    roles_->wait_until(index_, std::move(ready));
    team_.races().wait(team_.part(), barrier);
    fences_.pass_barrier();
    is_one_thread_ ? fences_.wait_alone() : fences_.meet();
  }
  void pass() const { roles_->pass(index_); }
  void copy(std::function<void()> work) const { roles_->copy(std::move(work)); }
  void defer(std::function<void()> work) const { roles_->defer(index_, std::move(work)); }
  void commit() const { roles_->commit(index_); }
  void finish(std::size_t groups) const { roles_->finish(index_, groups); }

 private:
  HostTeam team_;
  HostRoles* roles_;
  std::size_t index_;
  mutable HostFences fences_;
  mutable HostWithheld withheld_;
  mutable bool is_one_thread_ = false;
};

template <unsigned kGroups, typename... Bodies>
void HostTeam::roles(const Bodies&... bodies) const {
  static_assert(sizeof...(Bodies) == 1 || sizeof...(Bodies) == 2);
  static_assert(kGroups + sizeof...(Bodies) - 1 <= 3);  // HostRaces knows no more
  HostRoles roles(order_, kGroups + sizeof...(Bodies) - 1);
  std::vector<std::function<void()>> parts;
  const auto add = [&](const auto& body) {
    using Body = std::remove_cvref_t<decltype(body)>;
    if constexpr (std::is_invocable_v<Body, const HostRole&, unsigned>) {
      for (unsigned i = 0; i < kGroups; ++i) {
        parts.emplace_back([this, &roles, &body, i] {
          const HostRole role(*this, roles, i, 128);
          const auto all = role.team().running();
          body(role, i);
          role.end();
        });
      }
    } else {
      parts.emplace_back([this, &roles, &body] {
        const HostRole role(*this, roles, kGroups, 128);
        const auto all = role.team().running();
        body(role);
        role.end();
      });
    }
  };
  (add(bodies), ...);
  races_->fork();
  roles.run(parts);
  races_->join();
}

/// Shared memory of a host team, twice, as HostTeam says: aligned as bulk copies of the device want it, and full of
/// what no kernel wrote.
template <typename Shared>
class HostShared {
 public:
  static constexpr std::align_val_t alignment{std::max<std::size_t>(1024, alignof(Shared))};

  HostShared() : memory_(static_cast<Shared*>(::operator new(2 * sizeof(Shared), alignment))) {}
  HostShared(HostShared&&) = delete;  // and so no copies either
  ~HostShared() { ::operator delete(memory_, alignment); }

  /// The memory for the next block.
  [[nodiscard]] Shared& poisoned() {
    static_assert(std::is_trivially_copyable_v<Shared>);
    std::memset(static_cast<void*>(memory_), 0xA5, 2 * sizeof(Shared));
    return *memory_;
  }

 private:
  Shared* memory_;
};

/// Runs `kernel` on the host, one block after the other in that order, with the matrix instructions of `chip`.
template <typename Kernel>
void run_on_host(const Kernel& kernel, HostOrder order = {}, HostChip chip = HostChip::hopper) {
  const HostTeam blocks(1, {.kind = order.kind, .seed = order.seed});
  HostShared<typename Kernel::Shared> shared;
  blocks.for_each(kernel.blocks(), [&](std::size_t block) {
    auto& memory = shared.poisoned();
    const HostTeam team(Kernel::threads, {order.kind, order.seed + block + 1, order.threads}, chip, &memory,
                        sizeof(memory));
    const auto all = team.running();
    kernel(team, block, memory);
  });
}

}  // namespace fp8lab::gpu
