// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/doctor/diagnose_gemm.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "gemm/dequantized.hpp"
#include "gemm/prefix.hpp"
#include "gemm/rest.hpp"
#include "gemm/search.hpp"
#include "gemm/suggest.hpp"
#include "gemm/whole.hpp"
#include "reference/src/tensor_core/misfit.hpp"

namespace fp8lab::doctor {
namespace {

/// Elements that more hypotheses explain than this do not tell of the GEMM: a percentage.
constexpr std::size_t most_alike = 90;

class GemmDoctor {
 public:
  GemmDoctor(const Operand& a, const Operand& b, const GemmOutput& out, const GemmDoctorOptions& options,
             StepType dequantized = StepType::as_given)
      : problem_(a, b, out), options_(options), searcher_(problem_, options, dequantized) {}

  [[nodiscard]] GemmDiagnosis run() const {
    std::vector<std::size_t> order;
    GemmFindings found = searcher_.find(order);
    return told(found, order);
  }

 private:
  GemmDiagnosis told(GemmFindings& found, std::span<const std::size_t> order) const {
    GemmDiagnosis result;
    result.elements = problem_.known();
    result.inputs = problem_.inputs();
    result.searched = found.searched;
    const auto elements = order.first(found.checked);
    check_expected(result, found, elements);
    result.is_telling = found.unexplained() != 0 || is_telling(found, elements);
    add_runner_up(found, elements);
    explain_gemm(result, found.candidates, found.checked);
    if (found.whole) {
      result.explanations.front().checked = result.elements;
      result.explanations.front().unexplained = found.whole_unexplained;
    }
    result.verdict = output_of_one_kind(problem_, result.explanations.front()) + gemm_verdict(result);
    show(result, found, elements);
    if (!result.explained() && problem_.is_whole()) {
      std::string located = located_sums(problem_, order);
      const bool is_small = located.ends_with(small_difference);
      if (!found.nearest.empty() && !is_small)
        located += " Nearest to the output are exact sums if " + found.nearest + ".";
      result.rest.push_back(std::move(located));
    }
    if (result.first_difference) result.rest.push_back(describe(*result.first_difference));
    return result;
  }

  void check_expected(GemmDiagnosis& result, const GemmFindings& found, std::span<const std::size_t> elements) const {
    const std::optional<GemmCandidate>& expected = searcher_.expected();
    if (!expected) return;
    result.expected = describe(expected->recipe);
    const bool is_first = found.whole && found.candidates.front().is_like(*expected);
    const auto whole = found.whole && !is_first ? whole_output(*expected, problem_, options_.threads) : found.whole;
    if (whole) {
      result.expected_checked = whole->size();
      result.expected_unexplained = problem_.count_unexplained(*whole);
      return;
    }
    std::vector<GemmCandidate> one{*expected};
    searcher_.scorer().score(one, elements);
    result.expected_checked = elements.size();
    result.expected_unexplained = elements.size() - one.front().matches;
  }

  /// Whether the elements could have told a wrong GEMM from the first candidate, which explains all of them.
  [[nodiscard]] bool is_telling(const GemmFindings& found, std::span<const std::size_t> elements) const {
    const auto explains_all = [&](const GemmCandidate& one) { return one.matches == elements.size(); };
    const auto same = static_cast<std::size_t>(std::ranges::count_if(found.candidates, explains_all));
    if (same * 100 > found.searched * most_alike || problem_.is_at_ends(elements)) return false;
    const std::size_t depth =
        problem_.used_depth(elements.first(std::min<std::size_t>(elements.size(), sieve_elements)));
    if (depth < 2) return depth == 1 && problem_.a().depth == 1;
    std::vector<GemmCandidate> half{found.candidates.front()};
    half.front().departure = &dropped_tail();
    half.front().depth = depth / 2;
    half.front().matches = 0;
    const auto some = elements.first(std::min<std::size_t>(elements.size(), batch_elements));
    searcher_.scorer().score(half, some);
    return half.front().matches != some.size();
  }

