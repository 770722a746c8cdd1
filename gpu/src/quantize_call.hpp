// SPDX-License-Identifier: Apache-2.0
// Makes a call of quantize.hpp out of kernels, the same for devices and for the host. `Launch` runs a kernel.
#pragma once

#include <bit>
#include <cmath>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fp8lab/gpu/kernels/cast.hpp"
#include "fp8lab/gpu/kernels/delayed.hpp"
#include "fp8lab/gpu/kernels/dequantize.hpp"
#include "fp8lab/gpu/kernels/fill.hpp"
#include "fp8lab/gpu/kernels/quantize_rows.hpp"
#include "fp8lab/gpu/kernels/quantize_tile.hpp"
#include "fp8lab/gpu/quantize.hpp"
#include "fp8lab/reference/scaling/facts.hpp"

namespace fp8lab::gpu {

/// All that kernels need to know of a direction, worked out of its recipe.
struct DirectionPlan {
  TileShape tile{};          ///< of the tensor, that shares a scale
  bool uniform = false;      ///< one scale for the tensor
  bool tensor_amax = false;  ///< scales depend on the amax of the tensor
  bool transposed = false;   ///< codes are those of the transpose
  bool scale_codes = false;
  std::size_t entry_rows = 1;  ///< of the tensor, that have an entry of the scales
  std::size_t entry_columns = 1;
  bool scales_transposed = false;  ///< a row of their layout has the scales of a column
  std::size_t layout_rows = 1;     ///< of scales
  std::size_t layout_columns = 1;
  QuantizedSizes sizes;
};
[[nodiscard]] DirectionPlan direction_plan(const Recipe& recipe, Direction direction, std::size_t rows,
                                           std::size_t columns, ScaleLayout layout);

/// Throw std::invalid_argument where the call is wrong, before anything is written.
void check_call(const QuantizeCall& call);
void check_view(const QuantizedView& q, std::span<const float> out);
void check_states(const Delayed& recipe, const DelayedStates& states);
void check_matrix(const ElementMatrix& x);

/// An array of a call, as check_device_buffer() takes it.
struct NamedBuffer {
  std::string_view argument;
  const void* address;
  std::size_t bytes;
  std::size_t alignment;
};
[[nodiscard]] std::vector<NamedBuffer> buffers_of(const QuantizeCall& call);
[[nodiscard]] std::vector<NamedBuffer> buffers_of(const QuantizedView& q, std::span<const float> out);
[[nodiscard]] std::vector<NamedBuffer> buffers_of(const DelayedStates& states);
[[nodiscard]] NamedBuffer buffer_of(const ElementMatrix& x);

/// Calls f(pointer) with x's elements.
template <typename Function>
void with_elements(const ElementMatrix& x, const Function& f) {
  switch (x.type) {
    case ElementType::float32: return f(reinterpret_cast<const float*>(x.values.data()));
    case ElementType::float16: return f(reinterpret_cast<const Half*>(x.values.data()));
    case ElementType::bfloat16: break;
  }
  f(reinterpret_cast<const BFloat16*>(x.values.data()));
}
[[nodiscard]] constexpr Format format_of(ElementType type) {
  if (type == ElementType::float32) return binary32;
  return type == ElementType::float16 ? binary16 : bfloat16;
}

template <typename Launch>
void fill_zero(void* to, std::size_t bytes, const Launch& launch) {
  launch(FillZero{static_cast<std::uint8_t*>(to), bytes});
}
[[nodiscard]] inline std::uint32_t* bits_at(float* place) { return reinterpret_cast<std::uint32_t*>(place); }

template <typename Launch>
void launch_amax(const ElementMatrix& x, NanInAmax nan, float* amax, const Launch& launch) {
  fill_zero(amax, sizeof(float), launch);
  with_elements(x, [&]<typename Source>(const Source* values) {
    launch(Amax<Source>{values, x.rows * x.columns, nan, bits_at(amax)});
  });
}

/// A call whose recipe's rule is known: which kernels it needs.
template <typename Source, typename Rule, typename Launch>
class Quantizing {
 public:
  Quantizing(const QuantizeCall& call, const Source* x, const Rule& rule, const Launch& launch)
      : call_(call), x_(x), rule_(rule), launch_(launch) {}

  void run() const {
    const DirectionPlan any = plan(call_.rowwise ? Direction::rowwise : Direction::columnwise);
    prepare();
    if (any.uniform) return run_uniform();
    if constexpr (!std::is_same_v<Rule, GivenRecipe>) run_blocks(any);
  }

