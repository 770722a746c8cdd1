// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/dropout.hpp"

#include <cmath>

#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/measure/random.hpp"
#include "operators/tensor_pieces.hpp"

namespace fp8lab {

namespace {

constexpr std::size_t chunk_size = 16;  // elements whose bits a thread draws at once
static_assert(tensor_piece_size % chunk_size == 0);

void check_dropout(float probability, std::size_t size, std::size_t out, std::size_t mask, std::string_view name,
                   std::string_view out_name) {
  const bool is_share = probability >= 0 && probability < 1;
  if (!is_share) refuse("probability must be from 0 to below 1, not ", probability);
  if (size % chunk_size != 0) refuse(name, " must have a multiple of 16 elements, not ", size);
  check_size(out_name, out, size);
  check_size("mask", mask, size / 8);
}

/// Which elements of a chunk are kept, the first one in the lowest bit.
std::uint32_t kept_of_chunk(DropoutState state, std::uint64_t chunk, std::uint32_t dropped_below) {
  const std::uint64_t call = state.offset / 4;
  const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
  const auto words =
      philox4x32({low(call), low(call >> 32), low(chunk), low(chunk >> 32)}, {low(state.seed), low(state.seed >> 32)});
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < chunk_size; ++i) {
    const std::uint32_t byte = (i % 2 == 1 ? 0 : 2) + i / 8;
    const std::uint32_t drawn = words[i % 8 / 2] >> (8 * byte) & 0xFFU;
    kept |= (drawn < dropped_below ? 0U : 1U) << i;
  }
  return kept;
}

/// out = x scale where the mask has a 1.
void apply_mask(float probability, const FloatSpan& x, std::span<const std::uint8_t> mask, const FloatOutput& out,
                std::size_t first, std::size_t count) {
  const float scale = 1 / (1 - probability);
  TensorPiece values{};
  read_tensor(x, first, count, values.data());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = first + i;
    const bool is_kept = (mask[at / 8] >> (at % 8) & 1U) != 0;
    values[i] = (is_kept ? values[i] : 0.0F) * scale;
  }
  write_piece(values.data(), count, out, first);
}

}  // namespace

void dropout(float probability, DropoutState state, FloatSpan x, FloatOutput out, std::span<std::uint8_t> mask,
             int threads) {
  const std::size_t size = tensor_size("x", x);
  check_dropout(probability, size, output_size(out), mask.size(), "x", "out");
  if (state.offset % 4 != 0) refuse("offset must be a multiple of 4, not ", state.offset);
  const auto dropped_below = static_cast<std::uint32_t>(std::floor(probability * 256));
  for_each_tensor_piece(size, threads, [&](std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; i += chunk_size) {
      const std::uint32_t kept = kept_of_chunk(state, i / chunk_size, dropped_below);
      mask[i / 8] = static_cast<std::uint8_t>(kept & 0xFFU);
      mask[i / 8 + 1] = static_cast<std::uint8_t>(kept >> 8);
    }
    apply_mask(probability, x, mask, out, first, count);
  });
}

void dropout_backward(float probability, FloatSpan grad, std::span<const std::uint8_t> mask, FloatOutput dx,
                      int threads) {
  const std::size_t size = tensor_size("grad", grad);
  check_dropout(probability, size, output_size(dx), mask.size(), "grad", "dx");
  for_each_tensor_piece(size, threads, [&](std::size_t first, std::size_t count) {
    apply_mask(probability, grad, mask, dx, first, count);
  });
}

}  // namespace fp8lab
