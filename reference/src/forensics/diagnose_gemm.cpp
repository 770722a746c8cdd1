// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/forensics/diagnose_gemm.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "forensics/gemm_hypotheses.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text_stream.hpp"
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

/// An element of the output, in the order of the sieve.
struct GemmPlace {
  std::size_t row, column;
};

struct GemmCandidate {
  GemmHypothesis hypothesis;
  const MmaModel* model;
  std::size_t matches = 0;
};

/// SplitMix64: which elements are looked at first.
std::uint64_t mixed_index(std::uint64_t i) {
  std::uint64_t z = (i + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

class GemmDoctor {
 public:
  GemmDoctor(const Operand& a, const Operand& b, const GemmOutput& out, const GemmDoctorOptions& options)
      : a_(a), b_(b), out_(out), options_(options) {
    check();
    const auto has = [](const Operand& x) {
      const auto is_not_one = [](float scale) { return scale != 1; };
      return std::ranges::any_of(x.row_scales, is_not_one) || !x.tile_scales.values.empty() ||
             x.tensor_scale != TensorScale{};
    };
    facts_ = {.depth = a.depth,
              .tile_depth = std::max(tile_depth(a), tile_depth(b)),
              .scales_a = has(a),
              .scales_b = has(b),
              .block_scales = !a.scales.codes.empty() || !b.scales.codes.empty(),
              .format = out.format};
  }

  GemmDiagnosis run() {
    GemmDiagnosis result;
    result.elements = known();
    const std::vector<std::size_t> order = order_of_elements();
    const auto sieve = std::span(order).first(std::min(sieve_elements, order.size()));
    // 1. GEMMs without defect, then with one.
    std::vector<GemmCandidate> candidates;
    add(candidates, GemmDefect::none, a_.depth);
    if (candidates.empty()) refuse_operands();
    result.searched = candidates.size();
    score(candidates, sieve);
    if (best_of(candidates) < sieve.size()) {
      std::vector<GemmCandidate> defective = defects();
      result.searched += defective.size();
      const auto few = sieve.first(std::min(first_elements, sieve.size()));
      score(defective, few);
      keep_promising(defective, few.size());
      score(defective, sieve.subspan(few.size()));
      std::ranges::move(defective, std::back_inserter(candidates));
    }
    // 2. What is left, on all elements.
    keep_best(candidates, sieve.size());
    const std::size_t checked = check_rest(candidates, order, sieve.size());
    rank(candidates);
    explain(result, candidates, checked);
    show(result, candidates, std::span(order).first(checked));
    return result;
  }

 private:
  static std::size_t tile_depth(const Operand& x) { return x.tile_scales.values.empty() ? 0 : x.tile_scales.depth; }

  [[nodiscard]] std::size_t known() const { return out_.indices.empty() ? a_.rows * b_.rows : out_.indices.size(); }

  [[nodiscard]] std::size_t bytes() const {
    if (out_.format.bits() <= 8) return 1;
    return out_.format.bits() <= 16 ? 2 : 4;
  }

  void check() const {
    if (a_.depth != b_.depth) refuse("a and b must have the same K, not ", a_.depth, " and ", b_.depth);
    if (a_.rows == 0 || b_.rows == 0 || a_.depth == 0) refuse("a and b must not be empty");
    constexpr Format widest = binary64;
    if (a_.format == widest || b_.format == widest || out_.format == widest) {
      refuse("products of float64 are not diagnosed");
    }
    if (out_.words.size() != known() * bytes()) {
      refuse("out must have ", known(), " elements of ", bytes(), " bytes, not ", out_.words.size(), " bytes");
    }
    for (const std::size_t index : out_.indices) {
      if (index >= a_.rows * b_.rows) refuse("index ", index, " is beyond an output of ", a_.rows, " x ", b_.rows);
    }
    if (tile_depth(a_) != 0 && tile_depth(b_) != 0 && tile_depth(a_) != tile_depth(b_)) {
      refuse("tile scales of a and b must be of the same depth");
    }
  }

  [[noreturn]] void refuse_operands() const {
    refuse("no model takes such operands: a is ", format_name(a_.format), " and b ", format_name(b_.format),
           facts_.block_scales ? " with block scales" : "");
  }

  /// GemmPlace element `i`; of an output that is stored transposed, the one that stands in its place.
  [[nodiscard]] GemmPlace element(std::size_t i) const {
    const std::size_t index = out_.indices.empty() ? i : out_.indices[i];
    return {index / b_.rows, index % b_.rows};
  }
  [[nodiscard]] std::uint64_t word(std::size_t i) const {
    std::uint64_t word = 0;
    std::memcpy(&word, out_.words.data() + i * bytes(), bytes());
    return canonical_word(out_.format, word);
  }

  /// Elements in the order in which they are looked at: those that cancel most, then the others as dice have it.
  [[nodiscard]] std::vector<std::size_t> order_of_elements() const {
    constexpr std::size_t drawn = 192;
    std::vector<std::size_t> order(known());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (std::size_t i = 0; i + 1 < order.size(); ++i)
      std::swap(order[i], order[i + mixed_index(i) % (order.size() - i)]);
    const std::size_t count = std::min(drawn, order.size());
    const auto [left, right] = rows_of(std::span(order).first(count), false);
    const PlainRows a(a_, left, a_.depth, {});
    const PlainRows b(b_, right, b_.depth, {});
    std::vector<std::pair<double, std::size_t>> cancellation;
    for (std::size_t i = 0; i < count; ++i) {
      double sum = 0;
      double magnitude = 0;
      for (std::size_t k = 0; k < a_.depth; ++k) {
        const double product = a.value(i, k) * b.value(i, k);
        sum += product;
        magnitude += std::abs(product);
      }
      const double ratio = sum == 0 ? 0 : magnitude / std::abs(sum);
      cancellation.emplace_back(std::isfinite(ratio) ? -ratio : 0, order[i]);
    }
    // Every fourth stays as drawn, so that the sieve has usual elements, too.
    std::ranges::sort(cancellation);
    for (std::size_t i = 0; i < count; ++i) order[i] = cancellation[i].second;
    for (std::size_t i = 0; i < sieve_elements / 4 && count > sieve_elements; ++i) {
      std::swap(order[4 * i + 3], order[count - 1 - i]);
    }
    return order;
  }

  using Rows = std::pair<std::vector<std::size_t>, std::vector<std::size_t>>;
  [[nodiscard]] Rows rows_of(std::span<const std::size_t> elements, bool transposed) const {
    Rows rows;
    for (const std::size_t i : elements) {
      const GemmPlace at = element(i);
      const std::size_t index = at.row * b_.rows + at.column;
      rows.first.push_back(transposed ? index % a_.rows : at.row);
      rows.second.push_back(transposed ? index / a_.rows : at.column);
    }
    return rows;
  }

  void add(std::vector<GemmCandidate>& all, GemmDefect defect, std::size_t depth) const {
    for (const MmaModel& model : models) {
      if (model.is_fp64() || !takes(model, a_) || !takes(model, b_)) continue;
      const auto k = static_cast<std::size_t>(model.k());
      if (facts_.tile_depth != 0 && (model.scales || k == 0 || facts_.tile_depth % k != 0)) continue;
      for (GemmHypothesis& h : gemm_hypotheses(model, facts_, defect, depth)) all.push_back({std::move(h), &model});
    }
  }

  [[nodiscard]] std::vector<GemmCandidate> defects() const {
    using enum GemmDefect;
    std::vector<GemmCandidate> all;
    for (const GemmDefect defect : {a_transposed, b_transposed, out_transposed, scale_a_missing, scale_b_missing,
                                    scales_missing, scale_a_twice, scale_b_twice, scales_twice, scales_inverted}) {
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
      const auto block = a_.scales.type ? static_cast<std::size_t>(a_.scales.type->block) : 1;
      if (depth % block == 0) add(all, tail_dropped, depth);
    }
    return all;
  }

  /// What a candidate's partial sums depend on.
  using Key = std::tuple<bool, bool, bool, bool, bool, std::size_t, const MmaModel*, std::size_t>;
  [[nodiscard]] Key key_of(const GemmCandidate& one) const {
    using enum GemmDefect;
    const GemmHypothesis& h = one.hypothesis;
    const std::size_t depth = h.defect == tail_dropped ? h.depth : a_.depth;
    const bool no_scales = h.defect == scales_missing && facts_.block_scales;
    return {h.defect == a_transposed,
            h.defect == b_transposed,
            h.defect == out_transposed,
            no_scales || (h.defect == scale_a_missing && facts_.block_scales),
            no_scales || (h.defect == scale_b_missing && facts_.block_scales),
            depth,
            one.model,
            partial_length(h, depth)};
  }

  /// Calls use(candidate, element's number, word) for all of both. Partial sums are computed once for all candidates
  /// that need them.
  template <typename Use>
  void compute(std::vector<GemmCandidate>& candidates, std::span<const std::size_t> elements, const Use& use) const {
    std::map<Key, std::vector<GemmCandidate*>> groups;
    for (GemmCandidate& one : candidates) groups[key_of(one)].push_back(&one);
    for (auto& [key, group] : groups) {
      const auto& [turned_a, turned_b, turned_out, bare_a, bare_b, depth, model, length] = key;
      const auto [left, right] = rows_of(elements, turned_out);
      PlainRows a(a_, left, depth, {turned_a, bare_a});
      PlainRows b(b_, right, depth, {turned_b, bare_b});
      const std::vector<float> partials = partial_sums(*model, a, b, length);
      for (GemmCandidate* one : group) {
        for (std::size_t i = 0; i < elements.size(); ++i) {
          use(*one, i, gemm_word(one->hypothesis, facts_, partials, a, b, i));
        }
      }
    }
  }

  void score(std::vector<GemmCandidate>& candidates, std::span<const std::size_t> elements) const {
    compute(candidates, elements, [&](GemmCandidate& one, std::size_t i, std::uint64_t word_by_it) {
      if (word_by_it == word(elements[i])) ++one.matches;
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

  static void rank(std::vector<GemmCandidate>& candidates) {
    std::ranges::stable_sort(candidates, [](const GemmCandidate& x, const GemmCandidate& y) {
      return x.matches != y.matches ? x.matches > y.matches : strangeness(x.hypothesis) < strangeness(y.hypothesis);
    });
  }

  /// Those that explain all of `seen`, or if none does, the best ones.
  static void keep_best(std::vector<GemmCandidate>& candidates, std::size_t seen) {
    rank(candidates);
    const std::size_t best = candidates.front().matches;
    if (best == seen) {
      std::erase_if(candidates, [&](const GemmCandidate& one) { return one.matches < best; });
    } else if (candidates.size() > most_imperfect) {
      candidates.resize(most_imperfect);
    }
  }

  /// Compares the candidates with more elements as long as the products last. Returns how many have been looked at.
  std::size_t check_rest(std::vector<GemmCandidate>& candidates, std::span<const std::size_t> order,
                         std::size_t seen) const {
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
      const std::size_t best = best_of(candidates);
      if (best == seen) std::erase_if(candidates, [&](const GemmCandidate& one) { return one.matches < best; });
    }
    return seen;
  }

  /// Hypotheses that differ in the model alone become one.
  static void explain(GemmDiagnosis& result, const std::vector<GemmCandidate>& candidates, std::size_t checked) {
    for (const GemmCandidate& one : candidates) {
      const auto same = std::ranges::find_if(result.explanations, [&](const GemmExplanation& other) {
        GemmHypothesis own = one.hypothesis;
        own.model = other.hypothesis.model;
        return own == other.hypothesis && other.unexplained == checked - one.matches;
      });
      if (same != result.explanations.end()) {
        same->models.push_back(one.hypothesis.model);
        continue;
      }
      result.explanations.push_back({one.hypothesis, {one.hypothesis.model}, checked, checked - one.matches});
    }
    const std::size_t least = result.explanations.front().unexplained;
    result.tied = static_cast<std::size_t>(
        std::ranges::count_if(result.explanations, [&](const auto& one) { return one.unexplained == least; }));
    result.verdict = verdict(result, checked);
  }

  [[nodiscard]] static std::string verdict(const GemmDiagnosis& result, std::size_t checked) {
    const GemmExplanation& first = result.explanations.front();
    TextStream text;
    if (first.unexplained == checked) {
      text << "No hypothesis explains any of the " << checked << " elements looked at.";
      return text.str();
    }
    text << (first.unexplained == 0 ? "All " : "") << checked - first.unexplained;
    if (first.unexplained != 0) text << " of " << checked;
    text << " elements" << (checked < result.elements ? " looked at" : "") << " are those of "
         << describe(first.hypothesis);
    if (first.models.size() > 1) {
      text << " (or of " << first.models.size() - 1 << " other model" << (first.models.size() > 2 ? "s" : "") << ")";
    }
    text << ".";
    if (result.tied > 1) {
      text << " The data cannot tell it from " << result.tied - 1 << " other hypothes"
           << (result.tied > 2 ? "es" : "is") << ".";
    }
    return text.str();
  }

  /// Elements that the first does not explain; or if there are none, nothing.
  void show(GemmDiagnosis& result, const std::vector<GemmCandidate>& candidates,
            std::span<const std::size_t> elements) const {
    if (result.explained()) {
      return;
    }
    std::vector<GemmCandidate> two{candidates.front()};
    const auto other = std::ranges::find_if(candidates, [&](const GemmCandidate& one) {
      return one.hypothesis.model != candidates.front().hypothesis.model || one.matches != candidates.front().matches;
    });
    if (other != candidates.end()) two.push_back(*other);
    const auto some = elements.first(std::min<std::size_t>(elements.size(), batch_elements));
    std::vector<std::array<std::uint64_t, 2>> words(some.size());
    compute(two, some, [&](GemmCandidate& one, std::size_t i, std::uint64_t word_by_it) {
      words[i][&one == two.data() ? 0 : 1] = word_by_it;
    });
    for (std::size_t i = 0; i < some.size() && result.shown.size() < options_.most_shown; ++i) {
      if (words[i][0] == word(some[i])) continue;
      const GemmPlace at = element(some[i]);
      GemmElement shown{at.row, at.column, word(some[i]), words[i][0], {}};
      if (two.size() > 1) shown.second = words[i][1];
      result.shown.push_back(shown);
    }
  }

  const Operand& a_;
  const Operand& b_;
  const GemmOutput& out_;
  const GemmDoctorOptions& options_;
  GemmFacts facts_;
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
