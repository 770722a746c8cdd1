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
  unsigned rows_log2 = 0;       ///< of the rows of x that share a scale: 1, 16, 32 or 128
  unsigned columns_log2 = 0;
  bool replicated = false;  ///< a square tile's scale stands for each of its rows (columnwise: columns)
};

/// The elements of the smallest tile of a rule.
template <typename Rule>
inline constexpr unsigned least_tile = 16;
template <>
inline constexpr unsigned least_tile<GivenRecipe> = 128 * 128;  // one scale for the tensor
template <>
inline constexpr unsigned least_tile<TeMxRecipe> = 32;
template <>
inline constexpr unsigned least_tile<TeBlockRecipe> = 128;

/// Both directions of a tensor, or one, from one read: a block takes 128 x 128 elements, of whole tiles, to shared
/// memory. Threads take runs of a row from there, and strips: 16 rows of one word, which has 2 columns of 16 bits.
/// Columnwise codes go back to shared memory, so that they are stored 16 bytes at a time, too, turned or not.
///
/// With kUniform the tensor has one scale, and its amax may be taken.
///
/// Bound: reads 4 or 2 bytes an element and writes 1 (E2M1: 1/2) for each direction, and the scales.
template <typename Source, typename Rule, bool kUniform = false>
struct QuantizeTile {
  static constexpr unsigned threads = 256;
  static constexpr unsigned side = 128;                        // of a block's elements
  static constexpr unsigned across = side / run_length;        // runs side by side
  static constexpr unsigned runs = side * across / threads;    // of a thread
  static constexpr unsigned pieces = side / per_load<Source>;  // of 16 bytes, in a row
  static constexpr unsigned per_word = Run<Source>::per_word;
  static constexpr unsigned words = side / per_word;                                     // of a row
  static constexpr unsigned strips = words * (side / run_length) / threads;              // of a thread
  static constexpr unsigned most_tiles = kUniform ? 1 : side * side / least_tile<Rule>;  // of a block, in a direction
  /// The blocks of a multiprocessor. A fourth has room, too, but leaves each thread 64 registers, and was slower on
  /// Hopper.
  static constexpr unsigned least_blocks = sizeof(Source) == 4 || least_tile<Rule> == 16 ? 2 : 3;
  struct Shared {
    alignas(16) std::uint32_t values[side * words];    // NOLINT(modernize-avoid-c-arrays)
    alignas(16) std::uint32_t codes[side * side / 4];  // NOLINT(modernize-avoid-c-arrays): columnwise
    std::uint32_t tiles[2 * most_tiles];  // NOLINT(modernize-avoid-c-arrays): amaxes, then factors; rowwise first
    ScaleConstants constants[2];          // NOLINT(modernize-avoid-c-arrays)
    float factor;                         // of the tensor
  };

  const Source* x;
  std::size_t rows, columns;
  ScaleMaker<Rule> scales;
  TileDirection rowwise, columnwise;
  bool transposed;             ///< columnwise codes are those of the transpose
  std::uint64_t seed, offset;  ///< of Philox, where the rule is stochastic
  std::uint32_t* raised_amax;  ///< is raised to the amax of the tensor, as float32 bits; null: it is not taken
  std::uint32_t* also_raised_amax = nullptr;  ///< another, where raised_amax is one
  bool amax_alone = false;                    ///< nothing but that is made, of columns as they are turned

  [[nodiscard]] std::size_t blocks() const { return ceil_div(rows, side) * ceil_div(columns, side); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& shared) const {
    const std::size_t wide = ceil_div(columns, side);
    const std::size_t row = block / wide * side;
    const std::size_t column = block % wide * side;
    const Corner corner{row, column, rows - row < side ? static_cast<unsigned>(rows - row) : side,
                        columns - column < side ? static_cast<unsigned>(columns - column) : side};
    auto amaxes = team.template each<Vector<std::uint32_t, runs>>();
    auto largest = team.template each<std::uint32_t>();
    take_elements(team, corner, shared, amaxes, largest);
    if constexpr (!kUniform) take_amaxes(team, shared, amaxes, largest);
    if ((kUniform || turns()) && raised_amax != nullptr) raise_amax(team, largest);
    if (is_amax_alone()) return;
    if constexpr (!kUniform) make_scales(team, corner, shared);
    put_codes(team, corner, shared);
    if (columnwise.wanted) put_columns(team, corner, shared);
  }

 private:
  /// An element of the block, where a run or a strip begins.
  struct Place {
    unsigned row, column;
  };
  /// The block's first element, and how many rows and columns it has.
  struct Corner {
    std::size_t row, column;
    unsigned rows, columns;

