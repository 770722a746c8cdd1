// SPDX-License-Identifier: Apache-2.0
// Defects that the tests must find: an index that the compiler does not know puts an array into local memory, and there
// is a warning.
#include "cuda.cuh"

struct LocalMemoryKernel {
  static constexpr unsigned threads = 64;
  struct Shared {};
  unsigned* values;
  std::size_t count;

  [[nodiscard]] std::size_t blocks() const { return count; }
  template <typename Team>
  __device__ void operator()(const Team& team, std::size_t block, Shared& /*shared*/) const {
    team.for_each_thread([&](std::size_t t) {
      unsigned own[32];
      for (unsigned i = 0; i < 32; ++i) own[i] = values[block * 32 + i];
      for (unsigned i = 0; i < 32; ++i) own[values[i] % 32] += own[i];
      values[t] = own[t % 32];
    });
  }
};

void start(const LocalMemoryKernel& kernel) {
  int never_used;
  fp8lab::gpu::start_on_device(kernel);
}
