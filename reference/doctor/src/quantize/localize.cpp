// SPDX-License-Identifier: Apache-2.0
#include "quantize/localize.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/reference/scaling/facts.hpp"

namespace fp8lab::doctor {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The magnitudes that are rounded to each code; none for NaN and infinity.
std::array<FactorInterval, 256> ranges_of(const Format& format) {
  std::array<FactorInterval, 256> ranges;
  ranges.fill({0, infinity});
  const auto largest = static_cast<std::uint32_t>(format.max_code());
  for (std::uint32_t code = 0; code <= largest; ++code) {
    const double own = decode(format, code);
    const double lowest = code == 0 ? 0 : (own + static_cast<double>(decode(format, code - 1))) / 2;
    const double highest = code == largest ? infinity : (own + static_cast<double>(decode(format, code + 1))) / 2;
    ranges[code] = {lowest, highest};
    ranges[code | format.sign_mask()] = {lowest, highest};
  }
  return ranges;
}

}  // namespace

Unexplained Unexplained::none_of(const Source& source) {
  return {.first = source.size(), .first_row = source.rows(), .first_column = source.columns()};
}

void Unexplained::take(std::uint64_t index, std::size_t columns) {
  const std::size_t row = index / columns;
  const std::size_t column = index % columns;
  first = std::min(first, index);
  last = std::max(last, index);
  first_row = std::min(first_row, row);
  last_row = std::max(last_row, row);
  first_column = std::min(first_column, column);
  last_column = std::max(last_column, column);
}

void Unexplained::join(const Unexplained& other) {
  first = std::min(first, other.first);
  last = std::max(last, other.last);
  first_row = std::min(first_row, other.first_row);
  last_row = std::max(last_row, other.last_row);
  first_column = std::min(first_column, other.first_column);
  last_column = std::max(last_column, other.last_column);
}

std::uint8_t LocalCase::code(std::size_t row, std::size_t column) const {
  const std::uint64_t place = model_->place_of(row, column);
  return place < dump_->codes.size() ? dump_->codes[place] : 0;
}

bool LocalCase::has_last_code_in_column(std::size_t column) const {
  const std::uint8_t last = last_code();
  for (std::size_t row = 0; row < source_->rows(); ++row) {
    if (code(row, column) != last) return false;
  }
  return true;
}

bool LocalCase::has_last_code_in_row(std::size_t row) const {
  const std::uint8_t last = last_code();
  for (std::size_t column = 0; column < source_->columns(); ++column) {
    if (code(row, column) != last) return false;
  }
  return true;
}

bool LocalCase::has_codes_of(std::size_t row, std::size_t other) const {
  std::vector<std::uint8_t> codes(source_->columns());
  std::vector<std::uint8_t> others(source_->columns());
  model_->predict({other, 0, codes.size()}, codes, others);
  for (std::size_t column = 0; column < codes.size(); ++column) {
    if (code(row, column) != codes[column]) return false;
  }
  return true;
}

bool LocalCase::is_empty(std::uint64_t first, std::uint64_t last) const {
  const std::uint64_t columns = source_->columns();
  for (std::uint64_t row = first / columns; row <= last / columns; ++row) {
    for (std::uint64_t column = first % columns; column <= last % columns; ++column) {
      if (code(row, column) != 0) return false;
    }
  }
  return true;
}

bool LocalCase::is_one_tile() const {
  const Unexplained& own = *unexplained_;
  return own.first_row / tiles().across == own.last_row / tiles().across &&
         tiles().tile_column(own.first_column) == tiles().tile_column(own.last_column) &&
         tiles().tiles_down * tiles().tiles_across > 1;
}

std::vector<Candidate> local_candidates(const Candidate& candidate, const KernelModel& model, const Source& source,
                                        const StoredDump& dump, const Unexplained& unexplained) {
  const LocalCase own(model, source, dump, unexplained);
  std::vector<Candidate> all;
  const auto add = [&](const Deviation& suggested) {
    all.push_back(with_deviation(candidate, suggested, suggested.departure->cost));
  };
  for_each_suggested(&Departure::local, add, own);
  for_each_departure([&](const Departure& row) {
    if (row.local_numbers == nullptr) return;
    for (Deviation& one : row.local_numbers(own)) {
      one.departure = &row;
      add(one);
    }
  });
  return all;
}

std::optional<FactorInterval> factor_interval(const KernelModel& model, const Source& source, const StoredDump& dump) {
  const Format& format = model.recipe().format;
  if (!format.has_subnormals) return std::nullopt;
  const auto ranges = ranges_of(format);
  FactorInterval all{0, infinity};
  for (std::size_t row = 0; row < source.rows(); ++row) {
    const auto x = source.values({row, 0, source.columns()});
    for (std::size_t column = 0; column < x.size(); ++column) {
      const std::uint64_t place = model.place_of(row, column);
      const double magnitude = std::abs(static_cast<double>(x[column]));
      if (place >= dump.codes.size() || !(magnitude > 0) || magnitude == infinity) continue;
      const FactorInterval& range = ranges[dump.codes[place]];
      all.lowest = std::max(all.lowest, range.lowest / magnitude);
      all.highest = std::min(all.highest, range.highest / magnitude);
    }
    if (all.lowest > all.highest) return std::nullopt;
  }
  // Zeros and saturated codes alone say nothing.
  if (all.lowest == 0 || all.highest == infinity) return std::nullopt;
  return all;
}

