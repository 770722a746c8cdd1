// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/forensics/diagnose_gemm.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "forensics/gemm_arithmetic.hpp"
#include "forensics/gemm_candidates.hpp"
#include "forensics/gemm_expected.hpp"
#include "forensics/gemm_problem.hpp"
#include "forensics/gemm_rest.hpp"
#include "forensics/gemm_scorer.hpp"
#include "forensics/gemm_whole.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "gemm/misfit.hpp"

namespace fp8lab::forensics {
namespace {

constexpr std::size_t sieve_elements = 16;
/// There are many more hypotheses with a defect: of those that explain few of these elements, none is looked at again.
constexpr std::size_t first_elements = 4;
constexpr std::size_t batch_elements = 128;
/// Elements that contradict what explains a sample, of those beyond it: so many are compared with all hypotheses.
constexpr std::size_t most_joined = 1024;
/// This many hypotheses are checked where all leave elements of the sieve unexplained: the best ones.
constexpr std::size_t most_imperfect = 12;
/// Elements that more hypotheses explain than this do not tell of the GEMM: a percentage.
constexpr std::size_t most_alike = 90;

class GemmDoctor {
 public:
  GemmDoctor(const Operand& a, const Operand& b, const GemmOutput& out, const GemmDoctorOptions& options)
      : problem_(a, b, out),
        scorer_(problem_, a, b, out),
        a_(a),
        b_(b),
        out_(out),
        options_(options),
        facts_(problem_.facts()) {
    if (options.expected) expected_ = expected_candidate(*options.expected, problem_, a, b);
  }

  GemmDiagnosis run() {
    GemmDiagnosis result;
    result.elements = problem_.known();
    result.inputs = problem_.inputs();
    std::vector<std::size_t> order = problem_.order_of_elements(sieve_elements);
    const auto sieve = std::span(order).first(std::min(sieve_elements, order.size()));
    // 1. GEMMs as they usually are, then in other orders of K and with other rules for zeros, then with a defect.
    std::vector<GemmCandidate> candidates;
    if (are_float32()) add_cuda_cores(candidates);
    add(candidates, GemmDefect::none, a_.depth);
    if (candidates.empty()) refuse_operands();
    add_expected(candidates);
    result.searched = candidates.size();
    scorer_.score(candidates, sieve);
    for (const bool with_defects : {false, true}) {
      if (best_of(candidates) == sieve.size()) break;
      std::vector<GemmCandidate> unusual = with_defects ? defects() : other_orders();
      result.searched += unusual.size();
      const auto few = sieve.first(std::min(first_elements, sieve.size()));
      scorer_.score(unusual, few);
      keep_promising(unusual, few.size());
      scorer_.score(unusual, sieve.subspan(few.size()));
      std::ranges::move(unusual, std::back_inserter(candidates));
    }
    // 2. What is left, on all elements.
    keep_best(candidates, sieve.size());
    const std::size_t seen = check_rest(candidates, order, sieve.size());
    rank(candidates);
    const std::size_t checked = check_whole(candidates, order, seen);
    const auto elements = std::span(order).first(checked);
    if (expected_) check_expected(result, elements);
    result.is_telling = candidates.front().matches != checked || is_telling(candidates, result.searched, elements);
    add_runner_up(candidates, elements);
    explain_gemm(result, candidates, checked);
    tell_whole(result, checked - seen);
    result.verdict = output_of_one_kind(problem_, result.explanations.front()) + gemm_verdict(result);
    show(result, candidates, elements);
    return result;
  }

 private:
  [[noreturn]] void refuse_operands() const {
    refuse("no model takes such operands: a is ", format_name(a_.format), " and b ", format_name(b_.format),
           facts_.block != 0 ? " with block scales" : "");
  }

  void add(std::vector<GemmCandidate>& all, GemmDefect defect, std::size_t depth,
           GemmSearch search = GemmSearch::usual) const {
    for (const MmaModel& model : models) {
      if (model.is_fp64() || !takes(model, a_) || !takes(model, b_)) continue;
      const GemmFacts facts = problem_.facts_for(model);
      const auto k = static_cast<std::size_t>(model.k());
      if (facts.tile_depth != 0 && (k == 0 || facts.tile_depth % k != 0)) continue;
      for (GemmHypothesis& h : gemm_hypotheses(model, facts, defect, depth, search)) {
        all.push_back({std::move(h), &model});
      }
    }
  }

