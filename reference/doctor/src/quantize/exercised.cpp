// SPDX-License-Identifier: Apache-2.0
#include "quantize/exercised.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>

#include "compare/told_kinds.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "quantize/by_quantize.hpp"
#include "quantize/departures/shared.hpp"

namespace fp8lab::doctor {
namespace {

constexpr std::size_t kinds = named_input_kinds.size();
using InputCounts = std::array<std::uint64_t, kinds>;

std::uint64_t& of(InputCounts& counts, InputKind kind) { return counts[static_cast<std::size_t>(kind)]; }

/// The bits of magnitudes that say where one lies in a format.
struct Ranges {
  std::uint32_t least_normal, largest;
  std::uint32_t cut, half;  ///< what is cut off of a normal number's mantissa, and that of a tie
  float halves;             ///< times that, a subnormal is a number of halves of the least one
};

Ranges ranges_in(const Format& format) {
  const int cut_bits = 23 - format.mantissa_bits;
  const auto bits_of = [&](std::uint64_t code) {
    return std::bit_cast<std::uint32_t>(decode(format, static_cast<std::uint32_t>(code)));
  };
  return {.least_normal = bits_of(std::uint64_t{1} << format.mantissa_bits),
          .largest = bits_of(format.max_code()),
          .cut = (1U << cut_bits) - 1,
          .half = 1U << (cut_bits - 1),
          .halves = 2 / decode(format, 1)};
}

void count_elements(std::span<const float> x, InputCounts& counts) {
  std::uint32_t zeros = 0;
  std::uint32_t negative = 0;
  std::uint32_t nans = 0;
  std::uint32_t infinite = 0;
  for (const float one : x) {
    const auto bits = std::bit_cast<std::uint32_t>(one);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    zeros += static_cast<std::uint32_t>(bits == 0);
    negative += static_cast<std::uint32_t>(bits == 0x80000000U);
    nans += static_cast<std::uint32_t>(magnitude > 0x7F800000U);
    infinite += static_cast<std::uint32_t>(magnitude == 0x7F800000U);
  }
  of(counts, InputKind::zeros) += zeros;
  of(counts, InputKind::negative_zeros) += negative;
  of(counts, InputKind::nan) += nans;
  of(counts, InputKind::infinity) += infinite;
}

void count_products(std::span<const float> products, const Ranges& format, InputCounts& counts) {
  std::uint32_t ties = 0;
  std::uint32_t small_ties = 0;
  std::uint32_t subnormal = 0;
  std::uint32_t least = 0;
  std::uint32_t large = 0;
  for (const float one : products) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(one) & 0x7FFFFFFFU;
    const bool is_normal = magnitude >= format.least_normal && magnitude <= format.largest;
    ties += static_cast<std::uint32_t>(is_normal && (magnitude & format.cut) == format.half);
    large += static_cast<std::uint32_t>(magnitude > format.largest && magnitude < 0x7F800000U);
    if (magnitude == 0 || magnitude >= format.least_normal) continue;
    const float halves = std::bit_cast<float>(magnitude) * format.halves;  // exact: by a power of two
    const auto whole = static_cast<std::uint32_t>(halves);
    small_ties += static_cast<std::uint32_t>(static_cast<float>(whole) == halves && whole % 2 == 1);
    subnormal += static_cast<std::uint32_t>(halves > 1);
    least += static_cast<std::uint32_t>(halves < 1);
  }
  of(counts, InputKind::ties) += ties;
  of(counts, InputKind::subnormal_ties) += small_ties;
  of(counts, InputKind::subnormals) += subnormal;
  of(counts, InputKind::underflow) += least;
  of(counts, InputKind::saturation) += large;
}

bool rounds_to_powers(const Recipe& recipe) {
  return recipe.rounding != ScaleRounding::none || recipe.scale_type == ScaleType::e8m0_code;
}

/// Whether the scale of that amax is a power of two before it is rounded to one, or one of the floats beside it.
bool is_at_edge(const Recipe& recipe, float amax) {
  const bool is_of_power = recipe.quotient == Quotient::amax_over_power;
  const float scale = is_of_power ? amax : tile_scale(unrounded(recipe), amax, TensorFacts{}).scale_inv;
  const std::uint32_t mantissa = std::bit_cast<std::uint32_t>(scale) & 0x7FFFFFU;
  return mantissa <= 1 || mantissa == 0x7FFFFFU;
}

void count_tiles(const KernelModel& model, const Source& source, InputCounts& counts) {
  const Amaxes& tiles = model.tiles();
  const Recipe& recipe = model.recipe();
  const float small = source.type() == binary16 ? 0x1p-14F : 0x1p-40F;
  if (is_given(recipe)) return;
  const bool has_edges = rounds_to_powers(recipe) && !has_tensor_scale(recipe);
  for (const float amax : tiles.values) {
    of(counts, InputKind::zero_tiles) += amax == 0 ? 1 : 0;
    of(counts, InputKind::small_tiles) += amax > 0 && amax < small ? 1 : 0;
    if (has_edges && amax > 0 && std::isfinite(amax)) {
      of(counts, InputKind::edges) += is_at_edge(recipe, amax) ? 1 : 0;
    }
  }
  if (source.columns() % tiles.along != 0) of(counts, InputKind::incomplete_tiles) += tiles.tiles_down;
  if (source.rows() % tiles.across != 0) of(counts, InputKind::incomplete_tiles) += tiles.tiles_across;
}

InputCounts counts_of(const Source& source, const Hypothesis& hypothesis, bool is_modelled) {
  InputCounts all{};
  const KernelModel model(source, hypothesis, nullptr);
  const Format& format = hypothesis.recipe.format;
  const bool has_products = is_modelled && model.applies() && format.has_subnormals && format.bits() <= 8;
  if (has_products) model.complete();
  const Ranges ranges = has_products ? ranges_in(format) : Ranges{};
  std::mutex mutex;
  parallel_for(
      source.rows(), source.threads(),
      [&](std::size_t first, std::size_t last) {
        InputCounts own{};
        constexpr std::size_t most = 1024;
        std::array<float, most> products;
        for (std::size_t row = first; row < last; ++row) {
          for (std::size_t column = 0; column < source.columns(); column += most) {
            const Piece piece{row, column, std::min(most, source.columns() - column)};
            count_elements(source.values(piece), own);
            if (!has_products) continue;
            const auto part = std::span(products).first(piece.count);
            model.scaled(piece, part);
            count_products(part, ranges, own);
          }
        }
        const std::scoped_lock lock(mutex);
        for (std::size_t i = 0; i < kinds; ++i) all[i] += own[i];
      },
      std::max<std::size_t>(1, scalar_piece / std::max<std::size_t>(1, source.columns())));
  if (has_products) count_tiles(model, source, all);
  return all;
}

constexpr std::uint16_t bit_of(InputKind kind) { return static_cast<std::uint16_t>(1U << static_cast<unsigned>(kind)); }

std::uint16_t kinds_of_value(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (bits == 0) return bit_of(InputKind::zeros);
  if (magnitude == 0) return bit_of(InputKind::negative_zeros);
  if (magnitude > 0x7F800000U) return bit_of(InputKind::nan);
  return magnitude == 0x7F800000U ? bit_of(InputKind::infinity) : 0;
}

/// Tells a scaled element's kinds, as count_products() counts them.
std::uint16_t kinds_of_product(float product, const Ranges& format) {
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(product) & 0x7FFFFFFFU;
  if (magnitude == 0 || magnitude >= 0x7F800000U) return 0;
  if (magnitude > format.largest) return bit_of(InputKind::saturation);
  if (magnitude >= format.least_normal) return (magnitude & format.cut) == format.half ? bit_of(InputKind::ties) : 0;
  const float halves = std::bit_cast<float>(magnitude) * format.halves;  // exact: by a power of two
  const auto whole = static_cast<std::uint32_t>(halves);
  std::uint16_t found = 0;
  if (static_cast<float>(whole) == halves && whole % 2 == 1) found |= bit_of(InputKind::subnormal_ties);
  if (halves > 1) found |= bit_of(InputKind::subnormals);
  if (halves < 1) found |= bit_of(InputKind::underflow);
  return found;
}

/// Tells the kinds that the elements of each tile have from it, row-major.
std::vector<std::uint16_t> kinds_of_tiles(const KernelModel& model, const Source& source) {
  const Amaxes& tiles = model.tiles();
  const Recipe& recipe = model.recipe();
  const float small = source.type() == binary16 ? 0x1p-14F : 0x1p-40F;
  const bool has_edges = rounds_to_powers(recipe) && !has_tensor_scale(recipe);
  std::vector<std::uint16_t> all(tiles.values.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const float amax = tiles.values[i];
    const bool is_last_row = (i / tiles.tiles_across + 1) * tiles.across > source.rows();
    const bool is_last_column = (i % tiles.tiles_across + 1) * tiles.along > source.columns();
    if (amax == 0) all[i] |= bit_of(InputKind::zero_tiles);
    if (amax > 0 && amax < small) all[i] |= bit_of(InputKind::small_tiles);
    if (has_edges && amax > 0 && std::isfinite(amax) && is_at_edge(recipe, amax)) all[i] |= bit_of(InputKind::edges);
    if (is_last_row || is_last_column) all[i] |= bit_of(InputKind::incomplete_tiles);
  }
  return all;
}

/// Kinds that stand for several, as bits behind theirs.
constexpr std::uint32_t any_tie = 1U << 16U;
constexpr std::uint32_t any_subnormal = 1U << 17U;
constexpr std::array input_kind_words{
    KindWords{bit_of(InputKind::ties), "is an exact tie: its scaled input lies halfway between two codes", 0},
    KindWords{bit_of(InputKind::subnormal_ties),
              "is an exact tie of subnormal codes: its scaled input lies halfway between two of them", 0},
    KindWords{any_tie, "is an exact tie, of normal codes or of subnormal ones",
              std::uint32_t{bit_of(InputKind::ties)} | bit_of(InputKind::subnormal_ties)},
    KindWords{bit_of(InputKind::underflow), "is so small that the nearest code is 0", 0},
    KindWords{bit_of(InputKind::subnormals), "has a scaled input within the subnormal codes",
              bit_of(InputKind::subnormal_ties)},
    KindWords{any_subnormal, "has a scaled input smaller than the least normal code, and not 0",
              std::uint32_t{bit_of(InputKind::underflow)} | bit_of(InputKind::subnormals) |
                  bit_of(InputKind::subnormal_ties)},
    KindWords{bit_of(InputKind::saturation), "has a finite scaled input above the largest number", 0},
    KindWords{bit_of(InputKind::zeros), "was made of 0", 0},
    KindWords{bit_of(InputKind::negative_zeros), "was made of -0", 0},
    KindWords{bit_of(InputKind::nan), "was made of a NaN", 0},
    KindWords{bit_of(InputKind::infinity), "was made of an infinity", 0},
    KindWords{bit_of(InputKind::zero_tiles), "is in a tile of zeros alone", 0},
    KindWords{bit_of(InputKind::small_tiles), "is in a tile with a very small amax", 0},
    KindWords{bit_of(InputKind::edges), "is in a tile with an amax at the edge of a binade", 0},
    KindWords{bit_of(InputKind::incomplete_tiles), "is in an incomplete tile at the end", 0},
};

/// What a tile of an exercise has.
enum class TileKind : std::uint8_t { telling, zeros, small, below_edge, above_edge, infinity, nan };
constexpr std::array tile_kinds{TileKind::telling,    TileKind::zeros,    TileKind::small, TileKind::below_edge,
                                TileKind::above_edge, TileKind::infinity, TileKind::nan};

/// Numbers on and beside the midpoints of a format, and the numbers of it, by both signs; subnormals first.
std::vector<float> telling_numbers(const Format& format) {
  std::vector<float> all{0.0F, -0.0F};
  for (std::uint32_t code = 0; code < format.max_code(); ++code) {
    const float low = decode(format, code);
    const float middle = low + (decode(format, code + 1) - low) / 2;
    for (const float one : {middle, -middle, std::nextafterf(middle, 0), std::nextafterf(middle, HUGE_VALF)}) {
      all.push_back(one);
    }
    if (code == 0) all.push_back(middle / 2);
    // Some rules make scales that are twice as large.
    if (code < std::uint32_t{2} << format.mantissa_bits) all.push_back(2 * middle);
  }
  return all;
}

/// Makes the elements of tiles, one after the other.
class TileMaker {
 public:
  TileMaker(const Recipe& recipe, bool is_one)
      : recipe_(recipe), is_one_(is_one), numbers_(telling_numbers(recipe.format)) {}