namespace {

/// What the stored scale and the codes of a tile say of the scale of the tensor over those of tiles.
class TensorScaleBounds {
 public:
  TensorScaleBounds(const KernelModel& model, const Source& source, const StoredDump& dump)
      : model_(model),
        source_(source),
        dump_(dump),
        of_codes_(ranges_of(model.recipe().format)),
        of_scales_(ranges_of(ue4m3)),
        largest_(largest_of(model.recipe().format)) {}

  /// Calls f with each interval, whose ends roundings to float32 may move.
  template <typename F>
  void for_each(std::size_t row, std::size_t tile, const F& f) const {
    const std::optional<std::uint32_t> word = model_.word_there(row, tile);
    const double amax = model_.amax_at(row, tile);
    if (!word || *word == 0 || *word > 0x7E || !(amax > 0) || amax == infinity) return;
    const double scale = decode(ue4m3, *word);
    const auto times = [&](const FactorInterval& range, double unit) {
      f(FactorInterval{range.lowest * unit, range.highest * unit});
    };
    // 1. The stored scale is that of the tensor times amax / largest.
    times(of_scales_[*word], largest_ / amax);
    // 2. Elements are multiplied with that of the tensor over the stored one.
    const Piece piece = piece_of(row, tile);
    for (std::size_t column = piece.column; column < piece.column + piece.count; ++column) {
      const double magnitude = std::abs(static_cast<double>(source_.values()[row * source_.columns() + column]));
      const std::uint64_t place = model_.place_of(row, column);
      if (magnitude > 0 && place < dump_.codes.size()) times(of_codes_[dump_.codes[place]], scale / magnitude);
    }
  }

  /// The elements of a tile in that row.
  [[nodiscard]] Piece piece_of(std::size_t row, std::size_t tile) const {
    const Amaxes& tiles = model_.tiles();
    const std::size_t first = tile == 0 ? 0 : tiles.end_of(tile - 1);
    return {row, first, std::min(tiles.end_of(tile), source_.columns()) - first};
  }

 private:
  const KernelModel& model_;
  const Source& source_;
  const StoredDump& dump_;
  std::array<FactorInterval, 256> of_codes_, of_scales_;
  double largest_;
};

/// How far the few roundings to float32 move a bound of a tensor's scale.
constexpr double tensor_scale_tolerance = 0x1p-21;
/// Where very many tiles tell, they are alike.
constexpr std::size_t most_that_tell = 4096;

}  // namespace

std::optional<FactorInterval> tensor_scale_interval(const KernelModel& model, const Source& source,
                                                    const StoredDump& dump) {
  const Recipe& recipe = model.recipe();
  if (!has_tensor_scale(recipe) || !recipe.format.has_subnormals) return std::nullopt;
  const TensorScaleBounds bounds(model, source, dump);
  FactorInterval all{0, infinity};
  const auto narrow = [&](const FactorInterval& one) {
    all.lowest = std::max(all.lowest, one.lowest * (1 - tensor_scale_tolerance));
    all.highest = std::min(all.highest, one.highest * (1 + tensor_scale_tolerance));
  };
  // A million elements leave few floats between the bounds.
  const std::size_t step = std::max<std::size_t>(1, source.rows() * source.columns() >> 20);
  for (std::size_t row = 0; row < source.rows() && all.lowest <= all.highest; row += step) {
    for (std::size_t tile = 0; tile < model.tiles().tiles_across; ++tile) bounds.for_each(row, tile, narrow);
  }
  if (all.lowest > all.highest || all.lowest == 0 || all.highest == infinity) return std::nullopt;
  return all;
}

std::vector<Piece> tiles_that_tell(const KernelModel& model, const Source& source, const StoredDump& dump,
                                   const FactorInterval& interval) {
  const TensorScaleBounds bounds(model, source, dump);
  const double lowest = interval.lowest * (1 - 2 * tensor_scale_tolerance);
  const double highest = interval.highest * (1 + 2 * tensor_scale_tolerance);
  const auto is_within = [&](double bound) { return bound >= lowest && bound <= highest; };
  model.complete();
  std::vector<std::vector<Piece>> of_rows(source.rows());
  parallel_for(source.rows(), source.threads(), [&](std::size_t first, std::size_t last) {
    for (std::size_t row = first; row < last; ++row) {
      for (std::size_t tile = 0; tile < model.tiles().tiles_across; ++tile) {
        bool tells = false;
        bounds.for_each(row, tile, [&](const FactorInterval& one) {
          tells = tells || is_within(one.lowest) || is_within(one.highest);
        });
        if (tells) of_rows[row].push_back(bounds.piece_of(row, tile));
      }
    }
  });
  std::vector<Piece> all;
  for (const std::vector<Piece>& own : of_rows) all.insert(all.end(), own.begin(), own.end());
  if (all.size() > most_that_tell) all.resize(most_that_tell);
  return all;
}

float simplest(const FactorInterval& interval, std::optional<double> preferred) {
  const auto is_within = [&](double x) { return x >= interval.lowest && x <= interval.highest; };
  if (preferred && is_within(*preferred)) return static_cast<float>(*preferred);
  const double middle = interval.lowest + (interval.highest - interval.lowest) / 2;
  const int exponent = std::ilogb(middle);
  for (int bits = 0; bits < 23; ++bits) {
    const double rounded = std::ldexp(std::nearbyint(std::ldexp(middle, bits - exponent)), exponent - bits);
    if (is_within(rounded)) return static_cast<float>(rounded);
  }
  return static_cast<float>(middle);
}

}  // namespace fp8lab::doctor
