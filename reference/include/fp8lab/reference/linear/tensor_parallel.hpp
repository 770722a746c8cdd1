// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace fp8lab {

/// Which dimension of the weight, (out, in), a tensor-parallel Linear layer splits over its ranks.
enum class ParallelMode : std::uint8_t {
  none,    ///< none: every rank has the whole layer
  column,  ///< out: every rank computes columns of y from all of x; dx is summed over the ranks
  row,     ///< in: every rank has columns of x, and y is summed over the ranks
};

/// The enumerator called `name`. Throws std::invalid_argument that lists the known names.
[[nodiscard]] ParallelMode find_parallel_mode(std::string_view name);
[[nodiscard]] std::string_view name_of(ParallelMode mode);

/// The largest number of ranks.
inline constexpr int most_ranks = 1 << 16;

/// How a Linear layer is split over ranks, as Transformer Engine's te.Linear has it (parallel_mode, tp_size,
/// sequence_parallel).
struct TensorParallel {
  ParallelMode mode = ParallelMode::none;
  int ranks = 1;
  /// Between layers, every rank has a part of the tokens: of x (column), or of y and dy (row). They are gathered before
  /// they are multiplied, and sums are reduce-scattered.
  bool sequence_parallel = false;
};

/// Throws std::invalid_argument for a number of ranks that is not from 1 to most_ranks, and where the mode is none and
/// there is more than one, or a sequence is split.
void check_tensor_parallel(const TensorParallel& parallel);

}  // namespace fp8lab
