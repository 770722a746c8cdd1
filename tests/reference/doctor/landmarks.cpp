// SPDX-License-Identifier: Apache-2.0
// Parts of the doctor that are written for speed, beside loops that say the same in few words.
#include "quantize/landmarks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "catch.hpp"
#include "quantize/differing.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using doctor::DifferingBytes;
using doctor::Landmarks;

/// What std::fpclassify says, with the sign of a zero.
int class_of(float x) { return std::fpclassify(x) == FP_ZERO && std::signbit(x) ? -1 : std::fpclassify(x); }

Landmarks landmarks_one_by_one(const std::vector<float>& x) {
  Landmarks all;
  std::set<int> seen{FP_NORMAL};
  float most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::fabs(x[i]) > most) {
      all.records.push_back(i);
      most = std::fabs(x[i]);
    }
    if (seen.insert(class_of(x[i])).second) all.specials.push_back(i);
  }
  return all;
}

DifferingBytes differing_one_by_one(const std::vector<std::uint8_t>& stored, const std::vector<std::uint8_t>& codes,
                                    const std::vector<std::uint8_t>& others, std::uint8_t sign) {
  DifferingBytes count;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (stored[i] == codes[i] || stored[i] == others[i]) continue;
    ++count.all;
    count.in_sign += (stored[i] ^ codes[i]) == sign ? 1 : 0;
  }
  return count;
}

TEST_CASE("landmarks are those of a loop over all elements, on any number of threads") {
  constexpr std::array specials{0.0F, -0.0F, 0x1p-140F, inf, -inf, nan};
  std::mt19937 random(5);
  std::normal_distribution<float> numbers;
  for (const std::size_t size : {std::size_t{1}, std::size_t{255}, std::size_t{257}, (std::size_t{3} << 20) + 7}) {
    for (int round = 0; round < 4; ++round) {
      std::vector<float> x(size);
      // Rounds 1 to 3 have few special elements, of which some lie in other parts than the first.
      std::ranges::generate(x, [&] { return numbers(random); });
      for (int i = 0; i < 9 * round; ++i) x[random() % size] = specials[random() % specials.size()];
      if (round == 3) std::ranges::reverse(x);
      const Landmarks expected = landmarks_one_by_one(x);
      for (const int threads : {1, 3}) {
        const Landmarks found = doctor::landmarks_of(x, threads);
        CHECK(found.records == expected.records);
        CHECK(found.specials == expected.specials);
      }
    }
  }
}

TEST_CASE("bytes that differ are counted as one by one") {
  std::mt19937 random(6);
  for (const std::size_t size : {0, 1, 7, 8, 9, 63, 64, 2039, 2040, 2041, 5000}) {
    for (const std::uint32_t values : {2U, 16U, 256U}) {
      const auto draw = [&] {
        std::vector<std::uint8_t> bytes(size);
        // Few values, so that many are equal, with a sign.
        for (std::uint8_t& one : bytes) {
          one = static_cast<std::uint8_t>(random() % values | (random() % 2) << 7U);
        }
        return bytes;
      };
      const std::vector<std::uint8_t> stored = draw();
      const std::vector<std::uint8_t> codes = draw();
      const std::vector<std::uint8_t> others = draw();
      for (const auto& second : {codes, others}) {
        for (const std::uint8_t sign : {std::uint8_t{0x80}, std::uint8_t{0x08}}) {
          const DifferingBytes expected = differing_one_by_one(stored, codes, second, sign);
          const DifferingBytes found = doctor::differing_bytes(stored.data(), codes, second.data(), sign);
          CHECK(found.all == expected.all);
          CHECK(found.in_sign == expected.in_sign);
        }
      }
    }
  }
}

}  // namespace
}  // namespace fp8lab::tests
