// SPDX-License-Identifier: Apache-2.0
// Casts two matrices to E4M3 and multiplies them as Hopper's tensor cores do; prints the largest difference from the
// exact product.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fp8lab/formats/encode.hpp>
#include <fp8lab/reference/gemm/gemm.hpp>
#include <fp8lab/reference/measure/distributions.hpp>
#include <fp8lab/reference/tensor_core/models.hpp>
#include <span>
#include <vector>

int main() {
  constexpr std::size_t rows = 32, columns = 48, depth = 256;
  std::vector<float> x(rows * depth), w(columns * depth);
  fp8lab::sample(fp8lab::find_distribution("normal"), 1, 0, x);
  fp8lab::sample(fp8lab::find_distribution("normal"), 2, 0, w);

  // 1. Cast to E4M3 codes.
  std::vector<std::uint8_t> a(x.size()), b(w.size());
  fp8lab::encode(fp8lab::e4m3, {}, std::span<const float>(x), a);
  fp8lab::encode(fp8lab::e4m3, {}, std::span<const float>(w), b);
  // 2. Multiply as Hopper's tensor cores do, with the sum promoted to float32 every 128 products.
  std::vector<float> out(rows * columns);
  fp8lab::gemm({.model = fp8lab::hopper_wgmma_fp8, .promote_k = 128},
               fp8lab::Operand::codes(a, fp8lab::e4m3, rows, depth),
               fp8lab::Operand::codes(b, fp8lab::e4m3, columns, depth), out);

  std::vector<float> exact(out.size());
  fp8lab::gemm({.model = fp8lab::exact}, fp8lab::Operand::floats(x, rows, depth),
               fp8lab::Operand::floats(w, columns, depth), exact);
  float largest = 0;
  for (std::size_t i = 0; i < out.size(); ++i) largest = std::max(largest, std::abs(out[i] - exact[i]));
  std::printf("largest difference: %.3f\n", static_cast<double>(largest));
  return largest > 0 && largest < 5 ? 0 : 1;
}
