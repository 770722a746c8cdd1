// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/formats/named.hpp"

namespace fp8lab {

/// Which dimension of the weight, (out, in), a tensor-parallel Linear layer splits over its ranks.
enum class ParallelMode : std::uint8_t {
  none,    ///< none: every rank has the whole layer
  column,  ///< out: every rank computes columns of y from all of x; dx is summed over the ranks
  row,     ///< in: every rank has columns of x, and y is summed over the ranks
};

[[nodiscard]] std::span<const Named<ParallelMode>> named_values(ParallelMode of_type);

/// The largest number of ranks.
inline constexpr int most_ranks = 1 << 16;

/// The order in which a collective adds the ranks' results.
enum class ReductionOrder : std::uint8_t {
  sequential,  ///< rank after rank
  ring,  ///< a chunk begins at the rank behind its own, goes around, and is complete at its own, as NCCL's ring does
  pairwise,  ///< neighbours in pairs, then pairs of pairs; a last one that is left goes on to the next level
};
[[nodiscard]] std::span<const Named<ReductionOrder>> named_values(ReductionOrder of_type);

/// How the ranks' results are added. Every rank's GEMM has rounded its result to the output's type before.
///
/// The ring's chunks are the ranks' parts of the tokens where the sum is scattered. Where all ranks get all of it, they
/// are as many equal parts of the elements as there are ranks: NCCL cuts further, by channels and buffer sizes, which
/// it does not promise.
///
/// Source: NVIDIA/nccl, src/device/reduce_scatter.h and all_reduce.h (runRing).
struct Reduction {
  ReductionOrder order = ReductionOrder::ring;
  std::vector<int> ranks = {};  ///< in which order ranks follow one another; empty: 0, 1, 2, ...
  /// Sums stay in float32 until the last, which is rounded. Otherwise every sum of two is rounded to the output's type,
  /// as NCCL's are.
  bool in_float32 = false;
};

/// How a Linear layer is split over ranks, as Transformer Engine's te.Linear has it (parallel_mode, tp_size,
/// sequence_parallel).
struct TensorParallel {
  ParallelMode mode = ParallelMode::none;
  int ranks = 1;
  /// Between layers, every rank has a part of the tokens: of x (column), or of y and dy (row). They are gathered before
  /// they are multiplied, and sums are reduce-scattered.
  bool sequence_parallel = false;
  Reduction reduction = {};  ///< of y (row) and dx (column)
};

/// Throws std::invalid_argument for a number of ranks that is not from 1 to most_ranks, where the mode is none and
/// there is more than one, or a sequence is split, and where reduction.ranks does not have every rank once.
void check_tensor_parallel(const TensorParallel& parallel);

}  // namespace fp8lab
