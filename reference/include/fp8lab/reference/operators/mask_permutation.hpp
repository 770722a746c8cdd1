// SPDX-License-Identifier: Apache-2.0
// Rows dealt out to the experts that a mask names and brought back, and chunks of rows in another order, as Transformer
// Engine's Triton kernels do.
//
// Source: Transformer Engine 2.20, common/triton/permutation.py. What is fused is what Triton 3.9.0 compiles for sm_90:
// its PTX has fma.rn.f32 for each product that is added, in blocks of 64 and of 1024, and mul.f32 for the gradient of a
// row. From Triton 3.10 on, or with TRITON_DEFAULT_FP_FUSION=0, nothing is fused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/operators/float_output.hpp"

namespace fp8lab {

/// Where the rows of tokens lie among those dealt out.
struct MaskedRows {
  std::span<const std::int32_t> map;  ///< as mask_map() gives it: 2 experts + 1 entries for each token
  std::size_t experts = 0;
  /// Rows by which each expert's lie further down, where groups are filled up to a multiple; empty: nowhere.
  std::span<const std::int64_t> pad_offsets = {};
};

/// The map of a mask of (token, expert), which is 1 where a token goes to an expert and 0 elsewhere. Rows are in the
/// order of experts, then of tokens. Of each token the map has its rows, the largest first, in entries [0, n), their
/// experts in entries [experts, experts + n), and n last; the entries between, which the kernel leaves as they are,
/// are 0.
///
/// Throws std::invalid_argument where mask is not `tokens` times a number, has other numbers, or too many rows for
/// int32.
[[nodiscard]] std::vector<std::int32_t> mask_map(std::span<const std::uint8_t> mask, std::size_t tokens);

/// Copies row `token` of x to the rows that the map has for it. Rows are of any type, `row_bytes` each. With
/// `probabilities` of (token, expert) zeros go where the probability is 0. Rows of out to which none goes stay as they
/// are.
///
/// Throws std::invalid_argument for sizes that do not fit, a map with rows or experts that there are not or a row
/// twice, and arrays that overlap.
void permute_rows_by_mask(std::span<const std::byte> x, std::size_t row_bytes, const MaskedRows& at,
                          FloatSpan probabilities, std::span<std::byte> out, int threads = 1);
/// Copies the probability of (token, expert), of `size` bytes, to the element of the token's row.
///
/// Throws likewise.
void permute_probabilities_by_mask(std::span<const std::byte> probabilities, std::size_t size, const MaskedRows& at,
                                   std::span<std::byte> out);
/// The probability of each row at (token, expert), and zeros elsewhere: the gradient of the former.
///
/// Throws likewise.
void unpermute_probabilities_by_mask(std::span<const std::byte> permuted, std::size_t size, const MaskedRows& at,
                                     std::span<std::byte> out);

/// The sum of a token's rows in float32, in the order of the map and from +0 on, each product with the probability of
/// (token, expert) fused into its addition; rounded once to the type of out, which is x's in the kernel. Without
/// probabilities sums of rows: the gradient of permute_rows_by_mask().
///
/// Throws as permute_rows_by_mask() does.
void unpermute_rows_by_mask(FloatSpan x, std::size_t columns, const MaskedRows& at, FloatSpan probabilities,
                            FloatOutput out, int threads = 1);

/// In how many sums the gradient of a probability is: element j of a row is added to sum j % 1024, in ascending order
/// and from +0 on; then sum i + sum (i + 512), of these i + (i + 256), and so on. The kernel has as many as its tuning
/// takes, 64 to 4096, and an order that follows from how Triton lays them out.
inline constexpr std::size_t mask_gradient_sums = 1024;

/// Its gradients: of the rows that were dealt out, grad times the probability, rounded to float32 and then to the type
/// of dx, which is grad's in the kernel; and by the probabilities the sum of x grad over a row, each product fused, and
/// 0 where a token does not go to an expert. Rows of dx that the map does not have stay as they are.
///
/// Throws likewise.
void unpermute_rows_by_mask_backward(FloatSpan grad, FloatSpan x, std::size_t columns, const MaskedRows& at,
                                     FloatSpan probabilities, FloatOutput dx, FloatOutput probability_gradient,
                                     int threads = 1);

/// The row to which each of `tokens` rows goes where chunks of `counts` rows are put into another order: first chunk
/// order[0], then order[1], and so on. Rows behind all chunks stay where they are.
///
/// Throws std::invalid_argument for counts that are negative or of more rows than `tokens`, and an order that does not
/// have each chunk once.
[[nodiscard]] std::vector<std::int32_t> chunk_map(std::span<const std::int64_t> counts,
                                                  std::span<const std::int64_t> order, std::size_t tokens);
/// Copies row i of x to row map[i] of out; unsort_chunks() copies row map[i] to row i, which is the gradient, too.
///
/// Throws std::invalid_argument for sizes that do not fit and a map that does not have each row once.
void sort_chunks(std::span<const std::byte> x, std::size_t row_bytes, std::span<const std::int32_t> map,
                 std::span<std::byte> out, int threads = 1);
void unsort_chunks(std::span<const std::byte> x, std::size_t row_bytes, std::span<const std::int32_t> map,
                   std::span<std::byte> out, int threads = 1);

}  // namespace fp8lab
