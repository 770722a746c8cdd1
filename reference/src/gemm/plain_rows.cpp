// SPDX-License-Identifier: Apache-2.0
#include "gemm/plain_rows.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <span>
#include <variant>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "fp8lab/reference/tensor_core/mma.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "tensor_core/factors.hpp"
#include "tensor_core/instruction.hpp"
#include "tensor_core/misfit.hpp"

namespace fp8lab {
namespace {

/// Sums of pieces of K, one float32 operation after the other.
std::vector<float> plain_sums(bool fused, const PlainRows& a, const PlainRows& b, const PartialSums& how) {
  const std::size_t count = a.count();
  std::vector<float> sums((a.depth() + how.length - 1) / how.length * count);
  std::ranges::copy(how.starts, sums.begin());
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < a.depth(); ++k) {
      const auto x = static_cast<float>(a.value(i, k));
      const auto y = static_cast<float>(b.value(i, k));
      float& sum = sums[k / how.length * count + i];
      sum = fused ? std::fma(x, y, sum) : sum + x * y;
    }
  }
  return sums;
}

}  // namespace

bool has_other_layout(const Operand& operand) {
  if (operand.scales.codes.empty() || !operand.scales.type || operand.transposed) return false;
  const std::size_t blocks = operand.depth / static_cast<std::size_t>(operand.scales.type->block);
  return swizzled_size(operand.rows, blocks) == operand.rows * blocks;
}

std::optional<Format> format_read_for(const Format& format) {
  constexpr std::array pairs{std::pair(e4m3, e5m2), std::pair(e2m3, e3m2)};
  for (const auto& [one, other] : pairs) {
    if (format == one) return other;
    if (format == other) return one;
  }
  return std::nullopt;
}

PlainRows::PlainRows(const Operand& operand, std::span<const std::size_t> rows, std::size_t depth,
                     const Reading& reading)
    : operand_(operand),
      rows_(rows.begin(), rows.end()),
      depth_(depth),
      transposed_(operand.transposed != reading.transposed),
      k_order_(reading.k_order),
      reading_(reading),
      block_scales_(operand.scales.type) {
  const std::optional<Format> other_format = format_read_for(operand.format);
  if (reading.side.as_other_format && other_format) operand_.format = *other_format;
  if (reading.tiles_as_blocks != 0) block_scales_ = {e8m0, static_cast<int>(reading.tiles_as_blocks)};
  if (block_scales_) {
    block_ = static_cast<std::size_t>(block_scales_->block);
    block_format_ = block_scales_->format;
    one_ = block_format_ == e8m0 ? 127 : 0x38;
  }
  if (const auto* bytes = std::get_if<std::span<const std::uint8_t>>(&operand.elements)) gather(*bytes, bytes_);
  if (const auto* words = std::get_if<std::span<const std::uint16_t>>(&operand.elements)) gather(*words, words_);
  if (const auto* floats = std::get_if<std::span<const float>>(&operand.elements)) gather(*floats, floats_);
  if (reading.side.as_fnuz) {
    constexpr std::uint8_t negative_zero = 0x80;
    constexpr std::uint8_t nan = 0x7F;
    std::ranges::replace(bytes_, negative_zero, nan);  // the factor of 1/2 is the epilogue's
  }
  if (block_scales_) gather_scales(reading.blocks);
}

std::size_t PlainRows::source(std::size_t k) const {
  switch (reading_.products) {
    case ProductReading::own: break;
    case ProductReading::head_missing: return k + reading_.length;
    case ProductReading::head_twice: return k < reading_.length ? k : k - reading_.length;
    case ProductReading::tail_twice: return k < operand_.depth ? k : k - reading_.length;
    case ProductReading::descending:
      return (depth_ / reading_.length - 1 - k / reading_.length) * reading_.length + k % reading_.length;
    case ProductReading::blocks:
      return reading_.block_list[k / reading_.length] * reading_.length + k % reading_.length;
  }
  if (k_order_.ways == 1) return k;
  const auto& [ways, granule, window] = k_order_;
  const std::size_t part = window / ways;
  const std::size_t at = k % window;
  return k - at + (at % part / granule * ways + at / part) * granule + at % granule;
}

