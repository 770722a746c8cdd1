// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace fp8lab::experiments {

/// float32 values, row-major. Each row is the factors of a dot product.
struct FactorMatrix {
  std::span<const float> values;
  std::size_t rows;
  std::size_t depth;
};

/// Numbers as unevaluated sums of two doubles, high + low, high the nearest double: one for each element of a matrix,
/// row-major, with `columns` columns.
struct DoubleDoubles {
  std::span<double> high;
  std::span<double> low;
  std::size_t columns;
};

/// Element (i, j) of `out` becomes the real dot product of row i of a and row j of b, for i in `rows` and j in
/// `columns`; all others stay.
///
/// The products of float32 numbers are exact in double. They are added to a double and a second one that takes up its
/// rounding errors, so that |high + low - real| <= K^2 * 2^-106 * sum of |a b|, K the depth. Source: Ogita, Rump and
/// Oishi, "Accurate sum and dot product", SIAM J. Sci. Comput. 26 (2005), algorithm Sum2. K ascends, and so neither
/// threads nor the processor change a bit. An infinity or a NaN among the factors makes elements that are not finite.
void exact_products(const FactorMatrix& a, std::span<const std::size_t> rows, const FactorMatrix& b,
                    std::span<const std::size_t> columns, int threads, const DoubleDoubles& out);

}  // namespace fp8lab::experiments
