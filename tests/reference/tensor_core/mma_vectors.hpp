// SPDX-License-Identifier: Apache-2.0
// What MMA-Sim computed, as tests/vectors/mma_sim.json has it.
#pragma once

#include "files/recorded.hpp"

namespace fp8lab::tests {

using experiments::Codes;
using experiments::RecordedChain;
using experiments::RecordedChains;
using experiments::RecordedDots;
using experiments::Scales;

inline const experiments::Recorded& recorded() {
  static const experiments::Recorded file = experiments::read_vectors(FP8LAB_VECTORS "/mma_sim.json");
  return file;
}

/// Calls use(set, chain) for every chain.
template <typename Use>
void for_chains(const Use& use) {
  for (const experiments::RecordedChains& set : recorded().chains) {
    for (const RecordedChain& chain : set.chains) use(set, chain);
  }
}

}  // namespace fp8lab::tests
