// SPDX-License-Identifier: Apache-2.0
// The cases that a device is asked, on the host team: each runs, fills its whole output and gives the same again.
#include "fp8lab/gpu/recorder/kernel_cases.hpp"

#include "fp8lab/gpu/recorder/memory.hpp"
#include "quantize_call.hpp"
#include "speed_cases.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("the kernel cases of a device run on the host team, where each writes all of its output") {
  std::set<std::string> names;
  for (const gpu::KernelCase& one : gpu::kernel_cases()) {
    INFO(one.name);
    CHECK(names.insert(one.name).second);
    if (names.size() % 7 != 0 && !exhaustive()) continue;
    // Cases of float32 and float16 have one of bfloat16 beside them.
    if (one.name.ends_with("float32") || one.name.ends_with("float16")) continue;
    const std::vector<std::uint8_t> output = one.output(false);
    CHECK(output.size() > 1000);
    CHECK(std::ranges::count(output, 0xA5) < static_cast<long>(output.size() / 16));
    CHECK((one.runs_on(90) || one.runs_on(100)));
  }
  CHECK(names.size() > 100);
}

TEST_CASE("of floats that may be any NaN a kernel's case compares no more, and all else bit for bit") {
  gpu::KernelMemory one(false);
  gpu::KernelMemory other(false);
  const auto a = one.out_with_any_nan(4);
  const auto b = other.out_with_any_nan(4);
  std::ranges::copy(std::vector{from_bits(0x7FFFFFFF), from_bits(0xFFC00001), 1.0F, -0.0F}, a.begin());
  std::ranges::copy(std::vector{from_bits(0x7FE08F33), from_bits(0x7F800001), 1.0F, -0.0F}, b.begin());
  CHECK(one.output() == other.output());
  b[3] = 0;
  CHECK(one.output() != other.output());
  b[3] = -0.0F;
  b[0] = 1;
  CHECK(one.output() != other.output());
}

TEST_CASE("every kernel whose speed is measured is asked for what its recipe makes") {
  for (const gpu::SpeedCase& one : gpu::speed_cases()) {
    INFO(one.name);
    // No byte of them is read or written.
    auto* const in = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
    auto* const out = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 41);
    CHECK_NOTHROW(gpu::check_call(one.call(in, out)));
    CHECK(one.out_bytes > one.in_bytes / 8);
    CHECK(one.bytes >= static_cast<double>(one.in_bytes + one.out_bytes));
  }
  CHECK(gpu::speed_cases().size() == 10);
}

}  // namespace fp8lab::tests
