// SPDX-License-Identifier: Apache-2.0
// What Hopper's special function unit computes, against the digests that an H200 made of all of its results
// (tests/vectors/device/README.md). Words of some binades are compared in tests/python/test_device_units.py.
#include "fp8lab/reference/units/special_function.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support.hpp"

namespace fp8lab::tests {
namespace {

constexpr std::uint64_t chunk_size = 1U << 24;

/// The summand of a digest, as gpu/recorder/digest.hpp has it.
std::uint64_t digest_term(std::uint64_t index, std::uint64_t word) {
  const auto mixed = [](std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  };
  return mixed(mixed(index + 0x9E3779B97F4A7C15U) ^ (word * 0xD1B54A32D192ED03U));
}

/// The digests of a device: a line for each function, its name, 1 with .ftz, and 256 digests.
struct DeviceDigests {
  std::string name;
  Subnormals subnormals;
  std::vector<std::uint64_t> digests;
};
std::vector<DeviceDigests> device_digests() {
  std::ifstream file(FP8LAB_VECTORS "/device/h200_units_digests.txt");
  std::vector<DeviceDigests> all;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    DeviceDigests one{};
    int flushed = 0;
    words >> one.name >> flushed >> std::hex;
    one.subnormals = flushed == 1 ? Subnormals::flushed : Subnormals::kept;
    for (std::uint64_t digest = 0; words >> digest;) one.digests.push_back(digest);
    all.push_back(one);
  }
  return all;
}

std::uint64_t digest_of_model(SpecialFunction function, Subnormals subnormals, std::uint64_t number) {
  std::vector<float> x(chunk_size);
  for (std::uint64_t i = 0; i < chunk_size; ++i)
    x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(number * chunk_size + i));
  apply_special_function(SpecialUnits::hopper, function, subnormals, x, x, 2);
  std::uint64_t digest = 0;
  for (std::uint64_t i = 0; i < chunk_size; ++i) {
    digest += digest_term(number * chunk_size + i, std::bit_cast<std::uint32_t>(x[i]));
  }
  return digest;
}

std::uint32_t special_word_of(SpecialFunction function, Subnormals subnormals, std::uint32_t x) {
  return std::bit_cast<std::uint32_t>(special_function(function, subnormals, std::bit_cast<float>(x)));
}

}  // namespace

TEST_CASE("special functions: an H200's digests of all inputs") {
  const auto all = device_digests();
  REQUIRE(all.size() == 14);
  for (const DeviceDigests& one : all) {
    REQUIRE(one.digests.size() == 256);
    const auto function = find_value<SpecialFunction>("name", one.name);
    for (std::uint64_t number = 0; number < 256; ++number) {
      const bool sampled = number == 0 && function == SpecialFunction::rcp && one.subnormals == Subnormals::kept;
      if (!exhaustive() && (!sampled || sanitized)) continue;
      INFO(one.name << " chunk " << number);
      CHECK(digest_of_model(function, one.subnormals, number) == one.digests[number]);
    }
  }
}

TEST_CASE("special functions: special values, as the PTX ISA has them") {
  constexpr std::uint32_t minus = 0x80000000U;
  constexpr std::uint32_t infinite = 0x7F800000U;
  constexpr std::uint32_t no_number = 0x7FFFFFFFU;
  struct Row {
    SpecialFunction function;
    std::uint32_t of_minus_infinity, of_minus_one, of_minus_zero, of_zero, of_one, of_infinity;
  };
  constexpr std::uint32_t one = 0x3F800000U;
  for (const Row& row :
       {Row{SpecialFunction::rcp, minus, minus | one, minus | infinite, infinite, one, 0},
        Row{SpecialFunction::rsqrt, no_number, no_number, minus | infinite, infinite, one, 0},
        Row{SpecialFunction::sqrt, no_number, no_number, minus, 0, one, infinite},
        Row{SpecialFunction::lg2, no_number, no_number, minus | infinite, minus | infinite, 0, infinite},
        Row{SpecialFunction::ex2, 0, 0x3F000000, one, one, 0x40000000, infinite},
        Row{SpecialFunction::sin, no_number, 0xBF576AA3, minus, 0, 0x3F576AA3, no_number},
        Row{SpecialFunction::cos, no_number, 0x3F0A5141, one, one, 0x3F0A5141, no_number}}) {
    for (const Subnormals subnormals : {Subnormals::kept, Subnormals::flushed}) {
      CHECK(special_word_of(row.function, subnormals, minus | infinite) == row.of_minus_infinity);
      CHECK(special_word_of(row.function, subnormals, minus | one) == row.of_minus_one);
      CHECK(special_word_of(row.function, subnormals, minus) == row.of_minus_zero);
      CHECK(special_word_of(row.function, subnormals, 0) == row.of_zero);
      CHECK(special_word_of(row.function, subnormals, one) == row.of_one);
      CHECK(special_word_of(row.function, subnormals, infinite) == row.of_infinity);
      for (const std::uint32_t x : {0x7F800001U, 0x7FC00000U, 0xFFFFFFFFU})
        CHECK(special_word_of(row.function, subnormals, x) == no_number);
    }
    CHECK(special_word_of(row.function, Subnormals::flushed, 0x007FFFFF) == row.of_zero);
    CHECK(special_word_of(row.function, Subnormals::flushed, 0x807FFFFF) == row.of_minus_zero);
  }
}

TEST_CASE("special functions: arrays that do not fit are refused") {
  const std::vector<float> x(4);
  std::vector<float> out(3);
  CHECK_THROWS_WITH(apply_special_function(SpecialUnits::hopper, SpecialFunction::rcp, Subnormals::kept, x, out),
                    "out must have 4 elements, not 3");
}

}  // namespace fp8lab::tests
