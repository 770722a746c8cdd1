// SPDX-License-Identifier: Apache-2.0
// Checks that all bulk functions of this folder make.
#pragma once

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "fp8lab/formats/interruption.hpp"

namespace fp8lab {

inline void check_same_size(const char* a, std::size_t size_a, const char* b, std::size_t size_b) {
  if (size_a == size_b) return;
  throw std::invalid_argument(std::string(a) + " has " + std::to_string(size_a) + " elements, " + b + " " +
                              std::to_string(size_b));
}

/// Calls work(first, count) for pieces of a large array, so that the call can be ended between them.
template <typename Work>
void for_each_piece(std::size_t size, const Work& work) {
  constexpr std::size_t most = std::size_t{1} << 16;
  for (std::size_t first = 0; first < size; first += most) {
    checkpoint();
    work(first, std::min(most, size - first));
  }
}

}  // namespace fp8lab
