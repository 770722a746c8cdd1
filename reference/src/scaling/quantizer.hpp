// SPDX-License-Identifier: Apache-2.0
// One direction of a tensor that is being quantized: what is done with a cell, step by step.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/simd/memory.hpp"
#include "formats/simd/tiles.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "scaling/block_choice.hpp"
#include "scaling/cells.hpp"
#include "scaling/float32_steps.hpp"
#include "scaling/quantize_plan.hpp"
#include "simd/transpose.hpp"

namespace fp8lab {

/// The facts that are known of a tensor before it is quantized.
struct Facts {
  TensorFacts tensor;
  bool finite;                               // known that all values are
  std::span<const float> given_scales = {};  // of tiles
};

/// The buffers that a thread needs for one direction.
struct Scratch {
  bool finite = false, in_range = false;  // all of a cell; the latter as the hint
  std::vector<std::uint32_t> own_amaxes, random;
  std::span<const std::uint32_t> amaxes;  // of the cell's tiles
  std::vector<float> factors, scale_inv, scaled;
  std::vector<std::uint8_t> scale_codes, codes, column;
  std::vector<std::uint16_t> words;
};

/// One direction of a tensor.
template <typename Source>
class Quantizer {
 public:
  Quantizer(const Tiling<Source>& tiling, const Recipe& recipe, const Facts& facts, const TileAmaxes& amaxes,
            const RandomSource* random, Quantized& out)
      : tiling_(tiling),
        x_(tiling.x),
        plan_(tiling.plan),
        recipe_(recipe),
        facts_(facts),
        amaxes_(amaxes),
        random_(random),
        encoder_(plan_.format, plan_.policy),
        overflow_from_(overflow_from(plan_.format)),
        out_(out),
        stream_(out.codes.size() >= streaming_bytes),
        is_apart_(is_stochastic(recipe) || recipe.float32_steps ||
                  type_of(recipe.product, facts.tensor.input_type) != binary32) {
    if (plan_.uniform) uniform_ = tile_scale(recipe, facts.tensor.amax, facts.tensor);
  }

  /// Whether a cell's values are read for its amaxes before they are for its codes.
  [[nodiscard]] bool reads_twice() const { return !plan_.uniform && !amaxes_.known() && facts_.given_scales.empty(); }

  // The steps that a cell goes through, in this order. Precondition: it holds whole tiles, but at the tensor's ends.
  void begin(const Cell& cell, Scratch& scratch) const {
    scratch.codes.resize(plan_.transposed ? cell.height() * apart_stride(cell) : 0);
    if (plan_.uniform) {
      scratch.factors.assign(1, uniform_.factor);
      scratch.in_range = facts_.finite && facts_.tensor.amax * uniform_.factor < overflow_from_;
      return;
    }
    const std::size_t tiles = tiling_.tiles(cell);
    scratch.factors.resize(tiles);
    scratch.scale_inv.resize(tiles);
    scratch.scale_codes.resize(tiles);
    if (amaxes_.known()) {
      scratch.finite = facts_.finite;
      scratch.amaxes = amaxes_.of(cell, tiles);
      return;
    }
    scratch.finite = true;
    scratch.own_amaxes.assign(tiles, 0);
    scratch.amaxes = scratch.own_amaxes;
  }

  /// Adds the amax of each tile in rows [first, last) of x. Where tiles have several rows, these lie in one row of
  /// tiles.
  void add_amaxes(const Cell& cell, std::size_t first, std::size_t last, Scratch& scratch) const {
    if (!reads_twice()) return;
    scratch.finite &= tiling_.add_amaxes(cell, first, last, scratch.own_amaxes).finite;
  }

  void make_scales(const Cell& cell, Scratch& scratch) const {
    if (plan_.uniform) return;
    if (!facts_.given_scales.empty()) return make_given_scales(cell, scratch);
    const std::uint32_t most =
        tile_scales(recipe_, scratch.amaxes, facts_.tensor, {scratch.factors, scratch.scale_inv, scratch.scale_codes});
    scratch.in_range = scratch.finite && most < std::bit_cast<std::uint32_t>(overflow_from_);
    if (recipe_.block_choice != BlockChoice::none) {
      choose_blocks(tiling_, cell, {recipe_, facts_.tensor, out_.direction},
                    {scratch.amaxes, scratch.factors, scratch.scale_inv, scratch.scale_codes});
      scratch.in_range = false;
    }
    if (plan_.scale_codes) return store_scales<std::uint8_t>(cell, scratch.scale_codes, out_.scale_codes);
    store_scales<float>(cell, scratch.scale_inv, out_.scale_inv);
  }

