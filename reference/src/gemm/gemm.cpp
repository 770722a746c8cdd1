// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/gemm/gemm.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "gemm/exact_gemm.hpp"
#include "gemm/fp64_gemm.hpp"
#include "gemm/tiled_gemm.hpp"
#include "tensor_core/misfit.hpp"

namespace fp8lab {
namespace {

std::string text(std::size_t number) { return std::to_string(number); }

void check_shapes(const Operand& a, const Operand& b, std::size_t out, const GemmOptions& options) {
  if (a.depth != b.depth) {
    throw std::invalid_argument("a and b must have the same K, not " + text(a.depth) + " and " + text(b.depth));
  }
  const std::string elements = text(a.rows) + " * " + text(b.rows) + " elements";
  if (out != a.rows * b.rows) throw std::invalid_argument("out must have " + elements + ", not " + text(out));
  if (!options.c.empty() && options.c.size() != a.rows * b.rows) {
    throw std::invalid_argument("c must have " + elements + ", not " + text(options.c.size()));
  }
  if (!options.bias.empty() && options.bias.size() != b.rows) {
    throw std::invalid_argument("bias must have " + text(b.rows) + " elements, one a row of b, not " +
                                text(options.bias.size()));
  }
  if (!std::isfinite(options.scale_out)) {
    throw std::invalid_argument("scale_out must be finite, not " + std::to_string(options.scale_out));
  }
}

/// The exact product is not composed of anything.
void check_exact(const Operand& a, const Operand& b, const GemmOptions& options) {
  const auto refuse = [](bool given, const std::string& what) {
    if (given) throw std::invalid_argument(what + " does not apply to exact, which has no accumulator to promote");
  };
  refuse(options.promote_k != 0, "promote_k");
  refuse(!a.tile_scales.values.empty() || !b.tile_scales.values.empty(), "a tile scale");
  refuse(!options.split_k.empty(), "split_k");
  refuse(!options.c.empty() && options.c_enters == CEntry::accumulator, "a c that the accumulator starts from");
}

void check_promotion(const MmaModel& model, int promote_k) {
  if (promote_k < 0) {
    throw std::invalid_argument("promote_k must be 0 (never) or positive, not " + std::to_string(promote_k));
  }
  if (promote_k % model.k() != 0) {
    const auto nearest = nearest_multiples(static_cast<std::size_t>(promote_k), static_cast<std::size_t>(model.k()));
    throw std::invalid_argument("promote_k must be a multiple of " + std::to_string(model.k()) +
                                ", one instruction of " + std::string(model.name) + ", not " +
                                std::to_string(promote_k) + " (nearest: " + nearest + ")");
  }
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
  if (promote_k != 0 && !std::cmp_equal(promote_k, scales.depth)) {
    throw std::invalid_argument("promote_k must be " + text(scales.depth) + ", the depth of " + name +
                                "'s tile scales, not " + std::to_string(promote_k));
  }
}

void check_split(const MmaModel& model, std::size_t depth, std::size_t promote_k, const GemmOptions& options) {
  const std::vector<std::size_t>& split = options.split_k;
  const std::size_t unit = std::max(static_cast<std::size_t>(model.k()), promote_k);
  for (std::size_t i = 0; i < split.size(); ++i) {
    if (split[i] == 0 || (i + 1 < split.size() && split[i] % unit != 0)) {
      throw std::invalid_argument("split_k: a range must be a positive multiple of " + text(unit) +
                                  " (the last: any positive number), not " + text(split[i]));
    }
  }
  const std::size_t sum = std::accumulate(split.begin(), split.end(), std::size_t{0});
  if (!split.empty() && sum != depth) {
    throw std::invalid_argument("split_k: the ranges must add up to K, " + text(depth) + ", not " + text(sum));
  }
  if (options.split_order.empty()) return;
  std::vector<std::size_t> order = options.split_order;
  std::ranges::sort(order);
  std::vector<std::size_t> all(split.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (order != all) {
    throw std::invalid_argument("split_order must have every number from 0 to below " + text(split.size()) +
                                ", the ranges of split_k, once");
  }
}

/// Refuses options that nothing would read.
void check_unread(const MmaModel& model, const Operand& a, const Operand& b, const GemmOptions& options) {
  const auto has_order = [&](const Operand& x) { return promotes_tiles(model, x) || !x.row_scales.empty(); };
  if (options.scale_order && !has_order(a) && !has_order(b)) {
    throw std::invalid_argument("scale_order goes with scales of tiles or rows, which neither a nor b has");
  }
  if (options.c_enters != CEntry::epilogue && options.c.empty() && a.rows * b.rows != 0) {
    throw std::invalid_argument("c_enters goes with c, which is left out");
  }
}

template <typename Out>
void check_gemm(const MmaModel& model, const Operand& a, const Operand& b, std::span<Out> out,
                const GemmOptions& options) {
  if (model.is_fp64()) {
    throw std::invalid_argument("out must be float64, the accumulator of " + std::string(model.name) +
                                ", which nothing rounds");
  }
  check_shapes(a, b, out.size(), options);
  check_unread(model, a, b, options);
  check_apart_operand("a", a, out);
  check_apart_operand("b", b, out);
  check_apart_or_same("c", options.c, "out", out);
  check_apart("bias", options.bias, "out", out);
  if (model.k() == 0) {
    check_exact(a, b, options);
  } else {
    check_promotion(model, options.promote_k);
    check_tile_depth(model, a, "a", options.promote_k);
    check_tile_depth(model, b, "b", options.promote_k);
  }
  check_scale_counts(a, "a");
  check_scale_counts(b, "b");
  if (model.k() == 0) return;
  if (promotes_tiles(model, a) && promotes_tiles(model, b) && a.tile_scales.depth != b.tile_scales.depth) {
    throw std::invalid_argument("tile scales of a and b must be of the same depth, not " + text(a.tile_scales.depth) +
                                " and " + text(b.tile_scales.depth));
  }
  check_split(model, a.depth, promotion_depth(model, a, b, options.promote_k), options);
}

/// FP64 has no scales, no promotion and no epilogue.
void check_fp64(const MmaModel& model, const Operand& a, const Operand& b, std::span<double> out,
                const GemmOptions& options) {
  const std::string name(model.name);
  if (!model.is_fp64()) {
    const std::string others = names_of_models([](const MmaModel& other) { return other.is_fp64(); });
    throw std::invalid_argument("out of float64 is for models with a float64 accumulator, " + others + ", not " + name);
  }
  check_shapes(a, b, out.size(), options);
  const auto refuse = [&](bool given, const std::string& what) {
    if (given)
      throw std::invalid_argument(what + " does not apply to " + name + ", which has no epilogue and no scales");
  };
  const GemmOptions none;
  refuse(options.promote_k != 0, "promote_k");
  refuse(options.scale_out != 1, "scale_out");
  refuse(options.scale_order.has_value(), "scale_order");
  refuse(!options.c.empty() || options.c_enters != none.c_enters, "c");
  refuse(!options.bias.empty(), "bias");
  for (const auto& [side, operand] : {std::pair{"scale_a", &a}, std::pair{"scale_b", &b}}) {
    refuse(
        !operand->tile_scales.values.empty() || !operand->row_scales.empty() || operand->tensor_scale != TensorScale{},
        side);
  }
  check_apart_operand("a", a, out);
  check_apart_operand("b", b, out);
  check_split(model, a.depth, 0, options);
}

/// The scale of both tensors, as one number.
float alpha_of(const TensorScale& a, const TensorScale& b) {
  return a.factor * b.factor * (1 / (a.divisor * b.divisor));
}

/// Multiplies rows [first, ...) of the accumulators with the scales of a's and b's rows.
void scale_rows(std::span<float> out, std::size_t first, const Operand& a, const Operand& b, ScaleOrder order) {
  const auto scale = [](const Operand& x, std::size_t row) { return x.row_scales.empty() ? 1 : x.row_scales[row]; };
  for (std::size_t row = 0; row * b.rows < out.size(); ++row) {
    const float left = scale(a, first + row);
    for (std::size_t column = 0; column < b.rows; ++column) {
      float& x = out[row * b.rows + column];
      const float right = scale(b, column);
      switch (order) {
        case ScaleOrder::scales_first: x *= left * right; break;
        case ScaleOrder::accumulator_first: x = x * left * right; break;
      }
    }
  }
}

/// Applies the epilogue to rows [first, ...).
void epilogue(std::span<float> out, std::size_t first, const Operand& a, const Operand& b, const GemmOptions& options) {
  const std::size_t columns = b.rows;
  if (!a.row_scales.empty() || !b.row_scales.empty()) {
    scale_rows(out, first, a, b, options.scale_order.value_or(ScaleOrder::accumulator_first));
  }
  const float alpha = alpha_of(a.tensor_scale, b.tensor_scale);
  if (alpha != 1) std::ranges::for_each(out, [&](float& x) { x *= alpha; });
  if (!options.c.empty() && options.c_enters == CEntry::epilogue) {
    const auto c = options.c.subspan(first * columns, out.size());
    std::ranges::transform(out, c, out.begin(), std::plus<>());
  }
  if (!options.bias.empty()) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += options.bias[i % columns];
  }
  if (options.scale_out != 1) std::ranges::for_each(out, [&](float& x) { x *= options.scale_out; });
  // A GPU's NaN has all bits set.
  std::ranges::for_each(out, [](float& x) { x = std::isnan(x) ? std::bit_cast<float>(0x7FFFFFFFU) : x; });
}

/// Blocks of rows on threads; multiply(first, count, block of rows) computes, deliver(first, block of rows) gets them.
template <typename Value, typename Multiply, typename Deliver>
void for_blocks(const Operand& a, const Operand& b, std::size_t block_rows, const GemmOptions& options,
                const Multiply& multiply, const Deliver& deliver) {
  const std::size_t rows = a.rows;
  const std::size_t columns = b.rows;
  std::atomic<bool> cancelled = false;
  parallel_for(rows, options.threads, [&](std::size_t first, std::size_t last) {
    std::vector<Value> block(std::min(block_rows, last - first) * columns);
    for (std::size_t row = first; row < last && !cancelled; row += block_rows) {
      const std::size_t count = std::min(block_rows, last - row);
      const auto out = std::span(block).first(count * columns);
      multiply(row, count, out);
      deliver(row, out);
      // The last piece is the calling thread's: it alone reports, and its exception stops the others.
      if (last != rows || !options.progress) continue;
      try {
        options.progress(static_cast<double>(row + count - first) / static_cast<double>(last - first));
      } catch (...) {
        cancelled = true;
        throw;
      }
    }
  });
}

template <typename Deliver>
void multiply_and_deliver(const MmaModel& model, const Operand& a, const Operand& b, const GemmOptions& options,
                          const Deliver& deliver) {
  const DefaultEnvironment environment;
  const FactorReader left(model, a, options.zero_rule, "a");
  const FactorReader right(model, b, options.zero_rule, "b");
  const auto run = [&](const auto& product, std::size_t block_rows) {
    const auto multiply = [&](std::size_t first, std::size_t count, std::span<float> out) {
      product.rows(first, count, out);
      epilogue(out, first, a, b, options);
    };
    for_blocks<float>(a, b, block_rows, options, multiply, deliver);
  };
  if (model.k() == 0) {
    run(ExactGemm(left, right), 64);
  } else {
    const TiledGemm product(left, right, options);
    run(product, product.block_rows());
  }
}

template <typename Code>
void encoded_gemm(const MmaModel& model, const Operand& a, const Operand& b, const Format& format,
                  const CastPolicy& policy, std::span<Code> out, const GemmOptions& options) {
  check_gemm(model, a, b, out, options);
  constexpr bool bytes = sizeof(Code) == 1;
  check_bulk(format, bytes ? 1 : 9, bytes ? 8 : 16, out.size(), out.size());
  multiply_and_deliver(model, a, b, options, [&](std::size_t first, std::span<const float> block) {
    encode(format, policy, block, out.subspan(first * b.rows, block.size()));
  });
}

}  // namespace

ScaleOrder find_scale_order(std::string_view name) {
  constexpr std::array orders{Named{"scales_first", ScaleOrder::scales_first},
                              Named{"accumulator_first", ScaleOrder::accumulator_first}};
  return find_named(orders, "scale_order", name).value;
}
CEntry find_c_entry(std::string_view name) {
  constexpr std::array entries{Named{"epilogue", CEntry::epilogue}, Named{"accumulator", CEntry::accumulator}};
  return find_named(entries, "c_enters", name).value;
}

void gemm(const MmaModel& model, const Operand& a, const Operand& b, std::span<float> out, const GemmOptions& options) {
  check_gemm(model, a, b, out, options);
  multiply_and_deliver(model, a, b, options, [&](std::size_t first, std::span<const float> block) {
    std::ranges::copy(block, out.begin() + static_cast<std::ptrdiff_t>(first * b.rows));
  });
}
void gemm(const MmaModel& model, const Operand& a, const Operand& b, std::span<double> out,
          const GemmOptions& options) {
  check_fp64(model, a, b, out, options);
  const DefaultEnvironment environment;
  const FactorReader left(model, a, options.zero_rule, "a");  // which check the operands
  const FactorReader right(model, b, options.zero_rule, "b");
  const Fp64Gemm product(model, a, b, options);
  for_blocks<double>(
      a, b, Fp64Gemm::block_rows(), options,
      [&](std::size_t first, std::size_t count, std::span<double> block) { product.rows(first, count, block); },
      [&](std::size_t first, std::span<const double> block) {
        std::ranges::copy(block, out.begin() + static_cast<std::ptrdiff_t>(first * b.rows));
      });
}
void gemm(const MmaModel& model, const Operand& a, const Operand& b, const Format& format, const CastPolicy& policy,
          std::span<std::uint8_t> out, const GemmOptions& options) {
  encoded_gemm(model, a, b, format, policy, out, options);
}
void gemm(const MmaModel& model, const Operand& a, const Operand& b, const Format& format, const CastPolicy& policy,
          std::span<std::uint16_t> out, const GemmOptions& options) {
  encoded_gemm(model, a, b, format, policy, out, options);
}

}  // namespace fp8lab
