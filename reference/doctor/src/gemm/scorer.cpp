// SPDX-License-Identifier: Apache-2.0
#include "gemm/scorer.hpp"

#include <algorithm>
#include <map>

#include "gemm/arithmetic.hpp"

namespace fp8lab::doctor {
namespace {

/// Elements whose rows are gathered at a time.
constexpr std::size_t batch = 128;

}  // namespace

GemmScorer::Key GemmScorer::key_of(const GemmCandidate& one) const {
  using enum GemmDefect;
  const GemmHypothesis& h = one.hypothesis;
  const std::size_t depth = h.defect == tail_dropped ? h.depth : a_.depth;
  const bool has_blocks = problem_.block_for(*one.model) != 0;
  const bool turns = h.defect == a_transposed || h.defect == b_transposed || h.defect == out_transposed;
  const bool from_c = h.addend_use == AddendUse::accumulator && h.promote_k == 0;
  return {turns ? h.defect : none,
          has_blocks ? block_reading(h.defect, true) : BlockReading::own,
          has_blocks ? block_reading(h.defect, false) : BlockReading::own,
          depth,
          one.model,
          partial_length(h, depth),
          h.k_order.ways,
          h.k_order.granule,
          h.k_order.window,
          h.zero_rule,
          from_c ? 1 + static_cast<int>(h.addend_type) + (h.defect == c_transposed ? 8 : 0) : 0,
          h.promote_k == 0 ? h.ranges : std::vector<std::size_t>()};
}

void GemmScorer::compute(std::vector<GemmCandidate>& candidates, std::span<const std::size_t> elements,
                         const Use& use) const {
  if (elements.empty()) return;
  std::map<Key, std::vector<GemmCandidate*>> groups;
  for (GemmCandidate& one : candidates) groups[key_of(one)].push_back(&one);
  const GemmAddends all{out_.c, out_.bias, a_.rows, b_.rows};
  std::vector<ElementAddends> addends(elements.size());
  std::vector<float> starts(elements.size());
  std::vector<float> accumulators(elements.size());
  for (auto& [key, group] : groups) {
    const auto& [turned, blocks_a, blocks_b, depth, model, length, ways, granule, window, zero_rule, start, ranges] =
        key;
    const GemmFacts facts = problem_.facts_for(*model);
    const std::size_t blocks = model->scales && problem_.facts().tile_depth != 0 ? facts.block : 0;
    const KOrder k_order{ways, granule, window};
    const auto [left, right] = problem_.rows_of(elements, turned == GemmDefect::out_transposed);
    PlainRows a(a_, left, depth, {turned == GemmDefect::a_transposed, blocks_a, blocks, k_order});
    PlainRows b(b_, right, depth, {turned == GemmDefect::b_transposed, blocks_b, blocks, k_order});
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

void GemmScorer::score(std::vector<GemmCandidate>& candidates, std::span<const std::size_t> elements) const {
  for (std::size_t first = 0; first < elements.size(); first += batch) {
    const auto some = elements.subspan(first, std::min(batch, elements.size() - first));
    compute(candidates, some, [&](GemmCandidate& one, std::size_t i, std::uint64_t word_by_it) {
      if (word_by_it == problem_.word(some[i])) ++one.matches;
    });
  }
}

std::vector<std::uint64_t> GemmScorer::words(const GemmCandidate& candidate,
                                             std::span<const std::size_t> elements) const {
  std::vector<GemmCandidate> one{candidate};
  std::vector<std::uint64_t> words(elements.size());
  for (std::size_t first = 0; first < elements.size(); first += batch) {
    const auto some = elements.subspan(first, std::min(batch, elements.size() - first));
    compute(one, some,
            [&](const GemmCandidate&, std::size_t i, std::uint64_t word_by_it) { words[first + i] = word_by_it; });
  }
  return words;
}

}  // namespace fp8lab::doctor
