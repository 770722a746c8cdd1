// SPDX-License-Identifier: Apache-2.0
#include "gemm/scorer.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "gemm/dequantized.hpp"

namespace fp8lab::doctor {
namespace {

/// Elements whose rows are gathered at a time.
constexpr std::size_t batch = 128;

/// Rows i and i + 8 of each 16 in each other's place; one that has no other stays.
void exchange(std::vector<std::size_t>& rows, std::size_t count) {
  constexpr std::size_t half = 8;
  for (std::size_t& row : rows) {
    if ((row ^ half) < count) row ^= half;
  }
}

}  // namespace

GemmScorer::Key GemmScorer::key_of(const GemmCandidate& one) const {
  const GemmRecipe& r = one.recipe;
  const GemmReading& reading = reading_of(one.departure);
  const bool drops_tail = one.departure != nullptr && one.departure->drops_tail;
  const std::size_t depth = drops_tail ? one.depth : depth_with(reading.products, problem_.a().depth, one.depth);
  const bool has_blocks = problem_.block_for(*one.model) != 0;
  const bool from_c = r.c_enters == CEntry::accumulator && r.promote_k == 0;
  return {reading.turned,
          has_blocks ? reading.a.blocks : BlockReading::own,
          has_blocks ? reading.b.blocks : BlockReading::own,
          depth,
          one.model,
          partial_length(r, depth),
          r.k_order.ways,
          r.k_order.granule,
          r.k_order.window,
          r.zero_rule,
          from_c ? 1 + static_cast<int>(r.addend_type) + (reading.c == CReading::transposed ? 8 : 0) : 0,
          r.promote_k == 0 ? r.split_k : std::vector<std::size_t>(),
          reading.changes_factors() ? one.departure : nullptr};
}

/// Whether both give the same sums of the same partial sums.
static bool accumulate_equally(const GemmCandidate& x, const GemmCandidate& y) {
  const auto key = [](const GemmCandidate& one) {
    const GemmRecipe& r = one.recipe;
    const bool start = r.c_enters == CEntry::accumulator;
    const bool each = reading_of(one.departure).bias == BiasReading::in_each_range;
    const StepType type = start || each ? r.addend_type : StepType::as_given;
    return std::tuple(r.promote_k, r.range_k, r.order, r.partial_type, r.total_type, r.scale_order, r.divided, r.fused,
                      r.scale_out_first, start, type, one.departure);
  };
  const GemmRecipe& r = x.recipe;
  return r.alpha == y.recipe.alpha && r.beta == y.recipe.beta && r.split_k == y.recipe.split_k &&
         r.split_order == y.recipe.split_order && r.tensor_scales == y.recipe.tensor_scales && key(x) == key(y);
}

/// The number that a departure multiplies an element with.
float GemmScorer::factor_of(const GemmCandidate& one, std::size_t element) const {
  if (one.factors.size() == 1) return one.factors.front();
  const GemmPlace at = problem_.element(element);
  const bool by_rows = one.departure != nullptr && one.departure->reading.scaled_by == ScaledBy::rows;
  return one.factors[by_rows ? at.row : at.column];
}

void GemmScorer::compute(std::vector<GemmCandidate>& candidates, std::span<const std::size_t> elements,
                         const Use& use) const {
  if (elements.empty()) return;
  std::map<Key, std::vector<GemmCandidate*>> groups;
  for (GemmCandidate& one : candidates) groups[key_of(one)].push_back(&one);
  const GemmAddends all{problem_.out().c, problem_.out().bias, problem_.a().rows, problem_.b().rows};
  std::vector<ElementAddends> addends(elements.size());
  std::vector<float> starts(elements.size());
  std::vector<float> accumulators(elements.size());
  for (auto& [key, group] : groups) {
    const auto& [turned, blocks_a, blocks_b, depth, model, length, ways, granule, window, zero_rule, start, ranges,
                 departure] = key;
    const GemmReading& own = reading_of(departure);
    const GemmFacts facts = problem_.facts_for(*model);
    const std::size_t blocks = model->scales && problem_.facts().tile_depth != 0 ? facts.block : 0;
    const KOrder k_order{ways, granule, window};
    auto [left, right] = problem_.rows_of(elements, turned == Turned::out);
    if (own.rows_exchanged) exchange(left, problem_.a().rows);
    if (own.columns_exchanged) exchange(right, problem_.b().rows);
    const std::size_t count = group.front()->depth;
    PlainRows a(problem_.a(), left, depth,
                {turned == Turned::a, blocks_a, blocks, k_order, own.a, &problem_.b(), own.products, count});
    PlainRows b(problem_.b(), right, depth,
                {turned == Turned::b, blocks_b, blocks, k_order, own.b, &problem_.a(), own.products, count});
    const float halves = (own.a.as_fnuz ? 0.5F : 1.0F) * (own.b.as_fnuz ? 0.5F : 1.0F);
    const auto add_to = [&](const GemmCandidate& one) {
      for (std::size_t i = 0; i < elements.size(); ++i) {
        addends[i] = addends_of(reading_of(one.departure), all, left[i], right[i]);
        starts[i] = addends[i].c;
      }
    };
    add_to(*group.front());
    const auto partials = partial_sums_by(group.front()->recipe, a, b, starts);
    const GemmSums sums{partials, a, b};
    const GemmCandidate* before = nullptr;
    for (GemmCandidate* one : group) {
      const GemmReading& reading = reading_of(one->departure);
      const ElementGemm element(one->recipe, facts, reading, problem_.a().tensor_scale, problem_.b().tensor_scale);
      if (before == nullptr || before->departure != one->departure) add_to(*one);
      const bool is_new = before == nullptr || !accumulate_equally(*before, *one);
      for (std::size_t i = 0; i < elements.size(); ++i) {
        if (is_new) accumulators[i] = halves * element.accumulated(sums, i, addends[i]);
        const float result = element.finished(sums, i, addends[i], accumulators[i]);
        use(*one, i, one->factors.empty() ? result : result * factor_of(*one, elements[i]));
      }
      before = one;
    }
  }
}

void GemmScorer::score(std::vector<GemmCandidate>& candidates, std::span<const std::size_t> elements) const {
  for (std::size_t first = 0; first < elements.size(); first += batch) {
    const auto some = elements.subspan(first, std::min(batch, elements.size() - first));
    compute(candidates, some, [&](GemmCandidate& one, std::size_t i, float result) {
      if (word_of(one.recipe, result) == problem_.word(some[i])) ++one.matches;
    });
  }
}

std::vector<std::uint64_t> GemmScorer::words(const GemmCandidate& candidate,
                                             std::span<const std::size_t> elements) const {
  std::vector<GemmCandidate> one{candidate};
  std::vector<std::uint64_t> words(elements.size());
  for (std::size_t first = 0; first < elements.size(); first += batch) {
    const auto some = elements.subspan(first, std::min(batch, elements.size() - first));
    compute(one, some, [&](const GemmCandidate& by, std::size_t i, float result) {
      words[first + i] = word_of(by.recipe, result);
    });
  }
  return words;
}

std::vector<std::uint64_t> words_by_explanation(const GemmExplanation& explanation, const Operand& a, const Operand& b,
                                                const GemmOutput& out) {
  const StepType type = explanation.recipe.dequantized;
  if (type != StepType::as_given) {
    const DequantizedOperand left(a, type);
    const DequantizedOperand right(b, type);
    GemmExplanation plain = explanation;
    plain.recipe.dequantized = StepType::as_given;
    return words_by_explanation(plain, left.operand(), right.operand(), out);
  }
  const MmaModel& model = explanation.recipe.model;
  GemmOutput unknown = out;
  const std::vector<std::byte> none((out.indices.empty() ? a.rows * b.rows : out.indices.size()) *
                                    bytes_of(out.format));
  unknown.words = none;
  const GemmProblem problem(a, b, unknown);
  GemmCandidate candidate{.recipe = resolved(explanation.recipe, a.depth, problem.facts_for(model).tile_depth),
                          .model = &model};
  candidate.recipe.output = out.format;
  if (!explanation.departures.empty()) {
    candidate.departure = explanation.departures.front().row;
    candidate.depth = explanation.departures.front().depth;
    candidate.factors = explanation.departures.front().factors;
  }
  std::vector<std::size_t> all(problem.known());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return GemmScorer(problem).words(candidate, all);
}

}  // namespace fp8lab::doctor