  /// Whether the operands are what GEMMs without a tensor core usually take.
  [[nodiscard]] bool are_float32() const {
    constexpr Format single = binary32;
    return a_.format == single && b_.format == single;
  }

  /// Float32 sums without a tensor core. Products of up to 12 bits each are exact, so that fma makes no difference.
  void add_cuda_cores(std::vector<GemmCandidate>& all) const {
    if (facts_.block != 0) return;
    constexpr Format single = binary32;
    for (const std::string_view name : {cuda_cores_name, cuda_cores_fma_name}) {
      if (name == cuda_cores_fma_name && a_.format != single && b_.format != single) continue;
      const MmaModel& model = gemm_model(name);
      for (GemmHypothesis& h : gemm_hypotheses(model, facts_, GemmDefect::none, a_.depth)) {
        all.push_back({std::move(h), &model});
      }
    }
  }

  /// In the place of the one that is the same.
  void add_expected(std::vector<GemmCandidate>& candidates) const {
    if (!expected_) return;
    std::erase_if(candidates, [&](const GemmCandidate& one) { return is_same(one.hypothesis, expected_->hypothesis); });
    candidates.insert(candidates.begin(), *expected_);
  }

  void check_expected(GemmDiagnosis& result, std::span<const std::size_t> elements) const {
    if (!expected_) return;
    const std::vector<std::uint64_t> words = words_of(*expected_, elements);
    result.expected = describe(expected_->hypothesis);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      result.expected_unexplained += words[i] != problem_.word(elements[i]) ? 1 : 0;
    }
  }

  /// Whether the elements could have told a wrong GEMM from the first candidate, which explains all of them.
  [[nodiscard]] bool is_telling(const std::vector<GemmCandidate>& candidates, std::size_t searched,
                                std::span<const std::size_t> elements) const {
    const auto same =
        std::ranges::count_if(candidates, [&](const GemmCandidate& one) { return one.matches == elements.size(); });
    if (static_cast<std::size_t>(same) * 100 > searched * most_alike) return false;
    if (a_.depth == 1) return true;
    std::vector<GemmCandidate> half{candidates.front()};
    half.front().hypothesis.defect = GemmDefect::tail_dropped;
    half.front().hypothesis.depth = a_.depth / 2;
    half.front().matches = 0;
    const auto some = elements.first(std::min<std::size_t>(elements.size(), batch_elements));
    scorer_.score(half, some);
    return half.front().matches != some.size();
  }

  [[nodiscard]] std::vector<GemmCandidate> other_orders() const {
    std::vector<GemmCandidate> all;
    add(all, GemmDefect::none, a_.depth, GemmSearch::orders);
    add(all, GemmDefect::none, a_.depth, GemmSearch::zeros);
    add(all, GemmDefect::none, a_.depth, GemmSearch::rounded_sums);
    if (!are_float32()) add_cuda_cores(all);
    return all;
  }

  [[nodiscard]] std::vector<GemmCandidate> defects() const {
    using enum GemmDefect;
    std::vector<GemmCandidate> all;
    for (const GemmDefect defect : {a_transposed,
                                    b_transposed,
                                    out_transposed,
                                    scale_a_missing,
                                    scale_b_missing,
                                    scales_missing,
                                    scale_a_twice,
                                    scale_b_twice,
                                    scales_twice,
                                    scale_a_inverted,
                                    scale_b_inverted,
                                    scales_inverted,
                                    scale_a_of_previous_tile,
                                    scale_b_of_previous_tile,
                                    scales_of_previous_tile,
                                    c_missing,
                                    c_transposed,
                                    bias_missing,
                                    bias_along_rows,
                                    bias_in_each_range,
                                    scale_out_missing,
                                    scale_out_inverted}) {
      if (defect == out_transposed && (a_.rows == 1 || b_.rows == 1)) continue;
      add(all, defect, a_.depth);
    }
    std::vector<std::size_t> depths;
    for (const std::size_t unit : {8, 16, 32, 64, 128, 256}) {
      if (a_.depth <= unit) continue;
      const std::size_t depth = (a_.depth - 1) / unit * unit;
      if (std::ranges::find(depths, depth) == depths.end()) depths.push_back(depth);
    }
    for (const std::size_t depth : depths) {
      if (depth % std::max<std::size_t>(facts_.block, 1) == 0) add(all, tail_dropped, depth);
    }
    return all;
  }

