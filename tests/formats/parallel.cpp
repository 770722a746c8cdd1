// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/parallel.hpp"

#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <csignal>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>

#include "fp8lab/formats/encode.hpp"
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

TEST_CASE("the threads of a call serve the next one, in the default environment") {
  thread_local int served = 0;
  std::atomic<int> most = 0;
  std::atomic<int> upward = 0;
  for (int call = 0; call < 200; ++call) {
    parallel_for(4, 4, [&](std::size_t /*first*/, std::size_t /*last*/) {
      if (std::fegetround() != FE_TONEAREST) ++upward;
      std::fesetround(FE_UPWARD);  // and left so
      for (int before = most; before < served + 1 && !most.compare_exchange_weak(before, served + 1);) {
      }
      ++served;
    });
    REQUIRE(std::fegetround() == FE_TONEAREST);
  }
  CHECK(upward == 0);
  CHECK(most == 200);  // this thread's, too; the others':
  served = 0;
  std::atomic<int> fewest = 1000;
  parallel_for(4, 4, [&](std::size_t first, std::size_t /*last*/) {
    if (first == 3) return;  // on this thread
    for (int before = fewest; before > served && !fewest.compare_exchange_weak(before, served);) {
    }
  });
  CHECK(fewest > 0);
}

TEST_CASE("calls within calls, from many threads, with parts that fail, give what one thread gives") {
  const auto sum = [](int threads) {
    std::atomic<std::size_t> total = 0;
    parallel_for(8, threads, [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) {
        parallel_for(100, threads, [&](std::size_t from, std::size_t to) {
          for (std::size_t k = from; k < to; ++k) total += i * k;
        });
        CHECK_THROWS_AS(parallel_for(3, threads, [](std::size_t, std::size_t) { throw Ended(); }), Ended);
      }
    });
    return total.load();
  };
  const std::size_t expected = sum(1);
  std::vector<std::jthread> callers;
  std::atomic<int> wrong = 0;
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&] {
      for (int call = 0; call < 20; ++call) wrong += sum(1 + call % 4) == expected ? 0 : 1;
    });
  }
  callers.clear();
  CHECK(wrong == 0);
}

TEST_CASE("a child of fork() starts threads of its own, also where other threads of its parent are within calls") {
  const auto works = [] {
    std::vector<std::atomic<int>> seen(8);
    parallel_for(8, 4, [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) ++seen[i];
    });
    return std::ranges::all_of(seen, [](const auto& times) { return times == 1; });
  };
  REQUIRE(works());
#ifndef __SANITIZE_ADDRESS__  // of g++ before 14: its locks, held by a thread during the fork, stay held in the child
  std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) works();
  });
#endif
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(SIGALRM, SIG_DFL);
      ::alarm(20);  // ends a child that hangs
      ::_exit(works() && works() ? 0 : 1);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    REQUIRE(works());
  }
}

TEST_CASE("signals to the process are for the program's own threads") {
  const pid_t child = ::fork();
  if (child == 0) {
    parallel_for(4, 4, [](std::size_t, std::size_t) {});
    sigset_t user;
    sigemptyset(&user);
    sigaddset(&user, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &user, nullptr);
    ::kill(::getpid(), SIGUSR1);  // ends the process by any thread that lets it through
    parallel_for(4, 4, [](std::size_t, std::size_t) {});
    int signal = 0;
    std::signal(SIGALRM, SIG_DFL);
    ::alarm(20);
    ::_exit(::sigwait(&user, &signal) == 0 && signal == SIGUSR1 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
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