template <typename Element>
void PlainRows::gather(std::span<const Element> from, std::vector<Element>& to) const {
  to.resize(rows_.size() * depth_);
  const bool in_order =
      !operand_.packed && !transposed_ && reading_.products == ProductReading::own && k_order_.ways == 1;
  std::vector<std::size_t> sources(in_order ? 0 : depth_);
  for (std::size_t k = 0; k < sources.size(); ++k) sources[k] = source(k);
  const std::size_t stride = transposed_ ? operand_.rows : 1;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    constexpr std::size_t half = 8;
    const bool is_exchanged = reading_.side.codes_exchanged && (rows_[i] ^ half) < operand_.rows;
    const std::size_t row = is_exchanged ? rows_[i] ^ half : rows_[i];
    const std::size_t first = transposed_ ? row : row * operand_.depth;
    Element* const gathered = to.data() + i * depth_;
    if (in_order) {
      std::copy_n(from.data() + first, depth_, gathered);
    } else if (operand_.packed) {
      for (std::size_t k = 0; k < depth_; ++k) {
        const std::size_t at = first + sources[k] * stride;
        gathered[k] = static_cast<Element>(static_cast<unsigned>(from[at / 2]) >> (at % 2 * 4) & 0xFU);
      }
    } else {
      for (std::size_t k = 0; k < depth_; ++k) gathered[k] = from[first + sources[k] * stride];
    }
  }
}

std::pair<std::size_t, std::size_t> PlainRows::scale_place(std::size_t row, std::size_t column, std::size_t down,
                                                           std::size_t along) const {
  const bool wraps = reading_.side.wraps;
  const auto before = [wraps](std::size_t i, std::size_t count) {
    if (i != 0) return i - 1;
    return wraps ? count - 1 : 0;
  };
  const auto after = [wraps](std::size_t i, std::size_t count) {
    if (i + 1 < count) return i + 1;
    return wraps ? 0 : i;
  };
  switch (reading_.side.place) {
    case ScalePlace::own:
    case ScalePlace::other_operand: break;
    case ScalePlace::first: return {row, 0};
    case ScalePlace::previous: return {row, before(column, along)};
    case ScalePlace::next: return {row, after(column, along)};
    case ScalePlace::previous_row: return {before(row, down), column};
    case ScalePlace::next_row: return {after(row, down), column};
    case ScalePlace::first_of_four: return {row, column / 4 * 4};
    case ScalePlace::stored_turned: {
      const std::size_t index = row * along + column;
      return {index % down, index / down};
    }
    case ScalePlace::read_turned: {
      const std::size_t index = column * down + row;
      return {index / along, index % along};
    }
  }
  return {row, column};
}

std::uint8_t PlainRows::block_code(std::size_t entry, std::size_t j, bool in_other_layout) const {
  const std::size_t blocks = operand_.depth / block_;
  const bool swizzled = (operand_.scales.layout == ScaleLayout::swizzled) != in_other_layout;
  const auto [row, column] = scale_place(rows_[entry], j, operand_.rows, blocks);
  std::size_t at = operand_.transposed ? column * operand_.rows + row : row * blocks + column;
  if (swizzled) at = swizzled_place(row, column, blocks);
  const bool takes_other = reading_.side.place == ScalePlace::other_operand && reading_.other != nullptr &&
                           !reading_.other->scales.codes.empty();
  const auto& codes = takes_other ? reading_.other->scales.codes : operand_.scales.codes;
  const std::uint8_t code = codes[at % codes.size()];
  if (reading_.side.word == ScaleWord::without_mantissa && block_format_ != e8m0) return code & 0x78U;
  if (reading_.side.word == ScaleWord::halved && block_format_ == e8m0 && code != 0 && code != 255) {
    return static_cast<std::uint8_t>(code - 1);
  }
  return code;
}

/// An E8M0 code of a scale that is inverted or squared.
static std::uint8_t changed_power(std::uint8_t code, BlockReading reading) {
  if (code == 255) return code;
  if (reading == BlockReading::inverted) return static_cast<std::uint8_t>(254 - code);
  return static_cast<std::uint8_t>(std::clamp(2 * code - 127, 0, 254));
}

void PlainRows::gather_scales(BlockReading reading) {
  const std::size_t own = (depth_ + block_ - 1) / block_;
  scales_.assign(rows_.size() * own, one_);
  if (reading == BlockReading::missing) return;
  const bool is_changed = (reading == BlockReading::inverted || reading == BlockReading::squared) &&
                          block_format_ == e8m0 && operand_.row_scales.empty() &&
                          operand_.tensor_scale == TensorScale{};
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    for (std::size_t position = 0; position < own; ++position) {
      std::uint8_t& code = scales_[i * own + position];
      if (operand_.scales.codes.empty()) {
        code = e8m0_of(tile_scale(i, position * block_));
        continue;
      }
      std::size_t j = source(position * block_) / block_;
      if (reading == BlockReading::previous && j > 0) --j;
      code = block_code(i, j, reading == BlockReading::other_layout);
      if (is_changed) code = changed_power(code, reading);
    }
  }
}