  /// Encodes the same rows; `fetch` is as in the hint, `out_ahead` is in codes.
  void encode(const Cell& cell, std::size_t first, std::size_t last, const EncodeHints& fetch, Scratch& scratch) const {
    const std::size_t factor_stride = tiling_.tile_stride(cell);
    const float* factors = &scratch.factors[tiling_.first_tile(cell, first)];
    const bool pairs = plan_.format.bits() == 4 && !plan_.transposed;
    const std::size_t bytes = pairs ? 2 : 1;  // codes in them
    std::uint8_t* out = plan_.transposed ? &scratch.codes[(first - cell.row) * apart_stride(cell)]
                                         : &out_.codes[tiling_.place(cell, first) / bytes];
    const std::size_t out_stride = plan_.transposed ? apart_stride(cell) : x_.columns / bytes;
    if (is_apart_) {
      for (std::size_t r = first; r < last; ++r) {
        const std::size_t k = r - first;
        encode_apart(cell, r, factors + k * factor_stride, pairs, scratch, out + k * out_stride);
      }
      return;
    }
    encoder_(tiling_.rows_of(cell, first, last), plan_.operation, factors, factor_stride, pairs, out, out_stride,
             {.in_range = scratch.in_range,
              .stream = stream_ && !plan_.transposed,
              .ahead = fetch.ahead,
              .out_ahead = plan_.transposed || stream_ ? 0 : fetch.out_ahead / bytes});
  }

  void finish(const Cell& cell, Scratch& scratch) const {
    if (plan_.transposed) store_transposed(cell, scratch);
  }

  /// The tensor's scale, where it has one.
  void store_uniform() const {
    if (!plan_.uniform) return;
    if (plan_.scale_codes) {
      out_.scale_codes.assign(1, uniform_.code);
    } else {
      out_.scale_inv.assign(1, uniform_.scale_inv);
    }
  }

 private:
  /// The distance between rows of codes that are to be transposed. It is no power of two, so that a cache has room for
  /// many rows.
  [[nodiscard]] static std::size_t apart_stride(const Cell& cell) { return cell.width() + 64; }

  template <typename Value>
  void store_scales(const Cell& cell, const std::vector<Value>& of_tiles, std::vector<Value>& out) const {
    const std::size_t height = plan_.scale_height(out_.direction);
    const std::size_t width = plan_.scale_width(out_.direction);
    const std::size_t first = cell.column / width;
    const std::size_t count = blocks_of(cell.width(), width);
    const std::size_t copies = plan_.tile_columns / width;  // of a tile's scale
    const std::size_t step = plan_.transposed ? out_.scale_columns : 1;
    for (std::size_t u = cell.row / height; u * height < cell.row_end; ++u) {
      const std::size_t row = (u * height - cell.row) / plan_.tile_rows;
      const Value* from = &of_tiles[row * tiling_.tiles_across(cell)];
      Value* to = &out[plan_.transposed ? first * out_.scale_columns + u : u * out_.scale_columns + first];
      if (copies == 1 && step == 1) {
        std::copy_n(from, count, to);
      } else if (copies == 1) {
        for (std::size_t v = 0; v < count; ++v) to[v * step] = from[v];
      } else {
        for (std::size_t v = 0; v < count; ++v) to[v * step] = from[v / copies];
      }
    }
  }

  /// The random bits of the codes of a row: the caller's words where they lie so, otherwise copies.
  [[nodiscard]] RandomSource random_of(const Cell& cell, std::size_t r, std::size_t width, Scratch& scratch) const {
    if (!plan_.transposed && random_->sharing == Sharing::none) {
      const std::size_t from = r * x_.columns + cell.column;
      return {std::visit([&](auto words) -> RandomWords { return words.subspan(from, width); }, random_->words),
              random_->count};
    }
    scratch.random.resize(width);
    if (random_->sharing == Sharing::none) {
      std::visit(
          [&](auto words) {
            for (std::size_t i = 0; i < width; ++i) scratch.random[i] = words[(cell.column + i) * x_.rows + r];
          },
          random_->words);
      return {std::span<const std::uint32_t>(scratch.random), random_->count};
    }
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t column = cell.column + i;
      const std::size_t code = plan_.transposed ? column * x_.rows + r : r * x_.columns + column;
      scratch.random[i] = random_bits_of(plan_.format, *random_, code).value;
    }
    return {std::span<const std::uint32_t>(scratch.random), random_->count};
  }

