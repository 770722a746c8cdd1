// SPDX-License-Identifier: Apache-2.0
#include "linear/operand.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/hadamard.hpp"
#include "kit/tensor.hpp"

namespace fp8lab::experiments {
namespace {

constexpr double no_scale = std::numeric_limits<double>::quiet_NaN();

/// The values of a matrix as (rows, depth): as it is, or where the GEMM sums over its rows, transposed.
template <typename Value>
Buffer<Value> as_factor(Buffer<Value> values, std::size_t rows, std::size_t columns, Direction direction, int threads) {
  if (direction == Direction::rowwise || values.empty()) return values;
  constexpr std::size_t tile = 32;
  Buffer<Value> transposed(values.size());
  parallel_for((columns + tile - 1) / tile, threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t column = first * tile; column < std::min(columns, last * tile); column += tile) {
      for (std::size_t row = 0; row < rows; row += tile) {
        checkpoint();
        for (std::size_t j = column; j < std::min(columns, column + tile); ++j) {
          for (std::size_t i = row; i < std::min(rows, row + tile); ++i) {
            transposed[j * rows + i] = values[i * columns + j];
          }
        }
      }
    }
  });
  return transposed;
}

/// Values before and after a cast, (rows, columns) as the tensor has them.
struct CastPair {
  std::span<const float> before, after;
  std::size_t rows, columns;
};

/// Finds the outcome of each element of rows [first, last). scale_inv_of(row, column) is what the cast divides by.
template <typename ScaleInv>
void find_outcomes(const CastPair& cast, const CastBounds& bounds, const ScaleInv& scale_inv_of, std::size_t first,
                   std::size_t last, std::span<Outcome> outcomes) {
  for (std::size_t row = first; row < last; ++row) {
    checkpoint();
    for (std::size_t column = 0; column < cast.columns; ++column) {
      const std::size_t i = row * cast.columns + column;
      const float x = cast.before[i];
      outcomes[i] = Outcome::rounded;
      if (x == 0 || !std::isfinite(x)) continue;
      const double scaled = static_cast<double>(x) / static_cast<double>(scale_inv_of(row, column));
      const OutcomeBounds& own = x < 0 ? bounds.negative : bounds.positive;
      if (cast.after[i] == 0) {
        outcomes[i] = Outcome::underflow;
      } else if (std::abs(scaled) >= own.saturated) {
        outcomes[i] = Outcome::saturated;
      }
    }
  }
}

template <typename ScaleInv>
void add_outcomes(const CastPair& cast, const CastBounds& bounds, const ScaleInv& scale_inv_of, int threads,
                  CastValues& into) {
  into.outcomes.resize(cast.before.size());
  parallel_for(cast.rows, threads, [&](std::size_t first, std::size_t last) {
    find_outcomes(cast, bounds, scale_inv_of, first, last, into.outcomes);
  });
  into.saturated = static_cast<std::uint64_t>(std::ranges::count(into.outcomes, Outcome::saturated));
  into.underflows = static_cast<std::uint64_t>(std::ranges::count(into.outcomes, Outcome::underflow));
}

/// The scales of a Quantized, by element.
class ElementScales {
 public:
  explicit ElementScales(const Quantized& q)
      : tile_(tile_shape(q)), across_((q.columns + tile_.columns - 1) / tile_.columns), values_(tile_scales_inv(q)) {}
  float operator()(std::size_t row, std::size_t column) const {
    return values_[row / tile_.rows * across_ + column / tile_.columns];
  }

 private:
  TileShape tile_;
  std::size_t across_;
  std::vector<float> values_;
};