  /// Adds the best of those that leave elements unexplained, to show what speaks against it.
  void add_runner_up(GemmFindings& found, std::span<const std::size_t> elements) const {
    if (!found.runner_up || found.candidates.front().matches != elements.size()) return;
    std::vector<GemmCandidate> one{*found.runner_up};
    one.front().matches = 0;
    searcher_.scorer().score(one, elements);
    found.candidates.push_back(one.front());
  }

  [[nodiscard]] std::vector<std::size_t> differing_from(std::span<const std::uint64_t> words,
                                                        std::span<const std::size_t> elements) const {
    std::vector<std::size_t> differing;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      if (words[i] != problem_.word(elements[i])) differing.push_back(elements[i]);
    }
    return differing;
  }

  /// Elements that the first candidate leaves unexplained; says of those of a whole output what they have in common.
  [[nodiscard]] std::vector<std::size_t> left_by_first(GemmDiagnosis& result, const GemmFindings& found,
                                                       std::span<const std::size_t> elements) const {
    std::vector<std::size_t> some(elements.begin(), elements.end());
    if (found.whole) {
      some.resize(found.whole->size());
      std::iota(some.begin(), some.end(), std::size_t{0});
    }
    const std::vector<std::uint64_t> words =
        found.whole ? *found.whole : searcher_.scorer().words(found.candidates.front(), some);
    if (problem_.is_whole()) result.rest = gemm_rest(problem_, some, words);
    result.first_difference = difference_along_k(problem_, some, words);
    return differing_from(words, some);
  }

  /// Elements that are not as the first candidate, or the expected one, has them, where all are, those that tell the
  /// first from the best that gives something else.
  void show(GemmDiagnosis& result, const GemmFindings& found, std::span<const std::size_t> elements) const {
    const std::vector<GemmCandidate>& candidates = found.candidates;
    const GemmCandidate& first = candidates.front();
    const GemmCandidate* second = candidates.size() > 1 && !result.explained() ? &candidates[1] : nullptr;
    const auto other =
        std::ranges::find_if(candidates, [&](const GemmCandidate& one) { return one.matches != first.matches; });
    if (other != candidates.end()) second = &*other;
    const bool is_another = result.explained() && !result.is_expected();
    if (is_another && searcher_.expected()) second = &*searcher_.expected();
    if (second == nullptr && result.explained()) return;
    // 1. Which elements, and their words by one of them.
    std::vector<std::size_t> differing;
    if (result.explained()) {
      const std::size_t most = is_another ? elements.size() : std::min(elements.size(), batch_elements);
      const std::vector<std::uint64_t> words = searcher_.scorer().words(*second, elements.first(most));
      differing = differing_from(words, elements.first(most));
    } else {
      differing = left_by_first(result, found, elements);
    }
    if (!result.explained() || is_another) std::ranges::sort(differing);
    differing.resize(std::min(differing.size(), options_.most_shown));
    // 2. What both make of them.
    const std::vector<std::uint64_t> by_first = searcher_.scorer().words(first, differing);
    const auto by_second = second == nullptr ? by_first : searcher_.scorer().words(*second, differing);
    for (std::size_t i = 0; i < differing.size(); ++i) {
      const GemmPlace at = problem_.element(differing[i]);
      GemmElement shown{at.row, at.column, problem_.word(differing[i]), by_first[i], {}};
      if (second != nullptr) shown.second = by_second[i];
      result.shown.push_back(shown);
    }
  }

