// SPDX-License-Identifier: Apache-2.0
#include "quantize/hypotheses.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fp8lab/formats/policy.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/scaling/recipe_names.hpp"

namespace fp8lab::doctor {
namespace {

using enum Departure;

template <typename... Parts>
std::string words(const Parts&... parts) {
  TextStream text;
  (text << ... << parts);
  return text.str();
}

double cost_of_change(std::string_view field) {
  struct Cost {
    std::string_view field;
    double cost;
  };
  constexpr std::array costs{Cost{"cast", 1.0},      Cost{"operation", 1.01}, Cost{"rounding", 1.02},
                             Cost{"quotient", 1.03}, Cost{"factor", 1.03},    Cost{"format", 1.06},
                             Cost{"stochastic", 1.5}};
  const auto* const found = std::ranges::find(costs, field, &Cost::field);
  return found == costs.end() ? 1.1 : found->cost;
}

/// Numbers that kernels add to an amax or a scale, or put in place of smaller ones.
constexpr std::array small_numbers{1e-4F, 1e-5F, 1e-6F, 1e-7F, 1e-8F, 1e-9F, 1e-10F, 1e-11F, 1e-12F};

double cost_of(Departure departure) {
  if (departure == scale_as_stored) return 2.5;
  if (departure == scale_missing) return 1.2;
  return 1.02 + 0.0007 * static_cast<double>(departure);
}

/// Makes the variants of one candidate.
class Variants {
 public:
  Variants(const Candidate& candidate, const SearchFacts& facts, const std::function<void(Candidate)>& f,
           Numbers numbers)
      : candidate_(candidate), facts_(facts), f_(f), numbers_(numbers) {}

  void change_fields() {
    if (numbers_ != Numbers::alone) change_tiles();
    Recipe recipe = candidate_.hypothesis.recipe;
    for_fields(recipe, [&](std::string_view name, auto& field) { change(recipe, name, field); });
  }

  void depart() {
    for (const Named<Departure>& one : departures()) {
      const auto& deviations = candidate_.hypothesis.deviations;
      if (!is_searched(one.value) || std::ranges::count(deviations, one.value, &Deviation::departure) != 0) continue;
      double cost = cost_of(one.value);
      for (const Deviation& deviation : deviations_of(one.value)) {
        if (!is_wanted(deviation)) continue;
        emit(deviation, cost);
        if (deviation.value == 0) cost += 0.0002;  // of several edges the usual one comes first
      }
    }
  }

  /// The likely ones first: as rows are padded.
  void change_row_stride() const {
    const std::size_t across = tiles_across();
    if (across < 2 || tiles_down() < 2) return;
    std::vector<std::size_t> strides{across - 1, across + 1};
    for (const std::size_t multiple : {4, 8, 16, 32, 128})
      strides.push_back((across + multiple - 1) / multiple * multiple);
    for (std::size_t stride = 1; stride <= 2 * across; ++stride) strides.push_back(stride);
    double cost = cost_of(scale_row_stride);
    for (auto one = strides.begin(); one != strides.end(); ++one) {
      if (*one == across || std::find(strides.begin(), one, *one) != one) continue;
      emit({.departure = scale_row_stride, .value = static_cast<float>(*one)}, cost);
      cost += 0.0002;
    }
  }

 private:
  /// The rows and columns of a tile; 0: all.
  struct Shape {
    std::size_t across, along;
  };
  /// Whether no recipe has tiles of that shape.
  static bool is_rectangle(const Shape& shape) { return shape.across != 1 && shape.across != shape.along; }

  /// Tiles of usual lengths, and of whole rows or columns, whose number is that of the scales.
  [[nodiscard]] std::vector<Shape> derived_shapes() const {
    std::vector<Shape> shapes;
    if (facts_.scales < 2) return shapes;
    const auto tiles = [](std::size_t length, std::size_t tile) {
      return tile == 0 ? std::size_t{1} : (length + tile - 1) / tile;
    };
    const auto add = [&](std::size_t across, std::size_t along) {
      if (across >= facts_.rows || along >= facts_.columns) return;
      const auto is_this = [&](const Shape& one) { return one.across == across && one.along == along; };
      const bool fits = tiles(facts_.rows, across) * tiles(facts_.columns, along) == facts_.scales;
      if (fits && std::ranges::none_of(shapes, is_this)) shapes.push_back({across, along});
    };
    // Tiles of one column are those of a row of the transpose.
    constexpr std::array<std::size_t, 6> lengths{16, 32, 64, 128, 256, 512};
    for (const std::size_t along : lengths) {
      add(1, along);
      for (const std::size_t across : lengths) add(across, along);
    }
    if (facts_.rows > facts_.scales) add(tiles(facts_.rows, facts_.scales), 0);
    if (facts_.columns > facts_.scales) add(0, tiles(facts_.columns, facts_.scales));
    return shapes;
  }

