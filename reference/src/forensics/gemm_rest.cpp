// SPDX-License-Identifier: Apache-2.0
#include "forensics/gemm_rest.hpp"

#include <cstring>

#include "forensics/rest.hpp"

namespace fp8lab::forensics {

std::vector<std::string> gemm_rest(const GemmProblem& problem, std::span<const std::size_t> elements,
                                   std::span<const std::uint64_t> words) {
  const GemmFacts& facts = problem.facts();
  const std::size_t width = problem.bytes();
  std::vector<std::byte> written(problem.known() * width);
  for (std::size_t i = 0; i < problem.known(); ++i) {
    const std::uint64_t word = problem.word(i);
    std::memcpy(written.data() + i * width, &word, width);
  }
  std::vector<std::byte> predicted = written;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    std::memcpy(predicted.data() + elements[i] * width, &words[i], width);
  }
  return located({{facts.format}, predicted, written, facts.columns}, "element");
}

}  // namespace fp8lab::forensics