  static std::size_t best_of(const std::vector<GemmCandidate>& candidates) {
    std::size_t best = 0;
    for (const GemmCandidate& one : candidates) best = std::max(best, one.matches);
    return best;
  }

  /// Drops those that explain less than the best of them, which has to explain something.
  static void keep_promising(std::vector<GemmCandidate>& candidates, std::size_t seen) {
    const std::size_t best = std::max<std::size_t>(best_of(candidates), seen == 0 ? 0 : 1);
    std::erase_if(candidates, [&](const GemmCandidate& one) { return one.matches < best; });
  }

  /// By what they explain, then the expected one, then the usual ones.
  void rank(std::vector<GemmCandidate>& candidates) const {
    const auto cost = [&](const GemmCandidate& one) {
      return expected_ && one.hypothesis == expected_->hypothesis ? -1 : strangeness(one.hypothesis);
    };
    std::ranges::stable_sort(candidates, [&](const GemmCandidate& x, const GemmCandidate& y) {
      return x.matches != y.matches ? x.matches > y.matches : cost(x) < cost(y);
    });
  }

  /// Those that explain all of `seen`, or if none does, the best ones.
  void keep_best(std::vector<GemmCandidate>& candidates, std::size_t seen) {
    rank(candidates);
    if (candidates.front().matches == seen) {
      keep_perfect(candidates, seen);
    } else if (candidates.size() > most_imperfect) {
      candidates.resize(most_imperfect);
    }
  }

  /// Drops those that leave some of `seen` elements unexplained, and remembers the best of them.
  void keep_perfect(std::vector<GemmCandidate>& candidates, std::size_t seen) {
    std::vector<GemmCandidate> dropped;
    std::ranges::copy_if(candidates, std::back_inserter(dropped), [&](const auto& one) { return one.matches < seen; });
    if (dropped.empty()) return;
    rank(dropped);
    runner_up_ = dropped.front();
    std::erase_if(candidates, [&](const GemmCandidate& one) { return one.matches < seen; });
  }

  /// Adds the best of those that leave elements unexplained, to show what speaks against it.
  void add_runner_up(std::vector<GemmCandidate>& candidates, std::span<const std::size_t> elements) const {
    if (!runner_up_ || candidates.front().matches != elements.size()) return;
    std::vector<GemmCandidate> one{*runner_up_};
    one.front().matches = 0;
    scorer_.score(one, elements);
    candidates.push_back(one.front());
  }

  /// Compares the candidates with more elements as long as the products last. Returns how many have been looked at.
  std::size_t check_rest(std::vector<GemmCandidate>& candidates, std::span<const std::size_t> order, std::size_t seen) {
    std::size_t products = options_.most_products;
    while (seen < order.size()) {
      std::map<GemmScorer::Key, std::size_t> groups;
      for (const GemmCandidate& one : candidates) ++groups[scorer_.key_of(one)];
      const std::size_t count = std::min(batch_elements, order.size() - seen);
      const std::size_t cost = groups.size() * count * a_.depth;
      if (cost > products) break;
      products -= cost;
      scorer_.score(candidates, order.subspan(seen, count));
      seen += count;
      if (best_of(candidates) == seen) keep_perfect(candidates, seen);
    }
    return seen;
  }

  /// The words of the elements by a candidate. Of a whole output gemm() has them faster.
  [[nodiscard]] std::vector<std::uint64_t> words_of(const GemmCandidate& candidate,
                                                    std::span<const std::size_t> elements) const {
    const bool are_many = elements.size() > batch_elements && problem_.is_whole();
    const auto whole = are_many ? whole_output(candidate, problem_, a_, b_, out_) : std::nullopt;
    if (!whole) return scorer_.words(candidate, elements);
    std::vector<std::uint64_t> words;
    words.reserve(elements.size());
    for (const std::size_t i : elements) words.push_back((*whole)[i]);
    return words;
  }

