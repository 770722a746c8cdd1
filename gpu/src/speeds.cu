// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/gpu/recorder/speeds.hpp"

#include <algorithm>
#include <iterator>

#include "cuda.cuh"
#include "fp8lab/gpu/device.hpp"
#include "fp8lab/gpu/recorder/fill_gaussian.hpp"
#include "speed_cases.hpp"

namespace fp8lab::gpu {
namespace {

constexpr int repetitions = 21;
constexpr int warm_ups = 3;
constexpr std::size_t launches = 8;  // of a repetition, so that the host is ahead of the device

/// A tensor and the place of its result.
struct Buffers {
  Buffers(const SpeedCase& one, std::uint64_t seed) : in(one.in_bytes), out(one.out_bytes) {
    check(cudaMemset(out.get(), 0xA5, one.out_bytes));
    run_on_device(FillGaussian{reinterpret_cast<std::uint32_t*>(in.get()), one.in_bytes / 4, seed, one.is_bfloat16});
  }
  DeviceArray<std::byte> in, out;
};

class Event {
 public:
  Event() { check(cudaEventCreate(&event_)); }
  Event(Event&&) = delete;  // and so no copies either
  ~Event() { cudaEventDestroy(event_); }
  void record() const { check(cudaEventRecord(event_)); }
  /// Milliseconds since another one; waits for this one.
  [[nodiscard]] double since(const Event& begin) const {
    check(cudaEventSynchronize(event_));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin.event_, event_));
    return milliseconds;
  }

 private:
  cudaEvent_t event_{};
};

template <typename Start>
double timed(const Start& start) {
  const Event begin;
  const Event end;
  begin.record();
  start();
  end.record();
  return end.since(begin);
}

double median(std::vector<double> times) {
  std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2);
  return times[times.size() / 2];
}

}  // namespace

const std::vector<std::string>& speed_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const SpeedCase& one : speed_cases()) list.push_back(one.name);
    return list;
  }();
  return names;
}

MeasuredSpeed measure_speed(std::size_t number, std::uint64_t bytes) {
  require_device();
  const SpeedCase& one = speed_cases().at(number);
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total));
  const std::uint64_t of_set = one.in_bytes + one.out_bytes;
  const auto sets = std::max<std::uint64_t>(1, std::min<std::uint64_t>(bytes, free / 3) / of_set);
  std::vector<std::unique_ptr<Buffers>> buffers;
  for (std::uint64_t i = 0; i < sets; ++i) {
    buffers.push_back(std::make_unique<Buffers>(one, i + 1));
  }
  const auto half = static_cast<std::size_t>(one.bytes / 2);  // a copy reads and writes it
  const DeviceArray<std::byte> copy_from(half);
  const DeviceArray<std::byte> copy_to(half);
  check(cudaMemset(copy_from.get(), 0x5A, half));
  std::vector<double> own;
  std::vector<double> copies;
  for (int i = 0; i < warm_ups + repetitions; ++i) {
    const double time = timed([&] {
      for (std::size_t k = 0; k < launches; ++k) {
        const Buffers& own_buffers = *buffers[(static_cast<std::size_t>(i) * launches + k) % buffers.size()];
        one.start(own_buffers.in.get(), own_buffers.out.get());
      }
    });
    const double copy = timed([&] {
      for (std::size_t k = 0; k < launches; ++k) {
        check(cudaMemcpyAsync(copy_to.get(), copy_from.get(), half, cudaMemcpyDeviceToDevice));
      }
    });
    if (i < warm_ups) continue;
    own.push_back(time / launches);
    copies.push_back(copy / launches);
  }
  return {std::to_string(one.in_bytes >> 20) + " MiB to " + std::to_string(one.out_bytes >> 20) + " MiB, " +
              std::to_string(sets) + " buffers, median of " + std::to_string(repetitions),
          one.bytes, median(own), median(copies)};
}

}  // namespace fp8lab::gpu
