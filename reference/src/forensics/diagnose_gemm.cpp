// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/forensics/diagnose_gemm.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "forensics/gemm_arithmetic.hpp"
#include "forensics/gemm_candidates.hpp"
#include "forensics/gemm_dequantized.hpp"
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
/// Hypotheses that are compared with a whole output.
constexpr std::size_t most_wholes = 4;
/// Elements of the second sieve that contradict what explained the first.
constexpr std::size_t contradicting_elements = 12;

/// What a search comes to.
struct GemmFindings {
  std::vector<GemmCandidate> candidates;  ///< the best first
  std::size_t searched = 0;               ///< hypotheses
  bool is_cut_short = false;              ///< something explained the sieve, so that not all was searched
  std::size_t seen = 0;                   ///< elements, the first in order, that all have met
  std::size_t checked = 0;                ///< these, and the next ones, which contradict what was compared with all
  std::optional<GemmCandidate> runner_up = {};           ///< the best of those that were dropped
  std::optional<std::vector<std::uint64_t>> whole = {};  ///< the output by the first, where it was compared with all
  std::size_t whole_unexplained = 0;

  [[nodiscard]] std::size_t unexplained() const {
    return whole ? whole_unexplained : checked - candidates.front().matches;
  }
};

class GemmDoctor {
 public:
  /// Operands that were dequantized to `dequantized` meet the usual GEMMs alone.
  GemmDoctor(const Operand& a, const Operand& b, const GemmOutput& out, const GemmDoctorOptions& options,
             AddendType dequantized = AddendType::as_given)
      : problem_(a, b, out),
        dequantized_(dequantized),
        scorer_(problem_, a, b, out),
        a_(a),
        b_(b),
        out_(out),
        options_(options),
        facts_(problem_.facts()) {
    if (options.expected) expected_ = expected_candidate(*options.expected, problem_, a, b);
  }

  GemmDiagnosis run() {
    std::vector<std::size_t> order = problem_.order_of_elements(sieve_elements);
    GemmFindings found = search(order);
    // What explains a sieve may be wrong elsewhere: then all is searched on elements that say so.
    if (found.is_cut_short && found.unexplained() != 0) {
      std::vector<std::size_t> others = contradictions_first(found, order);
      GemmFindings again = search(others);
      const std::size_t searched = found.searched + again.searched;
      if (is_better(again, found, others)) {
        again.runner_up = found.candidates.front();
        found = std::move(again);
        order = std::move(others);
      }
      found.searched = searched;
    }
    return told(found, order);
  }

 private:
  /// Goes through the hypotheses, and checks those that are left.
  GemmFindings search(std::vector<std::size_t>& order) const {
    GemmFindings found;
    const auto sieve = std::span<const std::size_t>(order).first(std::min(sieve_elements, order.size()));
    std::vector<GemmCandidate>& candidates = found.candidates;
    // 1. GEMMs as they usually are, then in other orders of K and with other rules for zeros, then with a defect.
    if (are_float32()) add_cuda_cores(candidates);
    add(candidates, GemmDefect::none, a_.depth);
    if (candidates.empty()) refuse_operands();
    add_expected(candidates);
    found.searched = candidates.size();
    scorer_.score(candidates, sieve);
    if (dequantized_ != AddendType::as_given && best_of(candidates) != sieve.size()) {
      rank(candidates);
      found.seen = found.checked = sieve.size();
      return found;
    }
    for (const bool with_defects : {false, true}) {
      if (best_of(candidates) == sieve.size()) {
        found.is_cut_short = true;
        break;
      }
      add_unusual(found, with_defects ? defects() : other_orders(), sieve);
    }
    if (best_of(candidates) == sieve.size() && scale_addends(candidates, sieve.size())) {
      add_unusual(found, missing_addends(), sieve);
    }
    // 2. What is left, on all elements.
    keep_best(found, sieve.size());
    check_rest(found, order, sieve.size());
    rank(candidates);
    check_whole(found, order);
    return found;
  }

