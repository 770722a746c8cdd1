// SPDX-License-Identifier: Apache-2.0
// Races in shared memory: the host team finds each of them in every order, and nothing else.
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "fp8lab/gpu/host_team.hpp"
#include "fp8lab/gpu/kernels/instruction_tiles.hpp"
#include "fp8lab/gpu/kernels/scaled_tiles.hpp"
#include "fp8lab/gpu/ptx/async_copy.hpp"
#include "fp8lab/gpu/ptx/bulk_copy.hpp"
#include "fp8lab/gpu/ptx/ldmatrix.hpp"
#include "fp8lab/gpu/ptx/wgmma.hpp"
#include "gpu/scaled_problem.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// What a kernel throws on the host in that order, or nothing.
template <typename Kernel>
std::string failure_in(const gpu::HostOrder& order, const Kernel& kernel) {
  try {
    gpu::run_on_host(kernel, order);
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}
/// The same in the ascending order. Others find a race, too, if there is one, of other threads maybe.
template <typename Kernel>
std::string failure_of(const Kernel& kernel) {
  const std::string message = failure_in({}, kernel);
  for (const gpu::HostOrder& order : host_orders) {
    CHECK(failure_in(order, kernel).starts_with("a race in shared memory: ") != message.empty());
  }
  return message;
}

/// What threads do in turn with a word of shared memory for each: every one writes its own, reads that of the next one,
/// and writes its own again.
struct ReadAndWrite {
  static constexpr unsigned threads = 64;
  struct Shared {
    std::uint32_t values[threads];  // NOLINT(modernize-avoid-c-arrays)
  };
  bool before_reads, before_writes;  ///< where barriers are
  unsigned distance = 1;             ///< of the next one

  [[nodiscard]] static std::size_t blocks() { return 2; }
  template <typename Team>
  void operator()(const Team& team, std::size_t /*block*/, Shared& shared) const {
    auto own = team.template each<std::uint32_t>();
    const auto meet = [&](bool is_wanted) {
      if (is_wanted) team.for_each_thread([](std::size_t) {});
    };
    load_own(team, [&](std::size_t t) { shared.values[t] = static_cast<std::uint32_t>(t); });
    meet(before_reads);
    load_own(team, [&](std::size_t t) { own[t] = shared.values[(t + distance) % threads]; });
    meet(before_writes);
    load_own(team, [&](std::size_t t) { shared.values[t] = own[t]; });
  }
};

/// The same by the threads of a group.
struct ReadAndWriteByRole {
  static constexpr unsigned threads = 256;
  struct Shared {
    std::uint32_t values[threads];  // NOLINT(modernize-avoid-c-arrays)
  };
  bool has_barrier;

  [[nodiscard]] static std::size_t blocks() { return 1; }
  template <typename Team>
  void operator()(const Team& team, std::size_t /*block*/, Shared& shared) const {
    team.template roles<2>([&](const auto& group, unsigned i) {
      auto own = group.template each<std::uint32_t>();
      group.for_each_thread([&](std::size_t t) { shared.values[i * 128 + t] = static_cast<std::uint32_t>(t); });
      group.sync();
      group.for_each_thread([&](std::size_t t) { own[t] = shared.values[i * 128 + (t + 1) % 128]; });
      if (has_barrier) group.sync();
      group.for_each_thread([&](std::size_t t) { shared.values[i * 128 + t] = own[t]; });
    });
  }
};

/// A thread sets a word that all threads read between two collectives.
struct Known {
  static constexpr unsigned threads = 32;
  struct Shared {
    std::uint32_t value;
  };
  std::uint32_t* out;
  bool has_barrier;

  [[nodiscard]] static std::size_t blocks() { return 1; }
  template <typename Team>
  void operator()(const Team& team, std::size_t /*block*/, Shared& shared) const {
    load_own(team, [&](std::size_t t) {
      if (t == 3) shared.value = 5;
    });
    if (has_barrier) fence_shared(team);  // which ends in one
    const std::uint32_t known = shared.value;
    team.for_each(1, [&](std::size_t) { *out = known; });
  }
};

/// Threads raise a word together, and one of them sets it.
struct Raise {
  static constexpr unsigned threads = 32;
  struct Shared {
    std::uint32_t largest;
  };
  bool sets;

  [[nodiscard]] static std::size_t blocks() { return 1; }
  template <typename Team>
  void operator()(const Team& team, std::size_t /*block*/, Shared& shared) const {
    team.for_each(1, [&](std::size_t) { shared.largest = 0; });
    team.for_each_thread([&](std::size_t t) {
      gpu::atomic_max(&shared.largest, static_cast<std::uint32_t>(t));
      if (sets && t == 7) shared.largest = 7;
    });
  }
};

/// What the producer of a pipeline waits for before it has the next piece copied to the place of the last one.
enum class WaitsFor : std::uint8_t { nothing, full, empty };

struct Pipeline {
  static constexpr unsigned threads = 256;
  static constexpr unsigned pieces = 4;
  struct Shared {
    alignas(16) std::uint8_t piece[128];  // NOLINT(modernize-avoid-c-arrays)
    gpu::Mbarrier full, empty;
  };
  const std::uint8_t* from;
  std::uint32_t* sums;
  WaitsFor producer;

  [[nodiscard]] static std::size_t blocks() { return 1; }
  template <typename Team>
  void operator()(const Team& team, std::size_t /*block*/, Shared& shared) const {
    team.for_each(1, [&](std::size_t) {
      init(shared.full, 1);
      init(shared.empty, 4);
      fence_init(team);
    });
    team.template roles<1>(
        [&](const auto& group, unsigned) {
          for (unsigned i = 0; i < pieces; ++i) {
            wait(group, shared.full, i % 2);
            group.for_each_thread([&](std::size_t t) { sums[t] += shared.piece[t]; });
            arrive_by_warps(group, shared.empty);
          }
        },
        [&](const auto& role) { role.once([&] { produce(role, shared); }); });
  }

 private:
  template <typename Role>
  void produce(const Role& role, Shared& shared) const {
    for (unsigned i = 0; i < pieces; ++i) {
      if (producer == WaitsFor::full && i > 0) wait(role, shared.full, (i - 1) % 2);
      if (producer == WaitsFor::empty) wait(role, shared.empty, i % 2 ^ 1U);
      arrive_expecting(role, shared.full, 128);
      copy_bytes(role, from + std::size_t{i} * 128, shared.full, shared.piece, 128);
    }
  }
};

/// A piece that a thread has copied while others read what was there before.
struct CopyAhead {
  static constexpr unsigned threads = 32;
  struct Shared {
    alignas(16) std::uint8_t piece[16];  // NOLINT(modernize-avoid-c-arrays)
  };
  const std::uint8_t* from;
  bool has_barrier;

  [[nodiscard]] static std::size_t blocks() { return 1; }
  template <typename Team>
  void operator()(const Team& team, std::size_t /*block*/, Shared& shared) const {
    gpu::AsyncCopies copies(team);
    auto words = team.template each<gpu::Vector<std::uint32_t, 4>>();
    team.for_each(1, [&](std::size_t i) { shared.piece[i] = 1; });
    ldmatrix_x4(
        team, [&](std::size_t) { return shared.piece; },
        [&](std::size_t t, unsigned i) -> std::uint32_t& { return words[t][i]; });
    if (has_barrier) team.for_each_thread([](std::size_t) {});
    load_own(team, [&](std::size_t t) {
      if (t != 5) return;
      copies.start(t, shared.piece, from, true);
      copies.commit(t);
      copies.template wait<0>(t);
    });
  }
};

}  // namespace