  GemmProblem problem_;
  const GemmDoctorOptions& options_;
  GemmSearcher searcher_;
};

/// Whether the output over the beginning of K is right: what is expected, or where nothing is, a plain GEMM's.
bool is_right(const GemmPrefix& prefix, const Operand& a, const Operand& b, const GemmOutput& out,
              const GemmDoctorOptions& options) {
  const OperandHead left(a, prefix.depth);
  const OperandHead right(b, prefix.depth);
  const GemmOutput head{
      .format = out.format, .words = prefix.words, .c = out.c, .bias = out.bias, .scale_out = out.scale_out};
  GemmDoctorOptions own = options;
  if (own.expected && !own.expected->split_k.empty()) own.expected.reset();  // its ranges are those of all of K
  const Operand operand_a = left.operand();
  const Operand operand_b = right.operand();
  const GemmDiagnosis found = GemmDoctor(operand_a, operand_b, head, own).run();
  if (!found.expected.empty()) return found.expected_unexplained == 0;
  return found.explained() && found.explanations.front().is_plain();
}

/// Takes what explains the output of dequantized operands, if anything does.
void try_dequantized(GemmDiagnosis& found, const Operand& a, const Operand& b, const GemmOutput& out,
                     const GemmDoctorOptions& options, StepType type) {
  const DequantizedOperand left(a, type);
  const DequantizedOperand right(b, type);
  GemmDoctorOptions plain = options;
  plain.expected.reset();
  GemmDiagnosis other = GemmDoctor(left.operand(), right.operand(), out, plain, type).run();
  found.searched += other.searched;
  if (!other.explained()) return;
  other.searched = found.searched;
  other.inputs = found.inputs;
  other.expected = found.expected;
  other.expected_checked = found.expected_checked;
  other.expected_unexplained = found.expected_unexplained;
  other.verdict = gemm_verdict(other);
  found = std::move(other);
}

}  // namespace

std::vector<std::uint64_t> gemm_words(const GemmExplanation& explanation, const Operand& a, const Operand& b,
                                      const GemmOutput& out) {
  const DefaultEnvironment environment;
  check_gemm_recipe(explanation.recipe);
  if (explanation.recipe.activation == GemmActivation::dgelu) {
    refuse("recipe: activation dgelu has an activation_input, which is not given here");
  }
  if (explanation.recipe.bias_gradient != BiasGradient::none) {
    refuse("recipe: bias_gradient is beside the output, which alone is compared");
  }
  const bool multiplies_codes = std::ranges::any_of(
      explanation.departures, [](const FoundDeparture& one) { return one.row->reading.blocks_as_tiles; });
  const Operand left = with_scale_type(a);
  const Operand right = with_scale_type(b);
  GemmOutput whole = out;
  whole.indices.clear();
  const StepType type = explanation.recipe.dequantized;
  static_cast<void>(find_gemm_model(explanation.recipe.model.name));  // refuses a name that no model has
  for (Operand operand : {left, right}) {
    if (multiplies_codes) operand.scales = {};
    const MmaModel& own = explanation.recipe.model;
    const bool fits =
        type == StepType::as_given ? takes(own, operand) : takes(own, DequantizedOperand(operand, type).operand());
    if (!fits) refuse("recipe: ", own.name, " does not take such operands");
  }
  return words_by_explanation(explanation, left, right, whole);
}

GemmDiagnosis diagnose_gemm(const Operand& a, const Operand& b, const GemmOutput& out,
                            const GemmDoctorOptions& options) {
  const DefaultEnvironment environment;
  if (options.most_products == 0) refuse("most_products must be at least 1");
  check_threads(options.threads);
  const Operand left = with_scale_type(a);
  const Operand right = with_scale_type(b);
  GemmDiagnosis found = GemmDoctor(left, right, out, options).run();
  const bool are_codes = a.format.bits() <= 8 && b.format.bits() <= 8;
  for (const StepType type : {StepType::to_bfloat16, StepType::to_float16}) {
    if (found.explained() || !are_codes) break;
    try_dequantized(found, left, right, out, options, type);
  }
  if (!found.explained() && !out.prefixes.empty()) {
    if (found.first_difference) found.rest.pop_back();
    found.first_difference = difference_of_prefixes(
        out.prefixes, a.depth, [&](const GemmPrefix& one) { return is_right(one, left, right, out, options); });
    found.rest.push_back(describe(*found.first_difference));
  }
  return found;
}

}  // namespace fp8lab::doctor