/// Dequantizes q, which was made of the values `before`, and finds the outcome of each element.
CastValues cast_values(std::span<const float> before, const Quantized& q, int threads) {
  CastValues cast;
  cast.values.resize(before.size());
  dequantize(q, cast.values, threads);
  const Rounding rounding = is_stochastic(q.recipe) ? Rounding::nearest_even : q.recipe.cast.rounding;
  add_outcomes({before, cast.values, q.rows, q.columns}, cast_bounds(q.format, rounding), ElementScales(q), threads,
               cast);
  const std::optional<float> scale = tensor_factor(q);
  cast.scale = scale ? static_cast<double>(*scale) : no_scale;
  return cast;
}

/// The values rounded to a format, as gemm() and linear() round operands that are not quantized.
CastValues rounded_values(std::span<const float> before, std::size_t rows, const Format& format,
                          const CastPolicy& policy, int threads) {
  CastValues cast{.values = Buffer<float>(before.begin(), before.end()), .scale = 1};
  if (format != binary32) {
    parallel_for(before.size(), threads, [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) {
        checkpoint(i);
        cast.values[i] = decode(format, encode(format, policy, before[i]));
      }
    });
  }
  const auto one = [](std::size_t /*row*/, std::size_t /*column*/) { return 1.0F; };
  add_outcomes({before, cast.values, rows, before.size() / rows}, cast_bounds(format, policy.rounding), one, threads,
               cast);
  return cast;
}

void round_operand(const MatrixView& x, std::span<const float> before, const SplitCast& how, SplitOperand& operand) {
  CastPolicy policy = cuda_nosat_policy;
  if (how.rounds_to_tf32) policy.rounding = Rounding::nearest_away;
  const Format& format = how.rounds_to_tf32 ? tf32 : std::get<Format>(how.cast);
  operand.fresh = rounded_values(before, x.rows(), format, policy, how.threads);
  operand.source = x;
}

void quantize_operand(const MatrixView& x, std::span<const float> before, const SplitCast& how, SplitOperand& operand) {
  const Direction direction = how.factor.direction;
  const auto& recipe = std::get<Recipe>(how.cast);
  Quantized q;
  if (how.delayed == nullptr) {
    quantize(x, recipe, direction, q, {.random = how.random, .threads = how.threads});
    if (recipe.transform != Transform::none && direction == Direction::columnwise) {
      operand.turned = hadamard_columns(x, recipe.transform == Transform::hadamard_columnwise_bfloat16, how.threads);
      before = operand.turned;
    }
    operand.fresh = cast_values(before, q, how.threads);
  } else {
    const Pass pass = how.factor.tensor == LinearTensor::dy ? Pass::backward : Pass::forward;
    quantize(x, *how.delayed, pass, *how.history, direction, q, {.threads = how.threads});
    operand.lagging = cast_values(before, q, how.threads);
    AmaxHistory own = *how.history;
    own.scale = scale_of(*how.delayed, pass, q.amax, own.scale);
    Quantized fresh;
    quantize(x, *how.delayed, pass, own, direction, fresh, {.threads = how.threads});
    operand.fresh = cast_values(before, fresh, how.threads);
  }
  operand.source = std::move(q);
}

}  // namespace

SplitOperand cast_operand(const MatrixView& x, const SplitCast& how) {
  const Direction direction = how.factor.direction;
  const bool rowwise = direction == Direction::rowwise;
  SplitOperand operand{
      .tensor = how.factor.tensor, .rows = rowwise ? x.rows() : x.columns(), .depth = rowwise ? x.columns() : x.rows()};
  operand.given.resize(x.size());
  Tensor(x).widen(0, operand.given);
  if (std::holds_alternative<Recipe>(how.cast)) {
    quantize_operand(x, operand.given, how, operand);
  } else {
    round_operand(x, operand.given, how, operand);
  }
  const auto turn = [&](auto& values) {
    values = as_factor(std::move(values), x.rows(), x.columns(), direction, how.threads);
  };
  turn(operand.given);
  turn(operand.turned);
  for (CastValues* cast : {&operand.fresh, &operand.lagging}) {
    turn(cast->values);
    turn(cast->outcomes);
  }
  return operand;
}

}  // namespace fp8lab::experiments
