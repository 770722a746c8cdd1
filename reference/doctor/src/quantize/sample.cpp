// SPDX-License-Identifier: Apache-2.0
#include "quantize/sample.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "search/draw.hpp"

namespace fp8lab::doctor {
namespace {

/// Pieces of the sample that are drawn.
constexpr std::size_t drawn_pieces = 40;

/// NaN, infinity, subnormals, -0 and 0.
std::size_t special_kind(float x) {
  if (std::isnan(x)) return 0;
  if (std::isinf(x)) return 1;
  if (x != 0) return 2;
  return std::signbit(x) ? 3 : 4;
}

/// Whether some of these elements are larger than `most`, or special.
bool has_special(std::span<const float> x, float most) {
  const auto low = std::bit_cast<std::int32_t>(std::numeric_limits<float>::min());
  const auto high = std::bit_cast<std::int32_t>(std::min(most, std::numeric_limits<float>::max()));
  std::int32_t count = 0;
  for (const float one : x) {
    const std::int32_t magnitude = std::bit_cast<std::int32_t>(one) & 0x7FFFFFFF;
    count += static_cast<std::int32_t>(magnitude < low) + static_cast<std::int32_t>(magnitude > high);
  }
  return count != 0;
}

/// The indices of the element of largest magnitude, and of the first of each special kind.
std::vector<std::uint64_t> special_places(const Source& source) {
  constexpr std::uint64_t at_once = 256;
  std::vector<std::uint64_t> places(1);
  std::array<bool, 5> is_found{};
  float most = 0;
  for (std::uint64_t first = 0; first < source.size(); first += at_once) {
    const std::uint64_t last = std::min(first + at_once, std::uint64_t{source.size()});
    if (!has_special(source.values().subspan(first, last - first), most)) continue;
    for (std::uint64_t i = first; i < last; ++i) {
      const float magnitude = std::abs(source.values()[i]);
      if (magnitude > most) {
        most = magnitude;
        places.front() = i;
      }
      if (magnitude >= std::numeric_limits<float>::min() && magnitude < std::numeric_limits<float>::infinity())
        continue;
      if (!std::exchange(is_found[special_kind(source.values()[i])], true)) places.push_back(i);
    }
  }
  return places;
}

}  // namespace

Piece piece_around(const Source& source, std::uint64_t index) {
  const std::size_t column = index % source.columns() / piece_length * piece_length;
  return {index / source.columns(), column, std::min(piece_length, source.columns() - column)};
}

std::vector<Piece> first_sample(const Source& source) {
  std::vector<Piece> pieces;
  const std::uint64_t size = source.size();
  if (size <= drawn_pieces * piece_length) {
    for (std::uint64_t i = 0; i < source.rows(); ++i) {
      for (std::uint64_t c = 0; c < source.columns(); c += piece_length) {
        pieces.push_back(piece_around(source, i * source.columns() + c));
      }
    }
    return pieces;
  }
  Generator draw(1);
  for (std::size_t i = 0; i < drawn_pieces; ++i) {
    pieces.push_back(piece_around(source, (draw.word() >> 16) % size));
  }
  for (const std::uint64_t place : {std::uint64_t{0}, source.columns() - 1, size - source.columns(), size - 1}) {
    pieces.push_back(piece_around(source, place));
  }
  for (const std::uint64_t place : special_places(source)) pieces.push_back(piece_around(source, place));
  return pieces;
}

}  // namespace fp8lab::doctor
