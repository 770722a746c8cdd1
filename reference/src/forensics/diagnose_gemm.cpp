// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/forensics/diagnose_gemm.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "forensics/gemm_arithmetic.hpp"
#include "forensics/gemm_candidates.hpp"
#include "forensics/gemm_expected.hpp"
#include "forensics/gemm_problem.hpp"
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
/// This many hypotheses are checked where all leave elements of the sieve unexplained: the best ones.
constexpr std::size_t most_imperfect = 12;
/// Elements that more hypotheses explain than this do not tell of the GEMM: a percentage.
constexpr std::size_t most_alike = 90;

class GemmDoctor {
 public:
  GemmDoctor(const Operand& a, const Operand& b, const GemmOutput& out, const GemmDoctorOptions& options)
      : problem_(a, b, out), a_(a), b_(b), out_(out), options_(options), facts_(problem_.facts()) {
    if (options.expected) expected_ = expected_candidate(*options.expected, problem_, a, b);
  }

  GemmDiagnosis run() {
    GemmDiagnosis result;
    result.elements = problem_.known();
    result.inputs = problem_.inputs();
    const std::vector<std::size_t> order = problem_.order_of_elements(sieve_elements);
    const auto sieve = std::span(order).first(std::min(sieve_elements, order.size()));
    // 1. GEMMs as they usually are, then in other orders of K and with other rules for zeros, then with a defect.
    std::vector<GemmCandidate> candidates;
    add(candidates, GemmDefect::none, a_.depth);
    if (candidates.empty()) refuse_operands();
    add_expected(candidates);
    result.searched = candidates.size();
    score(candidates, sieve);
    for (const bool with_defects : {false, true}) {
      if (best_of(candidates) == sieve.size()) break;
      std::vector<GemmCandidate> unusual = with_defects ? defects() : other_orders();
      result.searched += unusual.size();
      const auto few = sieve.first(std::min(first_elements, sieve.size()));
      score(unusual, few);
      keep_promising(unusual, few.size());
      score(unusual, sieve.subspan(few.size()));
      std::ranges::move(unusual, std::back_inserter(candidates));
    }
    // 2. What is left, on all elements.
    keep_best(candidates, sieve.size());
    const std::size_t checked = check_rest(candidates, order, sieve.size());
    rank(candidates);
    const auto elements = std::span(order).first(checked);
    if (expected_) check_expected(result, elements);
    result.is_telling = candidates.front().matches != checked || is_telling(candidates, result.searched, elements);
    add_runner_up(candidates, elements);
    explain_gemm(result, candidates, checked);
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

  /// In the place of the one that is the same.
  void add_expected(std::vector<GemmCandidate>& candidates) const {
    if (!expected_) return;
    std::erase_if(candidates, [&](const GemmCandidate& one) { return is_same(one.hypothesis, expected_->hypothesis); });
    candidates.insert(candidates.begin(), *expected_);
  }

  void check_expected(GemmDiagnosis& result, std::span<const std::size_t> elements) const {
    std::vector<GemmCandidate> one{*expected_};
    score(one, elements);
    result.expected = describe(expected_->hypothesis);
    result.expected_unexplained = elements.size() - one.front().matches;
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
    score(half, some);
    return half.front().matches != some.size();
  }

  [[nodiscard]] std::vector<GemmCandidate> other_orders() const {
    std::vector<GemmCandidate> all;
    add(all, GemmDefect::none, a_.depth, GemmSearch::orders);
    add(all, GemmDefect::none, a_.depth, GemmSearch::zeros);
    return all;
  }

  [[nodiscard]] std::vector<GemmCandidate> defects() const {
    using enum GemmDefect;
    std::vector<GemmCandidate> all;
    for (const GemmDefect defect :
         {a_transposed, b_transposed, out_transposed, scale_a_missing, scale_b_missing, scales_missing, scale_a_twice,
          scale_b_twice, scales_twice, scales_inverted, c_missing, c_transposed, bias_missing, bias_along_rows,
          bias_in_each_range, scale_out_missing, scale_out_inverted}) {
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

  /// What a candidate's partial sums depend on.
  using Key = std::tuple<GemmDefect, bool, bool, std::size_t, const MmaModel*, std::size_t, std::size_t, std::size_t,
                         std::size_t, ZeroRule, int>;
  [[nodiscard]] Key key_of(const GemmCandidate& one) const {
    using enum GemmDefect;
    const GemmHypothesis& h = one.hypothesis;
    const std::size_t depth = h.defect == tail_dropped ? h.depth : a_.depth;
    const bool has_blocks = problem_.block_for(*one.model) != 0;
    const bool no_scales = h.defect == scales_missing && has_blocks;
    const bool turns = h.defect == a_transposed || h.defect == b_transposed || h.defect == out_transposed;
    const bool from_c = h.addend_use == AddendUse::accumulator && h.promote_k == 0;
    return {turns ? h.defect : none,
            no_scales || (h.defect == scale_a_missing && has_blocks),
            no_scales || (h.defect == scale_b_missing && has_blocks),
            depth,
            one.model,
            partial_length(h, depth),
            h.k_order.ways,
            h.k_order.granule,
            h.k_order.window,
            h.zero_rule,
            from_c ? 1 + static_cast<int>(h.addend_type) + (h.defect == c_transposed ? 8 : 0) : 0};
  }

  /// Calls use(candidate, element's number, word) for all of both. Partial sums are computed once for all candidates
  /// that need them, and sums of these once for neighbours that differ in the epilogue alone.
  template <typename Use>
  void compute(std::vector<GemmCandidate>& candidates, std::span<const std::size_t> elements, const Use& use) const {
    if (elements.empty()) return;
    std::map<Key, std::vector<GemmCandidate*>> groups;
    for (GemmCandidate& one : candidates) groups[key_of(one)].push_back(&one);
    const GemmAddends all{out_.c, out_.bias, a_.rows, b_.rows};
    std::vector<ElementAddends> addends(elements.size());
    std::vector<float> starts(elements.size());
    std::vector<float> accumulators(elements.size());
    for (auto& [key, group] : groups) {
      const auto& [turned, bare_a, bare_b, depth, model, length, ways, granule, window, zero_rule, start] = key;
      const GemmFacts facts = problem_.facts_for(*model);
      const std::size_t blocks = model->scales && facts_.tile_depth != 0 ? facts.block : 0;
      const KOrder k_order{ways, granule, window};
      const auto [left, right] = problem_.rows_of(elements, turned == GemmDefect::out_transposed);
      PlainRows a(a_, left, depth, {turned == GemmDefect::a_transposed, bare_a, blocks, k_order});
      PlainRows b(b_, right, depth, {turned == GemmDefect::b_transposed, bare_b, blocks, k_order});
      const auto add_to = [&](const GemmHypothesis& h) {
        for (std::size_t i = 0; i < elements.size(); ++i) {
          addends[i] = addends_of(h, all, left[i], right[i]);
          starts[i] = addends[i].c;
        }
      };
      add_to(group.front()->hypothesis);
      const auto partials = partial_sums_by(group.front()->hypothesis, *model, a, b, starts);
      const GemmSums sums{partials, a, b};
      const GemmHypothesis* before = nullptr;
      for (GemmCandidate* one : group) {
        const GemmHypothesis& h = one->hypothesis;
        if (before == nullptr || before->defect != h.defect) add_to(h);
        for (std::size_t i = 0; i < elements.size(); ++i) {
          if (before == nullptr || !accumulates_equally(*before, h)) {
            accumulators[i] = accumulated(h, facts, sums, i, addends[i]);
          }
          use(*one, i, gemm_word(h, facts, sums, i, addends[i], accumulators[i]));
        }
        before = &h;
      }
    }
  }

  void score(std::vector<GemmCandidate>& candidates, std::span<const std::size_t> elements) const {
    compute(candidates, elements, [&](GemmCandidate& one, std::size_t i, std::uint64_t word_by_it) {
      if (word_by_it == problem_.word(elements[i])) ++one.matches;
    });
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
    score(one, elements);
    candidates.push_back(one.front());
  }

  /// Compares the candidates with more elements as long as the products last. Returns how many have been looked at.
  std::size_t check_rest(std::vector<GemmCandidate>& candidates, std::span<const std::size_t> order, std::size_t seen) {
    std::size_t products = options_.most_products;
    while (seen < order.size()) {
      std::map<Key, std::size_t> groups;
      for (const GemmCandidate& one : candidates) ++groups[key_of(one)];
      const std::size_t count = std::min(batch_elements, order.size() - seen);
      const std::size_t cost = groups.size() * count * a_.depth;
      if (cost > products) break;
      products -= cost;
      score(candidates, order.subspan(seen, count));
      seen += count;
      if (best_of(candidates) == seen) keep_perfect(candidates, seen);
    }
    return seen;
  }

  /// Elements that the first does not explain, or that tell it from the best one that gives something else.
  void show(GemmDiagnosis& result, const std::vector<GemmCandidate>& candidates,
            std::span<const std::size_t> elements) const {
    std::vector<GemmCandidate> two{candidates.front()};
    const bool is_another = result.explained() && !result.is_expected();
    const auto other = std::ranges::find_if(
        candidates, [&](const GemmCandidate& one) { return one.matches != candidates.front().matches; });
    if (is_another) {
      two.push_back(*expected_);
    } else if (other != candidates.end()) {
      two.push_back(*other);
    } else if (!result.explained() && candidates.size() > 1) {
      two.push_back(candidates[1]);
    }
    const auto some = elements.first(std::min<std::size_t>(elements.size(), batch_elements));
    std::vector<std::array<std::uint64_t, 2>> words(some.size());
    compute(two, some, [&](GemmCandidate& one, std::size_t i, std::uint64_t word_by_it) {
      words[i][&one == two.data() ? 0 : 1] = word_by_it;
    });
    for (std::size_t i = 0; i < some.size() && result.shown.size() < options_.most_shown; ++i) {
      const bool tells =
          result.explained() ? two.size() > 1 && words[i][0] != words[i][1] : words[i][0] != problem_.word(some[i]);
      if (!tells) continue;
      const GemmPlace at = problem_.element(some[i]);
      GemmElement shown{at.row, at.column, problem_.word(some[i]), words[i][0], {}};
      if (two.size() > 1) shown.second = words[i][1];
      result.shown.push_back(shown);
    }
  }

  GemmProblem problem_;
  const Operand& a_;
  const Operand& b_;
  const GemmOutput& out_;
  const GemmDoctorOptions& options_;
  const GemmFacts& facts_;
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
