// SPDX-License-Identifier: Apache-2.0
// Some elements of a product: the factors of each, and the accumulators of pieces of its K.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fp8lab/reference/gemm/gemm_reading.hpp"
#include "fp8lab/reference/gemm/gemm_recipe.hpp"
#include "fp8lab/reference/tensor_core/operand.hpp"

namespace fp8lab {

/// The operand with the type of its block scales, where that is left out: by their number, and E4M3 before E8M0. Throws
/// std::invalid_argument where no model takes so many.
[[nodiscard]] Operand with_scale_type(Operand operand);

/// Whether block scales may be read in the other layout: both have as many places.
[[nodiscard]] bool has_other_layout(const Operand& operand);

/// The format that codes are taken for where they are read as another one of as many bits; none: there is none.
[[nodiscard]] std::optional<Format> format_read_for(const Format& format);

/// How a defective kernel reads an operand.
struct Reading {
  bool transposed = false;  ///< elements are read in the other layout
  BlockReading blocks = BlockReading::own;
  std::size_t tiles_as_blocks = 0;  ///< elements in each block that has its tile's scale as an E8M0 code; 0: none
  KOrder k_order = {};              ///< in which elements of K follow each other
  SideReading side = {};            ///< of which the scales' places and words count, and as_fnuz
  const Operand* other = nullptr;   ///< whose scales are read instead, where `side` says so
  ProductReading products = ProductReading::own;
  std::size_t length = 0;                        ///< elements of K that `products` is about, or in each block
  std::span<const std::size_t> block_list = {};  ///< of K, of `products` in a list
  bool blocks_as_tiles = false;                  ///< scales of blocks multiply as those of tiles do
};

/// Rows of an operand, plain: a value for each element, scales of blocks, and float32 scales.
class PlainRows {
 public:
  /// Gathers one row for each entry of `rows`, of which the first `depth` elements count, in the order in which they
  /// are read.
  PlainRows(const Operand& operand, std::span<const std::size_t> rows, std::size_t depth, const Reading& reading);

  /// Elements [k, k + width) of all rows, zeros beyond the depth, as an operand of an instruction of the model. Valid
  /// until the next call.
  [[nodiscard]] Operand slice(const MmaModel& model, std::size_t k, std::size_t width);
  /// The scale of the tile of element k of an entry, in the order of K; 1 where there is none.
  [[nodiscard]] float tile_scale(std::size_t entry, std::size_t k) const;
  /// The scale of the block of element k of an entry; 1 where there is none.
  [[nodiscard]] float block_scale(std::size_t entry, std::size_t k) const;
  /// The scale of its row; 1 where there is none.
  [[nodiscard]] float row_scale(std::size_t entry) const;
  [[nodiscard]] const TensorScale& tensor_scale() const { return operand_.tensor_scale; }
  [[nodiscard]] double value(std::size_t entry, std::size_t k) const;
  /// The values of a row.
  [[nodiscard]] std::vector<double> values(std::size_t entry) const;
  [[nodiscard]] std::size_t count() const { return rows_.size(); }
  [[nodiscard]] std::size_t depth() const { return depth_; }

 private:
  template <typename Element>
  void gather(std::span<const Element> from, std::vector<Element>& to) const;
  void gather_scales(BlockReading reading);
  /// The code of block j of an entry, in the order in which they are stored.
  [[nodiscard]] std::uint8_t block_code(std::size_t entry, std::size_t j, bool in_other_layout) const;
  /// Row and column of the scale that is read in the place of that one, of so many down and along.
  [[nodiscard]] std::pair<std::size_t, std::size_t> scale_place(std::size_t row, std::size_t column, std::size_t down,
                                                                std::size_t along) const;
  /// Element k in the order of K, where it is stored.
  [[nodiscard]] std::size_t source(std::size_t k) const;

  Operand operand_;
  std::vector<std::size_t> rows_;
  std::size_t depth_;
  bool transposed_;
  KOrder k_order_;
  Reading reading_;
  std::optional<BlockScales> block_scales_;  // that the tensor core multiplies with
  std::size_t block_ = 0;
  Format block_format_ = e8m0;
  std::uint8_t one_ = 0;  // the code of a block's scale of 1
  std::vector<std::uint8_t> bytes_, scales_, byte_slice_, scale_slice_;
  std::vector<std::uint16_t> words_, word_slice_;
  std::vector<float> floats_, float_slice_;
};

/// How partial sums are made.
struct PartialSums {
  std::size_t length;  ///< elements of K in each: a multiple of the instruction's K; of the last there may be fewer
  std::span<const float> starts = {};  ///< what the first one of each element starts from; empty: zero, as the others
  ZeroRule zero_rule = ZeroRule::floor;
  /// Elements in each partial sum where they are not `length` in each; the last one has what is left. Of tensor cores.
  std::span<const std::size_t> lengths = {};
};

/// Accumulators of pieces of K in float32: piece j of element i is at j * elements + i. Of `exact` one piece alone,
/// from zero.
[[nodiscard]] std::vector<float> partial_sums(const MmaModel& model, PlainRows& a, PlainRows& b,
                                              const PartialSums& how);

}  // namespace fp8lab
