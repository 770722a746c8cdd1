// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/gpu/host_team.hpp"

#include <algorithm>
#include <numeric>

#include "fp8lab/formats/parallel.hpp"

namespace fp8lab::gpu {

void HostTeam::call_each(std::size_t count, AnyBody body) const {
  const auto one = [&](std::size_t i) {
    switch (order_.kind) {
      case HostOrder::Kind::ascending: break;
      case HostOrder::Kind::descending: i = count - 1 - i; break;
      case HostOrder::Kind::shuffled: i = places_[i]; break;
    }
    body.call(body.body, i);
  };
  if (order_.kind == HostOrder::Kind::shuffled) {
    places_.resize(count);
    std::iota(places_.begin(), places_.end(), std::size_t{0});
    std::shuffle(places_.begin(), places_.end(), random_);
  }
  if (order_.threads == 1) {
    for (std::size_t i = 0; i < count; ++i) one(i);
    return;
  }
  parallel_for(count, order_.threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) one(i);
  });
}

}  // namespace fp8lab::gpu
