// SPDX-License-Identifier: Apache-2.0
// The rotary position embedding of Transformer Engine's fused kernel, and its gradient.
//
// Source: Transformer Engine 2.20, common/fused_rope/fused_rope.cu. sincosf is libdevice's there, and here with
// Functions::hopper; what is fused is what nvcc 13.0 fuses of the formula for sm_90.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/operators/float_output.hpp"

namespace fp8lab {

/// Tokens of `heads` vectors of `size` elements each, contiguous: (sequence, batch, head, element) if sequence_first,
/// else (batch, sequence, head, element); with cu_seqlens packed, (token, head, element).
struct RopeShape {
  std::size_t sequence;  ///< tokens of a sequence; of packed ones all tokens
  std::size_t batches = 1;
  std::size_t heads;
  std::size_t size;
  std::size_t rotated;  ///< the first elements of a vector, an even number: the others are copied
  bool sequence_first = true;
};

struct RopeOptions {
  bool interleaved = false;  ///< pairs are elements 2 i and 2 i + 1, not i and i + rotated / 2
  /// Where sequences of packed tokens begin, from 0 on, and the end of the last one; empty for others.
  std::span<const std::int32_t> cu_seqlens = {};
  std::span<const std::int32_t> start_positions = {};  ///< of each sequence, or empty: from 0 on
  /// Context parallelism: sequences lie in 2 cp_size chunks, of which a rank has the cp_rank-th from both ends.
  std::size_t cp_size = 1;
  std::size_t cp_rank = 0;
};

/// out = fma(x, cos(f), x' sin(f)) for the angle f of the token's position and of the element, freqs being (positions,
/// rotated); x' is the other element of the pair, negative for the first one.
///
/// Throws std::invalid_argument for float64, sizes that do not fit, an odd `rotated` or one above `size`, cu_seqlens
/// that do not ascend or do not end at the tokens, positions that freqs does not have, and odd sequences in chunks.
void rope(const RopeShape& shape, const RopeOptions& how, FloatSpan x, std::span<const float> freqs, FloatOutput out,
          const OperatorOptions& options = {});

/// The gradient by x: dx = fma(grad, cos(f), grad' sin(f')) where grad' and f' are the other element's, the sine
/// negative for the second one.
///
/// Throws as rope() does.
void rope_backward(const RopeShape& shape, const RopeOptions& how, FloatSpan grad, std::span<const float> freqs,
                   FloatOutput dx, const OperatorOptions& options = {});

/// Tokens of query, key and value side by side: (sequence, batch, head, widths[0] + widths[1] + widths[2]) if
/// sequence_first, else (batch, sequence, ...). A vector has widths[2] elements; a head has one or several of the query
/// and of the key.
struct RopeQkvShape {
  std::size_t sequence;
  std::size_t batches = 1;
  std::size_t heads;
  std::array<std::size_t, 3> widths;
  std::size_t rotated;
  bool sequence_first = true;
};

/// Query and key as rope() has them, each with its own freqs, and the value as it is; a token's vectors lie side by
/// side. `how` has no cu_seqlens, and its start_positions are not read where cp_size is above 1, as in the kernel.
///
/// Throws as rope() does, and for widths of query and key that are not multiples of the value's.
void rope_qkv(const RopeQkvShape& shape, const RopeOptions& how, FloatSpan qkv, std::span<const float> query_freqs,
              std::span<const float> key_freqs, const std::array<FloatOutput, 3>& out,
              const OperatorOptions& options = {});

/// The gradient by qkv, by rope_backward() of those of query and key. The kernel takes no start_positions: it counts
/// from 0, whatever forward had.
///
/// Throws as rope_qkv() does, and for start_positions.
void rope_qkv_backward(const RopeQkvShape& shape, const RopeOptions& how, const std::array<FloatSpan, 3>& grads,
                       std::span<const float> query_freqs, std::span<const float> key_freqs, FloatOutput dqkv,
                       const OperatorOptions& options = {});

}  // namespace fp8lab
