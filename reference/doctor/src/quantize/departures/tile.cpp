// SPDX-License-Identifier: Apache-2.0
// Departures of the tile: which elements share a scale.
#include <array>

#include "fp8lab/reference/scaling/facts.hpp"
#include "quantize/departures/shared.hpp"

namespace fp8lab::doctor {
namespace {

/// Which tile has the element at the end of a row that moved tiles leave out: the last one where they begin early, the
/// first one where they begin late.
enum class TileEdge : std::uint8_t {
  usual,     ///< early: the element is a tile of its own; late: the first tile has it, too
  other,     ///< the other of these two
  uncounted  ///< the nearest tile has it, and its amax does not count it
};

TileEdge edge_of(const Deviation& own) { return static_cast<TileEdge>(own.place); }

void begin_early(AmaxKey& key, const Deviation& own) {
  key.shift = 1;
  key.counts_rest = edge_of(own) != TileEdge::uncounted;
  key.is_clamped = edge_of(own) != TileEdge::usual;
}

void begin_late(AmaxKey& key, const Deviation& own) {
  key.shift = -1;
  key.counts_rest = edge_of(own) != TileEdge::uncounted;
  // The first element is what is left of a tile that began before the row.
  if (edge_of(own) == TileEdge::other) key.shift += static_cast<std::ptrdiff_t>(key.along);
}

std::vector<Deviation> all_edges(const SearchCase& /*one*/) {
  std::vector<Deviation> all;
  for (const TileEdge edge : {TileEdge::usual, TileEdge::other, TileEdge::uncounted}) {
    all.push_back({.place = static_cast<std::uint64_t>(edge)});
  }
  return all;
}

void tell_early_edge(TextStream& text, const Deviation& own, const Hypothesis& /*hypothesis*/) {
  if (edge_of(own) == TileEdge::other) text << ", and the last tile has the last element, too";
  if (edge_of(own) == TileEdge::uncounted) text << ", and the last element of a row counts in no amax";
}

void tell_late_edge(TextStream& text, const Deviation& own, const Hypothesis& /*hypothesis*/) {
  if (edge_of(own) == TileEdge::other) text << ", and the first element is a tile";
  if (edge_of(own) == TileEdge::uncounted) text << ", and the first element of a row counts in no amax";
}

bool has_moved_tiles(const SearchCase& one) { return one.has_tiles(); }

/// Shapes that no recipe has.
std::vector<Deviation> rectangles(const SearchCase& one) {
  std::vector<Deviation> all;
  for (const TileShape& shape : shapes_of_as_many_tiles(one.facts())) {
    const bool is_rectangle = shape.across != 1 && shape.across != shape.along;
    if (is_rectangle) all.push_back({.place = shape.across, .last = shape.along});
  }
  return all;
}

void tell_shape(TextStream& text, const Deviation& own, const Hypothesis& /*hypothesis*/) {
  const auto put = [&](std::uint64_t length, std::string_view all) { length == 0 ? text << all : text << length; };
  text << ' ';
  put(own.place, "all rows");
  text << " x ";
  put(own.last, "all columns");
}

constexpr auto tile_table = of_stage(
    KernelStage::tile,
    std::array{
        // `place` rows and `last` columns; 0: all.
        Departure{.name = "tile_shape",
                  .words = "tiles are",
                  .cost = 1.0354,
                  .is_searched =
                      [](const SearchCase& one) { return !has_tensor_scale(one.recipe()) && !is_given(one.recipe()); },
                  .numbers = rectangles,
                  .details = tell_shape,
                  .tile =
                      [](AmaxKey& key, const Deviation& own) {
                        key.across = own.place;
                        key.along = own.last;
                      },
                  .plant = {.recipe = "compressed_tensors_block", .place = 64, .last = 128}},
        // `place` is a TileEdge.
        Departure{.name = "tile_starts_early",
                  .words = "tiles begin one element too early",
                  .cost = 1.0361,
                  .is_searched = has_moved_tiles,
                  .numbers = all_edges,
                  .details = tell_early_edge,
                  .tile = begin_early},
        Departure{.name = "tile_starts_late",
                  .words = "tiles begin one element too late",
                  .cost = 1.0368,
                  .is_searched = has_moved_tiles,
                  .numbers = all_edges,
                  .details = tell_late_edge,
                  .tile = begin_late},
    });

}  // namespace

std::span<const Departure> tile_departures() { return tile_table; }

}  // namespace fp8lab::doctor
