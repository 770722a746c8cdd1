// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/gpu/recorder/speeds.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <memory>
#include <utility>

#include "cuda.cuh"
#include "fp8lab/gpu/device.hpp"
#include "fp8lab/gpu/quantize.hpp"
#include "fp8lab/gpu/recorder/fill_gaussian.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "speed_cases.hpp"

namespace fp8lab::gpu {
namespace {

constexpr std::size_t repetitions = 21;
constexpr std::size_t warm_ups = 3;
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

/// Medians of one launch, the launches of one repetition of both following on each other. `own` and `other` are given
/// the number of the launch.
template <typename Own, typename Other>
std::pair<double, double> alternated(const Own& own, const Other& other) {
  std::vector<double> times;
  std::vector<double> others;
  for (std::size_t i = 0; i < warm_ups + repetitions; ++i) {
    const auto all = [i](const auto& start) {
      start(i * (launches + 1) + launches);  // keeps the device busy while the first that is timed is prepared
      return timed([&] {
        for (std::size_t k = 0; k < launches; ++k) start(i * (launches + 1) + k);
      });
    };
    const double time = all(own);
    const double other_time = all(other);
    if (i < warm_ups) continue;
    times.push_back(time / launches);
    others.push_back(other_time / launches);
  }
  return {median(times), median(others)};
}

/// Codes of Gaussian values, size x size.
DeviceArray<std::uint8_t> gaussian_codes(std::size_t size, std::uint64_t seed) {
  const DeviceArray<std::byte> values(size * size * 2);
  run_on_device(FillGaussian{reinterpret_cast<std::uint32_t*>(values.get()), size * size / 2, seed, true});
  DeviceArray<std::uint8_t> codes(size * size);
  const Recipe recipe = find_recipe("given_scale").recipe;
  const DeviceArray<float> scale_inv(quantized_sizes(recipe, Direction::rowwise, size, size).scale_inv);
  quantize_on_device(
      {.x = {{values.get(), values.size()}, ElementType::bfloat16, size, size},
       .recipe = recipe,
       .rowwise = QuantizedArrays{{codes.get(), codes.size()}, {scale_inv.get(), scale_inv.size()}, {}}});
  check(cudaDeviceSynchronize());
  return codes;
}

/// Operands of a GEMM, and the place of its result.
struct GemmBuffers {
  GemmBuffers(std::size_t size, std::uint64_t seed)
      : a(gaussian_codes(size, seed)), b(gaussian_codes(size, seed + 1)), out(size * size) {
    check(cudaMemset(out.get(), 0xA5, out.size() * sizeof(float)));
  }
  [[nodiscard]] std::vector<float> result() const {
    std::vector<float> values(out.size());
    out.copy_to(values);
    return values;
  }
  DeviceArray<std::uint8_t> a, b;
  DeviceArray<float> out;
};

/// Words that the kernel and the library have in common.
std::string equal_words(const std::vector<float>& one, const std::vector<float>& other) {
  std::size_t equal = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    equal += std::bit_cast<std::uint32_t>(one[i]) == std::bit_cast<std::uint32_t>(other[i]) ? 1 : 0;
  }
  return std::to_string(equal) + " of " + std::to_string(one.size()) + " words are equal";
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
  const auto half = static_cast<std::size_t>(one.bytes / 2);                      // a copy reads and writes it
  std::vector<std::pair<DeviceArray<std::byte>, DeviceArray<std::byte>>> copies;  // in turn, too
  for (std::uint64_t i = 0; i < sets; ++i) {
    copies.emplace_back(DeviceArray<std::byte>(half), DeviceArray<std::byte>(half));
    check(cudaMemset(copies.back().first.get(), 0x5A, half));
  }
  const auto [own, copy] = alternated(
      [&](std::size_t launch) {
        const Buffers& own_buffers = *buffers[launch % buffers.size()];
        quantize_on_device(one.call(own_buffers.in.get(), own_buffers.out.get()));
      },
      [&](std::size_t launch) {
        const auto& [from, to] = copies[launch % copies.size()];
        check(cudaMemcpyAsync(to.get(), from.get(), half, cudaMemcpyDeviceToDevice));
      });
  return {std::to_string(one.in_bytes >> 20) + " MiB to " + std::to_string(one.out_bytes >> 20) + " MiB, " +
              std::to_string(sets) + " buffers, median of " + std::to_string(repetitions),
          one.bytes, own, copy};
}

MeasuredSpeed measure_gemm_speed(GemmKernel kernel, const CublasLt* library, std::size_t size) {
  require_device();
  std::vector<std::unique_ptr<GemmBuffers>> buffers;  // no cache of a chip has all of them
  for (std::uint64_t i = 0; i < 3; ++i) buffers.push_back(std::make_unique<GemmBuffers>(size, 2 * i + 1));
  const auto start = [&](std::size_t launch) {
    const GemmBuffers& own = *buffers[launch % buffers.size()];
    gemm_on_device(kernel, {.m = size,
                            .n = size,
                            .k = size,
                            .a = {own.a.get(), own.a.size()},
                            .b = {own.b.get(), own.b.size()},
                            .out = std::span<float>(own.out.get(), own.out.size())});
  };
  const double operations = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  const std::string what = std::to_string(size) + "^3, median of " + std::to_string(repetitions);
  if (library == nullptr) {
    const auto [own, none] = alternated(start, [](std::size_t) {});
    return {what, operations, own, 0};
  }
  const CublasLt::Plan plan =
      library->plan({.m = size, .n = size, .k = size, .fast = kernel != GemmKernel::wgmma_promoted});
  const DeviceArray<std::byte> workspace(std::max<std::size_t>(plan.workspace_bytes(), 256));
  const auto start_library = [&](std::size_t launch) {
    const GemmBuffers& own = *buffers[launch % buffers.size()];
    plan.run(own.a.get(), own.b.get(), own.out.get(), workspace.get());
  };
  start(0);
  const std::vector<float> own_result = buffers[0]->result();
  start_library(0);
  const std::string equal = equal_words(own_result, buffers[0]->result());
  const auto [own, other] = alternated(start, start_library);
  return {what + "; " + equal + "; cuBLASLt " + library->version() + ", " + plan.algorithm(), operations, own, other};
}

}  // namespace fp8lab::gpu