  /// Element i of tile t.
  [[nodiscard]] float element(std::size_t tile, std::size_t i, std::size_t size) const {
    const TileKind kind = is_one_ ? TileKind::telling : tile_kinds[tile % tile_kinds.size()];
    const bool has_one_range = has_tensor_scale(recipe_);
    const float largest = largest_of(recipe_.format);
    if (kind == TileKind::zeros) return i % 2 == 0 ? 0.0F : -0.0F;
    const float unit = kind == TileKind::small ? 0x1p-80F : 1.0F;
    if (i == 0) return first_of(kind, largest * unit, tile);
    if (has_one_range && tile == 0 && i == 1) return 0;
    if (kind == TileKind::nan && i == 1) return std::numeric_limits<float>::quiet_NaN();
    // Tiles are of few elements: each goes on where the one of its kind before it ended.
    const std::size_t turn = is_one_ ? 0 : tile / tile_kinds.size();
    return numbers_[(i - 1 + turn * (size - 1)) % numbers_.size()] * unit;
  }

 private:
  [[nodiscard]] float first_of(TileKind kind, float largest, std::size_t tile) const {
    // Under a tensor's scale, whose amax lets the scale of tiles be its largest.
    if (has_tensor_scale(recipe_)) return tile == 0 ? largest * recipe_.tensor_range : largest;
    const bool is_of_power = recipe_.quotient == Quotient::amax_over_power;
    const float edge = is_of_power ? std::exp2(std::ceil(std::log2(largest))) : largest;
    switch (kind) {
      case TileKind::below_edge: return std::nextafterf(edge, 0);
      case TileKind::above_edge: return std::nextafterf(edge, HUGE_VALF);
      case TileKind::infinity: return -std::numeric_limits<float>::infinity();
      case TileKind::zeros:
      case TileKind::small:
      case TileKind::nan:
      case TileKind::telling: break;
    }
    if (is_given(recipe_)) return largest * 4;
    return largest;
  }

