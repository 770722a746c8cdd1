// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/parallel.hpp"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fp8lab/formats/environment.hpp"

namespace fp8lab {

void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t, std::size_t)>& work) {
  if (threads < 1) throw std::invalid_argument("threads must be at least 1, not " + std::to_string(threads));
  const DefaultEnvironment environment;
  if (threads == 1) return work(0, count);
  const std::size_t pieces = std::min<std::size_t>(static_cast<std::size_t>(threads), std::max<std::size_t>(count, 1));
  std::vector<std::exception_ptr> errors(pieces);
  const auto run = [&](std::size_t piece) {
    try {
      work(count * piece / pieces, count * (piece + 1) / pieces);
    } catch (...) {
      errors[piece] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    others.reserve(pieces - 1);
    for (std::size_t piece = 0; piece + 1 < pieces; ++piece) {
      others.emplace_back([&run, piece] {
        const DefaultEnvironment of_thread;
        run(piece);
      });
    }
    run(pieces - 1);
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace fp8lab
