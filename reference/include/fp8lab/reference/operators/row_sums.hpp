// SPDX-License-Identifier: Apache-2.0
// The sums over a matrix's rows, which are a bias's gradient, in the order in which three kernels of a Hopper chip add
// them. Every NaN is the positive one of all ones.
//
// Sources: PyTorch 2.11, aten/src/ATen/native/cuda/Reduce.cuh (a sum over the outer of two dimensions); Transformer
// Engine 2.20, common/transpose/cast_transpose_fusion.cu and rtc/cast_transpose_fusion.cu. An H200 gave the words that
// the tests compare.
#pragma once

#include <cstddef>
#include <vector>

#include "fp8lab/formats/matrix_view.hpp"

namespace fp8lab {

/// What `torch.sum(x, dim=0)` adds in float32: the sum of each column of a contiguous matrix of two columns or more
/// that begins `offset` elements behind an aligned address. The rows of a column are dealt out to threads of blocks, of
/// which each has four sums; how many, the device's multiprocessors decide: an H100 SXM and an H200 have 132.
///
/// Throws std::invalid_argument for float64, a matrix without elements or of one column, which another kernel adds, and
/// fewer than one multiprocessor.
[[nodiscard]] std::vector<float> torch_row_sums(const MatrixView& x, std::size_t offset = 0, int multiprocessors = 132);

/// What cuBLASLt 13.1 adds beside a product for its epilogue BGRADB: the sum of each column in float32. Row i is added
/// to place i modulo 16, 64 or 128; then the upper half of the places to the lower one, and so on. There are 16 places
/// for at most 160 rows or more than 1024 columns, 64 for at most 2048 rows, and 128 for more.
///
/// An H200's words of 620 calls are these, of 16 to 16384 rows and 16 to 8192 columns. Where between 160 and 192 rows,
/// 2048 and 3072 rows, and 1024 and 1536 columns the number of places changes was not recorded.
///
/// With `after_gelu` those of the epilogue DGELU_BGRAD, of the unrounded gradient of GELU that the product becomes: 32
/// rows are added one after the other, and so are these sums. An H200's words of products of 512 rows and 256 columns
/// are these, of nine kinds of operands and outputs; no other shape was recorded.
///
/// Throws std::invalid_argument for float64 and a matrix without elements.
[[nodiscard]] std::vector<float> cublaslt_row_sums(const MatrixView& x, bool after_gelu = false);

/// The kernel of Transformer Engine that casts to FP8, transposes and adds.
struct CastTransposeKernel {
  /// The bytes of an element of its input: 1, 2 or 4.
  std::size_t item_size = 2;
  /// Whether it multiplies with an activation's derivative before.
  bool has_activation = false;
  /// How many multiprocessors the device has, by which the kernel's tile is chosen.
  int multiprocessors = 132;
};
/// The rows that a thread of it adds and transposes at a time, for a matrix of that shape.
///
/// Throws std::invalid_argument for another item_size, no elements and fewer than one multiprocessor.
[[nodiscard]] std::size_t cast_transpose_thread_rows(const CastTransposeKernel& kernel, std::size_t rows,
                                                     std::size_t columns);
/// What it adds: the sum of each column of x, in float32. A tile has 8 warps, a warp 4 turns, and a turn
/// cast_transpose_thread_rows() rows that follow each other.
///
/// Throws as cast_transpose_thread_rows() does, and for float64.
[[nodiscard]] std::vector<float> cast_transpose_row_sums(const MatrixView& x, const CastTransposeKernel& kernel = {});

}  // namespace fp8lab