 private:
  void run_blocks(const DirectionPlan& any) const {
    if (!call_.columnwise && any.tile.rows == 1 && call_.x.columns % any.tile.columns == 0) {
      return run_rows(any.tile.columns);
    }
    run_tile(any);
  }
  [[nodiscard]] DirectionPlan plan(Direction direction) const {
    return direction_plan(call_.recipe, direction, call_.x.rows, call_.x.columns, call_.layout);
  }
  [[nodiscard]] ScaleMaker<Rule> scales(const float* amax) const {
    const TensorFacts facts{.amax = 0, .input_type = format_of(call_.x.type)};
    return {rule_, scale_constants(call_.recipe, facts), amax, call_.scale};
  }
  [[nodiscard]] std::uint64_t seed() const { return call_.random ? call_.random->seed : 0; }
  [[nodiscard]] std::uint64_t offset() const { return call_.random ? call_.random->offset : 0; }
  [[nodiscard]] static ScaleStore store_of(const QuantizedArrays& arrays, const DirectionPlan& plan,
                                           ScaleLayout layout) {
    return {arrays.scale_inv.data(), plan.scale_codes ? arrays.scale_codes.data() : nullptr, plan.layout_columns,
            layout == ScaleLayout::swizzled};
  }

  /// Padding, and the amaxes that scales depend on.
  void prepare() const {
    for (const auto* arrays : {&call_.rowwise, &call_.columnwise}) {
      if (!*arrays) continue;
      const bool rowwise = arrays == &call_.rowwise;
      if (call_.layout == ScaleLayout::swizzled) {
        fill_zero((*arrays)->scale_codes.data(), (*arrays)->scale_codes.size(), launch_);
      }
      if (!plan(rowwise ? Direction::rowwise : Direction::columnwise).tensor_amax) continue;
      if (!rowwise && call_.recipe.transform != Transform::none) {
        fill_zero((*arrays)->amax, sizeof(float), launch_);
        if constexpr (!std::is_same_v<Rule, GivenRecipe>) {
          auto kernel = tile_kernel<false>(plan(Direction::columnwise), (*arrays)->amax);
          kernel.rowwise.wanted = false;
          kernel.amax_alone = true;
          launch_(kernel);
        }
      } else {
        launch_amax(call_.x, call_.recipe.nan_in_amax, (*arrays)->amax, launch_);
      }
    }
  }

  void run_uniform() const {
    const QuantizedArrays columns = call_.columnwise.value_or(QuantizedArrays{});
    const QuantizedArrays first = call_.rowwise.value_or(columns);
    const bool given = is_given(call_.recipe);
    float* const amax = first.amax == nullptr ? columns.amax : first.amax;
    float* const raised = given ? amax : nullptr;
    if constexpr (std::is_same_v<Rule, AnyRecipe> || std::is_same_v<Rule, GivenRecipe>) {
      if (!call_.columnwise) {
        launch_(Cast<Source, Rule>{x_, call_.x.rows * call_.x.columns, scales(given ? nullptr : first.amax),
                                   first.codes.data(), first.scale_inv.data(), bits_at(raised)});
        return;
      }
      auto kernel = tile_kernel<true>(plan(Direction::columnwise), raised);
      kernel.scales.amax = given ? nullptr : first.amax;
      if (given && call_.rowwise) kernel.also_raised_amax = bits_at(columns.amax);
      launch_(kernel);
    }
  }

  void run_rows(std::size_t along) const {
    const QuantizedArrays arrays = call_.rowwise.value_or(QuantizedArrays{});
    launch_(QuantizeRows<Source, Rule>{x_, call_.x.rows * call_.x.columns, static_cast<unsigned>(along),
                                       scales(arrays.amax), arrays.codes.data(),
                                       store_of(arrays, plan(Direction::rowwise), call_.layout), seed(), offset()});
  }

