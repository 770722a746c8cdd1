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

}  // namespace

ParallelMode find_parallel_mode(std::string_view name) {
  return find_named(parallel_modes, "parallel mode", name).value;
}
std::string_view name_of(ParallelMode mode) { return entry_of(parallel_modes, mode).name; }

ReductionOrder find_reduction_order(std::string_view name) { return find_named(reduction_orders, "order", name).value; }
std::string_view name_of(ReductionOrder order) { return entry_of(reduction_orders, order).name; }

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
