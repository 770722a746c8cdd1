// SPDX-License-Identifier: Apache-2.0
// Rows dealt out to the experts of a mixture and brought back, and rows added to groups, as Transformer Engine's
// kernels do. Every bit is the kernels'.
//
// Source: Transformer Engine 2.20, common/permutation/permutation.cu (the map of indices) and common/util/padding.cu.
// What is fused is what nvcc 13.0 fuses for sm_90.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/operators/float_output.hpp"

namespace fp8lab {

/// The row that each token has among those dealt out, for each of its experts: entry k * tokens + token, -1 where it is
/// dropped. `experts` has the experts of each token, one token after the other; rows are in the order of experts, then
/// of tokens. Rows from `kept` on are dropped.
///
/// Throws std::invalid_argument where experts is not `tokens` times a number, or negative.
[[nodiscard]] std::vector<std::int32_t> permutation_map(std::span<const std::int32_t> experts, std::size_t tokens,
                                                        std::size_t kept);

/// Copies row `token` of x to the rows that the map has for it. Rows are of any type, `row_bytes` each. Rows of out to
/// which none goes stay as they are.
///
/// Throws std::invalid_argument for sizes that do not fit, a map with rows that out has not, and arrays that overlap.
void permute_rows(std::span<const std::byte> x, std::size_t row_bytes, std::span<const std::int32_t> map,
                  std::span<std::byte> out, int threads = 1);

/// The sum of a token's rows, each times its probability (token, k), in the order of k. The arithmetic is that of x's
/// type: probabilities are rounded to it, the first product too, and each fused product and sum. Without probabilities
/// sums of rows. This is also the gradient of permute_rows().
///
/// Throws as permute_rows() does, and for an out of another type than x.
void unpermute_rows(FloatSpan x, std::size_t columns, std::span<const std::int32_t> map,
                    std::span<const float> probabilities, FloatOutput out, int threads = 1);

/// Its gradients: dx of the rows that were dealt out, grad times the probability in x's type; and by the probabilities
/// the sum of grad x over a row, of which element j is added to lane j / n % 32 (n = 16 / bytes of an element), lanes
/// in pairs (sum_order.hpp). Products of 16-bit types are rounded to them, those of float32 fused. Rows of dx that the
/// map does not have stay as they are.
///
/// Throws likewise.
void unpermute_rows_backward(FloatSpan grad, FloatSpan x, std::size_t columns, std::span<const std::int32_t> map,
                             std::span<const float> probabilities, FloatOutput dx,
                             std::span<float> probability_gradient, int threads = 1);

/// Copies groups of rows, of `counts` each, to a multiple of `multiple` rows each; the rows behind them become zeros.
///
/// Throws std::invalid_argument for sizes that do not fit and a multiple of 0.
void pad_rows(std::span<const std::byte> x, std::size_t row_bytes, std::span<const std::size_t> counts,
              std::size_t multiple, std::span<std::byte> out);
/// The rows without those that pad_rows() added.
void unpad_rows(std::span<const std::byte> padded_rows, std::size_t row_bytes, std::span<const std::size_t> counts,
                std::size_t multiple, std::span<std::byte> out);
/// The rows of all groups after padding.
[[nodiscard]] std::size_t padded_count(std::span<const std::size_t> counts, std::size_t multiple);

}  // namespace fp8lab
