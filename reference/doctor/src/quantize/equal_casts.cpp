// SPDX-License-Identifier: Apache-2.0
#include "quantize/equal_casts.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "fp8lab/reference/scaling/scale_rule.hpp"

namespace fp8lab::doctor {
namespace {

bool has_element(const Source& source, bool (*is_such)(float)) {
  const auto is_found = [&](std::uint64_t index) { return is_such(source.values()[index]); };
  return std::ranges::any_of(source.landmarks().specials, is_found);
}

/// Whether each amax is the largest magnitude of its tile, but for NaN.
bool is_of_all_elements(const AmaxKey& key) {
  return key == AmaxKey{.across = key.across, .along = key.along, .counts_nan = key.counts_nan};
}

/// Whether all products are numbers of the range of codes.
bool are_in_range(const CastOfTiles& cast, const Amaxes& amaxes) {
  if (!is_of_all_elements(amaxes.key)) return false;
  if (has_element(*cast.source, [](float x) { return std::isnan(x); })) return false;
  const float largest = largest_of(cast.format);
  std::size_t within = 0;
  // Rounding keeps the order: no product of a tile is larger than that of its amax.
  for (std::size_t i = 0; i < cast.factors.size(); ++i) {
    const auto factor = std::bit_cast<float>(cast.factors[i]);
    const float product = divides(cast.operation) ? amaxes.values[i] / factor : amaxes.values[i] * factor;
    within += std::abs(product) <= largest ? 1 : 0;
  }
  return within == cast.factors.size();
}

/// Whether no product is zero: each element is a normal number or infinite, and factors are not that small.
bool has_no_zero(const CastOfTiles& cast) {
  if (has_element(*cast.source, [](float x) { return std::abs(x) < std::numeric_limits<float>::min(); })) return false;
  constexpr float least = 0x1p-22F;  // which makes a subnormal number of the smallest normal one
  const bool is_inverse = divides(cast.operation);
  return std::ranges::all_of(cast.factors, [&](std::uint32_t bits) {
    const float factor = std::abs(std::bit_cast<float>(bits));
    return is_inverse ? factor <= 1 / least : factor >= least;
  });
}

TileOperation without_zeros(TileOperation operation) {
  return divides(operation) ? TileOperation::divide : TileOperation::multiply;
}

/// Whether to divide by it is to multiply by its inverse: by a power of two, 0 or infinity.
bool has_exact_inverse(std::uint32_t bits) {
  constexpr std::uint32_t mantissa = 0x7FFFFF;
  return (bits & mantissa) == 0;
}

}  // namespace

void simplify(CastOfTiles& cast, const Amaxes& amaxes) {
  if (are_in_range(cast, amaxes)) {
    const CastPolicy any;
    cast.cast.overflow = any.overflow;
    cast.cast.infinity = any.infinity;
    cast.cast.nan = any.nan;
    cast.cast.missing_nan = any.missing_nan;
  }
  // Elements are floats.
  cast.cast.nan_of_double = {};
  cast.cast.float64_via_float32 = false;
  if (has_no_zero(cast)) cast.operation = without_zeros(cast.operation);
  if (cast.operation != TileOperation::divide || !std::ranges::all_of(cast.factors, has_exact_inverse)) return;
  cast.operation = TileOperation::multiply;
  for (std::uint32_t& bits : cast.factors) bits = std::bit_cast<std::uint32_t>(1 / std::bit_cast<float>(bits));
}

}  // namespace fp8lab::doctor