Operand PlainRows::slice(const MmaModel& model, std::size_t k, std::size_t width) {
  const auto cut = [&](const auto& all, auto& part) {
    part.assign(rows_.size() * width, {});
    const std::size_t count = std::min(width, depth_ - k);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(i * depth_ + k), count,
                  part.begin() + static_cast<std::ptrdiff_t>(i * width));
    }
  };
  Operand result = operand_;
  result.rows = rows_.size();
  result.depth = width;
  result.transposed = false;
  result.packed = false;
  result.scales = {};
  result.tile_scales = {};
  result.row_scales = {};
  result.tensor_scale = {};
  if (!bytes_.empty()) {
    cut(bytes_, byte_slice_);
    result.elements = std::span<const std::uint8_t>(byte_slice_);
  } else if (!words_.empty()) {
    cut(words_, word_slice_);
    result.elements = std::span<const std::uint16_t>(word_slice_);
  } else {
    cut(floats_, float_slice_);
    result.elements = std::span<const float>(float_slice_);
    if (!result.tf32_rounding && std::ranges::find(model.operands, tf32) != model.operands.end()) {
      result.tf32_rounding = Rounding::nearest_away;  // as libraries round
    }
  }
  if (!model.scales || scales_.empty()) return result;
  const std::size_t all = scales_.size() / rows_.size();
  const std::size_t blocks = width / block_;
  scale_slice_.assign(rows_.size() * blocks, 0);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    for (std::size_t j = 0; j < blocks && k / block_ + j < all; ++j) {
      scale_slice_[i * blocks + j] = scales_[i * all + k / block_ + j];
    }
  }
  result.scales = {.codes = scale_slice_, .type = block_scales_};
  return result;
}

float PlainRows::tile_scale(std::size_t entry, std::size_t k) const {
  const TileScales& tiles = operand_.tile_scales;
  if (reading_.blocks_as_tiles) return block_scale(entry, k);
  if (tiles.values.empty()) return 1;
  const std::size_t down = (operand_.rows + tiles.rows - 1) / tiles.rows;
  const std::size_t along = (operand_.depth + tiles.depth - 1) / tiles.depth;
  const auto [row, column] = scale_place(rows_[entry] / tiles.rows, source(k) / tiles.depth, down, along);
  const std::size_t at = operand_.transposed ? column * down + row : row * along + column;
  const bool takes_other = reading_.side.place == ScalePlace::other_operand && reading_.other != nullptr &&
                           !reading_.other->tile_scales.values.empty();
  const auto& values = takes_other ? reading_.other->tile_scales.values : tiles.values;
  const float own = values[at % values.size()];
  switch (reading_.side.word) {
    case ScaleWord::own: break;
    case ScaleWord::without_mantissa: return std::bit_cast<float>(std::bit_cast<std::uint32_t>(own) & 0x7F800000U);
    case ScaleWord::halved: return own / 2;
    case ScaleWord::byte_of_float32: {
      const auto word = std::bit_cast<std::uint32_t>(values[at / 4]);
      return decode(e8m0, word >> (at % 4 * 8) & 0xFFU);
    }
  }
  return own;
}

float PlainRows::block_scale(std::size_t entry, std::size_t k) const {
  if (scales_.empty()) return 1;
  return decode(block_format_, scales_[entry * (scales_.size() / rows_.size()) + k / block_]);
}

float PlainRows::row_scale(std::size_t entry) const {
  if (operand_.row_scales.empty()) return 1;
  const std::size_t count = operand_.row_scales.size();
  const std::size_t row = rows_[entry];
  switch (reading_.side.row_scale_step) {
    case 1: return operand_.row_scales[(row + 1) % count];
    case -1: return operand_.row_scales[(row + count - 1) % count];
    default: return operand_.row_scales[row];
  }
}

double PlainRows::value(std::size_t entry, std::size_t k) const {
  const std::size_t at = entry * depth_ + k;
  if (!bytes_.empty()) return decode(operand_.format, bytes_[at]);
  return words_.empty() ? floats_[at] : decode(operand_.format, words_[at]);
}

