// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/linear/tensor_parallel.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/refuse.hpp"

namespace fp8lab {
namespace {

constexpr std::array parallel_modes{Named{"none", ParallelMode::none}, Named{"column", ParallelMode::column},
                                    Named{"row", ParallelMode::row}};
constexpr std::array reduction_orders{Named{"sequential", ReductionOrder::sequential},
                                      Named{"ring", ReductionOrder::ring}, Named{"pairwise", ReductionOrder::pairwise}};
static_assert(is_in_order(parallel_modes) && is_in_order(reduction_orders));

}  // namespace

std::span<const Named<ParallelMode>> named_values(ParallelMode /*any*/) { return parallel_modes; }
std::span<const Named<ReductionOrder>> named_values(ReductionOrder /*any*/) { return reduction_orders; }

void check_tensor_parallel(const TensorParallel& parallel) {
  if (parallel.ranks < 1 || parallel.ranks > most_ranks) {
    refuse("ranks must be from 1 to ", most_ranks, ", not ", parallel.ranks);
  }
  if (!parallel.reduction.ranks.empty()) {
    std::vector<int> each(static_cast<std::size_t>(parallel.ranks));
    std::ranges::generate(each, [i = 0]() mutable { return i++; });
    std::vector<int> sorted = parallel.reduction.ranks;
    std::ranges::sort(sorted);
    if (sorted != each) refuse("the reduction's ranks must be each of 0 to ", parallel.ranks - 1, " once");
  }
  if (parallel.mode != ParallelMode::none) return;
  if (parallel.ranks != 1) refuse("ranks must be 1 where the parallel mode is none, not ", parallel.ranks);
  if (parallel.sequence_parallel) refuse("sequence_parallel is for the parallel modes column and row");
}

}  // namespace fp8lab
