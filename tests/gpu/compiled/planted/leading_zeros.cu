// SPDX-License-Identifier: Apache-2.0
// A defect that the tests must find: std::countl_zero() of 64 bits is 64 in device code, whatever the word.
#include <bit>
#include <cstdint>

#include "cuda.cuh"

struct LeadingZerosKernel {
  static constexpr unsigned threads = 64;
  struct Shared {};
  std::uint64_t* words;
  std::size_t count;

  [[nodiscard]] std::size_t blocks() const { return count; }
  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& /*shared*/) const {
    team.for_each_thread([&](std::size_t t) {
      std::uint64_t& word = words[block * threads + t];
      word = static_cast<std::uint64_t>(std::countl_zero(word));
    });
  }
};

void start(const LeadingZerosKernel& kernel) { fp8lab::gpu::start_on_device(kernel); }