TEST_CASE("a write that comes before a read has ended is a race, and so is a read before the write") {
  CHECK(failure_of(ReadAndWrite{true, true}).empty());
  CHECK(failure_of(ReadAndWrite{true, false}) ==
        "a race in shared memory: thread 0 writes byte 0, which thread 63 reads, and no barrier is between them");
  CHECK(failure_of(ReadAndWrite{false, true}) ==
        "a race in shared memory: thread 0 reads byte 4, which thread 1 writes, and no barrier is between them");
  CHECK(failure_of(ReadAndWrite{false, false, 0}).empty());  // words of their own
  CHECK(failure_of(ReadAndWriteByRole{true}).empty());
  CHECK(failure_of(ReadAndWriteByRole{false}) ==
        "a race in shared memory: thread 0 writes byte 0, which thread 127 reads, and no barrier is between them");
}

TEST_CASE("what all threads read between collectives comes behind a barrier") {
  std::uint32_t out = 0;
  CHECK(failure_of(Known{&out, true}).empty());
  CHECK(failure_of(Known{&out, false}) ==
        "a race in shared memory: the block reads byte 0, which thread 3 writes, and no barrier is between them");
}

TEST_CASE("atomic operations of several threads are no race, and one beside a write is") {
  CHECK(failure_of(Raise{false}).empty());
  CHECK(failure_of(Raise{true}) ==
        "a race in shared memory: thread 7 writes byte 0, which thread 6 changes, and no barrier is between them");
}

TEST_CASE("copies to a place that is still read are races, whatever the producer waited for instead") {
  const std::vector<std::uint8_t> from(4 * 128, 3);
  std::vector<std::uint32_t> sums(128);
  CHECK(failure_of(Pipeline{from.data(), sums.data(), WaitsFor::empty}).empty());
  CHECK(failure_in({}, Pipeline{from.data(), sums.data(), WaitsFor::full}) ==
        "a race in shared memory: a bulk copy writes byte 0, which thread 0 reads, and no barrier is between them");
  CHECK(failure_of(Pipeline{from.data(), sums.data(), WaitsFor::nothing}) ==
        "a race in shared memory: a bulk copy writes byte 0, which a bulk copy writes, and no barrier is between them");
  CHECK(failure_of(CopyAhead{from.data(), true}).empty());
  CHECK(failure_of(CopyAhead{from.data(), false}) ==
        "a race in shared memory: thread 5 writes byte 0, which thread 28 reads, and no barrier is between them");
}

TEST_CASE("single instructions on tiles have no race") {
  using enum gpu::MmaType;
  using Hopper = gpu::Wgmma<e4m3, e4m3, gpu::MmaAccumulator::float32, 64>;
  using Blackwell = gpu::Tcgen05Mma<gpu::MmaKind::mxf8f6f4, e4m3, e4m3>;
  const std::vector<std::uint32_t> words(std::size_t{128} * 128);
  std::vector<std::uint32_t> d(words.size(), 1);
  CHECK(failure_of(gpu::WgmmaTiles<Hopper>{words.data(), words.data(), words.data(), d.data(), 1}).empty());
  CHECK(failure_of(gpu::Tcgen05Tiles<Blackwell>{words.data(), words.data(), words.data(), d.data(), 1}).empty());
  CHECK(d == words);
}

}  // namespace fp8lab::tests