  /// A departure with the numbers that are tried.
  [[nodiscard]] std::vector<Deviation> deviations_of(Departure departure) const {
    std::vector<Deviation> all;
    const auto add = [&](float value) { all.push_back({.departure = departure, .value = value}); };
    if (departure == tile_starts_early || departure == tile_starts_late) {
      for (const TileEdge edge : {TileEdge::usual, TileEdge::other, TileEdge::uncounted}) {
        all.push_back({.departure = departure, .place = static_cast<std::uint64_t>(edge)});
      }
    } else if (departure == tile_shape) {
      for (const Shape& one : derived_shapes()) {
        if (is_rectangle(one)) all.push_back({.departure = departure, .place = one.across, .last = one.along});
      }
    } else if (departure == scale_of_next_tile || departure == scale_of_previous_tile) {
      add(0);
      if (tiles_down() > 1) all.push_back({.departure = departure, .place = 1});
    } else if (departure == tensor_scale_missing) {
      add(0);
      all.push_back({.departure = departure, .place = 1});
    } else if (departure == scale_row_stride) {
      // A tile less or more than there are, or as many as a padded row has. Others are looked for apart.
      const std::size_t across = tiles_across();
      const std::size_t padded = (across + 3) / 4 * 4;
      for (const std::size_t stride : {across - 1, across + 1}) add(static_cast<float>(stride));
      if (padded > across + 1) add(static_cast<float>(padded));
    } else if (departure == amax_of_first || departure == amax_of_last) {
      // A vector of 8 elements or more is left out; half of a tile has a name of its own.
      const std::size_t along = candidate_.hypothesis.recipe.tile_along;
      for (std::size_t count = 8; count < along; count += 8) {
        if (count * 2 != along) add(static_cast<float>(count));
      }
    } else {
      for (const float value : values_of(departure)) add(value);
    }
    return all;
  }

  [[nodiscard]] std::size_t tiles_across() const {
    const std::size_t along = candidate_.hypothesis.recipe.tile_along;
    return along == 0 ? 1 : (facts_.columns + along - 1) / along;
  }
  [[nodiscard]] std::size_t tiles_down() const {
    const std::size_t across = candidate_.hypothesis.recipe.tile_across;
    return across == 0 ? 1 : (facts_.rows + across - 1) / across;
  }

  /// The numbers that are tried; 0 where a departure has none.
  static std::span<const float> values_of(Departure departure) {
    static constexpr std::array none{0.0F};
    static constexpr std::array moved{1.0F, -1.0F};
    static constexpr std::array largest{256.0F, 464.0F, 480.0F};
    if (departure == largest_of_value) return largest;
    if (departure == amax_of_moved_window) return moved;
    return departure == amax_plus || departure == scale_plus ? std::span<const float>(small_numbers) : none;
  }

  /// A bound below the amaxes of all tiles; 0 where none is known.
  [[nodiscard]] float least_amax() const {
    const Recipe& recipe = candidate_.hypothesis.recipe;
    const bool has_runs = recipe.tile_along % 16 == 0 || recipe.tile_along > 30;
    const auto is_of_amax = [](const Deviation& one) { return one.departure < scale_of_next_tile; };
    if (!has_runs || has_tensor_scale(recipe)) return 0;
    return std::ranges::any_of(candidate_.hypothesis.deviations, is_of_amax) ? 0 : facts_.least_run;
  }
  /// A bound below all scale_inv of recipes without a tensor's scale: amaxes over the largest value of any format.
  [[nodiscard]] float least_scale() const { return least_amax() / largest_of(e5m2); }
  /// Whether a small number, added to all amaxes or scales, changes one.
  [[nodiscard]] bool changes_a_scale(Departure departure, float value) const {
    if (departure != amax_plus && departure != scale_plus) return true;
    return value >= (departure == amax_plus ? least_amax() : least_scale()) * 0x1p-26F;
  }

