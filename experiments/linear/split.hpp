// SPDX-License-Identifier: Apache-2.0
// The difference between a GEMM of a Linear layer as it is computed and its real product, split by cause.
//
// A chain of computations leads from the real product to the output. Each replaces one thing in the one before; what
// that changes is the part of its cause:
//
//   0. the real dot products of the given values (for fprop, plus the given bias);
//   1. both factors turned by a Hadamard matrix and rounded, where the recipe does that;
//   2. to 4. the left factor's elements that saturate, those that underflow, and all others, replaced by what comes
//   back
//      of the cast; with delayed scaling, of the cast by the scale that the tensor's own amax makes;
//   5. to 7. the same of the right factor;
//   8. to 10. with delayed scaling, the left factor's elements that saturate, that underflow, and all others under the
//      scale that the history gives, replaced by what comes back of the cast by that scale;
//   11. to 13. the same of the right factor: now both are what the tensor core gets;
//   14. the float32 result of the GEMM in place of the real product of those factors: the tensor core, the promotions
//      and the scales;
//   15. the bias rounded to its type and added in float32;
//   16. the result rounded to the output's type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/formats/memory.hpp"
#include "fp8lab/reference/linear/linear_recipe.hpp"
#include "kit/exact_product.hpp"
#include "kit/progress.hpp"
#include "linear/operand.hpp"

namespace fp8lab::experiments {

/// A cause of a difference, such as "x_rounding".
struct Cause {
  std::string name;
  std::string meaning;
};

/// The causes that a pass can have, in the order of the chain.
[[nodiscard]] std::vector<Cause> causes_of(LinearPass pass);

/// The real products of given values, (rows, columns): see exact_products(). They depend on no recipe.
struct RealProducts {
  Buffer<double> high, low;
};
[[nodiscard]] RealProducts real_products(const FactorMatrix& a, const FactorMatrix& b, int threads,
                                         const Progress& progress = {});

/// A GEMM to split.
struct SplitGemm {
  LinearPass pass = LinearPass::fprop;
  LinearGemm gemm;
  SplitOperand a = {}, b = {};
  std::span<const float> bias = {};    ///< for fprop: one for each row of b, or empty
  const RealProducts* real = nullptr;  ///< of the given values of a and b; must not be null
  int threads = 1;
};

/// The parts of some whole rows of the output. Every part is a multiple of 2^-46 times the largest deviation of the
/// element's chain from the output, rounded up to a power of two. So sums of parts are exact in double, in any order,
/// and the sum of all parts of an element is its total, to the bit.
struct SplitBand {
  std::size_t first_row;
  std::size_t elements;
  std::span<const std::vector<double>> parts;  ///< for each cause of causes_of(), its elements; empty: all are zero
  std::span<const double> real;                ///< the real product with the bias, to about the last bit
  std::span<const double> total;               ///< output minus real product; NaN where an element is not finite
};

/// Computes the GEMM, and calls use(band) for its rows, in order. `out` becomes the output's values; its elements are
/// those of linear(), linear_dgrad() or linear_wgrad(), bit for bit.
///
/// A part differs from the real one by at most 2^-46 times the largest deviation, rounded up to a power of two, where
/// K^2 * 2^-106 * sum of |a b| is less than that by far (exact_products()).
void split_gemm(const SplitGemm& split, const Progress& progress, const std::function<void(const SplitBand&)>& use,
                Buffer<float>& out);

}  // namespace fp8lab::experiments