  /// Looks at the elements beyond `seen` that were not looked at yet, by the first candidate alone, where gemm()
  /// computes it. Those that contradict it join the others, in `order`. Returns how many have been looked at.
  std::size_t check_whole(std::vector<GemmCandidate>& candidates, std::vector<std::size_t>& order, std::size_t seen) {
    if (!problem_.is_whole() || seen == order.size() || candidates.front().matches * 2 < seen) return seen;
    const auto whole = whole_output(candidates.front(), problem_, a_, b_, out_);
    if (!whole) return seen;
    const auto contradicts = [&](std::size_t i) { return (*whole)[i] != problem_.word(i); };
    const auto others = std::partition(order.begin() + static_cast<std::ptrdiff_t>(seen), order.end(), contradicts);
    const auto joined = static_cast<std::size_t>(others - order.begin()) - seen;
    has_looked_at_all_ = true;
    contradictions_ = joined;
    const std::size_t count = std::min(joined, most_joined);
    if (count == 0) return seen;
    scorer_.score(candidates, std::span(order).subspan(seen, count));
    const GemmHypothesis first = candidates.front().hypothesis;
    rank(candidates);
    has_looked_at_all_ = candidates.front().hypothesis == first;
    return seen + count;
  }

  /// Counts all elements for the first explanation, where it has met them.
  void tell_whole(GemmDiagnosis& result, std::size_t joined) const {
    if (!has_looked_at_all_) return;
    GemmExplanation& first = result.explanations.front();
    first.checked = result.elements;
    first.unexplained += contradictions_ - joined;
  }

  /// Elements that are not as the first candidate, or the expected one, has them, where all are, those that tell the
  /// first from the best that gives something else.
  void show(GemmDiagnosis& result, const std::vector<GemmCandidate>& candidates,
            std::span<const std::size_t> elements) const {
    const GemmCandidate& first = candidates.front();
    const GemmCandidate* second = candidates.size() > 1 && !result.explained() ? &candidates[1] : nullptr;
    const auto other =
        std::ranges::find_if(candidates, [&](const GemmCandidate& one) { return one.matches != first.matches; });
    if (other != candidates.end()) second = &*other;
    const bool is_another = result.explained() && !result.is_expected();
    if (is_another && expected_) second = &*expected_;
    std::vector<std::size_t> some(elements.begin(), elements.end());
    if (result.explained() && !is_another) some.resize(std::min<std::size_t>(some.size(), batch_elements));
    if (second == nullptr && result.explained()) return;
    const std::vector<std::uint64_t> words = words_of(result.explained() ? *second : first, some);
    if (!result.explained() && problem_.is_whole()) result.rest = gemm_rest(problem_, some, words);
    std::vector<std::size_t> differing;
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (words[i] != problem_.word(some[i])) differing.push_back(some[i]);
    }
    if (!result.explained() || is_another) std::ranges::sort(differing);
    differing.resize(std::min(differing.size(), options_.most_shown));
    const std::vector<std::uint64_t> by_first = scorer_.words(first, differing);
    const auto by_second = second == nullptr ? by_first : scorer_.words(*second, differing);
    for (std::size_t i = 0; i < differing.size(); ++i) {
      const GemmPlace at = problem_.element(differing[i]);
      GemmElement shown{at.row, at.column, problem_.word(differing[i]), by_first[i], {}};
      if (second != nullptr) shown.second = by_second[i];
      result.shown.push_back(shown);
    }
  }

  GemmProblem problem_;
  GemmScorer scorer_;
  const Operand& a_;
  const Operand& b_;
  const GemmOutput& out_;
  const GemmDoctorOptions& options_;
  const GemmFacts& facts_;
  bool has_looked_at_all_ = false;  // by the first candidate
  std::size_t contradictions_ = 0;  // that were found then
  std::optional<GemmCandidate> expected_;
  std::optional<GemmCandidate> runner_up_;
};

}  // namespace

GemmDiagnosis diagnose_gemm(const Operand& a, const Operand& b, const GemmOutput& out,
                            const GemmDoctorOptions& options) {
  const DefaultEnvironment environment;
  const Operand left = with_scale_type(a);
  const Operand right = with_scale_type(b);
  return GemmDoctor(left, right, out, options).run();
}

}  // namespace fp8lab::forensics
