// SPDX-License-Identifier: Apache-2.0
// Races in the shared memory of a block that runs on the host: who accessed a byte, and which barriers came since.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace fp8lab::gpu {

/// Finds accesses of a byte, one of them a write, that no barrier orders: a read that comes too early, and a write that
/// overwrites what another thread may still read. It needs no unlucky order; each is found in every run.
///
/// Instructions, cp.async and bulk copies tell it themselves what they access. What threads read and write is told
/// where the kernel is compiled with -fsanitize=thread, and linked with tests/gpu/races/hooks.cpp and without the
/// compiler's own library, as Linux's KCSAN does it.
class HostRaces {
 public:
  enum class Access : std::uint8_t { read, write, atomic };
  /// A part of the kernel that runs independently of the others between barriers.
  enum class Part : std::uint8_t { block, first_role, second_role, third_role, tcgen05, bulk_copies };
  static constexpr std::size_t parts = 6;
  /// A moment of each part. What a part did up to then is over.
  using Clock = std::array<std::uint32_t, parts>;

  /// A thread of the block, or all of a part.
  static constexpr std::uint16_t every_thread = 0xFFFF;
  struct Who {
    Part part = Part::block;
    std::uint16_t thread = every_thread;
  };

  HostRaces(const void* shared, std::size_t bytes) : shared_(shared), bytes_(bytes) {}

  /// Somebody accesses memory and knows what is over. Places that are not in shared memory count for nothing.
  void access(Access access, const void* place, std::size_t bytes, Who who, const Clock& known);
  void access(Access access, const void* place, std::size_t bytes, Who who) {
    this->access(access, place, bytes, who, known(who.part));
  }
  /// Records an access by the part that is Running; does nothing where none is.
  static void access_of_thread(Access access, const void* place, std::size_t bytes);
  /// Throws std::logic_error where a race was found; the message has the place and both threads.
  void check() const;

  /// A barrier of all threads of the block or of a role.
  void meet(Part part);
  /// Roles begin behind the block's barrier, and all of the block meet when they end.
  void fork();
  void join();
  /// A part arrives at a barrier in shared memory, or has waited there.
  void arrive(Part part, const void* barrier) { arrive(barrier, told(part, part)); }
  void wait(Part part, const void* barrier);
  /// The moments of all parts that a part knows to be over.
  [[nodiscard]] const Clock& known(Part part) const { return known_[static_cast<std::size_t>(part)]; }
  /// told() notes that `ended` is over up to now, and returns all moments that `part` knows; arrive() leaves them at a
  /// barrier.
  [[nodiscard]] Clock told(Part part, Part ended);
  void arrive(const void* barrier, const Clock& told);

  /// Says whose part of the kernel runs on this thread of the host, as long as it lives; or that what runs is no part
  /// of a kernel.
  class Running {
   public:
    Running() : Running(nullptr, {}) {}
    Running(HostRaces* races, Who who);
    ~Running();
    Running(Running&&) = delete;  // and so no copies either

   private:
    HostRaces* races_before_;
    Who who_before_;
  };

 private:
  struct Record {
    std::uint32_t moment;  // 0: nobody
    std::uint16_t thread;
    Part part;
    Access access;
  };
  /// The last write of a byte, and the last other accesses of each part by two different threads: if one of those
  /// before them is a race with a later one, so is one of these.
  struct Byte {
    Record write;
    std::array<std::array<Record, 2>, parts - 1> others;  // bulk copies write
  };
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  [[nodiscard]] std::size_t place_of(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(shared_);
  }
  [[nodiscard]] bool has(const void* address, std::size_t bytes) const {
    return place_of(address) < bytes_ && bytes <= bytes_ - place_of(address);
  }
  void tell(const Record& later, const Record& earlier, std::size_t place);

  const void* shared_;
  std::size_t bytes_;
  std::unique_ptr<Byte, Free> memory_;  // zeros, which cost nothing where nobody writes
  std::uint32_t now_ = 1;
  std::array<Clock, parts> known_{};
  std::map<const void*, Clock> barriers_;
  std::string found_;
  std::mutex mutex_;  // for orders with several host threads
};

}  // namespace fp8lab::gpu