  const Recipe& recipe_;
  bool is_one_;
  std::vector<float> numbers_;
};

/// As the recipe sees it: along its rows.
ExerciseInput exercise_in_rows(const Recipe& recipe) {
  const bool is_one = recipe.tile_across == 0 || is_given(recipe) || recipe.tile_along == 1;
  const bool is_whole = recipe.whole_tiles || recipe.pads_tiles || recipe.transform != Transform::none;
  const std::size_t across = recipe.tile_across == 0 ? 64 : recipe.tile_across;
  const std::size_t along = recipe.tile_along == 0 ? 512 : recipe.tile_along;
  ExerciseInput made;
  made.rows = across == 1 ? 126 : across * (recipe.tile_across == 0 ? 1 : 4);
  if (is_whole && across == 1) made.rows = 128;
  made.columns = recipe.tile_along == 0 ? along : (std::max<std::size_t>(1, 512 / along) * along);
  if (!is_whole && recipe.tile_along > 1) made.columns += along / 2;
  made.values.resize(made.rows * made.columns);
  const std::size_t tiles_across = (made.columns + along - 1) / along;
  const TileMaker maker(recipe, is_one);
  for (std::size_t row = 0; row < made.rows; ++row) {
    for (std::size_t column = 0; column < made.columns; ++column) {
      const std::size_t tile = row / across * tiles_across + column / along;
      const std::size_t place = row % across * along + column % along;
      // Where rows and columns share a scale, all elements are of one tile.
      const std::size_t index = is_one ? row * made.columns + column : place;
      made.values[row * made.columns + column] = maker.element(is_one ? 0 : tile, index, across * along);
    }
  }
  return made;
}

}  // namespace

