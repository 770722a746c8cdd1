// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fp8lab/gpu/kernels/hadamard_run.hpp"
#include "fp8lab/gpu/kernels/scale_maker.hpp"

namespace fp8lab::gpu {

/// A direction of QuantizeTile.
struct TileDirection {
  bool wanted = false;
  std::uint8_t* codes = nullptr;
  ScaleStore store;
  const float* amax = nullptr;  ///< of the tensor, turned where its columns are
  unsigned tile_rows = 1;       ///< of x, that share a scale: 1, 16, 32 or 128
  unsigned tile_columns = 1;
  bool replicated = false;  ///< a square tile's scale stands for each of its rows (columnwise: columns)
};

/// Both directions of a tensor, or one, from one read: a block takes 128 x 128 elements, of whole tiles, to shared
/// memory, where runs of rows and of columns are read alike; through it go the codes of the transpose, too.
///
/// Bound: reads 4 or 2 bytes an element and writes 1 (E2M1: 1/2) for each direction, and the scales.
template <typename Source, typename Rule>
struct QuantizeTile {
  static constexpr unsigned threads = std::is_same_v<Rule, TeNvFp4Recipe> ? 256 : 512;  // a turned run takes registers
  static constexpr unsigned side = 128;                                                 // of a block's elements
  static constexpr unsigned across = side / run_length;                                 // runs side by side
  static constexpr unsigned runs = side * across / threads;                             // of a thread, in a direction
  static constexpr unsigned most_tiles = side * across;                                 // of a block, in a direction
  static constexpr unsigned pieces = side / per_load<Source>;                           // of 16 bytes, in a row
  struct Shared {
    alignas(16) std::uint32_t values[side * side / Run<Source>::per_word];  // NOLINT(modernize-avoid-c-arrays)
    alignas(16) std::uint32_t codes[side * side / 4];  // NOLINT(modernize-avoid-c-arrays): of the transpose
    std::uint32_t tiles[2 * most_tiles];  // NOLINT(modernize-avoid-c-arrays): amaxes, then factors; rowwise first
    ScaleConstants constants[2];          // NOLINT(modernize-avoid-c-arrays)
    float factor;                         // of the tensor
  };

  const Source* x;
  std::size_t rows, columns;
  ScaleMaker<Rule> scales;
  TileDirection rowwise, columnwise;
  bool uniform;                ///< one scale for the tensor
  bool transposed;             ///< columnwise codes are those of the transpose
  std::uint64_t seed, offset;  ///< of Philox, where the rule is stochastic
  std::uint32_t* raised_amax;  ///< is raised to the amax of the tensor, as float32 bits; null: it is not taken
  std::uint32_t* also_raised_amax = nullptr;  ///< another, where raised_amax is one
  bool amax_alone = false;                    ///< nothing but that is made, of columns as they are turned

  [[nodiscard]] std::size_t blocks() const { return ceil_div(rows, side) * ceil_div(columns, side); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& shared) const {
    const std::size_t wide = ceil_div(columns, side);
    const Corner corner{block / wide * side, block % wide * side};
    take_elements(team, corner, shared);
    if (!uniform || raised_amax != nullptr) take_amaxes(team, shared);
    if (amax_alone) return;
    make_scales(team, corner, shared);
    put_codes(team, corner, shared);
    if (columnwise.wanted && transposed) put_transposed(team, corner, shared);
  }

 private:
  /// The block's first element.
  struct Corner {
    std::size_t row, column;
  };
  /// Sixteen elements of the block that lie side by side, or below one another: where they begin.
  struct Place {
    unsigned row, column;
  };
  static FP8LAB_HD Place row_run(unsigned run) { return {run / across, run % across * run_length}; }
  static FP8LAB_HD Place column_run(unsigned run) { return {run / side * run_length, run % side}; }

  /// The runs of a thread in the directions that are wanted: body(by_row, place).
  template <typename Body>
  FP8LAB_HD void for_runs(std::size_t thread, const Body& body) const {
    const unsigned last = columnwise.wanted ? 2 * runs : runs;
#ifdef __CUDACC__
#pragma unroll 1  // the body is long
#endif
    for (unsigned k = rowwise.wanted ? 0 : runs; k < last; ++k) {
      const bool by_row = k < runs;
      const auto run = static_cast<unsigned>(std::size_t{k % runs} * threads + thread);
      body(by_row, by_row ? row_run(run) : column_run(run));
    }
  }
  /// The tile of that element, among those of the block.
  [[nodiscard]] FP8LAB_HD unsigned tile_of(bool by_row, Place place) const {
    const TileDirection& own = by_row ? rowwise : columnwise;
    const unsigned tile = place.row / own.tile_rows * (side / own.tile_columns) + place.column / own.tile_columns;
    return by_row ? tile : most_tiles + tile;
  }
  /// The word of shared memory where a piece of 16 bytes begins that lies in that row and column: pieces change places
  /// so that neither the threads of a row nor those of a column meet in a bank.
  static FP8LAB_HD unsigned piece_place(unsigned row, unsigned column) {
    const unsigned piece = row * pieces + column / per_load<Source>;
    return (piece ^ (piece >> 3 & 7U)) * 4;
  }
  /// Finds the place for a run of codes of the transpose.
  static FP8LAB_HD unsigned code_place(Place place) {
    return (place.column * across + (place.row / run_length ^ place.column % across)) * 4;
  }

