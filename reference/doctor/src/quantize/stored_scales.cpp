// SPDX-License-Identifier: Apache-2.0
// Which scales a hypothesis stores, and where.
#include "quantize/kernel_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"

namespace fp8lab::doctor {

std::optional<std::size_t> StoredScaleLayout::place_of(std::size_t row, std::size_t column) const {
  if (row % step_down != kept_down || column % step_across != kept_across) return std::nullopt;
  row /= step_down;
  column /= step_across;
  const std::size_t kept = columns / step_across;
  std::size_t place = is_transposed ? column * stored_rows + row : row * kept + column;
  if (is_padded) place = row * ((kept + 3) / 4 * 4) + column;
  if (is_swizzled) place = swizzled_place(row, column, kept);
  const auto moved = static_cast<std::ptrdiff_t>(place) + late;
  if (moved < 0 || std::cmp_greater_equal(moved, count)) return std::nullopt;
  return static_cast<std::size_t>(moved);
}

StoredScaleLayout KernelModel::scale_layout() const {
  StoredScaleLayout layout;
  if (dump_ == nullptr || dump_->scales.empty()) return layout;
  const std::size_t count = dump_->scales.size();
  layout.count = count;
  layout.columns = amaxes_->tiles_across;
  layout.rows_of_tiles = amaxes_->tiles_down;
  const bool keeps_order = !recipe().transposed_columnwise && recipe().format.bits() != 4;
  layout.is_transposed = is_columnwise_ && keeps_order;
  call(&Departure::layout, layout);
  // A tile has one entry, or one in each of its rows; rows and columns of entries may be padded.
  for (const bool is_padded : {false, true}) {
    for (const std::size_t entry_rows : {amaxes_->across, std::size_t{1}}) {
      layout.entry_rows = entry_rows;
      layout.rows = (source_->rows() + entry_rows - 1) / entry_rows;
      layout.is_padded = is_padded && !layout.is_swizzled;
      const bool as_padded = is_padded || layout.is_swizzled;
      const std::size_t rows = layout.rows / layout.step_down;
      const std::size_t columns = layout.columns / layout.step_across;
      layout.stored_rows = layout.is_for_tma ? (rows + 3) / 4 * 4 : rows;
      layout.fits = count == (as_padded ? swizzled_size(rows, columns) : layout.stored_rows * columns);
      // Without padding they are those of the transpose.
      if (layout.is_for_tma && (as_padded || layout.stored_rows == rows)) layout.fits = false;
      if (layout.fits) return layout;
    }
  }
  return layout;
}

TileScale KernelModel::stored_scale(std::size_t tile_row, std::size_t tile_column) const {
  if (!made_.empty()) return made_[tile_row * amaxes_->tiles_across + tile_column];
  return made_scale(stored_recipe_, stored_constants_, amax_of(tile_row, tile_column));
}

float StoredDump::value_of_scale(std::uint32_t word, const Format& own) const {
  const Format type = type_of_scales(own);
  return type == binary32 ? std::bit_cast<float>(word) : decode(type, word);
}

std::optional<float> KernelModel::changed_value(const TileScale& scale, float amax) const {
  std::optional<float> value;
  for (const Deviation& one : deviations_) {
    if (one.departure->stored == nullptr) continue;
    value = one.departure->stored(value.value_or(scale.scale_inv), {stored_recipe_, facts_, amax});
  }
  return value;
}

bool KernelModel::is_stored(const TileScale& scale, float amax, std::uint32_t word) const {
  const Format own = scale_format_of(recipe());
  const Format type = dump_->type_of_scales(own);
  const std::optional<float> changed = changed_value(scale, amax);
  for (const Deviation& one : deviations_) {
    if (one.departure->word != nullptr) word = one.departure->word(word, type);
  }
  if (!changed && own == type && type.bits() <= 8) return word == scale.code;
  const float value = changed.value_or(scale.scale_inv);
  if (type == binary32) {
    const auto there = std::bit_cast<float>(word);
    return word == std::bit_cast<std::uint32_t>(value) || (std::isnan(there) && std::isnan(value));
  }
  const float there = decode(type, word);
  if (std::isnan(value)) return std::isnan(there);
  return there == value;
}

bool KernelModel::is_stored_for(std::size_t tile_row, std::size_t tile_column, std::uint32_t word) const {
  const auto is_of = [&](TileIndex tile) {
    return is_stored(stored_scale(tile.row, tile.column), amax_of(tile.row, tile.column), word);
  };
  const TileIndex own{tile_row, tile_column};
  for (const Deviation& one : deviations_) {
    if (one.departure->stored_of == nullptr) continue;
    const auto [first, second] =
        one.departure->stored_of(own, {amaxes_->tiles_down - 1, amaxes_->tiles_across - 1}, one);
    return is_of(first) || is_of(second);
  }
  return is_of(own);
}

bool KernelModel::is_stored_there(std::size_t tile_row, std::size_t tile_column, std::size_t place) const {
  const auto is_unwritten = [&](const Deviation& one) {
    return one.departure->is_unwritten != nullptr && one.departure->is_unwritten(place, one);
  };
  return std::ranges::any_of(deviations_, is_unwritten) || is_stored_for(tile_row, tile_column, dump_->scales[place]);
}

bool KernelModel::is_explained_there(std::size_t tile_row, std::size_t tile_column, std::size_t place) const {
  if (takes_stored_ != TakesStored::none) {
    // Codes are made with the first entry of a tile.
    const auto first = layout_.place_of(tile_row * amaxes_->across / layout_.entry_rows, tile_column);
    if (!first || dump_->scales[place] == dump_->scales[*first]) return true;
    if (takes_all_stored()) return false;
  }
  return is_stored_there(tile_row, tile_column, place);
}

std::vector<bool> KernelModel::tiles_read() const {
  if (takes_stored_ == TakesStored::none) return {};
  std::vector<bool> is_read(amaxes_->tiles_down * amaxes_->tiles_across);
  for (std::size_t i = 0; i < is_read.size(); ++i) {
    const TileIndex tile = tile_read({i / amaxes_->tiles_across, i % amaxes_->tiles_across});
    is_read[tile.row * amaxes_->tiles_across + tile.column] = true;
  }
  return std::ranges::count(is_read, false) == 0 ? std::vector<bool>{} : is_read;
}

std::uint64_t KernelModel::scale_mismatches(const Piece& piece, std::vector<std::uint64_t>* which,
                                            std::size_t most) const {
  if (dump_ == nullptr || dump_->scales.empty()) return 0;
  const std::size_t tile_row = piece.row / amaxes_->across;
  const std::size_t last = amaxes_->tile_column(piece.column + piece.count - 1);
  std::uint64_t count = 0;
  for (std::size_t column = amaxes_->tile_column(piece.column); column <= last; ++column) {
    const auto place = layout_.fits ? layout_.place_of(piece.row / layout_.entry_rows, column) : std::nullopt;
    if (layout_.fits && !place) continue;
    if (place && is_explained_there(tile_row, column, *place)) continue;
    ++count;
    if (place && which != nullptr && which->size() < most) {
      const std::size_t first = column == 0 ? 0 : amaxes_->end_of(column - 1);
      which->push_back(piece.row * source_->columns() + first);
    }
  }
  return count;
}

std::uint64_t KernelModel::tensor_scale_mismatches() const {
  if (!dump_->of_tensor || !has_tensor_scale(recipe())) return 0;
  const auto says_another = [](const Deviation& one) {
    return one.departure->tensor_scale != nullptr && one.departure->has_no_rule;
  };
  const ScaleConstants constants = scale_constants(recipe(), facts_);
  const bool is_explained = std::ranges::any_of(deviations_, says_another) ||
                            *dump_->of_tensor == constants.tensor_scale ||
                            *dump_->of_tensor == constants.tensor_scale_inv;
  return is_explained ? 0 : 1;
}

std::uint64_t KernelModel::unread_mismatches() const {
  std::uint64_t count = 0;
  const std::vector<bool> is_read = tiles_read();
  for (std::size_t row = 0; row < (is_read.empty() ? 0 : layout_.rows); ++row) {
    for (std::size_t column = 0; column < layout_.columns; ++column) {
      const std::size_t tile_row = row * layout_.entry_rows / amaxes_->across;
      const auto place = layout_.place_of(row, column);
      if (!place || is_read[tile_row * layout_.columns + column]) continue;
      if (is_explained_there(tile_row, column, *place) && !is_stored_there(tile_row, column, *place)) ++count;
    }
  }
  return count;
}

bool KernelModel::stores_in_order() const {
  const bool is_moved = layout_.is_padded || layout_.is_swizzled || layout_.is_transposed || layout_.late != 0 ||
                        layout_.step_down * layout_.step_across != 1;
  const bool is_changed =
      has_any(&Departure::stored, &Departure::word, &Departure::stored_of, &Departure::is_unwritten);
  const Format own = scale_format_of(recipe());
  return layout_.fits && !is_moved && !is_changed && takes_stored_ == TakesStored::none && !made_.empty() &&
         own == dump_->type_of_scales(own);
}

bool KernelModel::has_scales_as_made(std::size_t row) const {
  const std::size_t columns = layout_.columns;
  const TileScale* const made = &made_[row * layout_.entry_rows / amaxes_->across * columns];
  const std::uint32_t* const words = &dump_->scales[row * columns];
  const bool are_codes = scale_format_of(recipe()).bits() <= 8;
  std::uint32_t differs = 0;
  for (std::size_t i = 0; i < columns; ++i) {
    differs |= words[i] ^ (are_codes ? made[i].code : std::bit_cast<std::uint32_t>(made[i].scale_inv));
  }
  return differs == 0;
}

std::uint64_t KernelModel::scale_mismatches(std::vector<std::uint64_t>* which, std::size_t most) const {
  if (dump_ == nullptr) return 0;
  std::uint64_t count = tensor_scale_mismatches();
  if (dump_->scales.empty()) return count;
  if (!layout_.fits) return count + dump_->scales.size();
  complete();
  const bool is_in_order = stores_in_order();
  std::mutex mutex;
  std::map<std::size_t, std::vector<std::uint64_t>> found;  // by the first row of those that a thread got at a time
  parallel_for(
      layout_.rows, source_->threads(),
      [&](std::size_t first, std::size_t last) {
        std::vector<std::uint64_t> own;
        std::uint64_t own_count = 0;
        for (std::size_t row = first; row < last; ++row) {
          if (is_in_order && has_scales_as_made(row)) continue;
          own_count += scale_mismatches(Piece{row * layout_.entry_rows, 0, source_->columns()}, &own, most);
        }
        const std::scoped_lock lock(mutex);
        count += own_count;
        found[first] = std::move(own);
      },
      std::max<std::size_t>(1, scalar_piece / layout_.columns));
  for (const auto& [first, own] : found) {
    for (std::size_t i = 0; i < own.size() && which != nullptr && which->size() < most; ++i) which->push_back(own[i]);
  }
  count += unread_mismatches();
  // A shift that explains few of the scales, or none, does not explain that at the edge, which no tile has.
  if (layout_.late != 0 && (takes_all_stored() || count * 2 > dump_->scales.size())) ++count;
  return count;
}

std::optional<std::uint32_t> KernelModel::word_there(std::size_t row, std::size_t tile_column) const {
  if (!layout_.fits) return std::nullopt;
  const auto place = layout_.place_of(row / layout_.entry_rows, tile_column);
  if (!place) return std::nullopt;
  return dump_->scales[*place];
}

double KernelModel::ratio_there(std::size_t tile_row, std::size_t tile_column) const {
  const auto word = word_there(tile_row * amaxes_->across, tile_column);
  if (!word) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(stored_value(*word)) / static_cast<double>(stored_scale(tile_row, tile_column).scale_inv);
}

template <typename F>
void KernelModel::for_each_wrong_entry(const F& f) const {
  const std::vector<bool> is_read = tiles_read();
  const bool is_in_order = stores_in_order();
  for (std::size_t row = 0; row < layout_.rows; ++row) {
    if (is_in_order && has_scales_as_made(row)) continue;
    for (std::size_t column = 0; column < layout_.columns; ++column) {
      const std::size_t tile_row = row * layout_.entry_rows / amaxes_->across;
      const auto place = layout_.place_of(row, column);
      if (!place) continue;
      const bool can_be_any = is_read.empty() || is_read[tile_row * layout_.columns + column];
      if (can_be_any ? is_explained_there(tile_row, column, *place) : is_stored_there(tile_row, column, *place))
        continue;
      if (!f(row, column, *place)) return;
    }
  }
}

std::size_t KernelModel::place_in_grid(std::size_t row, std::size_t column, std::size_t place) const {
  // Told where it is stored.
  const bool is_of_some = layout_.step_down * layout_.step_across != 1;
  const bool is_in_order = !layout_.is_padded && !layout_.is_swizzled && !layout_.is_transposed && !is_of_some;
  return is_in_order ? place : row * layout_.columns + column;
}

std::optional<std::size_t> KernelModel::first_row_of_wrong_scales() const {
  std::optional<std::size_t> first;
  if (!layout_.fits) return first;
  // Entries come in the order of their places in the grid.
  for_each_wrong_entry([&](std::size_t row, std::size_t column, std::size_t place) {
    first = place_in_grid(row, column, place) / layout_.columns;
    return false;
  });
  return first;
}

ScaleGrid KernelModel::scale_grid() const {
  ScaleGrid grid{.columns = layout_.columns};
  if (!layout_.fits) return grid;
  grid.is_wrong.resize(layout_.rows * layout_.columns);
  for_each_wrong_entry([&](std::size_t row, std::size_t column, std::size_t place) {
    grid.is_wrong[place_in_grid(row, column, place)] = 1;
    const std::size_t tile_row = row * layout_.entry_rows / amaxes_->across;
    const TileScale scale = stored_scale(tile_row, column);
    const float amax = amax_of(tile_row, column);
    const float there = stored_value(dump_->scales[place]);
    const float made = changed_value(scale, amax).value_or(scale.scale_inv);
    const float ratio = there / made;
    if (!std::isfinite(ratio)) return true;
    const auto [low, high] = std::minmax({std::bit_cast<std::uint32_t>(there), std::bit_cast<std::uint32_t>(made)});
    grid.most_ulps = std::max(grid.most_ulps, high - low);
    const bool is_first = grid.lowest_ratio > grid.highest_ratio;
    grid.lowest_ratio = is_first ? ratio : std::min(grid.lowest_ratio, ratio);
    grid.highest_ratio = is_first ? ratio : std::max(grid.highest_ratio, ratio);
    return true;
  });
  return grid;
}

}  // namespace fp8lab::doctor
