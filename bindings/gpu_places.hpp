// SPDX-License-Identifier: Apache-2.0
// Arrays that Python has checked, as addresses, and where a kernel runs on them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <tuple>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/gpu/device.hpp"
#include "fp8lab/gpu/host_team.hpp"

namespace fp8lab::bindings {

/// Argument, address, bytes, and the alignment of elements. No array: nothing.
using Place = std::tuple<std::string, std::uint64_t, std::size_t, std::size_t>;
using MaybePlace = std::optional<Place>;
/// Where a kernel runs: on a device or not, the stream there; order, seed and threads of the host team.
using TeamFields = std::tuple<bool, std::uint64_t, std::string, std::uint64_t, int>;

inline constexpr Named<gpu::HostOrder::Kind> order_names[] = {{"ascending", gpu::HostOrder::Kind::ascending},
                                                              {"descending", gpu::HostOrder::Kind::descending},
                                                              {"shuffled", gpu::HostOrder::Kind::shuffled}};

struct Team {
  bool on_device;
  void* stream;
  gpu::HostOrder order;
};
inline Team team_of(const TeamFields& fields) {
  const auto& [on_device, stream, order, seed, threads] = fields;
  return {on_device, reinterpret_cast<void*>(stream), {find_named(order_names, "order", order).value, seed, threads}};
}

template <typename T>
std::span<T> span_at(const MaybePlace& place) {
  if (!place) return {};
  const auto& [argument, address, bytes, alignment] = *place;
  return {reinterpret_cast<T*>(address), bytes / sizeof(T)};
}
template <typename T>
T* pointer_at(const MaybePlace& place) {
  return place ? span_at<T>(place).data() : nullptr;
}

inline void check_places(const Team& team, std::initializer_list<const MaybePlace*> places) {
  if (!team.on_device) return;
  for (const MaybePlace* place : places) {
    if (!*place) continue;
    const auto& [argument, address, bytes, alignment] = **place;
    gpu::check_device_buffer({argument, address, bytes, alignment});
  }
}

}  // namespace fp8lab::bindings
