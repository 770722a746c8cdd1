// SPDX-License-Identifier: Apache-2.0
// Device = model. Without a GPU this prints a line that ctest shows as Skipped, or fails where FP8LAB_REQUIRE_GPU=1.
#include <cstdlib>
#include <iostream>
#include <vector>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/gpu/device.hpp"
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

TEST_CASE("the encode kernel on the device equals the model") {
  if (skipped()) return;
  std::vector<float> in((1U << 22) + 3);
  for (std::size_t i = 0; i < in.size(); ++i)
    in[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random_bits(9, i)));
  for (const Format& format : {e4m3, e5m2, e8m0}) {
    std::vector<std::uint8_t> codes(in.size());
    gpu::encode_on_device(format, {}, in, codes);
    Mismatches wrong;
    for (std::size_t i = 0; i < in.size(); ++i) wrong.compare(i, bits(in[i]), codes[i], encode(format, {}, in[i]));
    REQUIRE_NO(wrong);
  }
}

}  // namespace fp8lab::tests
