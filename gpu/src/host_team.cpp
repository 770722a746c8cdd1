// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/gpu/host_team.hpp"

#include <algorithm>
#include <cstring>
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
    const auto thread = running(i % threads_);
    body.call(body.body, i);
  };
  if (order_.kind == HostOrder::Kind::shuffled) {
    places_.resize(count);
    std::iota(places_.begin(), places_.end(), std::size_t{0});
    std::shuffle(places_.begin(), places_.end(), random_);
  }
  if (order_.threads == 1) {
    for (std::size_t i = 0; i < count; ++i) one(i);
  } else {
    parallel_for(count, order_.threads, [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) one(i);
    });
  }
  races_->check();
}

void HostWithheld::begin(const HostTeam& team) { before_.assign(team.shared(), team.shared() + team.shared_bytes()); }

void HostWithheld::end(const HostTeam& team) {
  constexpr std::byte nobody_wrote{0xFF};  // NaN in most formats
  constexpr std::size_t at_once = 256;
  auto* const shared = const_cast<std::byte*>(team.shared());
  for (std::size_t first = 0; first < before_.size(); first += at_once) {
    const std::size_t last = std::min(first + at_once, before_.size());
    if (std::memcmp(shared + first, before_.data() + first, last - first) == 0) continue;
    for (std::size_t i = first; i < last; ++i) {
      if (shared[i] == before_[i]) continue;
      writes_.push_back({i, shared[i], false});
      shared[i] = nobody_wrote;
    }
  }
}

void HostWithheld::publish() {
  for (Write& write : writes_) write.is_published = true;
}

void HostWithheld::release(const HostTeam& team) {
  auto* const shared = const_cast<std::byte*>(team.shared());
  for (const Write& write : writes_) {
    shared[write.place] = write.value;
    if (write.is_published) shared[team.shared_bytes() + write.place] = write.value;
  }
  writes_.clear();
}

}  // namespace fp8lab::gpu
