// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/gemm.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <string>

#include "exact_gemm.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "tiled_gemm.hpp"

namespace fp8lab {
namespace {

void check_gemm(const MmaModel& model, const Operands& a, const Operands& b, std::size_t out,
                const GemmOptions& options) {
  if (a.depth != b.depth) {
    throw std::invalid_argument("a and b must have the same K, not " + std::to_string(a.depth) + " and " +
                                std::to_string(b.depth));
  }
  if (out != a.rows * b.rows) {
    throw std::invalid_argument("out must have " + std::to_string(a.rows) + " * " + std::to_string(b.rows) +
                                " elements, not " + std::to_string(out));
  }
  if (!options.bias.empty() && options.bias.size() != b.rows) {
    throw std::invalid_argument("bias must have " + std::to_string(b.rows) + " elements, one a row of b, not " +
                                std::to_string(options.bias.size()));
  }
  if (options.promote_k < 0) {
    throw std::invalid_argument("promote_k must be 0 (never) or positive, not " + std::to_string(options.promote_k));
  }
  if (options.promote_k > 0 && model.arithmetic == Arithmetic::exact) {
    throw std::invalid_argument("promote_k does not apply to exact, which has no accumulator to promote");
  }
  if (options.promote_k > 0 && options.promote_k % model.k() != 0) {
    throw std::invalid_argument("promote_k must be a multiple of " + std::to_string(model.k()) +
                                ", one instruction of " + std::string(model.name) + ", not " +
                                std::to_string(options.promote_k));
  }
  for (const float scale : {options.scale_a, options.scale_b}) {
    if (!std::isfinite(scale)) {
      throw std::invalid_argument("scale_a and scale_b must be finite, not " + std::to_string(scale));
    }
  }
}

void epilogue(std::span<float> out, std::size_t columns, const GemmOptions& options) {
  const float scale = options.scale_a * options.scale_b;
  if (scale == 1 && options.bias.empty()) return;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] *= scale;
    if (!options.bias.empty()) out[i] += options.bias[i % columns];
  }
}

}  // namespace

void gemm(const MmaModel& model, const Operands& a, const Operands& b, std::span<float> out,
          const GemmOptions& options) {
  check_gemm(model, a, b, out.size(), options);
  const Factors left = FactorReader(model, a, options.zero_rule, "a").rows(0, a.rows);
  const Factors right = FactorReader(model, b, options.zero_rule, "b").rows(0, b.rows);
  const GemmShape shape{a.rows, b.rows, a.depth};
  std::atomic<bool> cancelled = false;
  const auto run = [&](const auto& multiply) {
    parallel_for(a.rows, options.threads, [&](std::size_t first, std::size_t last) {
      // The last piece is the calling thread's: it alone reports, and its exception stops the others.
      const auto report = [&](double share) {
        if (last == a.rows && options.progress) {
          try {
            options.progress(share);
          } catch (...) {
            cancelled = true;
            throw;
          }
        }
        return !cancelled;
      };
      multiply(first, last, report);
    });
  };
  switch (model.arithmetic) {
    case Arithmetic::exact: {
      const ExactGemm multiply(shape, left, right, out);
      run(multiply);
      break;
    }
    case Arithmetic::fused: {
      const TiledGemm multiply(model, shape, left, right, options.promote_k, options.zero_rule, out);
      run(multiply);
      break;
    }
  }
  epilogue(out, b.rows, options);
}

}  // namespace fp8lab
