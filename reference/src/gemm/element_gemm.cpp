// SPDX-License-Identifier: Apache-2.0
#include "gemm/element_gemm.hpp"

#include <algorithm>
#include <cmath>

namespace fp8lab {
namespace {

/// Elements that are computed at a time.
constexpr std::size_t elements_at_once = 128;

/// An element of the tile along K whose scale multiplies products from k on.
std::size_t tile_of(std::size_t k, std::size_t tile_depth, bool is_previous) {
  return is_previous && k >= tile_depth ? k - tile_depth : k;
}

/// The sum of numbers in that order, in float32, rounded to `type` after each addition.
float sum_of(std::vector<float>& parts, PartialOrder order, StepType type) {
  switch (order) {
    case PartialOrder::ascending: break;
    case PartialOrder::descending: std::ranges::reverse(parts); break;
    case PartialOrder::pairwise:
      while (parts.size() > 1) {
        const std::size_t count = parts.size();
        for (std::size_t i = 0; 2 * i + 1 < count; ++i) parts[i] = rounded_to(type, parts[2 * i] + parts[2 * i + 1]);
        if (count % 2 != 0) parts[count / 2] = parts[count - 1];
        parts.resize((count + 1) / 2);
      }
      break;
  }
  float sum = rounded_to(type, parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) sum = rounded_to(type, sum + parts[i]);
  return sum;
}

/// The value that an accumulation starts from where the recipe starts it from c.
float start_of(const GemmRecipe& recipe, float c) {
  const float x = rounded_to(recipe.addend_type, c);
  return recipe.beta == 1 ? x : recipe.beta * x;
}

/// Partial sums of a range, of which `left` are left.
std::size_t partials_in_range(const GemmRecipe& recipe, std::size_t number, std::size_t left) {
  if (number + 1 >= recipe.split_k.size()) return left;
  const auto promote_k = static_cast<std::size_t>(recipe.promote_k);
  const std::size_t count = promote_k == 0 ? 1 : (recipe.split_k[number] + promote_k - 1) / promote_k;
  return std::min(count, left);
}

/// The sums of ranges in the order of their numbers.
std::vector<float> in_order(const std::vector<float>& ranges, const std::vector<std::size_t>& order) {
  std::vector<float> turned;
  for (const std::size_t number : order) {
    if (number < ranges.size()) turned.push_back(ranges[number]);
  }
  return turned;
}

bool is_split(const GemmRecipe& recipe) { return recipe.range_k != 0 || !recipe.split_k.empty(); }

}  // namespace

ElementAddends addends_of(const GemmReading& reading, const GemmAddends& addends, std::size_t row, std::size_t column) {
  ElementAddends result;
  const bool turned = reading.c == CReading::transposed;
  if (!addends.c.empty()) result.c = addends.c[turned ? column * addends.rows + row : row * addends.columns + column];
  std::size_t place = reading.bias == BiasReading::along_rows ? row : column;
  if (reading.bias == BiasReading::next) place = (column + 1) % addends.columns;
  if (reading.bias == BiasReading::previous) place = (column + addends.columns - 1) % addends.columns;
  if (!addends.bias.empty()) result.bias = addends.bias[place];
  return result;
}

GemmRecipe resolved(GemmRecipe recipe, std::size_t depth, std::size_t tile_depth) {
  if (recipe.promote_k == 0 && tile_depth != 0) recipe.promote_k = static_cast<int>(tile_depth);
  if (recipe.ranges != 0) {
    const auto unit = static_cast<std::size_t>(std::max(recipe.promote_k, recipe.model.k()));
    recipe.range_k = ranges_of(recipe, depth, unit).front();
    recipe.ranges = 0;
  }
  if (recipe.range_k >= depth) recipe.range_k = 0;
  return recipe;
}

std::size_t partial_length(const GemmRecipe& recipe, std::size_t depth) {
  if (recipe.promote_k != 0) return static_cast<std::size_t>(recipe.promote_k);
  return recipe.range_k != 0 ? recipe.range_k : depth;
}

std::vector<float> partial_sums_by(const GemmRecipe& recipe, PlainRows& a, PlainRows& b,
                                   std::span<const float> starts) {
  const bool from_c = recipe.c_enters == CEntry::accumulator && recipe.promote_k == 0;
  std::vector<float> first(from_c ? starts.size() : 0);
  std::ranges::transform(starts.first(first.size()), first.begin(), [&](float c) { return start_of(recipe, c); });
  return partial_sums(recipe.model, a, b,
                      {.length = partial_length(recipe, a.depth()),
                       .starts = first,
                       .zero_rule = recipe.zero_rule,
                       .lengths = recipe.promote_k == 0 ? std::span(recipe.split_k) : std::span<const std::size_t>()});
}

float ElementGemm::promoted(float sum, float x, const ScalePair& scales) const {
  float left = x;
  ScaleFactor right = scales.product();
  switch (recipe_.scale_order.value_or(ScaleOrder::scales_first)) {
    case ScaleOrder::scales_first: break;
    case ScaleOrder::accumulator_first:
      left = times(x, scales.first());
      right = scales.second();
      break;
    case ScaleOrder::b_first:
      left = times(x, scales.second());
      right = scales.first();
      break;
  }
  return recipe_.fused && !right.divides ? std::fma(left, right.value, sum) : sum + times(left, right);
}

/// A sum and the partial sum number j, of `length` products: added, promoted under the scales of tiles, or in its
/// place.
float ElementGemm::with_partial(const GemmSums& sums, std::size_t entry, std::size_t length, std::size_t j,
                                float sum) const {
  const float x = sums.partials[j * sums.a.count() + entry];
  if (given_.tile_depth == 0) return recipe_.promote_k != 0 ? sum + x : x;
  const std::size_t k = j * length;
  const std::size_t tile_a = tile_of(k, given_.tile_depth, reading_.a.previous_tile);
  const std::size_t tile_b = tile_of(k, given_.tile_depth, reading_.b.previous_tile);
  return promoted(sum, x,
                  ScalePair(recipe_, reading_, sums.a.tile_scale(entry, tile_a), sums.b.tile_scale(entry, tile_b)));
}

float ElementGemm::accumulated(const GemmSums& sums, std::size_t entry, const ElementAddends& addends) const {
  const std::size_t count = sums.partials.size() / sums.a.count();
  if (recipe_.promote_k == 0 && !is_split(recipe_)) return sums.partials[entry];
  const std::size_t length = recipe_.promote_k != 0 ? static_cast<std::size_t>(recipe_.promote_k) : recipe_.range_k;
  const bool each = reading_.bias == BiasReading::in_each_range;
  std::size_t in_range = recipe_.range_k != 0 ? recipe_.range_k / length : count;
  if (each && recipe_.range_k == 0 && given_.tile_depth == 0) in_range = 1;
  const bool turned = !is_split(recipe_) && recipe_.order == PartialOrder::descending;
  const bool starts_from_c = recipe_.promote_k != 0 && recipe_.c_enters == CEntry::accumulator;
  std::vector<float> ranges;
  for (std::size_t first = 0; first < count; first += in_range) {
    if (!recipe_.split_k.empty()) in_range = partials_in_range(recipe_, ranges.size(), count - first);
    float sum = starts_from_c && first == 0 ? start_of(recipe_, addends.c) : 0;
    const std::size_t last = std::min(count, first + in_range);
    for (std::size_t i = first; i < last; ++i) {
      sum = with_partial(sums, entry, length, turned ? count - 1 - i : i, sum);
    }
    if (each) {
      sum = epilogue_.factors(sums.rows(entry)).scaled(sum) + rounded_to(recipe_.addend_type, addends.bias);
    }
    ranges.push_back(rounded_to(recipe_.partial_type, sum));
  }
  if (!recipe_.split_order.empty()) ranges = in_order(ranges, recipe_.split_order);
  return sum_of(ranges, is_split(recipe_) ? recipe_.order : PartialOrder::ascending, recipe_.total_type);
}

SlowGemm::SlowGemm(const GemmRecipe& recipe, const GemmGiven& given, const Operand& a, const Operand& b,
                   std::span<const float> c)
    : recipe_(resolved(recipe, a.depth, given.tile_depth)), given_(given), a_(a), b_(b), c_(c) {
  const std::optional<BlockScales>& blocks = recipe.model.scales;
  for (Operand* operand : {&a_, &b_}) {
    if (!operand->scales.codes.empty() && !operand->scales.type) operand->scales.type = blocks;
    if (blocks && !operand->tile_scales.values.empty()) tiles_as_blocks_ = static_cast<std::size_t>(blocks->block);
  }
}

void SlowGemm::some(std::span<const std::size_t> left, std::span<const std::size_t> right, std::span<float> out) const {
  const Reading reading{.tiles_as_blocks = tiles_as_blocks_, .k_order = recipe_.k_order};
  PlainRows a(a_, left, a_.depth, reading);
  PlainRows b(b_, right, b_.depth, reading);
  std::vector<float> starts(left.size());
  for (std::size_t i = 0; i < left.size() && !c_.empty(); ++i) starts[i] = c_[left[i] * b_.rows + right[i]];
  const std::vector<float> partials = partial_sums_by(recipe_, a, b, starts);
  const GemmSums sums{partials, a, b};
  const ElementGemm element(recipe_, given_, reading_, a_.tensor_scale, b_.tensor_scale);
  for (std::size_t i = 0; i < left.size(); ++i) out[i] = element.accumulated(sums, i, {.c = starts[i]});
}

void SlowGemm::rows(std::size_t first, std::size_t count, std::span<float> out) const {
  const std::size_t columns = b_.rows;
  if (a_.depth == 0) {
    for (std::size_t i = 0; i < count * columns; ++i)
      out[i] = c_.empty() ? 0 : start_of(recipe_, c_[first * columns + i]);
    return;
  }
  for (std::size_t at = 0; at < count * columns; at += elements_at_once) {
    const std::size_t some_elements = std::min(elements_at_once, count * columns - at);
    std::vector<std::size_t> left(some_elements);
    std::vector<std::size_t> right(some_elements);
    for (std::size_t i = 0; i < some_elements; ++i) {
      left[i] = first + (at + i) / columns;
      right[i] = (at + i) % columns;
    }
    some(left, right, out.subspan(at, some_elements));
  }
}

}  // namespace fp8lab