  /// Whether the departure is one that is asked for, with a number that makes a difference.
  [[nodiscard]] bool is_wanted(const Deviation& one) const {
    const bool is_number = one.departure == amax_plus || one.departure == scale_plus;
    if (numbers_ == Numbers::alone) return is_number && changes_a_scale(one.departure, one.value);
    return one.value == 0 || (numbers_ == Numbers::with && changes_a_scale(one.departure, one.value));
  }

  /// Whether the departure can make a difference without further knowledge.
  [[nodiscard]] bool is_searched(Departure departure) const {
    const Recipe& recipe = candidate_.hypothesis.recipe;
    const bool has_tiles = recipe.tile_along != 0;
    const bool is_bfloat16 = facts_.input_type == bfloat16;
    const bool is_float16 = facts_.input_type == binary16;
    switch (departure) {
      case input_float16:
      case elements_float16:
      case amax_float16: return !is_float16;
      case input_bfloat16:
      case elements_bfloat16:
      case amax_bfloat16: return !is_bfloat16;
      case amax_of_first_half:
      case amax_of_second_half:
      case amax_of_even_elements:
      case amax_of_odd_elements: return has_tiles || recipe.tile_across == 1;
      case tile_shape: return !has_tensor_scale(recipe) && !is_given(recipe);
      case amax_reads_next:
      case amax_of_moved_window:
      case amax_of_first:
      case amax_of_last:
      case tile_starts_early:
      case tile_starts_late:
      case scale_of_next_tile:
      case scale_of_previous_tile: return has_tiles;
      case scale_row_stride:
      case scale_index_turned: return has_tiles && tiles_across() > 1 && tiles_down() > 1;
      case scale_of_first_row: return tiles_down() > 1;
      case scale_of_first_tile: return tiles_across() > 1;
      case tensor_scale_missing: return has_tensor_scale(recipe);
      case stored_unrounded: return facts_.scales != 0 && !facts_.scales_are_bytes;
      case largest_of_e4m3fnuz: return recipe.format != e4m3fnuz && recipe.format.bits() == 8;
      case largest_of_e5m2: return recipe.format != e5m2 && recipe.format.bits() == 8;
      case largest_of_e4m3: return recipe.format != e4m3;
      case largest_of_e2m1: return recipe.format != e2m1;
      case largest_of_value: return recipe.format == e4m3 && !is_given(recipe);
      case amax_plus:
      case scale_plus:
        // Many numbers: in pairs alone, under a tensor's scale not even there.
        if (candidate_.hypothesis.deviations.size() > (has_tensor_scale(recipe) ? 0 : 1)) return false;
        return (departure == amax_plus || recipe.scale_type == ScaleType::float32) && !is_given(recipe);
      case clamped_to_240: return recipe.format == e4m3 || recipe.format == e5m2;
      case stored_of_previous_tile:
      case stored_of_next_tile: return has_tiles && facts_.scales > 1;
      // A single scale has no other place.
      case stored_one_late:
      case stored_one_early:
      case stored_of_previous_row:
      case stored_of_next_row: return facts_.scales > 1;
      case stored_for_tma: return facts_.scales > 0 && facts_.scales % 4 == 0;
      case pairs_swapped:
      case pairs_of_halves: return recipe.format.bits() == 4;
      case amax_of_first_elements:
      case amax_times:
      case scale_times:
      case stored_end_unwritten:
      case tiles_as_stored:
      case scale_stale:
      case tensor_scale_stale:
      case tensor_scale_given:
      case tile_scales_given:
      case columns_unwritten:
      case rows_unwritten:
      case end_unwritten:
      case block_unwritten:
      case codes_unwritten:
      case tile_of_left_neighbor:
      case tile_of_right_neighbor:
      case tile_of_upper_neighbor:
      case tile_of_lower_neighbor: return false;
      default: break;
    }
    return facts_.scales != 0 || (departure < stored_inverted && departure != scale_as_stored);
  }

  void emit(const Deviation& deviation, double cost) const {
    Candidate other = candidate_;
    other.hypothesis.deviations.push_back(deviation);
    other.cost += cost;
    f_(std::move(other));
  }

