// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/parallel.hpp"

#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// What a poll throws that ends a call.
struct Ended : std::runtime_error {
  Ended() : std::runtime_error("ended") {}
};

/// A scope that ends calls at the n-th poll.
auto ends_at(int n) {
  return [left = n]() mutable {
    if (--left == 0) throw Ended();
  };
}

constexpr auto at_once = std::chrono::steady_clock::duration::zero();

}  // namespace

TEST_CASE("pieces cover everything once, in order, none larger than asked for") {
  for (const std::size_t count : {0U, 1U, 7U, 100U, 1001U}) {
    for (const int threads : {1, 2, 3, 8}) {
      for (const std::size_t most : {1U, 3U, 10U, 5000U}) {
        std::vector<std::atomic<int>> seen(count);
        std::atomic<std::size_t> widest = 0;
        parallel_for(
            count, threads,
            [&](std::size_t first, std::size_t last) {
              for (std::size_t before = widest;
                   before < last - first && !widest.compare_exchange_weak(before, last - first);) {
              }
              for (std::size_t i = first; i < last; ++i) ++seen[i];
            },
            most);
        for (const auto& times : seen) REQUIRE(times == 1);
        REQUIRE(widest <= most);
      }
    }
  }
}

TEST_CASE("a checkpoint polls for the innermost scope of its thread alone, and for none without") {
  checkpoint();
  int outer = 0;
  int inner = 0;
  const Interruptible a([&] { ++outer; }, at_once);
  checkpoint();
  {
    const Interruptible b([&] { ++inner; }, at_once);
    checkpoint();
    std::jthread([] { checkpoint(); });  // has no scope
  }
  checkpoint();
  CHECK(outer == 2);
  CHECK(inner == 1);
}

TEST_CASE("polls are 25 ms apart, however often a loop comes by") {
  int polls = 0;
  const auto start = std::chrono::steady_clock::now();
  const Interruptible scope([&] { ++polls; });
  while (polls < 2) checkpoint();
  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(50));
}

TEST_CASE("what a poll throws ends all threads of a call, also nested ones, at their next checkpoint") {
  for (const int threads : {1, 2, 5}) {
    std::atomic<std::size_t> steps = 0;
    const auto forever = [&](std::size_t /*first*/, std::size_t /*last*/) {
      for (;;) {
        checkpoint();
        ++steps;
      }
    };
    const Interruptible scope(ends_at(1000), at_once);
    CHECK_THROWS_AS(parallel_for(5, threads, forever), Ended);
    CHECK(steps > 0);
  }
  const Interruptible scope(ends_at(50), at_once);
  const auto forever = [](std::size_t /*first*/, std::size_t /*last*/) {
    for (;;) checkpoint();
  };
  bool went_on = false;
  const auto nested = [&](std::size_t /*first*/, std::size_t /*last*/) {
    parallel_for(2, 2, forever);
    went_on = true;  // with half of the work
  };
  CHECK_THROWS_AS(parallel_for(3, 3, nested), Ended);
  CHECK_FALSE(went_on);
}

TEST_CASE("the calling thread polls while it waits for the others") {
  const Interruptible scope(ends_at(2), at_once);
  const auto work = [](std::size_t first, std::size_t /*last*/) {
    while (first == 0) checkpoint();  // on the other thread: until it is ended
  };
  CHECK_THROWS_AS(parallel_for(2, 2, work), Ended);
}

TEST_CASE("the first piece's exception is thrown, and ends those after it") {
  const auto work = [](std::size_t first, std::size_t /*last*/) {
    if (first == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));  // so that the second fails before
    if (first <= 1) throw std::runtime_error(first == 0 ? "of the first" : "of the second");
    for (;;) checkpoint();
  };
  for (int i = 0; i < 5; ++i) CHECK_THROWS_WITH(parallel_for(3, 3, work), "of the first");
}

TEST_CASE("large casts end between pieces, and the next call works") {
  const std::vector<double> in(8 * scalar_piece, 1.0);
  std::vector<std::uint8_t> out(in.size());
  {
    const Interruptible scope(ends_at(3), at_once);
    CHECK_THROWS_AS(encode(e4m3, {}, std::span<const double>(in), out), Ended);
    CHECK(std::ranges::count(out, 0x38) == 2 * static_cast<long>(scalar_piece));
  }
  encode(e4m3, {}, std::span<const double>(in), out, 2);
  CHECK(std::ranges::count(out, 0x38) == static_cast<long>(in.size()));
}

}  // namespace fp8lab::tests