  /// 1. The elements go to shared memory, amaxes are zero, and a thread makes what all tiles need.
  template <typename Team>
  FP8LAB_HD void take_elements(const Team& team, Corner corner, Shared& shared) const {
    const bool aligned = is_aligned<per_load<Source>>(x) && columns % per_load<Source> == 0;
    team.for_each_thread([&](std::size_t t) {
      for (unsigned k = 0; k < runs; ++k) {
        const Place place = row_run(static_cast<unsigned>(std::size_t{k} * threads + t));
        const std::size_t row = corner.row + place.row;
        const std::size_t column = corner.column + place.column;
        const std::size_t valid = row < rows && column < columns ? columns - column : 0;
        const Run<Source> run = load_run(valid == 0 ? x : x + row * columns + column, valid, aligned);
        unrolled<run_length / per_load<Source>>([&](unsigned i) {
          const Vector<std::uint32_t, 4> words{run.words[4 * i], run.words[4 * i + 1], run.words[4 * i + 2],
                                               run.words[4 * i + 3]};
          gpu::store(words, &shared.values[piece_place(place.row, place.column + i * per_load<Source>)]);
        });
      }
      for (std::size_t i = t; i < std::size_t{2} * most_tiles && !uniform; i += threads) shared.tiles[i] = 0;
      if (t < 2 && !uniform && !amax_alone) {
        ScaleMaker<Rule> own = scales;
        own.amax = t == 0 ? rowwise.amax : columnwise.amax;
        if ((t == 0 ? rowwise : columnwise).wanted) shared.constants[t] = own.known_constants();
      }
    });
  }

  /// An element with its sign, which the conversion of a NaN drops.
  static FP8LAB_HD std::uint32_t bits_of(Source element) {
    const auto bits = std::bit_cast<std::uint32_t>(ptx::float_of(element));
    if constexpr (std::is_same_v<Source, Half>) {
      return bits | (element.bits & 0x8000U) << 16;
    } else {
      return bits;
    }
  }
  /// A run of a row, as floats.
  static FP8LAB_HD Run<float> row_values(const Shared& shared, Place place) {
    Run<Source> own;
    unrolled<run_length / per_load<Source>>([&](unsigned i) {
      const auto words = load<4>(&shared.values[piece_place(place.row, place.column + i * per_load<Source>)]);
      unrolled<4>([&](unsigned k) { own.words[4 * i + k] = words[k]; });
    });
    Run<float> run;
    unrolled<run_length>([&](unsigned i) { run.words[i] = bits_of(own[i]); });
    return run;
  }
  /// A run of a column, as floats, turned where the recipe turns them.
  [[nodiscard]] FP8LAB_HD Run<float> column_values(const Shared& shared, Place place) const {
    const unsigned within = place.column % per_load<Source>;  // its piece
    Run<float> run;
    unrolled<run_length>([&](unsigned i) {
      const std::uint32_t word =
          shared.values[piece_place(place.row + i, place.column) + within / Run<Source>::per_word];
      Run<Source> own{};
      own.words[0] = word >> (within % Run<Source>::per_word * 16);
      run.words[i] = bits_of(own[0]);
    });
    const Transform transform = scales.rule.recipe().transform;
    if (transform != Transform::none) turn_run(run, transform == Transform::hadamard_columnwise_bfloat16);
    return run;
  }
  [[nodiscard]] FP8LAB_HD Run<float> values_of(const Shared& shared, bool by_row, Place place) const {
    return by_row ? row_values(shared, place) : column_values(shared, place);
  }

  /// 2. The amaxes of tiles, and of the tensor.
  template <typename Team>
  FP8LAB_HD void take_amaxes(const Team& team, Shared& shared) const {
    const NanInAmax nan = scales.rule.recipe().nan_in_amax;
    auto largest = team.template each<std::uint32_t>();
    team.for_each_thread([&](std::size_t t) {
      for_runs(t, [&](bool by_row, Place place) {
        const std::uint32_t amax = amax_of_run(nan, values_of(shared, by_row, place));
        if (!uniform) atomic_max(&shared.tiles[tile_of(by_row, place)], amax);
        largest[t] = largest[t] < amax ? amax : largest[t];
      });
    });
    if (raised_amax == nullptr) return;
    const std::uint32_t most = team.max(largest);
    team.for_each(1, [&](std::size_t) {
      atomic_max(raised_amax, most);
      if (also_raised_amax != nullptr) atomic_max(also_raised_amax, most);
    });
  }