std::vector<double> PlainRows::values(std::size_t entry) const {
  const auto row = [&](const auto& all) { return std::span(all).subspan(entry * depth_, depth_); };
  if (bytes_.empty() && words_.empty()) {
    const auto own = row(floats_);
    return {own.begin(), own.end()};
  }
  std::vector<float> values(depth_);  // every code of 16 bits and fewer is a float32
  if (!bytes_.empty()) {
    decode(operand_.format, row(bytes_), std::span(values));
  } else {
    decode(operand_.format, row(words_), std::span(values));
  }
  return {values.begin(), values.end()};
}

Operand with_scale_type(Operand operand) {
  if (operand.scales.codes.empty() || operand.scales.type) return operand;
  for (const MmaModel& model : models) {
    if (!model.scales || !misfit_of_format(model, operand).empty()) continue;
    const std::size_t blocks = operand.depth / static_cast<std::size_t>(model.scales->block);
    const bool swizzled = operand.scales.layout == ScaleLayout::swizzled;
    const std::size_t count = swizzled ? swizzled_size(operand.rows, blocks) : operand.rows * blocks;
    if (operand.scales.codes.size() != count) continue;
    if (!operand.scales.type || model.scales->format == ue4m3) operand.scales.type = model.scales;
  }
  if (!operand.scales.type) refuse("no model takes ", operand.scales.codes.size(), " block scales of such an operand");
  return operand;
}

/// Where pieces of K begin, and its end.
static std::vector<std::size_t> piece_edges(const PartialSums& how, std::size_t depth) {
  std::vector<std::size_t> edges;
  for (std::size_t first = 0; first < depth;) {
    edges.push_back(first);
    const std::size_t number = edges.size() - 1;
    const bool is_last = number + 1 >= how.lengths.size();
    if (how.lengths.empty()) {
      first += how.length;
    } else {
      first = is_last ? depth : first + how.lengths[number];
    }
  }
  edges.push_back(depth);
  return edges;
}

/// Where the last instruction ends: beyond the depth where that is no multiple of its K.
static std::size_t last_end(std::span<const std::size_t> edges, std::size_t depth, std::size_t width) {
  const auto whole = [&](std::size_t length) { return (length + width - 1) / width * width; };
  std::size_t end = 0;
  for (std::size_t piece = 0; piece + 1 < edges.size(); ++piece) {
    const std::size_t last = std::min(depth, edges[piece + 1]);
    if (edges[piece] < last) end = std::max(end, edges[piece] + whole(last - edges[piece]));
  }
  return whole(end);
}

std::vector<float> partial_sums(const MmaModel& model, PlainRows& a, PlainRows& b, const PartialSums& how) {
  const std::size_t count = a.count();
  const std::size_t depth = a.depth();
  if (is_cuda_cores(model)) return plain_sums(model.name == cuda_cores_fma.name, a, b, how);
  if (model.k() == 0) {
    std::vector<float> sums(count);
    mma(model, a.slice(model, 0, depth), b.slice(model, 0, depth), std::span<const float>(), sums, how.zero_rule);
    return sums;
  }
  const auto width = static_cast<std::size_t>(model.k());
  const std::vector<std::size_t> edges = piece_edges(how, depth);
  const std::size_t end = last_end(edges, depth, width);
  std::vector<float> sums((edges.size() - 1) * count);
  std::ranges::copy(how.starts, sums.begin());
  const DefaultEnvironment environment;
  const Operand left = a.slice(model, 0, end);
  const Operand right = b.slice(model, 0, end);
  const FactorReader of_a(model, left, how.zero_rule, "a", Rounding::toward_zero);
  const FactorReader of_b(model, right, how.zero_rule, "b", Rounding::toward_zero);
  const bool is_half = model.accumulator() == binary16;
  const std::size_t some = rows_in_cache(end);
  for (std::size_t first = 0; first < count; first += some) {
    checkpoint();
    const std::size_t rows = std::min(some, count - first);
    const Factors x = of_a.rows(first, rows);
    const Factors y = of_b.rows(first, rows);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t piece = 0; piece + 1 < edges.size(); ++piece) {
        float& sum = sums[piece * count + first + i];
        std::uint64_t word = word_of_accumulator(model, sum);
        for (std::size_t k = edges[piece]; k < std::min(depth, edges[piece + 1]); k += width) {
          word = mma_instruction(model, x.part(i, k, width), y.part(i, k, width), word, how.zero_rule);
        }
        const auto bits = static_cast<std::uint32_t>(word);
        sum = is_half ? decode(binary16, bits) : std::bit_cast<float>(bits);
      }
    }
  }
  return sums;
}

}  // namespace fp8lab
