// SPDX-License-Identifier: Apache-2.0
#include "quantize/hypotheses.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fp8lab/formats/policy.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/scaling/recipe_names.hpp"
#include "quantize/departures/shared.hpp"
#include "search/words.hpp"

namespace fp8lab::doctor {
namespace {

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

  void depart() const {
    const SearchCase own(candidate_.hypothesis, facts_);
    for_each_departure([&](const Departure& row) {
      const bool lacks_scales = row.stage == KernelStage::stored && facts_.scales == 0;
      if (lacks_scales || has(candidate_.hypothesis, row) || !row.is_searched(own)) return;
      double cost = row.cost;
      for (Deviation& one : row.numbers == nullptr ? std::vector<Deviation>(1) : row.numbers(own)) {
        one.departure = &row;
        if (!is_wanted(one)) continue;
        emit(one, cost);
        if (one.value == 0) cost += 0.0002;  // of several edges the usual one comes first
      }
    });
  }

  /// The likely ones first.
  void try_more_numbers() const {
    const SearchCase own(candidate_.hypothesis, facts_);
    for_each_departure([&](const Departure& row) {
      if (row.more_numbers == nullptr || !row.is_searched(own)) return;
      double cost = row.cost;
      for (Deviation& one : row.more_numbers(own)) {
        one.departure = &row;
        emit(one, cost);
        cost += 0.0002;
      }
    });
  }

 private:
  /// Whether the number is one that is asked for.
  [[nodiscard]] bool is_wanted(const Deviation& one) const {
    if (numbers_ == Numbers::alone) return one.departure->adds_small_number;
    return one.value == 0 || numbers_ == Numbers::with;
  }

  void emit(const Deviation& deviation, double cost) const { f_(with_deviation(candidate_, deviation, cost)); }

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
    std::vector<TileShape> shapes{TileShape{0, 0},   TileShape{1, 0},   TileShape{0, 1},   TileShape{1, 16},
                                  TileShape{16, 1},  TileShape{1, 32},  TileShape{32, 1},  TileShape{1, 64},
                                  TileShape{64, 1},  TileShape{1, 128}, TileShape{128, 1}, TileShape{1, 256},
                                  TileShape{16, 16}, TileShape{32, 32}, TileShape{64, 64}, TileShape{128, 128}};
    // Tiles of one row whose number is that of the scales.
    const std::size_t in_row = facts_.scales / facts_.rows;
    if (in_row > 1 && in_row * facts_.rows == facts_.scales) {
      const TileShape derived{1, (facts_.columns + in_row - 1) / in_row};
      const auto is_derived = [&](const TileShape& one) { return one.across == 1 && one.along == derived.along; };
      const bool fits = (facts_.columns + derived.along - 1) / derived.along == in_row;
      if (fits && std::ranges::none_of(shapes, is_derived)) shapes.push_back(derived);
    }
    for (const TileShape& one : shapes_of_as_many_tiles(facts_)) {
      const auto is_this = [&](const TileShape& other) {
        return other.across == one.across && other.along == one.along;
      };
      const bool is_rectangle = one.across != 1 && one.across != one.along;
      if (!is_rectangle && std::ranges::none_of(shapes, is_this)) shapes.push_back(one);
    }
    const Recipe& own = candidate_.hypothesis.recipe;
    const auto text = [](std::size_t length) { return length == 0 ? std::string("all") : std::to_string(length); };
    for (const auto& [across, along] : shapes) {
      Recipe recipe = own;
      recipe.tile_across = across;
      recipe.tile_along = along;
      emit(recipe, "tile",
           joined("tiles are ", text(across), " x ", text(along), " instead of ", text(own.tile_across), " x ",
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
      emit(recipe, name, joined(name, " is ", text(value), " instead of ", text(own)));
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
    const SearchCase known(candidate_.hypothesis, facts_);
    const float least = (name == "least_scale_inv" ? known.least_scale() : known.least_amax()) / margin;
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
           joined("codes are rounded ", one.name, " instead of ", name_of(own.rounding)));
    }
    for (const Profile& one : profiles) {
      CastPolicy cast = one.policy;
      cast.rounding = own.rounding;
      if (!one.name.starts_with("e8m0")) with(cast, "cast", joined("codes are cast as ", one.name, " does"));
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
    const auto* const own = field_at<Field>(changed, place);
    const auto* const before = field_at<Field>(base, place++);
    if (*own == *before) return;
    has_same = has_same && field == *before;
    field = *own;
  });
  if (!has_same || !is_valid(recipe)) return std::nullopt;
  return recipe;
}

}  // namespace

float SearchCase::least_amax() const {
  const bool has_runs = recipe().tile_along % 16 == 0 || recipe().tile_along > 30;
  const auto is_of_amax = [](const Deviation& one) { return one.departure->stage <= KernelStage::tile; };
  if (!has_runs || has_tensor_scale(recipe())) return 0;
  return std::ranges::any_of(hypothesis_->deviations, is_of_amax) ? 0 : facts_->least_run;
}

float SearchCase::least_scale() const { return least_amax() / largest_of(e5m2); }

std::vector<TileShape> shapes_of_as_many_tiles(const SearchFacts& facts) {
  std::vector<TileShape> shapes;
  if (facts.scales < 2) return shapes;
  const auto tiles = [](std::size_t length, std::size_t tile) {
    return tile == 0 ? std::size_t{1} : (length + tile - 1) / tile;
  };
  const auto add = [&](std::size_t across, std::size_t along) {
    if (across >= facts.rows || along >= facts.columns) return;
    const auto is_this = [&](const TileShape& one) { return one.across == across && one.along == along; };
    const bool fits = tiles(facts.rows, across) * tiles(facts.columns, along) == facts.scales;
    if (fits && std::ranges::none_of(shapes, is_this)) shapes.push_back({across, along});
  };
  // Tiles of one column are those of a row of the transpose.
  constexpr std::array<std::size_t, 6> lengths{16, 32, 64, 128, 256, 512};
  for (const std::size_t along : lengths) {
    add(1, along);
    for (const std::size_t across : lengths) add(across, along);
  }
  if (facts.rows > facts.scales) add(tiles(facts.rows, facts.scales), 0);
  if (facts.columns > facts.scales) add(0, tiles(facts.columns, facts.scales));
  return shapes;
}

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

void for_each_further_number(const Candidate& candidate, const SearchFacts& facts,
                             const std::function<void(Candidate)>& f) {
  const Variants variants(candidate, facts, f, Numbers::without);
  variants.try_more_numbers();
}

Candidate with_deviation(Candidate candidate, const Deviation& deviation, double cost) {
  candidate.hypothesis.deviations.push_back(deviation);
  candidate.cost += cost;
  return candidate;
}

}  // namespace fp8lab::doctor