  /// Adds those that explain most of the sieve.
  void add_unusual(GemmFindings& found, std::vector<GemmCandidate> unusual, std::span<const std::size_t> sieve) const {
    found.searched += unusual.size();
    const auto few = sieve.first(std::min(first_elements, sieve.size()));
    scorer_.score(unusual, few);
    keep_promising(unusual, few.size());
    scorer_.score(unusual, sieve.subspan(few.size()));
    std::ranges::move(unusual, std::back_inserter(found.candidates));
  }

  /// Whether scales multiply c or the bias in all that explain the sieve: few mean that, and one that is small changes
  /// nothing then.
  [[nodiscard]] bool scale_addends(const std::vector<GemmCandidate>& candidates, std::size_t seen) const {
    return std::ranges::all_of(candidates, [&](const GemmCandidate& one) {
      const GemmHypothesis& h = one.hypothesis;
      const bool from_c = h.addend_use == AddendUse::accumulator && h.scale_use != ScaleUse::none;
      return one.matches != seen || h.defect != GemmDefect::none || h.addend_use == AddendUse::before_scales || from_c;
    });
  }

  [[nodiscard]] std::vector<GemmCandidate> missing_addends() const {
    std::vector<GemmCandidate> all;
    for (const GemmDefect defect : {GemmDefect::c_missing, GemmDefect::bias_missing, GemmDefect::addends_missing}) {
      add(all, defect, a_.depth);
    }
    return all;
  }