  /// The scales of the caller's, as the recipe uses them.
  void make_given_scales(const Cell& cell, Scratch& scratch) const {
    const DefaultEnvironment environment;
    ScaleConstants constants = scale_constants(recipe_, facts_.tensor);
    for (std::size_t t = 0; t < scratch.factors.size(); ++t) {
      constants.given_scale = facts_.given_scales[tiling_.index(cell, t)];
      const TileScale scale = scale_of_amax(recipe_, constants, 0);
      scratch.factors[t] = scale.factor;
      scratch.scale_inv[t] = scale.scale_inv;
    }
    scratch.in_range = false;
    store_scales<float>(cell, scratch.scale_inv, out_.scale_inv);
  }

  /// Rounds products to the recipe's type of them.
  void round_products(Scratch& scratch) const {
    const Format type = type_of(recipe_.product, facts_.tensor.input_type);
    if (type == binary32) return;
    scratch.words.resize(scratch.scaled.size());
    fp8lab::encode(type, ieee_policy, std::span<const float>(scratch.scaled), std::span(scratch.words));
    fp8lab::decode(type, std::span<const std::uint16_t>(scratch.words), std::span(scratch.scaled));
    if (!adds_zero_after(plan_.operation)) return;
    for (float& one : scratch.scaled) one += 0.0F;  // of what underflowed to -0
  }

  /// A row by way of its scaled values: with random bits, products that are rounded twice, or steps in float32.
  void encode_apart(const Cell& cell, std::size_t r, const float* factors, bool pairs, Scratch& scratch,
                    std::uint8_t* out) const {
    const TileRows<Source> row = tiling_.rows_of(cell, r, r + 1);
    scratch.scaled.resize(row.width);
    scratch.column.resize(row.width);
    scale_tiles(row.row(0), row.tile, plan_.operation, {factors, row.across()}, scratch.scaled);
    round_products(scratch);
    if (recipe_.float32_steps) {
      const Float32Steps steps(plan_.format, plan_.policy.rounding);
      for (float& one : scratch.scaled) one = steps(one);
    }
    const auto codes = pairs ? std::span(scratch.column) : std::span(out, row.width);
    const std::span<const float> scaled(scratch.scaled);
    if (plan_.policy.rounding == Rounding::stochastic) {
      fp8lab::encode(plan_.format, plan_.policy, scaled, random_of(cell, r, row.width, scratch), codes);
    } else {
      fp8lab::encode(plan_.format, plan_.policy, scaled, codes);
    }
    if (pairs) pack_pairs(codes, {out, row.width / 2});
  }

  /// out[i] = first[i] and, in the high bits, second[i].
  static void pair_rows(const std::uint8_t* first, const std::uint8_t* second, std::size_t width, std::uint8_t* out) {
    constexpr std::size_t some = 64;  // whose loop the compiler turns into vector code
    const auto pair = [&](std::size_t i) { out[i] = static_cast<std::uint8_t>(first[i] | (second[i] << 4)); };
    std::size_t from = 0;
    for (; from + some <= width; from += some) {
      for (std::size_t i = 0; i < some; ++i) pair(from + i);
    }
    for (; from < width; ++from) pair(from);
  }

  void store_transposed(const Cell& cell, Scratch& scratch) const {
    const std::size_t width = cell.width();
    const std::size_t height = cell.height();
    const std::uint8_t* codes = scratch.codes.data();
    const std::size_t to = cell.column * x_.rows + cell.row;
    if (plan_.format.bits() != 4) {
      return transpose_bytes(codes, height, width, apart_stride(cell), &out_.codes[to], x_.rows, stream_);
    }
    // Pairs lie along K, which runs down the rows: two rows make one of pairs before it is transposed.
    const std::size_t stride = apart_stride(cell);
    scratch.column.resize(stride * height / 2);
    for (std::size_t row = 0; row < height; row += 2) {
      pair_rows(codes + row * stride, codes + (row + 1) * stride, width, scratch.column.data() + row / 2 * stride);
    }
    transpose_bytes(scratch.column.data(), height / 2, width, stride, &out_.codes[to / 2], x_.rows / 2, stream_);
  }

  Tiling<Source> tiling_;
  const Matrix<Source>& x_;
  const QuantizePlan& plan_;
  const Recipe& recipe_;
  const Facts& facts_;
  const TileAmaxes& amaxes_;
  const RandomSource* random_;
  TileEncoder encoder_;
  float overflow_from_;
  Quantized& out_;
  bool stream_;
  bool is_apart_;
  TileScale uniform_{};
};

}  // namespace fp8lab
