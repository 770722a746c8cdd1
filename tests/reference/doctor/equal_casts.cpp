// SPDX-License-Identifier: Apache-2.0
// Casts that the doctor takes for equal on a tensor make the same codes of it.
#include "quantize/equal_casts.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/policy.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using doctor::CastOfTiles;

constexpr std::size_t rows_of_casts = 2;
constexpr std::size_t columns_of_casts = 32;

/// Normal numbers, all below a bound, without zeros and subnormals.
std::vector<float> plain_elements() {
  std::mt19937 random(3);
  std::normal_distribution<float> numbers;
  std::vector<float> x(rows_of_casts * columns_of_casts);
  for (float& one : x) one = std::clamp(numbers(random), -3.0F, 3.0F);
  // Quotients by 49 that are exact ties of codes.
  for (std::size_t i = 0; i < 8; ++i) x[i] = 49 * (17 + 2 * static_cast<float>(i)) * 0x1p-10F;
  x[11] = -3.5F;  // the largest magnitude, in a tile whose numbers above zero are smaller
  return x;
}

/// One cast of all elements with one factor, in each way to meet it, by each profile.
std::vector<CastOfTiles> ways_to_cast(const doctor::Source& source) {
  std::vector<CastOfTiles> all;
  // Products at the end of the range and behind it, inverses that are exact or not, products that underflow.
  for (const float factor : {128.0F, 127.0F, 200.0F, 1 / 128.0F, 49.0F, 1 / 49.0F, 0x1p-20F, 0x1p20F, 0x1p-30F, 0x1p30F,
                             0.0F, -1.0F, inf, nan, 0x1p-149F, 0x1p127F}) {
    for (const TileOperation operation : {TileOperation::multiply, TileOperation::divide,
                                          TileOperation::multiply_add_zero, TileOperation::multiply_then_add_zero,
                                          TileOperation::divide_then_add_zero, TileOperation::multiply_negative_zero}) {
      for (const Profile& profile : profiles) {
        all.push_back({&source, nullptr, rows_of_casts, columns_of_casts, operation, e4m3, profile.policy,
                       std::vector<std::uint32_t>{bits(factor)}});
      }
    }
  }
  return all;
}

float product_of(float x, float factor, TileOperation operation) {
  switch (operation) {
    case TileOperation::multiply: return x * factor;
    case TileOperation::divide: return x / factor;
    case TileOperation::multiply_add_zero: return std::fma(x, factor, 0.0F);
    case TileOperation::multiply_then_add_zero: return x * factor + 0.0F;
    case TileOperation::divide_then_add_zero: return x / factor + 0.0F;
    case TileOperation::multiply_negative_zero: return x * factor == 0 ? -0.0F : x * factor;
  }
  return nan;
}

std::vector<std::uint8_t> codes_by(const CastOfTiles& cast) {
  const auto factor = std::bit_cast<float>(cast.factors.front());
  std::vector<std::uint8_t> codes;
  for (const float x : cast.source->values()) {
    const float product = product_of(x, factor, cast.operation);
    codes.push_back(static_cast<std::uint8_t>(encode(cast.format, cast.cast, product)));
  }
  return codes;
}

/// What was simplified to one cast, and how many pairs with other recipes were.
struct SimplifiedCasts {
  std::size_t pairs = 0;
  std::size_t wrong = 0;
};

SimplifiedCasts compare_simplified(const std::vector<float>& x, bool is_signed) {
  const doctor::Source source(MatrixView(std::span<const float>(x), rows_of_casts, columns_of_casts), 1);
  doctor::Amaxes& amaxes = source.tiles({.across = 0, .along = 0, .is_signed = is_signed});
  source.complete(amaxes);
  std::vector<std::pair<CastOfTiles, std::vector<std::uint8_t>>> known;
  SimplifiedCasts found;
  for (CastOfTiles& one : ways_to_cast(source)) {
    std::vector<std::uint8_t> codes = codes_by(one);
    doctor::simplify(one, amaxes);
    for (const auto& [other, its_codes] : known) {
      if (!(other == one)) continue;
      ++found.pairs;
      if (its_codes == codes) continue;
      if (found.wrong++ == 0)
        UNSCOPED_INFO("first wrong: factor " << std::bit_cast<float>(one.factors.front()) << ", operation "
                                             << static_cast<int>(one.operation));
    }
    known.emplace_back(std::move(one), std::move(codes));
  }
  return found;
}

}  // namespace

TEST_CASE("casts that are simplified to one make the same codes, whatever the elements are") {
  const std::vector<float> plain = plain_elements();
  const SimplifiedCasts of_plain = compare_simplified(plain, false);
  CHECK(of_plain.wrong == 0);
  for (const float special :
       {0.0F, -0.0F, 0x1p-127F, -0x1p-149F, 0x1p-126F, inf, -inf, nan, std::copysign(nan, -1.0F), 10.0F, -0x1p100F}) {
    CAPTURE(special);
    std::vector<float> x = plain;
    x[40] = special;
    for (const bool is_signed : {false, true}) {
      CAPTURE(is_signed);
      const SimplifiedCasts found = compare_simplified(x, is_signed);
      CHECK(found.wrong == 0);
      CHECK(found.pairs <= of_plain.pairs);
    }
  }
  // Most of those that are equal are found, which saves comparisons.
  CHECK(of_plain.pairs > 5000);
}

}  // namespace fp8lab::tests