  /// The elements in another order: first some that contradict the best candidate, then a few that do not.
  [[nodiscard]] std::vector<std::size_t> contradictions_first(const GemmFindings& found,
                                                              std::span<const std::size_t> order) const {
    const std::size_t count = found.whole ? order.size() : found.checked;
    const std::vector<std::uint64_t> words =
        found.whole ? *found.whole : scorer_.words(found.candidates.front(), order.first(count));
    std::vector<std::size_t> wrong;
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const bool is_wrong = i < count && words[found.whole ? order[i] : i] != problem_.word(order[i]);
      (is_wrong && wrong.size() < contradicting_elements ? wrong : all).push_back(order[i]);
    }
    all.insert(all.begin(), wrong.begin(), wrong.end());
    return all;
  }

  /// Whether the second search explains more of the elements that its candidates have met.
  [[nodiscard]] bool is_better(const GemmFindings& again, const GemmFindings& found,
                               std::span<const std::size_t> order) const {
    if (again.whole && found.whole) return again.whole_unexplained < found.whole_unexplained;
    const auto matches = [&](const GemmFindings& one) {
      std::vector<GemmCandidate> first{one.candidates.front()};
      first.front().matches = 0;
      scorer_.score(first, order.first(again.seen));
      return first.front().matches;
    };
    return matches(again) > matches(found);
  }

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
    return result;
  }

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
        h.dequantized = dequantized_;
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

  void check_expected(GemmDiagnosis& result, const GemmFindings& found, std::span<const std::size_t> elements) const {
    if (!expected_) return;
    result.expected = describe(expected_->hypothesis);
    const bool is_first = found.whole && found.candidates.front().hypothesis == expected_->hypothesis;
    const auto whole = found.whole && !is_first ? whole_output(*expected_, problem_, a_, b_, out_) : found.whole;
    if (whole) {
      result.expected_checked = whole->size();
      result.expected_unexplained = count_unexplained(*whole);
      return;
    }
    std::vector<GemmCandidate> one{*expected_};
    scorer_.score(one, elements);
    result.expected_checked = elements.size();
    result.expected_unexplained = elements.size() - one.front().matches;
  }

  [[nodiscard]] std::size_t count_unexplained(const std::vector<std::uint64_t>& whole) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) count += whole[i] != problem_.word(i) ? 1 : 0;
    return count;
  }

  /// Whether the elements could have told a wrong GEMM from the first candidate, which explains all of them.
  [[nodiscard]] bool is_telling(const GemmFindings& found, std::span<const std::size_t> elements) const {
    const auto explains_all = [&](const GemmCandidate& one) { return one.matches == elements.size(); };
    const auto same = static_cast<std::size_t>(std::ranges::count_if(found.candidates, explains_all));
    if (same * 100 > found.searched * most_alike || problem_.is_at_ends(elements)) return false;
    const std::size_t depth =
        problem_.used_depth(elements.first(std::min<std::size_t>(elements.size(), sieve_elements)));
    if (depth < 2) return depth == 1 && a_.depth == 1;
    std::vector<GemmCandidate> half{found.candidates.front()};
    half.front().hypothesis.defect = GemmDefect::tail_dropped;
    half.front().hypothesis.depth = depth / 2;
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
                                    tensor_scale_a_missing,
                                    tensor_scale_b_missing,
                                    tensor_scales_missing,
                                    block_scales_a_missing,
                                    block_scales_b_missing,
                                    block_scales_missing,
                                    scale_layout_a,
                                    scale_layout_b,
                                    scale_layouts,
                                    c_missing,
                                    c_transposed,
                                    bias_missing,
                                    addends_missing,
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
  void keep_best(GemmFindings& found, std::size_t seen) const {
    std::vector<GemmCandidate>& candidates = found.candidates;
    rank(candidates);
    if (candidates.front().matches == seen) {
      keep_perfect(found, seen);
    } else if (candidates.size() > most_imperfect) {
      candidates.resize(most_imperfect);
    }
  }

  /// Drops those that leave some of `seen` elements unexplained, and remembers the best of them.
  void keep_perfect(GemmFindings& found, std::size_t seen) const {
    std::vector<GemmCandidate>& candidates = found.candidates;
    std::vector<GemmCandidate> dropped;
    std::ranges::copy_if(candidates, std::back_inserter(dropped), [&](const auto& one) { return one.matches < seen; });
    if (dropped.empty()) return;
    rank(dropped);
    found.runner_up = dropped.front();
    std::erase_if(candidates, [&](const GemmCandidate& one) { return one.matches < seen; });
  }

  /// Adds the best of those that leave elements unexplained, to show what speaks against it.
  void add_runner_up(GemmFindings& found, std::span<const std::size_t> elements) const {
    if (!found.runner_up || found.candidates.front().matches != elements.size()) return;
    std::vector<GemmCandidate> one{*found.runner_up};
    one.front().matches = 0;
    scorer_.score(one, elements);
    found.candidates.push_back(one.front());
  }

  /// Compares the candidates with more elements as long as the products last.
  void check_rest(GemmFindings& found, std::span<const std::size_t> order, std::size_t seen) const {
    std::size_t products = options_.most_products;
    while (seen < order.size()) {
      std::map<GemmScorer::Key, std::size_t> groups;
      for (const GemmCandidate& one : found.candidates) ++groups[scorer_.key_of(one)];
      const std::size_t count = std::min(batch_elements, order.size() - seen);
      const std::size_t cost = groups.size() * count * a_.depth;
      if (cost > products) break;
      products -= cost;
      scorer_.score(found.candidates, order.subspan(seen, count));
      seen += count;
      if (best_of(found.candidates) == seen) keep_perfect(found, seen);
    }
    found.seen = found.checked = seen;
  }

  /// Compares the first candidate with all elements, where gemm() computes it. Those that contradict it join those that
  /// all candidates have met; where another one explains more of these, it is compared with all, too. First is what
  /// explains most.
  void check_whole(GemmFindings& found, std::vector<std::size_t>& order) const {
    std::vector<GemmCandidate>& candidates = found.candidates;
    const bool is_hopeless = candidates.front().matches * 2 < found.seen;
    if (!problem_.is_whole() || found.seen == order.size() || is_hopeless) return;
    std::vector<GemmHypothesis> compared;
    GemmHypothesis best;
    for (std::size_t next = 0; next < candidates.size() && compared.size() < most_wholes;) {
      const GemmHypothesis h = candidates[next].hypothesis;
      compared.push_back(h);
      auto whole = whole_output(candidates[next], problem_, a_, b_, out_);
      if (!whole && (!found.whole || candidates[next].matches == found.checked)) {  // it explains more than the others
        found.whole.reset();
        best = h;
        break;
      }
      const std::size_t unexplained = whole ? count_unexplained(*whole) : problem_.known();
      if (whole && (!found.whole || unexplained < found.whole_unexplained)) {
        best = h;
        found.whole_unexplained = unexplained;
        found.whole = std::move(whole);
        if (unexplained == 0) break;
        join_contradictions(found, order);
        rank(candidates);
      }
      // The next one that explains more than the best, of those that were not compared yet.
      for (next = 0;
           next < candidates.size() && std::ranges::find(compared, candidates[next].hypothesis) != compared.end();) {
        next = candidates[next].hypothesis == best ? candidates.size() : next + 1;
      }
    }
    const auto is_best = [&](const GemmCandidate& one) { return one.hypothesis == best; };
    const auto at = std::ranges::find_if(candidates, is_best);
    std::rotate(candidates.begin(), at, at + 1);
  }

  /// Adds elements that contradict the first candidate to those that all candidates have met.
  void join_contradictions(GemmFindings& found, std::vector<std::size_t>& order) const {
    const auto contradicts = [&](std::size_t i) { return (*found.whole)[i] != problem_.word(i); };
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(found.checked);
    const auto others = std::partition(begin, order.end(), contradicts);
    const std::size_t count = std::min(static_cast<std::size_t>(others - begin), most_joined);
    scorer_.score(found.candidates, std::span<const std::size_t>(order).subspan(found.checked, count));
    found.checked += count;
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
    if (is_another && expected_) second = &*expected_;
    if (second == nullptr && result.explained()) return;
    // 1. Which elements, and their words by one of them.
    const bool are_all = found.whole && !result.explained();
    std::vector<std::size_t> some(elements.begin(), elements.end());
    if (are_all) {
      some.resize(found.whole->size());
      std::iota(some.begin(), some.end(), std::size_t{0});
    }
    if (result.explained() && !is_another) some.resize(std::min<std::size_t>(some.size(), batch_elements));
    const std::vector<std::uint64_t> words =
        are_all ? *found.whole : scorer_.words(result.explained() ? *second : first, some);
    if (!result.explained() && problem_.is_whole()) result.rest = gemm_rest(problem_, some, words);
    // 2. Those that differ.
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
  AddendType dequantized_;
  GemmScorer scorer_;
  const Operand& a_;
  const Operand& b_;
  const GemmOutput& out_;
  const GemmDoctorOptions& options_;
  const GemmFacts& facts_;
  std::optional<GemmCandidate> expected_;
};

/// Takes what explains the output of dequantized operands, if anything does.
void try_dequantized(GemmDiagnosis& found, const Operand& a, const Operand& b, const GemmOutput& out,
                     const GemmDoctorOptions& options, AddendType type) {
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

GemmDiagnosis diagnose_gemm(const Operand& a, const Operand& b, const GemmOutput& out,
                            const GemmDoctorOptions& options) {
  const DefaultEnvironment environment;
  if (options.most_products == 0) refuse("most_products must be at least 1");
  const Operand left = with_scale_type(a);
  const Operand right = with_scale_type(b);
  GemmDiagnosis found = GemmDoctor(left, right, out, options).run();
  const bool are_codes = a.format.bits() <= 8 && b.format.bits() <= 8;
  for (const AddendType type : {AddendType::bfloat16, AddendType::float16}) {
    if (found.explained() || !are_codes) break;
    try_dequantized(found, left, right, out, options, type);
  }
  return found;
}

}  // namespace fp8lab::forensics