ExerciseInput exercise(const Recipe& recipe, Direction direction, const Format& input_type) {
  const DefaultEnvironment environment;
  check_recipe(recipe);
  ExerciseInput made = exercise_in_rows(recipe);
  if (input_type == binary16) narrow(Narrowing::float16, made.values);
  if (input_type == bfloat16) narrow(Narrowing::bfloat16, made.values);
  if (direction == Direction::rowwise) return made;
  const Source turned =
      Source(MatrixView(std::span<const float>(made.values), made.rows, made.columns), 1).transposed();
  made.values.assign(turned.values().begin(), turned.values().end());
  std::swap(made.rows, made.columns);
  return made;
}

std::vector<Exercised> exercised_by(const Source& source, const Hypothesis& hypothesis, bool is_modelled) {
  const InputCounts counts = counts_of(source, hypothesis, is_modelled);
  const ExerciseInput all = exercise(hypothesis.recipe, Direction::rowwise, source.type());
  const Source best(MatrixView(std::span<const float>(all.values), all.rows, all.columns), 1);
  const InputCounts needed = counts_of(best, hypothesis, is_modelled);
  std::vector<Exercised> found;
  for (std::size_t i = 0; i < kinds; ++i) {
    if (counts[i] == 0 && needed[i] == 0) continue;
    found.push_back({static_cast<InputKind>(i), counts[i], needed[i] != 0});
  }
  return found;
}

