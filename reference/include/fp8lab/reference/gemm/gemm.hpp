// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/formats/policy.hpp"
#include "fp8lab/reference/tensor_core/mma.hpp"

namespace fp8lab {

/// The order in which an accumulator is multiplied with two scales: those of its tiles at a promotion, or those of its
/// row and column in the epilogue. A promotion uses fma, which rounds once less than it has operations; the epilogue
/// rounds after every operation.
enum class ScaleOrder : std::uint8_t {
  scales_first,       ///< sum = fma(fl(scale_a * scale_b), accumulator, sum), as DeepGEMM on Hopper
  accumulator_first,  ///< sum = fma(fl(accumulator * scale_a), scale_b, sum); of rows as PyTorch's _scaled_mm (CUTLASS,
                      ///< RowwiseScaledMM.cu), fl(fl(accumulator * scale_a) * scale_b)
};

/// Where c enters a GEMM.
enum class CEntry : std::uint8_t {
  epilogue,     ///< after the scales: out += c, as cuBLASLt with beta = 1
  accumulator,  ///< the accumulation starts from it: the tensor core's own, or the float32 one that it is promoted to
};

/// The enumerator called `name`. Both throw std::invalid_argument that lists the known names.
[[nodiscard]] ScaleOrder find_scale_order(std::string_view name);
[[nodiscard]] CEntry find_c_entry(std::string_view name);

/// How a GEMM is composed of instructions, and what its epilogue does.
struct GemmOptions {
  /// Multiplies at the end of the epilogue, which is scale_out * (alpha * (scale_a * scale_b * accumulator) + c + bias)
  /// from left to right, every operation rounded to float32: scale_a and scale_b are those of the row of a and of b,
  /// alpha is made of both tensors' scales, as TensorScale says. (In which order cuBLASLt multiplies is not documented;
  /// with powers of two it makes no difference.)
  float scale_out = 1;
  /// Elements of K after which the tensor core's accumulator is added to a float32 one (nearest even) and cleared;
  /// 0: never ("fast accumulation"), or where operands have tile scales, their depth. CUTLASS and DeepGEMM promote
  /// every 128.
  int promote_k = 0;
  /// The order for the scales of tiles and rows; left out: scales_first for tiles, accumulator_first for rows.
  std::optional<ScaleOrder> scale_order = {};
  /// Split-K: contiguous ranges of K, computed apart, all but the last multiples of the instruction's K (and of
  /// promote_k); then added in float32. Empty: one range.
  std::vector<std::size_t> split_k = {};
  std::vector<std::size_t> split_order = {};  ///< the ranges' numbers in the order of addition; empty: ascending
  std::span<const float> c = {};              ///< M * N elements, or empty
  CEntry c_enters = CEntry::epilogue;
  std::span<const float> bias = {};  ///< N elements, or empty
  ZeroRule zero_rule = ZeroRule::floor;
  int threads = 1;
  /// Is called on the calling thread with the share that is done; an exception from it cancels the GEMM.
  std::function<void(double)> progress = {};
};

/// out = a * b^T as `model` computes it: out(m, n) is the dot product of a's row m and b's row n, one instruction after
/// the other, K ascending from a zero accumulator, a tail of K filled with zeros. With block scales, K is a multiple of
/// their block. A float16 accumulator's words are float32 numbers here, in the promotion and in the epilogue too; a c
/// that it starts from is rounded to float16, nearest even.
///
/// The bits do not depend on threads, on the processor, on the caller's rounding mode, or on which of the
/// implementations below ran. `exact` is the real dot product rounded once, for any float32 input; it is not composed,
/// so it is not promoted or split, and c enters in the epilogue.
///
/// @param a  (M, K), or (K, M) if transposed
/// @param b  (N, K), as a Linear layer keeps its weight, or (K, N) if transposed
/// @param out  M * N elements, row-major
/// Throws std::invalid_argument where shapes, formats or options do not fit, or an option is given that nothing reads;
/// the message says what is allowed. It throws too for codes and arrays that mma() refuses.
void gemm(const MmaModel& model, const Operand& a, const Operand& b, std::span<float> out,
          const GemmOptions& options = {});

/// The same for models with a float64 accumulator, and for these alone. There are no scales, no promotion and no
/// epilogue: of the options, split_k, split_order (ranges are added in float64), threads and progress apply. A NaN has
/// the word that the model says (NanWord); which one an addition of ranges gives is not known: the first one's here.
void gemm(const MmaModel& model, const Operand& a, const Operand& b, std::span<double> out,
          const GemmOptions& options = {});

/// The same, and the result encoded: a format of up to 8 bits, or of 9 to 16.
void gemm(const MmaModel& model, const Operand& a, const Operand& b, const Format& format, const CastPolicy& policy,
          std::span<std::uint8_t> out, const GemmOptions& options = {});
void gemm(const MmaModel& model, const Operand& a, const Operand& b, const Format& format, const CastPolicy& policy,
          std::span<std::uint16_t> out, const GemmOptions& options = {});

/// The same for quantized tensors, as operand_of() has them. `exact` multiplies the values that dequantize() gives.
///
/// Forward, a is the input and b the weight, both rowwise; of the gradients, dx = dy * w has dy rowwise and w
/// columnwise, and dw = dy^T * x has both columnwise. Recipes may differ where the model takes both.
///
/// Throws std::invalid_argument as above, where the model does not take a recipe's codes and scales (the message names
/// those models that do), and where a Hadamard matrix turned one of the two and not the other.
void gemm(const MmaModel& model, const Quantized& a, const Quantized& b, std::span<float> out,
          const GemmOptions& options = {});
void gemm(const MmaModel& model, const Quantized& a, const Quantized& b, const Format& format, const CastPolicy& policy,
          std::span<std::uint8_t> out, const GemmOptions& options = {});
void gemm(const MmaModel& model, const Quantized& a, const Quantized& b, const Format& format, const CastPolicy& policy,
          std::span<std::uint16_t> out, const GemmOptions& options = {});

/// Whether the model takes such a Quantized: its format, and its scales. (Its K may not fit that of the other operand.)
/// Throws std::invalid_argument as check_quantized() does.
[[nodiscard]] bool takes(const MmaModel& model, const Quantized& q);

}  // namespace fp8lab
