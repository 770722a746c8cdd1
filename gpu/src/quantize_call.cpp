// SPDX-License-Identifier: Apache-2.0
// Checks calls of quantize.hpp, and plans the kernels that they need.
#include "quantize_call.hpp"

#include <cstdint>
#include <string>

#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "reference/src/scaling/quantize_plan.hpp"

namespace fp8lab::gpu {
namespace {

std::size_t size_of(ElementType type) { return type == ElementType::float32 ? 4 : 2; }

void check_size(std::string_view what, std::size_t size, std::size_t wanted, std::string_view unit) {
  if (size != wanted) refuse(what, " must have ", wanted, ' ', unit, ", not ", size);
}
void check_place(std::string_view what, const void* place, std::size_t bytes, std::size_t alignment) {
  if (bytes != 0 && place == nullptr) refuse(what, " must not be null");
  if (reinterpret_cast<std::uintptr_t>(place) % alignment == 0) return;
  refuse(what, " must begin at a multiple of ", alignment, " bytes");
}

std::string known_names() {
  std::string text;
  for (const std::string_view name : recipes_with_kernel()) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

/// The name of a direction's array in messages.
std::string named(Direction direction, std::string_view array) {
  return (direction == Direction::rowwise ? "rowwise." : "columnwise.") + std::string(array);
}

void check_arrays(const QuantizeCall& call, Direction direction, const QuantizedArrays& arrays) {
  const DirectionPlan plan = direction_plan(call.recipe, direction, call.x.rows, call.x.columns, call.layout);
  check_size(named(direction, "codes"), arrays.codes.size(), plan.sizes.codes, "bytes");
  check_size(named(direction, "scale_inv"), arrays.scale_inv.size(), plan.sizes.scale_inv, "floats");
  check_size(named(direction, "scale_codes"), arrays.scale_codes.size(), plan.sizes.scale_codes, "bytes");
  check_place(named(direction, "codes"), arrays.codes.data(), arrays.codes.size(), 1);
  check_place(named(direction, "scale_inv"), arrays.scale_inv.data(), arrays.scale_inv.size(), sizeof(float));
  check_place(named(direction, "scale_codes"), arrays.scale_codes.data(), arrays.scale_codes.size(), 1);
  if (plan.tensor_amax && arrays.amax == nullptr) {
    refuse(named(direction, "amax"), " must have a place: the recipe's scales depend on the amax of the tensor");
  }
  if (!plan.tensor_amax && !is_given(call.recipe) && arrays.amax != nullptr) {
    refuse(named(direction, "amax"), " must be null: the recipe's scales do not depend on the amax of the tensor");
  }
  check_place(named(direction, "amax"), arrays.amax, 0, sizeof(float));
}

/// The arrays that a call writes, as bytes.
std::vector<std::pair<std::string, std::span<const std::byte>>> written(const QuantizeCall& call) {
  std::vector<std::pair<std::string, std::span<const std::byte>>> all;
  const auto add = [&](Direction direction, const std::optional<QuantizedArrays>& arrays) {
    if (!arrays) return;
    all.emplace_back(named(direction, "codes"), std::as_bytes(arrays->codes));
    all.emplace_back(named(direction, "scale_inv"), std::as_bytes(arrays->scale_inv));
    all.emplace_back(named(direction, "scale_codes"), std::as_bytes(arrays->scale_codes));
    all.emplace_back(named(direction, "amax"),
                     std::as_bytes(std::span<const float>(arrays->amax, arrays->amax == nullptr ? 0 : 1)));
  };
  add(Direction::rowwise, call.rowwise);
  add(Direction::columnwise, call.columnwise);
  return all;
}

void check_all_apart(const QuantizeCall& call) {
  const auto all = written(call);
  const auto scale = std::as_bytes(std::span<const float>(call.scale, call.scale == nullptr ? 0 : 1));
  for (std::size_t i = 0; i < all.size(); ++i) {
    check_apart("x", call.x.values, all[i].first, all[i].second);
    check_apart("scale", scale, all[i].first, all[i].second);
    for (std::size_t k = i + 1; k < all.size(); ++k) {
      check_apart(all[i].first, all[i].second, all[k].first, all[k].second);
    }
  }
}

/// Heights and widths of tiles that QuantizeTile takes.
bool has_tile(std::size_t size) { return size == 1 || size == 16 || size == 32 || size == 128; }

}  // namespace

DirectionPlan direction_plan(const Recipe& recipe, Direction direction, std::size_t rows, std::size_t columns,
                             ScaleLayout layout) {
  const QuantizePlan quantized = quantize_plan(recipe, direction, rows, columns);
  DirectionPlan plan{.tile = {rows, columns},
                     .uniform = quantized.uniform,
                     .tensor_amax = quantized.tensor_amax,
                     .transposed = quantized.transposed,
                     .scale_codes = quantized.scale_codes,
                     .entry_rows = rows,
                     .entry_columns = columns,
                     .sizes = {}};
  if (!plan.uniform) {
    plan.tile = {quantized.tile_rows, quantized.tile_columns};
    plan.entry_rows = quantized.scale_height(direction);
    plan.entry_columns = quantized.scale_width(direction);
  }
  plan.layout_rows = ceil_div(rows, plan.entry_rows);
  plan.layout_columns = ceil_div(columns, plan.entry_columns);
  plan.scales_transposed = plan.transposed || (direction == Direction::columnwise && layout == ScaleLayout::swizzled);
  if (plan.scales_transposed) std::swap(plan.layout_rows, plan.layout_columns);
  if (layout == ScaleLayout::swizzled && (!plan.scale_codes || plan.uniform)) {
    refuse("layout must be compact: scales of float32, and one for the tensor, are not swizzled");
  }
  const std::size_t scales = layout == ScaleLayout::swizzled ? swizzled_size(plan.layout_rows, plan.layout_columns)
                                                             : plan.layout_rows * plan.layout_columns;
  plan.sizes = {.codes = recipe.format.bits() == 4 ? rows * columns / 2 : rows * columns,
                .scale_inv = plan.scale_codes ? 0 : scales,
                .scale_codes = plan.scale_codes ? scales : 0};
  return plan;
}

QuantizedSizes quantized_sizes(const Recipe& recipe, Direction direction, std::size_t rows, std::size_t columns,
                               ScaleLayout layout) {
  if (rows == 0 || columns == 0) refuse("rows and columns must be 1 or more, not ", rows, " and ", columns);
  return direction_plan(recipe, direction, rows, columns, layout).sizes;
}

bool has_kernel(const Recipe& recipe) {
  if (!element_rule_of(recipe) || recipe.rounding == ScaleRounding::nearest_by_log2) return false;
  if (recipe.tile_across == 0) return recipe.tile_along == 0 && recipe.format.bits() == 8;
  const bool given = recipe.quotient == Quotient::given_scale || recipe.quotient == Quotient::given_scale_inv;
  return !given && has_tile(recipe.tile_across) && has_tile(recipe.tile_along) && recipe.tile_along >= run_length;
}

std::vector<std::string_view> recipes_with_kernel() {
  std::vector<std::string_view> names;
  for (const NamedRecipe& named : recipes()) {
    if (has_kernel(named.recipe)) names.push_back(named.name);
  }
  return names;
}

std::vector<std::uint32_t> philox_words(const PhiloxState& state, std::size_t words) {
  std::vector<std::uint32_t> all(words);
  for (std::size_t i = 0; i < words; ++i) all[i] = random_of_run(state.seed, state.offset, i / 4).words[i % 4];
  return all;
}

void check_matrix(const ElementMatrix& x) {
  if (x.rows == 0 || x.columns == 0) refuse("x must not be empty: it is ", x.rows, " x ", x.columns);
  if (x.rows > (std::size_t{1} << 36) / x.columns) refuse("x must have at most 2^36 elements");
  check_size("x", x.values.size(), x.rows * x.columns * size_of(x.type), "bytes");
  check_place("x", x.values.data(), x.values.size(), size_of(x.type));
}

void check_call(const QuantizeCall& call) {
  check_matrix(call.x);
  check_recipe(call.recipe);
  if (!has_kernel(call.recipe)) {
    refuse("no kernel quantizes by this recipe; those that have one, and records like them: ", known_names());
  }
  if (!call.rowwise && !call.columnwise) refuse("rowwise or columnwise must be asked for");
  const bool stochastic = is_stochastic(call.recipe);
  if (stochastic && !call.random)
    refuse("random must be given (in Python: philox_seed), for the recipe rounds stochastically");
  if (!stochastic && call.random) refuse("random is for stochastic rounding only");
  if (call.scale != nullptr && call.recipe.quotient != Quotient::given_scale) {
    refuse("scale must be null: the recipe makes its scales itself");
  }
  check_place("scale", call.scale, 0, sizeof(float));
  if (call.rowwise) check_arrays(call, Direction::rowwise, *call.rowwise);
  if (call.columnwise) check_arrays(call, Direction::columnwise, *call.columnwise);
  check_all_apart(call);
}

void check_view(const QuantizedView& q, std::span<const float> out) {
  if (q.rows == 0 || q.columns == 0) refuse("rows and columns must be 1 or more, not ", q.rows, " and ", q.columns);
  const Format& format = q.recipe.format;
  if (format != e4m3 && format != e5m2 && format != e2m1) refuse("codes must be of e4m3, e5m2 or e2m1");
  const DirectionPlan plan = direction_plan(q.recipe, q.direction, q.rows, q.columns, q.layout);
  check_size("codes", q.codes.size(), plan.sizes.codes, "bytes");
  check_size("scale_inv", q.scale_inv.size(), plan.sizes.scale_inv, "floats");
  check_size("scale_codes", q.scale_codes.size(), plan.sizes.scale_codes, "bytes");
  check_size("out", out.size(), q.rows * q.columns, "floats");
  check_place("codes", q.codes.data(), q.codes.size(), 1);
  check_place("scale_inv", q.scale_inv.data(), q.scale_inv.size(), sizeof(float));
  check_place("scale_codes", q.scale_codes.data(), q.scale_codes.size(), 1);
  check_place("out", out.data(), out.size(), sizeof(float));
  if (has_tensor_scale(q.recipe)) check_place("amax", q.amax, sizeof(float), sizeof(float));
  check_apart("codes", q.codes, "out", out);
  check_apart("scale_inv", q.scale_inv, "out", out);
  check_apart("scale_codes", q.scale_codes, "out", out);
  check_apart("amax", std::span<const float>(q.amax, q.amax == nullptr ? 0 : 1), "out", out);
}

void check_states(const Delayed& recipe, const DelayedStates& states) {
  check(recipe);
  const auto has_kernel = [](const DelayedVersion& version) {
    return version.history == HistoryRule::bulk_kernel && version.formula == ScaleFormula::margin_first;
  };
  if (!has_kernel(recipe.version)) {
    std::string names;
    for (const DelayedVersion& one : delayed_versions) {
      if (has_kernel(one)) names.append(names.empty() ? "" : ", ").append(one.name);
    }
    refuse("the kernel's versions of delayed scaling are ", names, ", not ", recipe.version.name);
  }
  if (!std::holds_alternative<AmaxComputeAlgo>(recipe.amax_compute_algo)) {
    refuse("amax_compute_algo must be max or most_recent: no kernel calls a function");
  }
  const std::size_t tensors = states.scale.size();
  check_size("amaxes", states.amaxes.size(), tensors * recipe.amax_history_len, "floats");
  const bool needs_inverses = !recipe.version.inverse_is_of_the_cast;
  if (needs_inverses && states.scale_inv.empty() && tensors != 0) {
    refuse("scale_inv must be given: the update of ", recipe.version.name, " writes it");
  }
  if (needs_inverses || !states.scale_inv.empty()) {
    check_size("scale_inv", states.scale_inv.size(), tensors, "floats");
  }
  check_place("amaxes", states.amaxes.data(), states.amaxes.size(), sizeof(float));
  check_place("scale", states.scale.data(), tensors, sizeof(float));
  check_place("scale_inv", states.scale_inv.data(), states.scale_inv.size(), sizeof(float));
  check_apart("amaxes", states.amaxes, "scale", states.scale);
  check_apart("amaxes", states.amaxes, "scale_inv", states.scale_inv);
  check_apart("scale", states.scale, "scale_inv", states.scale_inv);
}

NamedBuffer buffer_of(const ElementMatrix& x) { return {"x", x.values.data(), x.values.size(), size_of(x.type)}; }

std::vector<NamedBuffer> buffers_of(const QuantizeCall& call) {
  std::vector<NamedBuffer> all{buffer_of(call.x), {"scale", call.scale, call.scale == nullptr ? 0U : 4U, 4}};
  for (const auto* arrays : {&call.rowwise, &call.columnwise}) {
    if (!*arrays) continue;
    all.push_back({"codes", (*arrays)->codes.data(), (*arrays)->codes.size(), 1});
    all.push_back({"scale_inv", (*arrays)->scale_inv.data(), (*arrays)->scale_inv.size_bytes(), 4});
    all.push_back({"scale_codes", (*arrays)->scale_codes.data(), (*arrays)->scale_codes.size(), 1});
    all.push_back({"amax", (*arrays)->amax, (*arrays)->amax == nullptr ? 0U : 4U, 4});
  }
  return all;
}
std::vector<NamedBuffer> buffers_of(const QuantizedView& q, std::span<const float> out) {
  return {{"codes", q.codes.data(), q.codes.size(), 1},
          {"scale_inv", q.scale_inv.data(), q.scale_inv.size_bytes(), 4},
          {"scale_codes", q.scale_codes.data(), q.scale_codes.size(), 1},
          {"amax", q.amax, q.amax == nullptr ? 0U : 4U, 4},
          {"out", out.data(), out.size_bytes(), 4}};
}
std::vector<NamedBuffer> buffers_of(const DelayedStates& states) {
  return {{"amaxes", states.amaxes.data(), states.amaxes.size_bytes(), 4},
          {"scale", states.scale.data(), states.scale.size_bytes(), 4},
          {"scale_inv", states.scale_inv.data(), states.scale_inv.size_bytes(), 4}};
}

}  // namespace fp8lab::gpu
