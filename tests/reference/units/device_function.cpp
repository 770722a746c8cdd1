// SPDX-License-Identifier: Apache-2.0
// CUDA's functions: what C++ adds to tests/python/test_device_functions.py, which holds them to a device and to
// libdevice.
#include "fp8lab/reference/units/device_function.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

namespace fp8lab::tests {
namespace {

std::uint32_t device_word_of(DeviceFunction function, std::uint32_t x, const DeviceBuild& build = {}) {
  const std::vector<float> given{std::bit_cast<float>(x)};
  const std::vector<float> second(has_two_arguments(function) ? 1 : 0, 1.0F);
  std::vector<float> out(1);
  device_function(function, build, given, second, out);
  return std::bit_cast<std::uint32_t>(out[0]);
}

}  // namespace

TEST_CASE("device functions: every NaN is one word, under all flags") {
  for (const auto& function : device_functions) {
    for (const DeviceFlags& flags :
         {DeviceFlags{}, DeviceFlags{.ftz = true}, DeviceFlags{.prec_div = false, .prec_sqrt = false},
          DeviceFlags{.fast_math = true}}) {
      INFO(function.name);
      for (const std::uint32_t nan : {0x7F800001U, 0xFFC00000U}) {
        CHECK(device_word_of(function.value, nan, {.flags = flags}) == 0x7FFFFFFFU);
      }
    }
  }
}

TEST_CASE("device functions: a result below the normal numbers is flushed where the code was compiled so") {
  constexpr std::uint32_t x = 0xC2B00000;  // -88
  CHECK(device_word_of(DeviceFunction::expf, x) == 0x0041EDC4U);
  CHECK(device_word_of(DeviceFunction::expf, x, {.flags = {.ftz = true}}) == 0);
  CHECK(device_word_of(DeviceFunction::expf, x, {.flags = {.fast_math = true}}) == 0);
  CHECK(device_word_of(DeviceFunction::divide, 1) == 1);
  CHECK(device_word_of(DeviceFunction::divide, 1, {.flags = {.ftz = true}}) == 0);
}

TEST_CASE("device functions: a chip's units are known or given") {
  CHECK_THROWS_WITH(device_word_of(DeviceFunction::expf, 0, {.chip = DeviceChip::sm_100}),
                    "the special function unit of sm_100 is not known; units of correctly_rounded stand in");
  CHECK_THROWS_WITH(device_word_of(DeviceFunction::expf, 0, {.chip = DeviceChip::sm_80, .units = SpecialUnits::hopper}),
                    "units are hopper, which are not those of sm_80");
  CHECK(device_word_of(DeviceFunction::expf, 0,
                       {.chip = DeviceChip::sm_80, .units = SpecialUnits::correctly_rounded}) == 0x3F800000U);
}

}  // namespace fp8lab::tests
