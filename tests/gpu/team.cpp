// SPDX-License-Identifier: Apache-2.0
// The host team: what its collectives give, and that its orders find races.
#include "fp8lab/gpu/host_team.hpp"

#include <array>
#include <numeric>
#include <set>
#include <vector>

#include "fp8lab/formats/parallel.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using gpu::HostOrder;

const std::array team_orders{HostOrder{}, HostOrder{.kind = HostOrder::Kind::descending},
                             HostOrder{.kind = HostOrder::Kind::shuffled, .seed = 5},
                             HostOrder{.kind = HostOrder::Kind::shuffled, .seed = 6, .threads = 3}};

/// Sums, largest values and a transpose through shared memory, of 64 integers a block.
struct Collectives {
  static constexpr unsigned threads = 64;
  struct Shared {
    std::uint32_t values[64];  // NOLINT(modernize-avoid-c-arrays)
  };
  const std::uint32_t* in;
  std::uint32_t* transposed;
  std::uint32_t* sums;
  std::uint32_t* largest;
  std::uint32_t* largest_of_8;
  std::size_t count;

  [[nodiscard]] std::size_t blocks() const { return count; }
  template <typename Team>
  void operator()(const Team& team, std::size_t block, Shared& shared) const {
    auto own = team.template each<std::uint32_t>();
    team.for_each_thread([&](std::size_t t) { shared.values[t] = own[t] = in[block * 64 + t]; });
    team.for_each(64, [&](std::size_t i) { transposed[block * 64 + i] = shared.values[i % 8 * 8 + i / 8]; });
    const std::uint32_t sum = team.sum(own);
    const std::uint32_t most = team.max(own);
    team.template max_of_lanes<8>(own);
    team.for_each_thread([&](std::size_t t) {
      if (t == 0) sums[block] = sum;
      if (t == 0) largest[block] = most;
      if (t % 8 == 3) largest_of_8[block * 8 + t / 8] = own[t];
    });
  }
};

/// Every thread hands its value to the next one within a collective: a race.
struct Racing {
  static constexpr unsigned threads = 32;
  struct Shared {
    std::uint32_t values[33];  // NOLINT(modernize-avoid-c-arrays)
  };
  std::uint32_t* out;

  [[nodiscard]] static std::size_t blocks() { return 1; }
  template <typename Team>
  void operator()(const Team& team, std::size_t /*block*/, Shared& shared) const {
    team.for_each(33, [&](std::size_t i) { shared.values[i] = 0; });
    team.for_each_thread([&](std::size_t t) {
      shared.values[t + 1] = static_cast<std::uint32_t>(t);
      out[t] = shared.values[t];
    });
  }
};

/// Reads shared memory that no thread wrote.
struct Unwritten {
  static constexpr unsigned threads = 32;
  struct Shared {
    std::uint32_t value;
  };
  std::uint32_t* out;

  [[nodiscard]] static std::size_t blocks() { return 1; }
  template <typename Team>
  void operator()(const Team& team, std::size_t /*block*/, Shared& shared) const {
    team.for_each(1, [&](std::size_t) { *out = shared.value; });
  }
};

}  // namespace

TEST_CASE("collectives of the host team give the same in every order and on several threads") {
  constexpr std::size_t count = 5;
  std::vector<std::uint32_t> in(64 * count);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint32_t>(random_bits(11, i));
  for (const HostOrder& order : team_orders) {
    std::vector<std::uint32_t> transposed(in.size());
    std::vector<std::uint32_t> sums(count);
    std::vector<std::uint32_t> largest(count);
    std::vector<std::uint32_t> largest_of_8(8 * count);
    gpu::run_on_host(Collectives{in.data(), transposed.data(), sums.data(), largest.data(), largest_of_8.data(), count},
                     order);
    for (std::size_t block = 0; block < count; ++block) {
      const auto* const own = in.data() + block * 64;
      CHECK(sums[block] == std::accumulate(own, own + 64, std::uint32_t{0}));
      CHECK(largest[block] == *std::max_element(own, own + 64));
      for (std::size_t i = 0; i < 64; ++i) CHECK(transposed[block * 64 + i % 8 * 8 + i / 8] == own[i]);
      for (std::size_t eight = 0; eight < 8; ++eight) {
        CHECK(largest_of_8[block * 8 + eight] == *std::max_element(own + eight * 8, own + eight * 8 + 8));
      }
    }
  }
}

TEST_CASE("a race within a collective shows as results that differ by the host team's order") {
  std::set<std::vector<std::uint32_t>> results;
  for (const HostOrder& order : {team_orders[0], team_orders[1], team_orders[2]}) {
    std::vector<std::uint32_t> out(32);
    gpu::run_on_host(Racing{out.data()}, order);
    results.insert(out);
  }
  CHECK(results.size() == 3);
}

TEST_CASE("shared memory of the host team begins poisoned") {
  std::uint32_t out = 0;
  gpu::run_on_host(Unwritten{&out});
  CHECK(out == 0xA5A5A5A5);
}

TEST_CASE("atomic operations of many host threads lose nothing") {
  std::uint32_t largest = 0;
  std::uint64_t sum = 0;
  parallel_for(10'000, 4, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      gpu::atomic_max(&largest, static_cast<std::uint32_t>(i * 7919 % 10'007));
      gpu::atomic_add(&sum, i);
    }
  });
  CHECK(largest == 10'006);
  CHECK(sum == 10'000 * 9'999 / 2);
}

}  // namespace fp8lab::tests