    [[nodiscard]] FP8LAB_HD bool has(Place place) const { return place.row < rows && place.column < columns; }
  };
  /// Run k of a thread.
  static FP8LAB_HD Place row_run(unsigned k, unsigned thread) {
    return {k * (threads / across) + thread / across, thread % across * run_length};
  }
  /// Strip k of a thread.
  static FP8LAB_HD Place strip_place(unsigned k, unsigned thread) {
    static_assert(threads % words == 0);
    return {(k * (threads / words) + thread / words) * run_length, thread % words * per_word};
  }
  /// The tile of that element, among those of the block.
  [[nodiscard]] FP8LAB_HD unsigned tile_of(bool by_row, Place place) const {
    const TileDirection& own = by_row ? rowwise : columnwise;
    const unsigned tile =
        (place.row >> own.rows_log2) * (side >> own.columns_log2) + (place.column >> own.columns_log2);
    return by_row ? tile : most_tiles + tile;
  }
  /// The word of shared memory where a piece of 16 bytes begins that lies in that row and column: pieces change places
  /// so that neither the threads of a row nor those of a column meet in a bank.
  static FP8LAB_HD unsigned piece_place(unsigned row, unsigned column) {
    const unsigned piece = column / per_load<Source>;
    return (row * pieces + (piece ^ ((row * (pieces / 8) + piece / 8) & 7U))) * 4;
  }
  /// Finds the place for a run of codes of the transpose: those of a row, and of columns of lanes side by side, lie in
  /// different banks.
  static FP8LAB_HD unsigned code_place(Place place) {
    return (place.column * across + (place.row / run_length ^ place.column / per_word % across)) * 4;
  }

  /// 1. The elements go to shared memory, amaxes of tiles are zero, and a thread makes what all tiles need.
  template <typename Team, typename Amaxes, typename Amax>
  FP8LAB_HD void take_elements(const Team& team, Corner corner, Shared& shared, Amaxes& amaxes, Amax& largest) const {
    const bool aligned = is_aligned<per_load<Source>>(x) && columns % per_load<Source> == 0;
    const bool whole = aligned && corner.rows == side && corner.columns == side;
    team.for_each_thread([&](std::size_t t) {
      const auto thread = static_cast<unsigned>(t);
      if (whole) {
        Vector<Run<Source>, runs> own;  // all loads begin before the first is waited for
        const Source* from = x + at(corner, row_run(0, thread));
        unrolled<runs>([&](unsigned k) {
          // NOLINTNEXTLINE(bugprone-implicit-widening-of-multiplication-result): they fit
          own[k] = load_run(from + k * (threads / across) * columns, run_length, true);
        });
        make_constants(corner, thread, shared);
        unrolled<runs>([&](unsigned k) { put_values(shared, row_run(k, thread), own[k]); });
      } else {
        make_constants(corner, thread, shared);
        for (unsigned k = 0; k < runs; ++k) {
          const Place place = row_run(k, thread);
          const unsigned valid = corner.has(place) ? corner.columns - place.column : 0;
          put_values(shared, place, load_run(valid == 0 ? x : x + at(corner, place), valid, aligned));
        }
      }
      if constexpr (!kUniform) {
        for (unsigned i = thread; i < 2 * most_tiles; i += threads) shared.tiles[i] = 0;
      }
      const NanInAmax nan = scales.rule.recipe().nan_in_amax;
      unrolled<runs>([&](unsigned k) {
        amaxes[t][k] = amax_of_run(nan, run_at(shared, row_run(k, thread)));
        largest[t] = larger(largest[t], amaxes[t][k]);
      });
    });
  }
  /// The number of an element in the tensor.
  [[nodiscard]] FP8LAB_HD std::size_t at(Corner corner, Place place) const {
    return (corner.row + place.row) * columns + corner.column + place.column;
  }
  FP8LAB_HD void make_constants(Corner corner, unsigned thread, Shared& shared) const {
    if constexpr (kUniform) {
      if (thread != 0) return;
      const TileScale scale = scales.of_tensor();
      shared.factor = scale.factor;
      if (corner.row != 0 || corner.column != 0) return;
      if (rowwise.wanted) rowwise.store.put(ScaleType::float32, 0, scale);
      if (columnwise.wanted) columnwise.store.put(ScaleType::float32, 0, scale);
    } else {
      if (thread > 1 || is_amax_alone()) return;
      ScaleMaker<Rule> own = scales;
      own.amax = thread == 0 ? rowwise.amax : columnwise.amax;
      if ((thread == 0 ? rowwise : columnwise).wanted) shared.constants[thread] = own.known_constants();
    }
  }

