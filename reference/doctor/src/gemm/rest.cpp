// SPDX-License-Identifier: Apache-2.0
#include "gemm/rest.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <ranges>
#include <string_view>

#include "fp8lab/formats/text_stream.hpp"
#include "search/located.hpp"

namespace fp8lab::doctor {

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

std::string output_of_one_kind(const GemmProblem& problem, const GemmExplanation& first) {
  struct Kind {
    std::string_view name;
    bool (*has)(double);
    std::string_view cause;
  };
  constexpr std::string_view other_inputs =
      "An operand, a scale, c or the bias that the kernel read is not the one that was given, or the output was not "
      "written. ";
  constexpr std::array all{
      Kind{"NaN", [](double x) { return std::isnan(x); }, other_inputs},
      Kind{"-inf", [](double x) { return std::isinf(x) && x < 0; }, other_inputs},
      Kind{"inf", [](double x) { return std::isinf(x) && x > 0; }, other_inputs},
      Kind{"infinite", [](double x) { return std::isinf(x); }, other_inputs},
      Kind{"0", [](double x) { return x == 0; }, "Was the output not written? "},
  };
  const ElementType type{problem.facts().format};
  if (first.unexplained == 0 || problem.known() == 0) return "";
  for (const Kind& kind : all) {
    const auto is_of_kind = [&](std::size_t i) { return kind.has(value_of(type, problem.word(i))); };
    if (!std::ranges::all_of(std::views::iota(std::size_t{0}, problem.known()), is_of_kind)) continue;
    TextStream text;
    text << "Every element of the output is " << kind.name << ", which the nearest hypothesis makes of "
         << first.checked - first.unexplained << " of the " << first.checked << " looked at. " << kind.cause;
    return text.str();
  }
  return "";
}

}  // namespace fp8lab::doctor
