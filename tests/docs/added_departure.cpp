// SPDX-License-Identifier: Apache-2.0
// The departure of docs/add_a_departure.md, compiled with the page's step applied to a copy of the file.
#include <algorithm>
#include <cmath>

#include "fp8lab/doctor/diagnose.hpp"
#include "fp8lab/formats/encode.hpp"
#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("docs: an added departure is named where a kernel has it") {
  constexpr std::size_t rows = 64;
  constexpr std::size_t columns = 256;
  constexpr std::size_t group = 128;
  std::vector<float> x(rows * columns);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint64_t bits = random_bits(7, i);
    x[i] = std::ldexp(static_cast<float>(bits & 0xFFFFFF) * 0x1p-23F - 1, -static_cast<int>(bits >> 32 & 15));
  }
  // 1. A kernel: groups of 128 in a row with scales amax / 448, where nothing becomes zero.
  std::vector<std::uint8_t> codes(x.size());
  std::vector<float> scales;
  for (std::size_t first = 0; first < x.size(); first += group) {
    float amax = 0;
    for (std::size_t i = first; i < first + group; ++i) amax = std::max(amax, std::abs(x[i]));
    scales.push_back(amax / 448);
    for (std::size_t i = first; i < first + group; ++i) {
      codes[i] = static_cast<std::uint8_t>(encode(e4m3, {}, x[i] / scales.back()));
      if ((codes[i] & 0x7F) == 0 && x[i] != 0) codes[i] |= 1;
    }
  }
  // 2. The doctor.
  const doctor::Dump dump{
      .codes = codes, .format = e4m3, .scales = {.format = binary32, .bytes = std::as_bytes(std::span(scales))}};
  const doctor::Diagnosis found = doctor::diagnose({x, rows, columns}, dump);
  const doctor::Hypothesis& first = found.explanations.front().hypothesis;
  INFO(found.verdict);
  CHECK(found.explained());
  CHECK_FALSE(found.correct());
  REQUIRE(first.deviations.size() == 1);
  CHECK(first.deviations.front().name() == "underflow_is_least");
  CHECK(found.verdict.find("what is too small becomes the smallest number instead of zero") != std::string::npos);
}

}  // namespace fp8lab::tests