  static FP8LAB_HD std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a < b ? b : a; }

  static FP8LAB_HD void put_values(Shared& shared, Place place, const Run<Source>& run) {
    unrolled<run_length / per_load<Source>>([&](unsigned i) {
      const Vector<std::uint32_t, 4> piece{run.words[4 * i], run.words[4 * i + 1], run.words[4 * i + 2],
                                           run.words[4 * i + 3]};
      gpu::store(piece, &shared.values[piece_place(place.row, place.column + i * per_load<Source>)]);
    });
  }
  static FP8LAB_HD Run<Source> run_at(const Shared& shared, Place place) {
    Run<Source> run;
    unrolled<run_length / per_load<Source>>([&](unsigned i) {
      const auto piece = load<4>(&shared.values[piece_place(place.row, place.column + i * per_load<Source>)]);
      unrolled<4>([&](unsigned k) { run.words[4 * i + k] = piece[k]; });
    });
    return run;
  }
  /// The words of a strip.
  static FP8LAB_HD Vector<std::uint32_t, run_length> strip_at(const Shared& shared, Place place) {
    Vector<std::uint32_t, run_length> strip;
    unrolled<run_length>([&](unsigned i) {
      strip[i] = shared.values[piece_place(place.row + i, place.column) + place.column % per_load<Source> / per_word];
    });
    return strip;
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
  static FP8LAB_HD Run<float> floats_of(const Run<Source>& run) {
    Run<float> floats;
    unrolled<run_length>([&](unsigned i) { floats.words[i] = bits_of(run[i]); });
    return floats;
  }
  [[nodiscard]] FP8LAB_HD bool is_amax_alone() const { return turns() && amax_alone; }
  [[nodiscard]] FP8LAB_HD bool turns() const { return scales.rule.recipe().transform != Transform::none; }
  /// A column of a strip, as floats, turned where the recipe turns them.
  [[nodiscard]] FP8LAB_HD Run<float> column_of(const Vector<std::uint32_t, run_length>& strip, unsigned column) const {
    Run<float> run;
    unrolled<run_length>([&](unsigned i) {
      Run<Source> own{};
      own.words[0] = strip[i] >> (column * 16);
      run.words[i] = bits_of(own[0]);
    });
    if (turns()) turn_run(run, scales.rule.recipe().transform == Transform::hadamard_columnwise_bfloat16);
    return run;
  }
  /// What the compiler knows of a rule makes short code, which is there for each column of a strip.
  static constexpr unsigned columns_at_once = std::is_same_v<Rule, AnyRecipe> ? 1 : per_word;
  /// body(place, the strip, a column of it) for all that a thread has.
  template <typename Body>
  FP8LAB_HD void for_columns(std::size_t thread, const Shared& shared, const Body& body) const {
#ifdef __CUDACC__
#pragma unroll 1  // the body is long
#endif
    for (unsigned k = 0; k < strips; ++k) {
      const Place place = strip_place(k, static_cast<unsigned>(thread));
      const auto strip = strip_at(shared, place);
#ifdef __CUDACC__
#pragma unroll columns_at_once
#endif
      for (unsigned column = 0; column < per_word; ++column) {
        body(Place{place.row, place.column + column}, strip, column);
      }
    }
  }

  /// 2. The amaxes of tiles, or that of columns as they are turned.
  template <typename Team, typename Amaxes, typename Amax>
  FP8LAB_HD void take_amaxes(const Team& team, Shared& shared, Amaxes& amaxes, Amax& largest) const {
    // Lanes side by side have a tile's runs of a row; a tile as large as the block is all that threads have.
    const bool is_block = rowwise.rows_log2 == 7 && rowwise.columns_log2 == 7;
    if (rowwise.wanted && is_block) team.template max_of_lanes<32>(largest);
    if (rowwise.columns_log2 == 5) team.template max_of_lanes<2>(amaxes);
    if (rowwise.columns_log2 == 7) team.template max_of_lanes<8>(amaxes);
    team.for_each_thread([&](std::size_t t) {
      const auto thread = static_cast<unsigned>(t);
      if (rowwise.wanted && is_block && thread % 32 == 0) atomic_max(&shared.tiles[0], largest[t]);
      if (rowwise.wanted && !is_block && thread % (1U << (rowwise.columns_log2 - 4)) == 0) {
        unrolled<runs>([&](unsigned k) { atomic_max(&shared.tiles[tile_of(true, row_run(k, thread))], amaxes[t][k]); });
      }
      if (!columnwise.wanted) return;
      if (is_amax_alone()) largest[t] = 0;
      for_columns(t, shared, [&](Place place, const auto& strip, unsigned column) {
        const std::uint32_t amax = amax_of_column(strip, column);
        atomic_max(&shared.tiles[tile_of(false, place)], amax);
        if (is_amax_alone()) largest[t] = larger(largest[t], amax);
      });
    });
  }
  [[nodiscard]] FP8LAB_HD std::uint32_t amax_of_column(const Vector<std::uint32_t, run_length>& strip,
                                                       unsigned column) const {
    const NanInAmax nan = scales.rule.recipe().nan_in_amax;
    if (turns()) return amax_of_run(nan, column_of(strip, column));
    // The shift and the mask leave nothing of the other column.
    return amax_of_word<Source>(amaxes_of_words<Source>(nan, strip) >> (column * 16) & (~0U >> (32 - 32 / per_word)));
  }
  /// The amax of the tensor, of all that threads have.
  template <typename Team, typename Amax>
  FP8LAB_HD void raise_amax(const Team& team, const Amax& largest) const {
    const std::uint32_t most = team.max(largest);
    team.for_each(1, [&](std::size_t) {
      atomic_max(raised_amax, most);
      if (also_raised_amax != nullptr) atomic_max(also_raised_amax, most);
    });
  }

  /// 3. Scales: the amax of each tile makes room for its factor.
  template <typename Team>
  FP8LAB_HD void make_scales(const Team& team, Corner corner, Shared& shared) const {
    team.for_each_thread([&](std::size_t t) {
      if (rowwise.wanted) make_scales_of<true>(rowwise, corner, static_cast<unsigned>(t), shared);
      if (columnwise.wanted) make_scales_of<false>(columnwise, corner, static_cast<unsigned>(t), shared);
    });
  }
  template <bool kByRow>
  FP8LAB_HD void make_scales_of(const TileDirection& own, Corner corner, unsigned thread, Shared& shared) const {
    const unsigned wide_log2 = 7 - own.columns_log2;
    const unsigned tiles = side >> own.rows_log2 << wide_log2;
    const ScaleStore& store = own.store;
    const ScaleType type = scales.rule.recipe().scale_type;
    // Columnwise scales stand as the codes do; swizzled, always as those of the transpose.
    const bool lines = kByRow || transposed || store.swizzled;
    const std::size_t first_row = corner.row >> own.rows_log2;
    const std::size_t first_column = corner.column >> own.columns_log2;
    const bool turned = lines != kByRow;  // a row of scales has those of a column of tiles
#ifdef __CUDACC__
#pragma unroll 1  // the body is long
#endif
    for (unsigned tile = thread; tile < tiles; tile += threads) {
      const Place in_tiles{tile >> wide_log2, tile & ((1U << wide_log2) - 1)};
      if (!corner.has({in_tiles.row << own.rows_log2, in_tiles.column << own.columns_log2})) continue;
      std::uint32_t& place = shared.tiles[kByRow ? tile : most_tiles + tile];
      const TileScale scale = scale_of_rule(scales.rule, shared.constants[kByRow ? 0 : 1], std::bit_cast<float>(place));
      place = std::bit_cast<std::uint32_t>(scale.factor);
      const std::size_t row = first_row + in_tiles.row;
      const std::size_t column = first_column + in_tiles.column;
      if (own.replicated) {
        replicate<kByRow>(own, lines, row, column, scale);
      } else if (store.swizzled) {
        // NOLINTNEXTLINE(readability-suspicious-call-argument)
        store.put(type, turned ? store.place(column, row) : store.place(row, column), scale);
      } else {
        store.put(type, turned ? column * store.columns + row : row * store.columns + column, scale);
      }
    }
  }
  /// Stores the scale of a square tile for each of its rows, or columns.
  template <bool kByRow>
  FP8LAB_HD void replicate(const TileDirection& own, bool lines, std::size_t row, std::size_t column,
                           const TileScale& scale) const {
    const std::size_t first = kByRow ? row << own.rows_log2 : column << own.columns_log2;  // across K
    const std::size_t tall = std::size_t{1} << (kByRow ? own.rows_log2 : own.columns_log2);
    const std::size_t block = kByRow ? column : row;
    const std::size_t size = kByRow ? rows : columns;
    const ScaleType type = scales.rule.recipe().scale_type;
#ifdef __CUDACC__
#pragma unroll 1
#endif
    for (std::size_t line = first; line < first + tall && line < size; ++line) {
      own.store.put(type, lines ? own.store.place(line, block) : own.store.place(block, line), scale);
    }
  }

  /// 4. Codes, columnwise ones to shared memory.
  template <typename Team>
  FP8LAB_HD void put_codes(const Team& team, Corner corner, Shared& shared) const {
    const bool whole = is_whole(columns, rowwise.codes);
    team.for_each_thread([&](std::size_t t) {
      const auto thread = static_cast<unsigned>(t);
      if (rowwise.wanted) {
        std::size_t to = at(corner, row_run(0, thread));
#ifdef __CUDACC__
#pragma unroll 1  // the body is long
#endif
        for (unsigned k = 0; k < runs; ++k, to += threads / across * columns) {
          const Place place = row_run(k, thread);
          if (!corner.has(place)) continue;
          const RunCodes codes = codes_of(shared, true, place, to, floats_of(run_at(shared, place)));
          put_run(codes, rowwise.codes, to, whole, corner.columns - place.column);
        }
      }
      if (!columnwise.wanted) return;
      for_columns(t, shared, [&](Place place, const auto& strip, unsigned column) {
        const std::size_t number = (corner.column + place.column) * rows + corner.row + place.row;
        const RunCodes codes = codes_of(shared, false, place, number, column_of(strip, column));
        if (transposed) {
          gpu::store(Vector<std::uint32_t, 4>{codes.words[0], codes.words[1], codes.words[2], codes.words[3]},
                     &shared.codes[code_place(place)]);
        } else {
          auto* const to = reinterpret_cast<std::uint8_t*>(shared.codes) + place.row * side + place.column;
          unrolled<run_length>([&](unsigned i) {
            // NOLINTNEXTLINE(bugprone-implicit-widening-of-multiplication-result): they fit
            to[i * side] = static_cast<std::uint8_t>(codes.words[i / 4] >> (i % 4 * 8));
          });
        }
      });
    });
  }
  /// Codes of a run, the first of which has that number in its direction.
  [[nodiscard]] FP8LAB_HD RunCodes codes_of(const Shared& shared, bool by_row, Place place, std::size_t number,
                                            const Run<float>& run) const {
    const ElementRule rule = scales.rule.element();
    float factor = 0;
    if constexpr (kUniform) {
      factor = shared.factor;
    } else {
      factor = std::bit_cast<float>(shared.tiles[tile_of(by_row, place)]);
    }
    const RunRandom random = rule.stochastic ? random_of_run(seed, offset, number / run_length) : RunRandom{};
    return codes_of_run(rule, run, factor, random);
  }
  /// Whether runs of rows of `width` codes may be stored 8 or 16 bytes at once.
  [[nodiscard]] FP8LAB_HD bool is_whole(std::size_t width, const std::uint8_t* to) const {
    const bool pairs = scales.rule.element().format == CodeFormat::e2m1;
    return width % run_length == 0 && (pairs ? is_aligned<run_length / 2>(to) : is_aligned<run_length>(to));
  }
  /// Stores codes of a run that begins at code `first`; `valid` of them exist.
  FP8LAB_HD void put_run(const RunCodes& codes, std::uint8_t* to, std::size_t first, bool whole, unsigned valid) const {
    if (scales.rule.element().format == CodeFormat::e2m1) {
      store_pairs(codes, to + first / 2, valid, whole);
    } else {
      store_codes(codes, to + first, valid, whole);
    }
  }
  /// 5. Columnwise codes, in rows of their layout.
  template <typename Team>
  FP8LAB_HD void put_columns(const Team& team, Corner corner, const Shared& shared) const {
    const std::size_t width = transposed ? rows : columns;  // of the layout
    const std::size_t first = transposed ? corner.column * rows + corner.row : corner.row * columns + corner.column;
    const unsigned valid_rows = transposed ? corner.columns : corner.rows;
    const unsigned valid_columns = transposed ? corner.rows : corner.columns;
    const bool whole = is_whole(width, columnwise.codes);
    team.for_each_thread([&](std::size_t t) {
      const auto thread = static_cast<unsigned>(t);
      // NOLINTNEXTLINE(bugprone-implicit-widening-of-multiplication-result): they fit
      std::size_t to = first + thread / across * width + thread % across * run_length;
#ifdef __CUDACC__
#pragma unroll 1
#endif
      for (unsigned k = 0; k < runs; ++k, to += threads / across * width) {
        const Place place = row_run(k, thread);
        if (place.row >= valid_rows || place.column >= valid_columns) continue;
        const auto codes = load<4>(
            &shared.codes[transposed ? code_place({place.column, place.row}) : (place.row * side + place.column) / 4]);
        put_run({{codes[0], codes[1], codes[2], codes[3]}}, columnwise.codes, to, whole, valid_columns - place.column);
      }
    });
  }
};

}  // namespace fp8lab::gpu
