// SPDX-License-Identifier: Apache-2.0
#include "quantize/sample.hpp"

#include <algorithm>
#include <cstdint>

#include "search/draw.hpp"

namespace fp8lab::doctor {
namespace {

/// Pieces of the sample that are drawn.
constexpr std::size_t drawn_pieces = 40;

/// The indices of the element of largest magnitude, and of the first of each special kind.
std::vector<std::uint64_t> special_places(const Source& source) {
  const auto& [records, specials] = source.landmarks();
  std::vector<std::uint64_t> places{records.empty() ? 0 : records.back()};
  places.insert(places.end(), specials.begin(), specials.end());
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