std::vector<std::uint16_t> kinds_of_elements(const MatrixView& x, const Recipe& recipe, Direction direction) {
  const DefaultEnvironment environment;
  check_recipe(recipe);
  Source source(x, 1);
  if (direction == Direction::columnwise) source = source.transposed();
  std::vector<std::uint16_t> all(source.size());
  for (std::size_t row = 0; row < source.rows(); ++row) {
    const auto values = source.values({row, 0, source.columns()});
    std::ranges::transform(values, all.begin() + static_cast<std::ptrdiff_t>(row * source.columns()), kinds_of_value);
  }
  const Hypothesis plain{.base = "", .recipe = recipe};
  const KernelModel model(source, plain, nullptr);
  const bool has_codes = recipe.format.has_subnormals && recipe.format.bits() <= 8;
  if (!has_codes || is_given(recipe) || !is_modelled(recipe) || !model.applies()) return all;
  model.complete();
  const Ranges ranges = ranges_in(recipe.format);
  const std::vector<std::uint16_t> of_tiles = kinds_of_tiles(model, source);
  const Amaxes& tiles = model.tiles();
  std::vector<float> products(source.columns());
  for (std::size_t row = 0; row < source.rows(); ++row) {
    model.scaled({row, 0, source.columns()}, products);
    const std::size_t first_tile = row / tiles.across * tiles.tiles_across;
    for (std::size_t column = 0; column < source.columns(); ++column) {
      std::uint16_t& own = all[row * source.columns() + column];
      own |= kinds_of_product(products[column], ranges);
      own |= of_tiles[first_tile + tiles.tile_column(column)];
    }
  }
  return all;
}

std::vector<std::string> findings_by_kind(std::span<const std::uint16_t> kinds, std::span<const std::uint8_t> differs) {
  if (kinds.size() != differs.size()) {
    refuse("there are the kinds of ", kinds.size(), " elements, and ", differs.size(), " elements that may differ");
  }
  constexpr auto one_tie = std::uint32_t{bit_of(InputKind::ties)} | bit_of(InputKind::subnormal_ties);
  constexpr auto one_small =
      std::uint32_t{bit_of(InputKind::underflow)} | bit_of(InputKind::subnormals) | bit_of(InputKind::subnormal_ties);
  std::array<std::uint64_t, 18> others{};
  std::uint32_t shared = (1U << others.size()) - 1;
  std::uint64_t differing = 0;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    std::uint32_t own = kinds[i];
    if ((own & one_tie) != 0) own |= any_tie;
    if ((own & one_small) != 0) own |= any_subnormal;
    if (differs[i] != 0) {
      ++differing;
      shared &= own;
      continue;
    }
    for (; own != 0; own &= own - 1) ++others[static_cast<std::size_t>(std::countr_zero(own))];
  }
  return told_kinds(input_kind_words, shared, {kinds.size(), differing, others});
}

}  // namespace fp8lab::doctor