  void emit(const Recipe& recipe, std::string_view field, std::string change) const {
    if (recipe == candidate_.hypothesis.recipe || !is_valid(recipe)) return;
    Candidate other = candidate_;
    other.hypothesis.recipe = recipe;
    other.hypothesis.changes.push_back(std::move(change));
    other.cost += cost_of_change(field);
    // A scale that is rounded where it is stored alone is one departure from a recipe that rounds nothing.
    const bool is_of_stored = recipe.rounding != ScaleRounding::none && recipe.factor == FactorRule::largest_over_amax;
    if (is_of_stored && (field == "rounding" || field == "factor")) other.cost += 0.2;
    f_(std::move(other));
  }

  void change_tiles() const {
    std::vector<Shape> shapes{Shape{0, 0},   Shape{1, 0},   Shape{0, 1},   Shape{1, 16},   Shape{16, 1},  Shape{1, 32},
                              Shape{32, 1},  Shape{1, 64},  Shape{64, 1},  Shape{1, 128},  Shape{128, 1}, Shape{1, 256},
                              Shape{16, 16}, Shape{32, 32}, Shape{64, 64}, Shape{128, 128}};
    // Tiles of one row whose number is that of the scales.
    const std::size_t in_row = facts_.scales / facts_.rows;
    if (in_row > 1 && in_row * facts_.rows == facts_.scales) {
      const Shape derived{1, (facts_.columns + in_row - 1) / in_row};
      const auto is_derived = [&](const Shape& one) { return one.across == 1 && one.along == derived.along; };
      const bool fits = (facts_.columns + derived.along - 1) / derived.along == in_row;
      if (fits && std::ranges::none_of(shapes, is_derived)) shapes.push_back(derived);
    }
    for (const Shape& one : derived_shapes()) {
      const auto is_this = [&](const Shape& other) { return other.across == one.across && other.along == one.along; };
      if (!is_rectangle(one) && std::ranges::none_of(shapes, is_this)) shapes.push_back(one);
    }
    const Recipe& own = candidate_.hypothesis.recipe;
    const auto text = [](std::size_t length) { return length == 0 ? std::string("all") : std::to_string(length); };
    for (const auto& [across, along] : shapes) {
      Recipe recipe = own;
      recipe.tile_across = across;
      recipe.tile_along = along;
      emit(recipe, "tile",
           words("tiles are ", text(across), " x ", text(along), " instead of ", text(own.tile_across), " x ",
                 text(own.tile_along)));
    }
  }

  /// Puts values into a field of the recipe and takes them out again.
  template <typename Value, typename Values, typename Text>
  void put(const Recipe& recipe, std::string_view name, Value& field, const Values& values, const Text& text) const {
    const Value own = field;
    for (const auto& value : values) {
      if (value == own) continue;
      field = value;
      emit(recipe, name, words(name, " is ", text(value), " instead of ", text(own)));
    }
    field = own;
  }

  /// The values that named recipes have in that field.
  template <typename Value>
  static std::vector<Value> used_values(std::string_view name) {
    std::vector<Value> values;
    for (const NamedRecipe& one : recipes()) {
      for_fields(one.recipe, [&](std::string_view other, const auto& value) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, Value>) {
          if (other == name && std::ranges::count(values, value) == 0) values.push_back(value);
        }
      });
    }
    return values;
  }

  /// Adds small numbers to the floors of an amax or scale, and leaves those that an amax of the tensor may lie below.
  template <typename Value>
  void leave_floors(std::string_view name, Value own, std::vector<Value>& values) const {
    const bool adds_floors = numbers_ != Numbers::without && !has_tensor_scale(candidate_.hypothesis.recipe);
    for (const float value : small_numbers) {
      const auto floor = static_cast<Value>(value);
      if (adds_floors && std::ranges::count(values, floor) == 0) values.push_back(floor);
    }
    constexpr float margin = 2;  // some floors are rounded to a short type
    const float least = (name == "least_scale_inv" ? least_scale() : least_amax()) / margin;
    std::erase_if(values, [&](Value value) { return static_cast<float>(std::max(value, own)) < least; });
  }