  /// 3. Scales: the amax of each tile makes room for its factor.
  template <typename Team>
  FP8LAB_HD void make_scales(const Team& team, Corner corner, Shared& shared) const {
    if (uniform) {
      team.for_each(1, [&](std::size_t) {
        const TileScale scale = scales.of_tensor();
        shared.factor = scale.factor;
        if (corner.row != 0 || corner.column != 0) return;
        if (rowwise.wanted) rowwise.store.put(0, scale);
        if (columnwise.wanted) columnwise.store.put(0, scale);
      });
      return;
    }
    team.for_each(std::size_t{2} * most_tiles, [&](std::size_t i) {
      const bool by_row = i < most_tiles;
      const TileDirection& own = by_row ? rowwise : columnwise;
      const auto tile = static_cast<unsigned>(i % most_tiles);
      const unsigned wide = side / own.tile_columns;
      const std::size_t row = corner.row + std::size_t{tile / wide} * own.tile_rows;
      const std::size_t column = corner.column + std::size_t{tile % wide} * own.tile_columns;
      if (!own.wanted || tile / wide * own.tile_rows >= side || row >= rows || column >= columns) return;
      const TileScale scale =
          scale_of_rule(scales.rule, shared.constants[by_row ? 0 : 1], std::bit_cast<float>(shared.tiles[i]));
      shared.tiles[i] = std::bit_cast<std::uint32_t>(scale.factor);
      put_scale(own, by_row, row, column, scale);
    });
  }
  FP8LAB_HD void put_scale(const TileDirection& own, bool by_row, std::size_t row, std::size_t column,
                           const TileScale& scale) const {
    const std::size_t first = by_row ? row : column;  // across K
    const unsigned tall = by_row ? own.tile_rows : own.tile_columns;
    const std::size_t block = by_row ? column / own.tile_columns : row / own.tile_rows;
    // Columnwise scales stand as the codes do; swizzled, always as those of the transpose.
    const bool lines = by_row || transposed || own.store.swizzled;
    const std::size_t size = by_row ? rows : columns;
    for (unsigned i = 0; i < (own.replicated ? tall : 1) && first + i < size; ++i) {
      const std::size_t line = own.replicated ? first + i : first / tall;
      own.store.put(lines ? own.store.place(line, block) : own.store.place(block, line), scale);
    }
  }

  /// 4. Codes, those of the transpose to shared memory.
  template <typename Team>
  FP8LAB_HD void put_codes(const Team& team, Corner corner, Shared& shared) const {
    const ElementRule rule = scales.rule.element();
    team.for_each_thread([&](std::size_t t) {
      for_runs(t, [&](bool by_row, Place place) {
        const std::size_t row = corner.row + place.row;
        const std::size_t column = corner.column + place.column;
        if (row >= rows || column >= columns) return;
        const float factor = uniform ? shared.factor : std::bit_cast<float>(shared.tiles[tile_of(by_row, place)]);
        const std::size_t at = by_row ? row * columns + column : column * rows + row;
        const RunRandom random = rule.stochastic ? random_of_run(seed, offset, at / run_length) : RunRandom{};
        const RunCodes codes = codes_of_run(rule, values_of(shared, by_row, place), factor, random);
        if (by_row) {
          put_run(codes, rowwise.codes, at, columns, columns - column);
        } else if (transposed) {
          gpu::store(Vector<std::uint32_t, 4>{codes.words[0], codes.words[1], codes.words[2], codes.words[3]},
                     &shared.codes[code_place(place)]);
        } else {
          put_column(codes, row, column);
        }
      });
    });
  }
  /// Codes of a run that begins at code `at`, in rows of `width` codes; `valid` of them exist.
  FP8LAB_HD void put_run(const RunCodes& codes, std::uint8_t* to, std::size_t at, std::size_t width,
                         std::size_t valid) const {
    const bool whole = width % run_length == 0;
    if (scales.rule.element().format == CodeFormat::e2m1) {
      store_pairs(codes, to + at / 2, valid, whole && is_aligned<run_length / 2>(to));
    } else {
      store_codes(codes, to + at, valid, whole && is_aligned<run_length>(to));
    }
  }
  /// Codes of x's own layout: threads that lie side by side write side by side.
  FP8LAB_HD void put_column(const RunCodes& codes, std::size_t row, std::size_t column) const {
    unrolled<run_length>([&](unsigned i) {
      if (row + i >= rows) return;
      columnwise.codes[(row + i) * columns + column] = static_cast<std::uint8_t>(codes.words[i / 4] >> (i % 4 * 8));
    });
  }
  /// 5. Codes of the transpose, in its rows.
  template <typename Team>
  FP8LAB_HD void put_transposed(const Team& team, Corner corner, const Shared& shared) const {
    team.for_each_thread([&](std::size_t t) {
      for (unsigned k = 0; k < runs; ++k) {
        const Place turned = row_run(static_cast<unsigned>(std::size_t{k} * threads + t));  // of the transpose
        const Place place{turned.column, turned.row};
        const std::size_t row = corner.row + place.row;
        const std::size_t column = corner.column + place.column;
        if (row >= rows || column >= columns) continue;
        const auto words = load<4>(&shared.codes[code_place(place)]);
        put_run({{words[0], words[1], words[2], words[3]}}, columnwise.codes, column * rows + row, rows, rows - row);
      }
    });
  }
};

}  // namespace fp8lab::gpu
