// SPDX-License-Identifier: Apache-2.0
// Device = model. Without a GPU this prints a line that ctest shows as Skipped, or fails where FP8LAB_REQUIRE_GPU=1.
#include <cstdlib>
#include <iostream>
#include <vector>

#include "fp8lab/gpu/device.hpp"
#include "fp8lab/gpu/recorder/kernel_cases.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

bool skipped() {
  const gpu::DeviceStatus status = gpu::device_status();
  if (status.count > 0) return false;
  const char* required = std::getenv("FP8LAB_REQUIRE_GPU");
  if (required != nullptr && *required == '1') FAIL("FP8LAB_REQUIRE_GPU=1, and " << status.why_none);
  std::cout << "Skipped: no CUDA device: " << status.why_none << '\n';
  return true;
}

}  // namespace

TEST_CASE("calls that a device refuses say why, and the next call succeeds") {
  if (skipped()) return;
  const auto info = gpu::devices().at(0);
  const std::vector<float> one(1);
  std::vector<std::uint8_t> code(1);
  constexpr std::size_t huge = std::size_t{1} << 50;  // allocated first, and never read
  CHECK_THROWS_AS(gpu::encode_on_device(e4m3, {}, {one.data(), huge}, {code.data(), huge}), gpu::DeviceMemoryError);
  CHECK_THROWS_AS(gpu::check_device_buffer({"x", 0, 4, 4}), std::invalid_argument);
  float on_host = 1;
  CHECK_THROWS_AS(gpu::check_device_buffer({"x", reinterpret_cast<std::uintptr_t>(&on_host), 4, 4}),
                  std::invalid_argument);
  gpu::encode_on_device(e4m3, {}, one, code);
  CHECK(info.major >= 7);
}

TEST_CASE("every kernel on the device equals its model") {
  if (skipped()) return;
  const auto info = gpu::devices().at(0);
  for (const gpu::KernelCase& one : gpu::kernel_cases()) {
    if (!one.runs_on(info.major * 10 + info.minor)) continue;
    const gpu::KernelCheck check = gpu::check_on_device(one);
    INFO(one.name << ": " << check.wrong << " of " << check.compared << " wrong; " << check.first);
    CHECK(check.compared > 0);
    CHECK(check.wrong == 0);
  }
}

}  // namespace fp8lab::tests
