// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/gpu/recorder/speeds.hpp"

#include <algorithm>
#include <functional>
#include <iterator>

#include "cuda.cuh"
#include "fp8lab/gpu/device.hpp"
#include "fp8lab/gpu/encode_kernel.hpp"
#include "fp8lab/gpu/recorder/tiles.hpp"

namespace fp8lab::gpu {
namespace {

constexpr std::size_t elements = std::size_t{1} << 26;  // of a tensor: 256 MiB of float32
constexpr int repetitions = 21;
constexpr int warm_ups = 3;

/// Gaussian float32 values.
struct FillGaussian {
  static constexpr unsigned threads = 256;
  struct Shared {};

  std::uint32_t* out;
  std::size_t count;
  std::uint64_t seed;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return ceil_div(count, 4096); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& /*shared*/) const {
    team.for_each(4096, [&](std::size_t i) {
      const std::size_t at = block * 4096 + i;
      constexpr Format format = binary32;
      if (at < count) out[at] = static_cast<std::uint32_t>(generator::gaussian(format, random_word(seed, at), 0));
    });
  }
};

/// A tensor and the place of its result.
struct Buffers {
  Buffers(std::size_t in_bytes, std::size_t out_bytes, std::uint64_t seed) : in(in_bytes), out(out_bytes) {
    check(cudaMemset(out.get(), 0xA5, out_bytes));
    run_on_device(FillGaussian{reinterpret_cast<std::uint32_t*>(in.get()), in_bytes / 4, seed});
  }
  DeviceArray<std::byte> in, out;
};

struct SpeedCase {
  std::string name;
  std::size_t in_bytes, out_bytes;
  std::function<void(const Buffers&)> start;  ///< one launch, on the default stream
};

SpeedCase encode_case(std::string name, const Format& format) {
  return {std::move(name), elements * 4, elements, [format](const Buffers& buffers) {
            start_on_device(EncodeKernel{format,
                                         {},
                                         reinterpret_cast<const float*>(buffers.in.get()),
                                         reinterpret_cast<std::uint8_t*>(buffers.out.get()),
                                         elements});
          }};
}

const std::vector<SpeedCase>& cases() {
  static const std::vector<SpeedCase> all{encode_case("encode float32 to E4M3", e4m3),
                                          encode_case("encode float32 to E5M2", e5m2)};
  return all;
}

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
    for (const SpeedCase& one : cases()) list.push_back(one.name);
    return list;
  }();
  return names;
}

MeasuredSpeed measure_speed(std::size_t number, std::uint64_t bytes) {
  require_device();
  const SpeedCase& one = cases().at(number);
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total));
  const std::uint64_t of_set = one.in_bytes + one.out_bytes;
  const auto sets = std::max<std::uint64_t>(1, std::min<std::uint64_t>(bytes, free / 3) / of_set);
  std::vector<std::unique_ptr<Buffers>> buffers;
  for (std::uint64_t i = 0; i < sets; ++i) {
    buffers.push_back(std::make_unique<Buffers>(one.in_bytes, one.out_bytes, i + 1));
  }
  const std::size_t half = of_set / 2;  // a copy reads and writes it
  const DeviceArray<std::byte> copy_from(half);
  const DeviceArray<std::byte> copy_to(half);
  check(cudaMemset(copy_from.get(), 0x5A, half));
  std::vector<double> own;
  std::vector<double> copies;
  for (int i = 0; i < warm_ups + repetitions; ++i) {
    const double time = timed([&] { one.start(*buffers[static_cast<std::size_t>(i) % buffers.size()]); });
    const double copy =
        timed([&] { check(cudaMemcpyAsync(copy_to.get(), copy_from.get(), half, cudaMemcpyDeviceToDevice)); });
    if (i < warm_ups) continue;
    own.push_back(time);
    copies.push_back(copy);
  }
  return {std::to_string(one.in_bytes >> 20) + " MiB to " + std::to_string(one.out_bytes >> 20) + " MiB, " +
              std::to_string(sets) + " buffers, median of " + std::to_string(repetitions),
          static_cast<double>(of_set), median(own), median(copies)};
}

}  // namespace fp8lab::gpu
