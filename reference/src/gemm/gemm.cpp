// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/gemm/gemm.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/reference/gemm/gemm_recipe_names.hpp"
#include "gemm/dequantized.hpp"
#include "gemm/element_gemm.hpp"
#include "gemm/exact_gemm.hpp"
#include "gemm/fp64_gemm.hpp"
#include "gemm/sums_along_k.hpp"
#include "gemm/tiled_gemm.hpp"
#include "tensor_core/misfit.hpp"

namespace fp8lab {
namespace {

std::string text(std::size_t number) { return std::to_string(number); }

void check_shapes(const Operand& a, const Operand& b, std::size_t out, const GemmCall& call) {
  if (a.depth != b.depth) {
    throw std::invalid_argument("a and b must have the same K, not " + text(a.depth) + " and " + text(b.depth));
  }
  const auto elements = [&] { return text(a.rows) + " * " + text(b.rows) + " elements"; };
  if (out != a.rows * b.rows) throw std::invalid_argument("out must have " + elements() + ", not " + text(out));
  if (!call.c.empty() && call.c.size() != a.rows * b.rows) {
    throw std::invalid_argument("c must have " + elements() + ", not " + text(call.c.size()));
  }
  if (!call.bias.empty() && call.bias.size() != b.rows) {
    throw std::invalid_argument("bias must have " + text(b.rows) + " elements, one a row of b, not " +
                                text(call.bias.size()));
  }
  if (!call.activation_input.empty() && call.activation_input.size() != a.rows * b.rows) {
    throw std::invalid_argument("activation_input must have " + elements() + ", not " +
                                text(call.activation_input.size()));
  }
  if (!std::isfinite(call.scale_out)) {
    throw std::invalid_argument("scale_out must be finite, not " + std::to_string(call.scale_out));
  }
}

/// The exact product is not composed of anything.
void check_exact(const GemmRecipe& recipe, const Operand& a, const Operand& b, const GemmCall& call) {
  const auto refuse = [](bool given, const std::string& what) {
    if (given) throw std::invalid_argument(what + " does not apply to exact, which has no accumulator to promote");
  };
  const GemmRecipe none;
  refuse(recipe.promote_k != 0, "promote_k");
  refuse(!a.tile_scales.values.empty() || !b.tile_scales.values.empty(), "a tile scale");
  refuse(recipe.ranges != 0, "ranges");
  refuse(recipe.range_k != 0, "range_k");
  refuse(!recipe.split_k.empty(), "split_k");
  refuse(recipe.order != none.order, "order");
  refuse(recipe.partial_type != none.partial_type, "partial_type");
  refuse(recipe.total_type != none.total_type, "total_type");
  refuse(!call.c.empty() && recipe.c_enters == CEntry::accumulator, "a c that the accumulator starts from");
}

/// Requires as many scales as the operand has tiles and rows.
void check_scale_counts(const Operand& operand, const std::string& name) {
  if (!operand.row_scales.empty() && operand.row_scales.size() != operand.rows) {
    throw std::invalid_argument("row scales of " + name + " must be " + text(operand.rows) + ", one a row, not " +
                                text(operand.row_scales.size()));
  }
  const TileScales& scales = operand.tile_scales;
  if (scales.values.empty()) return;
  if (scales.rows == 0 || scales.depth == 0) {
    throw std::invalid_argument("tile scales of " + name + " must be of at least 1 row and 1 of K, not " +
                                text(scales.rows) + " * " + text(scales.depth));
  }
  const std::size_t rows = (operand.rows + scales.rows - 1) / scales.rows;
  const std::size_t columns = (operand.depth + scales.depth - 1) / scales.depth;
  if (scales.values.size() != rows * columns) {
    throw std::invalid_argument("tile scales of " + name + " must be " + text(rows) + " * " + text(columns) +
                                ", one for every " + text(scales.rows) + " * " + text(scales.depth) + ", not " +
                                text(scales.values.size()));
  }
}

/// Requires that accumulators can be promoted where tiles end.
void check_tile_depth(const MmaModel& model, const Operand& operand, const std::string& name, int promote_k) {
  if (!promotes_tiles(model, operand)) return;
  const TileScales& scales = operand.tile_scales;
  if (scales.depth % static_cast<std::size_t>(model.k()) != 0) {
    throw std::invalid_argument("tile scales of " + name + " must be of a multiple of " + std::to_string(model.k()) +
                                " of K, one instruction of " + std::string(model.name) + ", not " + text(scales.rows) +
                                " * " + text(scales.depth));
  }
  if (promote_k != 0 && scales.depth % static_cast<std::size_t>(promote_k) != 0) {
    throw std::invalid_argument("promote_k must be " + text(scales.depth) + ", the depth of " + name +
                                "'s tile scales, or divide it, which " + std::to_string(promote_k) + " does not");
  }
}

/// Requires ranges of K that go with what it is split into.
void check_split(const GemmRecipe& recipe, std::size_t depth, std::size_t promote_k) {
  static_cast<void>(ranges_of(recipe, depth, std::max(static_cast<std::size_t>(recipe.model.k()), promote_k)));
  const KOrder& order = recipe.k_order;
  if (order.ways != 1 && depth % order.window != 0) {
    throw std::invalid_argument("k_order has a window of " + text(order.window) + ", which K, " + text(depth) +
                                ", is no multiple of");
  }
}

/// Requires a place for the gradient of a bias where the recipe has one, and an operand that it is known of.
void check_gradient_call(const GemmRecipe& recipe, const Operand& a, const GemmCall& call) {
  if (recipe.bias_gradient == BiasGradient::none) {
    if (!call.bias_gradient.empty()) throw std::invalid_argument("bias_gradient goes with a recipe that has one");
    return;
  }
  if (call.bias_gradient.size() != a.rows) {
    throw std::invalid_argument("bias_gradient must have " + text(a.rows) + " elements, one a row of a, not " +
                                text(call.bias_gradient.size()));
  }
  if (a.tensor_scale != TensorScale{} || !a.row_scales.empty() || !a.tile_scales.values.empty()) {
    throw std::invalid_argument("bias_gradient is known of an operand without scales, which a has");
  }
  check_summed_operand(a);
}

/// Requires that the gradient of a bias is written to memory that nothing reads.
void check_apart_gradient(const Operand& a, const Operand& b, const GemmCall& call) {
  const auto check = [&](std::string_view name, auto elements) {
    check_apart(name, elements, "bias_gradient", call.bias_gradient);
  };
  std::visit([&](auto elements) { check("a", elements); }, a.elements);
  std::visit([&](auto elements) { check("b", elements); }, b.elements);
  check("c", call.c);
  check("bias", call.bias);
  check("activation_input", call.activation_input);
}

/// Refuses what nothing would read.
void check_unread(const GemmRecipe& recipe, const Operand& a, const Operand& b, const GemmCall& call) {
  const bool of_tensors = recipe.tensor_scales == TensorScaleUse::with_rows;
  const auto has_order = [&](const Operand& x) {
    return promotes_tiles(recipe.model, x) || !x.row_scales.empty() || (of_tensors && x.tensor_scale != TensorScale{});
  };
  if (recipe.scale_order && !has_order(a) && !has_order(b)) {
    throw std::invalid_argument("scale_order goes with scales of tiles or rows, which neither a nor b has");
  }
  if (recipe.c_enters != CEntry::epilogue && call.c.empty() && a.rows * b.rows != 0) {
    throw std::invalid_argument("c_enters goes with c, which is left out");
  }
  const bool takes_input = recipe.activation == GemmActivation::dgelu;
  if (takes_input && call.activation_input.empty() && a.rows * b.rows != 0) {
    throw std::invalid_argument("activation dgelu needs an activation_input of " + text(a.rows) + " * " + text(b.rows) +
                                " elements");
  }
  if (!takes_input && !call.activation_input.empty()) {
    throw std::invalid_argument("activation_input goes with the activation dgelu, not with " +
                                std::string(name_of(recipe.activation)));
  }
  check_gradient_call(recipe, a, call);
}

/// Requires that `out` has elements of the recipe's output.
template <typename Out>
void check_output_of(const GemmRecipe& recipe, std::span<Out> out) {
  constexpr Format single = binary32;
  if constexpr (sizeof(Out) == 4) {
    if (recipe.output != single) {
      throw std::invalid_argument("out must be of codes of " + format_name(recipe.output) +
                                  ", the recipe's output, not float32");
    }
  } else {
    if (recipe.output == single) throw std::invalid_argument("out must be float32, the recipe's output");
    constexpr bool bytes = sizeof(Out) == 1;
    check_bulk(recipe.output, bytes ? 1 : 9, bytes ? 8 : 16, out.size(), out.size());
  }
}

template <typename Out>
void check_gemm(const GemmRecipe& recipe, const Operand& a, const Operand& b, std::span<Out> out,
                const GemmCall& call) {
  const MmaModel& model = recipe.model;
  if (model.is_fp64()) {
    throw std::invalid_argument("out must be float64, the accumulator of " + std::string(model.name) +
                                ", which nothing rounds");
  }
  check_shapes(a, b, out.size(), call);
  if (model.k() == 0) check_exact(recipe, a, b, call);
  check_gemm_recipe(recipe);
  check_unread(recipe, a, b, call);
  check_apart_operand("a", a, out);
  check_apart_operand("b", b, out);
  check_apart_or_same("c", call.c, "out", out);
  check_apart("bias", call.bias, "out", out);
  check_apart_or_same("activation_input", call.activation_input, "out", out);
  check_apart_gradient(a, b, call);
  check_apart("bias_gradient", call.bias_gradient, "out", out);
  if (model.k() != 0) {
    check_tile_depth(model, a, "a", recipe.promote_k);
    check_tile_depth(model, b, "b", recipe.promote_k);
  }
  check_scale_counts(a, "a");
  check_scale_counts(b, "b");
  if (model.k() == 0) return check_output_of(recipe, out);
  if (promotes_tiles(model, a) && promotes_tiles(model, b) && a.tile_scales.depth != b.tile_scales.depth) {
    throw std::invalid_argument("tile scales of a and b must be of the same depth, not " + text(a.tile_scales.depth) +
                                " and " + text(b.tile_scales.depth));
  }
  check_split(recipe, a.depth, promotion_depth(model, a, b, recipe.promote_k));
  check_output_of(recipe, out);
}

/// Whether a field has the value that it has by default.
template <typename Value>
bool is_default(std::string_view name, const Value& value) {
  const GemmRecipe none;
  bool is = true;
  for_fields(none, [&](std::string_view other, const auto& usual) {
    if constexpr (std::is_same_v<std::decay_t<decltype(usual)>, Value>) {
      if (other == name) is = value == usual;
    }
  });
  return is;
}

/// FP64 has no scales, no promotion and no epilogue.
void check_fp64(const GemmRecipe& recipe, const Operand& a, const Operand& b, std::span<double> out,
                const GemmCall& call) {
  const MmaModel& model = recipe.model;
  const std::string name(model.name);
  if (!model.is_fp64()) {
    const std::string others = names_of_models([](const MmaModel& other) { return other.is_fp64(); });
    throw std::invalid_argument("out of float64 is for models with a float64 accumulator, " + others + ", not " + name);
  }
  check_shapes(a, b, out.size(), call);
  const auto refuse = [&](bool given, const std::string& what) {
    if (given)
      throw std::invalid_argument(what + " does not apply to " + name + ", which has no epilogue and no scales");
  };
  refuse(call.scale_out != 1, "scale_out");
  refuse(!call.c.empty() || recipe.c_enters != CEntry::epilogue, "c");
  refuse(!call.bias.empty(), "bias");
  refuse(!call.activation_input.empty(), "activation_input");
  refuse(!call.bias_gradient.empty(), "bias_gradient");
  for_fields(recipe, [&](std::string_view field, const auto& value) {
    constexpr std::array of_ranges{"model", "zero_rule", "ranges", "range_k", "split_k", "split_order", "order"};
    const bool applies = std::ranges::find(of_ranges, field) != of_ranges.end();
    refuse(!applies && field != "output" && !is_default(field, value), std::string(field));
  });
  for (const auto& [side, operand] : {std::pair{"scale_a", &a}, std::pair{"scale_b", &b}}) {
    refuse(
        !operand->tile_scales.values.empty() || !operand->row_scales.empty() || operand->tensor_scale != TensorScale{},
        side);
  }
  check_gemm_recipe(recipe);
  check_apart_operand("a", a, out);
  check_apart_operand("b", b, out);
  check_split(recipe, a.depth, 0);
}

/// The facts that the arithmetic of the recipe depends on beside it.
GemmGiven given_of(const GemmRecipe& recipe, const Operand& a, const Operand& b, const GemmCall& call) {
  const bool tiles = promotes_tiles(recipe.model, a) || promotes_tiles(recipe.model, b);
  return {.tile_depth = tiles ? promotion_depth(recipe.model, a, b, 0) : 0,
          .c = !call.c.empty(),
          .bias = !call.bias.empty(),
          .scale_out = call.scale_out};
}

/// Applies the epilogue to rows [first, ...).
void finish(const Epilogue& epilogue, std::span<float> out, std::size_t first, const Operand& a, const Operand& b,
            const GemmCall& call) {
  const std::size_t columns = b.rows;
  for (std::size_t at = 0; at < out.size(); at += columns) {
    const std::size_t row = first + at / columns;
    const auto of_row = [&](std::span<const float> all) {
      return all.empty() ? all : all.subspan(row * columns, columns);
    };
    const float scale_a = a.row_scales.empty() ? 1 : a.row_scales[row];
    epilogue.row(out.subspan(at, columns), scale_a, b.row_scales,
                 {of_row(call.c), call.bias, of_row(call.activation_input)});
  }
  // A GPU's NaN has all bits set.
  std::ranges::for_each(out, [](float& x) { x = std::isnan(x) ? std::bit_cast<float>(0x7FFFFFFFU) : x; });
}

/// Blocks of rows on threads; multiply(first, count, block of rows) computes, deliver(first, block of rows) gets them.
template <typename Value, typename Multiply, typename Deliver>
void for_blocks(const Operand& a, const Operand& b, std::size_t block_rows, const GemmCall& call,
                const Multiply& multiply, const Deliver& deliver) {
  const std::size_t rows = a.rows;
  const std::size_t columns = b.rows;
  std::atomic<bool> cancelled = false;
  parallel_for(rows, call.threads, [&](std::size_t first, std::size_t last) {
    std::vector<Value> block(std::min(block_rows, last - first) * columns);
    for (std::size_t row = first; row < last && !cancelled; row += block_rows) {
      const std::size_t count = std::min(block_rows, last - row);
      const auto out = std::span(block).first(count * columns);
      multiply(row, count, out);
      deliver(row, out);
      // The last piece is the calling thread's: it alone reports, and its exception stops the others.
      if (last != rows || !call.progress) continue;
      try {
        call.progress(static_cast<double>(row + count - first) / static_cast<double>(last - first));
      } catch (...) {
        cancelled = true;
        throw;
      }
    }
  });
}

template <typename Deliver>
void multiply_and_deliver(const GemmRecipe& recipe, const Operand& a, const Operand& b, const GemmCall& call,
                          const Deliver& deliver) {
  const DefaultEnvironment environment;
  const MmaModel& model = recipe.model;
  const FactorReader left(model, a, recipe.zero_rule, "a");
  const FactorReader right(model, b, recipe.zero_rule, "b");
  const GemmGiven given = given_of(recipe, a, b, call);
  const GemmReading reading;
  const Epilogue epilogue(recipe, given, reading, a.tensor_scale, b.tensor_scale);
  const auto run = [&](const auto& product, std::size_t block_rows) {
    const auto multiply = [&](std::size_t first, std::size_t count, std::span<float> out) {
      product.rows(first, count, out);
      finish(epilogue, out, first, a, b, call);
    };
    for_blocks<float>(a, b, block_rows, call, multiply, deliver);
  };
  if (recipe.bias_gradient == BiasGradient::of_a) write_sums_along_k(a, call.bias_gradient);
  const auto c = recipe.c_enters == CEntry::accumulator ? call.c : std::span<const float>();
  if (!slow_because(recipe, a, b).empty()) {
    run(SlowGemm(recipe, given, a, b, c), SlowGemm::block_rows());
  } else if (model.k() == 0) {
    run(ExactGemm(left, right), 64);
  } else {
    const TiledGemm product(left, right, recipe, c, call.threads);
    run(product, product.block_rows());
  }
}

/// Calls multiply(recipe, a, b) with operands that are dequantized first, where the recipe says so.
template <typename Multiply>
void with_dequantized(const GemmRecipe& recipe, const Operand& a, const Operand& b, const Multiply& multiply) {
  if (recipe.dequantized == StepType::as_given) return multiply(recipe, a, b);
  const DefaultEnvironment environment;
  const auto checked = [](const Operand& operand, const std::string& name) {
    if (operand.format.bits() > 8) {
      throw std::invalid_argument("dequantized goes with codes of up to 8 bits, not with " +
                                  format_name(operand.format) + ", as " + name + " is");
    }
    Operand typed = with_scale_type(operand);
    Operand bare = typed;
    bare.scales = {};
    bare.tile_scales = {};
    static_cast<void>(FactorReader(exact, bare, ZeroRule::floor, name));  // which checks its codes
    check_scale_counts(typed, name);
    return typed;
  };
  const DequantizedOperand left(checked(a, "a"), recipe.dequantized);
  const DequantizedOperand right(checked(b, "b"), recipe.dequantized);
  GemmRecipe plain = recipe;
  plain.dequantized = StepType::as_given;
  multiply(plain, left.operand(), right.operand());
}

template <typename Code>
void encoded_gemm(const GemmRecipe& recipe, const Operand& a, const Operand& b, std::span<Code> out,
                  const GemmCall& call) {
  with_dequantized(recipe, a, b, [&](const GemmRecipe& plain, const Operand& left, const Operand& right) {
    check_gemm(plain, left, right, out, call);
    multiply_and_deliver(plain, left, right, call, [&](std::size_t first, std::span<const float> block) {
      encode(recipe.output, cast_of(recipe), block, out.subspan(first * b.rows, block.size()));
    });
  });
}

}  // namespace

std::string slow_because(const GemmRecipe& r, const Operand& a, const Operand& b) {
  const bool tiles = promotes_tiles(r.model, a) || promotes_tiles(r.model, b);
  const bool is_split = r.ranges > 1 || r.range_k != 0 || !r.split_k.empty();
  if (r.model.k() == 0) return "";
  if (is_cuda_cores(r.model)) return std::string(r.model.name) + " is no tensor core";
  if (r.k_order.ways != 1) return "k_order is not ascending";
  if (r.order == PartialOrder::pairwise) return "order is pairwise";
  if (r.order == PartialOrder::descending && !is_split) return "promotions are in descending order";
  if (r.partial_type != StepType::as_given || r.total_type != StepType::as_given) return "partial sums are rounded";
  if (tiles && r.promote_k != 0 && static_cast<std::size_t>(r.promote_k) != promotion_depth(r.model, a, b, 0)) {
    return "accumulators are promoted within tiles";
  }
  if (tiles && !r.fused) return "promotions are not fused";
  if (tiles && r.scale_order == ScaleOrder::b_first) return "scale_order is b_first";
  const bool changes_c = r.addend_type != StepType::as_given || r.beta != 1;
  if (r.c_enters == CEntry::accumulator && changes_c) return "the c that the accumulation starts from is changed";
  return "";
}

void gemm(const GemmRecipe& recipe, const Operand& a, const Operand& b, std::span<float> out, const GemmCall& call) {
  with_dequantized(recipe, a, b, [&](const GemmRecipe& plain, const Operand& left, const Operand& right) {
    check_gemm(plain, left, right, out, call);
    multiply_and_deliver(plain, left, right, call, [&](std::size_t first, std::span<const float> block) {
      std::ranges::copy(block, out.begin() + static_cast<std::ptrdiff_t>(first * b.rows));
    });
  });
}
void gemm(const GemmRecipe& recipe, const Operand& a, const Operand& b, std::span<double> out, const GemmCall& call) {
  check_fp64(recipe, a, b, out, call);
  const DefaultEnvironment environment;
  const FactorReader left(recipe.model, a, recipe.zero_rule, "a");  // which check the operands
  const FactorReader right(recipe.model, b, recipe.zero_rule, "b");
  const Fp64Gemm product(recipe, a, b);
  for_blocks<double>(
      a, b, Fp64Gemm::block_rows(), call,
      [&](std::size_t first, std::size_t count, std::span<double> block) { product.rows(first, count, block); },
      [&](std::size_t first, std::span<const double> block) {
        std::ranges::copy(block, out.begin() + static_cast<std::ptrdiff_t>(first * b.rows));
      });
}
void gemm(const GemmRecipe& recipe, const Operand& a, const Operand& b, std::span<std::uint8_t> out,
          const GemmCall& call) {
  encoded_gemm(recipe, a, b, out, call);
}
void gemm(const GemmRecipe& recipe, const Operand& a, const Operand& b, std::span<std::uint16_t> out,
          const GemmCall& call) {
  encoded_gemm(recipe, a, b, out, call);
}

}  // namespace fp8lab
