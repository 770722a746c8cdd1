// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "fp8lab/formats/host_device.hpp"

// A kernel is a functor over a team, which is one thread block: kernel(team, block). A team offers collectives only,
// each of which ends in the block's barrier, so that the same kernel source runs on the device (DeviceTeam, in src/)
// and, one block after the other, on the host.

namespace fp8lab::gpu {

/// A team of one host thread: every collective is a plain loop.
struct HostTeam {
  /// Calls body(i) for every i in [0, count).
  template <typename Body>
  void for_each(std::size_t count, const Body& body) const {
    for (std::size_t i = 0; i < count; ++i) body(i);
  }
};

/// Runs `kernel` on the host, one block after the other.
template <typename Kernel>
void run_on_host(const Kernel& kernel, std::size_t blocks) {
  for (std::size_t block = 0; block < blocks; ++block) kernel(HostTeam{}, block);
}

}  // namespace fp8lab::gpu