  [[nodiscard]] TileDirection tile_direction(const std::optional<QuantizedArrays>& arrays, Direction direction) const {
    if (!arrays) return {};
    const DirectionPlan own = plan(direction);
    return {.wanted = true,
            .codes = arrays->codes.data(),
            .store = store_of(*arrays, own, call_.layout),
            .amax = arrays->amax,
            .rows_log2 = own.uniform ? 0 : log2_of(own.tile.rows),
            .columns_log2 = own.uniform ? 0 : log2_of(own.tile.columns),
            .replicated = call_.recipe.scale_for_each_row};
  }
  [[nodiscard]] static unsigned log2_of(std::size_t power) { return static_cast<unsigned>(std::countr_zero(power)); }
  template <bool kUniform>
  [[nodiscard]] QuantizeTile<Source, Rule, kUniform> tile_kernel(const DirectionPlan& any, float* raised) const {
    return {x_,
            call_.x.rows,
            call_.x.columns,
            scales(nullptr),
            tile_direction(call_.rowwise, Direction::rowwise),
            tile_direction(call_.columnwise, Direction::columnwise),
            any.transposed,
            seed(),
            offset(),
            bits_at(raised)};
  }
  void run_tile(const DirectionPlan& any) const {
    launch_(tile_kernel<false>(call_.columnwise ? plan(Direction::columnwise) : any, nullptr));
  }

  const QuantizeCall& call_;
  const Source* x_;
  Rule rule_;
  const Launch& launch_;
};

/// Calls f(rule) with the quickest that the recipe has for elements of type Source. Those of GivenScale and Block are
/// compiled for the types that are quantized most, since each takes the compiler seconds; others take AnyRecipe.
/// Precondition: has_kernel(recipe).
template <typename Source, typename Function>
void with_rule(const Recipe& recipe, const Function& f) {
  const ElementRule element = element_rule_of(recipe).value_or(ElementRule{});
  const bool plain = element.operation == TileOperation::multiply && element.nan == NanCode::positive_all_ones;
  if (plain && !element.stochastic && same_rule(recipe, TeMxRecipe::recipe())) return f(TeMxRecipe{element.format});
  if constexpr (!std::is_same_v<Source, Half>) {
    if (plain && !element.stochastic && same_rule(recipe, GivenRecipe::recipe())) return f(GivenRecipe{element.format});
  }
  if constexpr (std::is_same_v<Source, BFloat16>) {
    for (const bool powers_of_two : {true, false}) {
      const TeBlockRecipe blocks{element.format, powers_of_two};
      if (plain && !element.stochastic && same_rule(recipe, blocks.recipe())) return f(blocks);
    }
  }
  const TeNvFp4Recipe four_bits{recipe.transform, element.stochastic};
  if (plain && same_rule(recipe, four_bits.recipe())) return f(four_bits);
  f(AnyRecipe{recipe, element});
}

template <typename Launch>
void launch_quantize(const QuantizeCall& call, const Launch& launch) {
  with_elements(call.x, [&]<typename Source>(const Source* x) {
    with_rule<Source>(call.recipe, [&]<typename Rule>(const Rule& rule) {
      Quantizing<Source, Rule, Launch>(call, x, rule, launch).run();
    });
  });
}

template <typename Launch>
void launch_dequantize(const QuantizedView& q, std::span<float> out, const Launch& launch) {
  const DirectionPlan plan = direction_plan(q.recipe, q.direction, q.rows, q.columns, q.layout);
  CodeFormat format = CodeFormat::e2m1;
  if (q.recipe.format == e4m3) format = CodeFormat::e4m3;
  if (q.recipe.format == e5m2) format = CodeFormat::e5m2;
  launch(Dequantize{.rows = q.rows,
                    .columns = q.columns,
                    .format = format,
                    .codes = q.codes.data(),
                    .transposed = plan.transposed,
                    .scale_inv = q.scale_inv.data(),
                    .scale_codes = plan.scale_codes ? q.scale_codes.data() : nullptr,
                    .layout = {.columns = plan.layout_columns, .swizzled = q.layout == ScaleLayout::swizzled},
                    .scales_transposed = plan.scales_transposed,
                    .scale_rows = plan.entry_rows,
                    .scale_columns = plan.entry_columns,
                    .scales = {{q.recipe, {}}, scale_constants(q.recipe, {}), q.amax, nullptr},
                    .out = out.data()});
}

template <typename Launch>
void launch_update(const Delayed& recipe, Pass pass, const DelayedStates& states, const Launch& launch) {
  const auto* algo = std::get_if<AmaxComputeAlgo>(&recipe.amax_compute_algo);
  float* const scale_inv = recipe.version.inverse_is_of_the_cast ? nullptr : states.scale_inv.data();
  launch(UpdateScales{states.amaxes.data(), states.scale.data(), scale_inv, states.scale.size(),
                      recipe.amax_history_len, fp8_max(recipe, pass) * std::ldexp(1.0F, -recipe.margin),
                      recipe.version.largest_scale, *algo == AmaxComputeAlgo::most_recent});
}

}  // namespace fp8lab::gpu