  template <typename Value>
  void change(const Recipe& recipe, std::string_view name, Value& field) const {
    const bool is_floor = name == "least_amax" || name == "least_scale_inv";
    if (numbers_ == Numbers::alone && !is_floor) return;
    if constexpr (std::is_enum_v<Value>) {
      std::vector<Value> values;
      for (const Named<Value>& one : named_values(field)) values.push_back(one.value);
      put(recipe, name, field, values, [](Value value) { return name_of(value); });
    } else if constexpr (std::is_same_v<Value, Format>) {
      std::vector<Format> values;
      for (const NamedFormat& one : named_formats) {
        if (may_be_codes(facts_, one.format) && one.format.is_signed) values.push_back(one.format);
      }
      put(recipe, name, field, values, [](const Format& value) { return format_name(value); });
    } else if constexpr (std::is_floating_point_v<Value>) {
      std::vector<Value> values = used_values<Value>(name);
      if (is_floor) leave_floors(name, field, values);
      if (name != "given_scale") put(recipe, name, field, values, [](Value value) { return value; });
    } else if constexpr (std::is_same_v<Value, CastPolicy>) {
      change_cast(recipe, field);
    } else if constexpr (std::is_same_v<Value, int>) {
      put(recipe, name, field, std::array{0, 1, 2, 3}, [](int value) { return value; });
    }
    // Other fields say which shapes are refused and how codes are laid out, or are changed together.
  }

  void change_cast(const Recipe& recipe, CastPolicy& field) const {
    const CastPolicy own = field;
    const auto with = [&](const CastPolicy& cast, std::string_view cost, std::string text) {
      field = cast;
      emit(recipe, cost, std::move(text));
      field = own;
    };
    for (const Named<Rounding>& one : named_roundings) {
      CastPolicy cast = own;
      cast.rounding = one.value;
      with(cast, one.value == Rounding::stochastic ? "stochastic" : "cast",
           words("codes are rounded ", one.name, " instead of ", name_of(own.rounding)));
    }
    for (const Profile& one : profiles) {
      CastPolicy cast = one.policy;
      cast.rounding = own.rounding;
      if (!one.name.starts_with("e8m0")) with(cast, "cast", words("codes are cast as ", one.name, " does"));
    }
    CastPolicy cast = own;
    cast.nan = cast.nan_of_double = NanCode::largest;
    with(cast, "cast", "NaN becomes the largest value");
    cast = own;
    cast.overflow = Overflow::to_special;
    with(cast, "cast", "what is too large does not saturate");
    cast.infinity = Overflow::to_special;
    with(cast, "cast", "what is too large, or infinite, does not saturate");
    cast = own;
    cast.overflow = cast.infinity = Overflow::saturate;
    with(cast, "cast", "what is too large saturates");
  }

  const Candidate& candidate_;
  const SearchFacts& facts_;
  const std::function<void(Candidate)>& f_;
  Numbers numbers_;
};

/// The field of a recipe at that place in its order.
template <typename Field>
const Field* field_at(const Recipe& recipe, std::size_t place) {
  const Field* found = nullptr;
  std::size_t at = 0;
  for_fields(recipe, [&](std::string_view, const auto& field) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(field)>, Field>) {
      if (at == place) found = &field;
    }
    ++at;
  });
  return found;
}

/// Puts fields of `changed` that differ from those of `base` into another recipe. Nothing where it has other values
/// there than the base.
std::optional<Recipe> with_changes(Recipe recipe, const Recipe& changed, const Recipe& base) {
  bool has_same = true;
  std::size_t place = 0;
  for_fields(recipe, [&](std::string_view, auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    const Field* const own = field_at<Field>(changed, place);
    const Field* const before = field_at<Field>(base, place++);
    if (*own == *before) return;
    has_same = has_same && field == *before;
    field = *own;
  });
  if (!has_same || !is_valid(recipe)) return std::nullopt;
  return recipe;
}

}  // namespace

std::optional<Candidate> moved_to(const Candidate& other, const Candidate& candidate, const Candidate& base) {
  const auto recipe = with_changes(other.hypothesis.recipe, candidate.hypothesis.recipe, base.hypothesis.recipe);
  if (!recipe) return std::nullopt;
  Candidate moved = candidate;
  moved.hypothesis.base = other.hypothesis.base;
  moved.hypothesis.also = other.hypothesis.also;
  moved.hypothesis.recipe = *recipe;
  moved.cost += other.cost - base.cost;
  return moved;
}

void for_each_variant(const Candidate& candidate, const SearchFacts& facts, const std::function<void(Candidate)>& f,
                      Numbers numbers) {
  Variants variants(candidate, facts, f, numbers);
  variants.change_fields();
  variants.depart();
}

void for_each_row_stride(const Candidate& candidate, const SearchFacts& facts,
                         const std::function<void(Candidate)>& f) {
  const Variants variants(candidate, facts, f, Numbers::without);
  variants.change_row_stride();
}

}  // namespace fp8lab::doctor
