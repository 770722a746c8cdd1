// SPDX-License-Identifier: Apache-2.0
#include "gemm/scorer.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <utility>

#include "fp8lab/formats/parallel.hpp"
#include "gemm/dequantized.hpp"

namespace fp8lab::doctor {
namespace {

/// Rows i and i + 8 of each 16 in each other's place; one that has no other stays.
void exchange(std::vector<std::size_t>& rows, std::size_t count) {
  constexpr std::size_t half = 8;
  for (std::size_t& row : rows) {
    if ((row ^ half) < count) row ^= half;
  }
}

/// Products that a candidate adds, of operands of that depth.
std::size_t depth_of(const GemmCandidate& one, std::size_t depth) {
  if (one.departure != nullptr && one.departure->drops_tail) return one.depth;
  return depth_with(reading_of(one.departure).products, depth, one.depth, one.blocks.size());
}

/// Its numbers, where partial sums depend on them.
std::vector<std::size_t> with_number(const GemmCandidate& one) {
  std::vector<std::size_t> all = one.blocks;
  if (!reading_of(one.departure).changes_factors()) return all;
  all.push_back(one.depth);
  if (reading_of(one.departure).promotion != PromotionReading::own) {
    all.push_back(static_cast<std::size_t>(one.recipe.promote_k));
  }
  return all;
}

/// A tile of the output that goes on from the accumulators of another one.
class StaleTile {
 public:
  explicit StaleTile(std::span<const std::size_t> numbers) : numbers_(numbers) {}

  [[nodiscard]] bool has(const GemmPlace& at) const {
    const bool in_rows = at.row >= numbers_[0] && at.row - numbers_[0] < numbers_[2];
    return in_rows && at.column >= numbers_[1] && at.column - numbers_[1] < numbers_[3];
  }
  [[nodiscard]] GemmPlace source_of(const GemmPlace& at) const {
    return {at.row - numbers_[0] + numbers_[4], at.column - numbers_[1] + numbers_[5]};
  }

 private:
  std::span<const std::size_t> numbers_;
};

/// The recipe of the accumulation, of products of that depth, with what a departure changes of promotions and of its
/// start.
GemmRecipe accumulated_recipe(const GemmCandidate& one, std::size_t depth) {
  GemmRecipe recipe = one.recipe;
  const GemmReading& reading = reading_of(one.departure);
  if (reading.stale_start) {
    recipe.c_enters = CEntry::accumulator;
    recipe.addend_type = StepType::as_given;
    recipe.beta = 1;
  }
  if (reading.promotion == PromotionReading::own) return recipe;
  const auto length = static_cast<std::size_t>(recipe.promote_k);
  recipe.promote_k = 0;
  recipe.split_k.clear();
  // Where the accumulator goes on: after the promotion that is missed, or that is added again.
  std::size_t goes_on = one.depth;
  if (reading.promotion == PromotionReading::kept) {
    const auto again = std::ranges::adjacent_find(one.blocks);
    goes_on = (static_cast<std::size_t>(again - one.blocks.begin()) + 2) * length;
  }
  std::size_t longer = length;
  for (std::size_t k = 0; k < depth; k += recipe.split_k.back()) {
    const bool is_longer = reading.promotion != PromotionReading::never_cleared && k + length == goes_on;
    recipe.split_k.push_back(is_longer ? 2 * length : longer);
    if (reading.promotion == PromotionReading::never_cleared) longer += length;
  }
  return recipe;
}

/// What codes that are read as those of FNUZ make of a product: half of it, or a quarter.
float halved_by(const GemmReading& reading) {
  return (reading.a.as_fnuz ? 0.5F : 1.0F) * (reading.b.as_fnuz ? 0.5F : 1.0F);
}

/// The addends of elements of these rows and columns, as a candidate reads them.
void read_addends(const GemmCandidate& one, const GemmAddends& all, std::span<const std::size_t> rows,
                  std::span<const std::size_t> columns, std::span<ElementAddends> addends) {
  for (std::size_t i = 0; i < addends.size(); ++i) {
    addends[i] = addends_of(reading_of(one.departure), all, rows[i], columns[i]);
  }
}

/// Where the rows of a candidate's operands come from.
struct RowsOfGroup {
  const GemmCandidate& first;
  const GemmReading& reading;
  std::size_t depth;
  bool has_blocks;
  std::size_t tiles_as_blocks;

  [[nodiscard]] PlainRows of(const Operand& operand, std::span<const std::size_t> places, Turned turned,
                             const SideReading& side, const Operand& other) const {
    return PlainRows(
        operand, places, depth,
        {reading.turned == turned, has_blocks ? side.blocks : BlockReading::own, tiles_as_blocks, first.recipe.k_order,
         side, &other, reading.products, first.depth, first.blocks, reading.blocks_as_tiles});
  }
};

}  // namespace

GemmScorer::Key GemmScorer::key_of(const GemmCandidate& one) const {
  const GemmRecipe& r = one.recipe;
  const GemmReading& reading = reading_of(one.departure);
  const std::size_t depth = depth_of(one, problem_.a().depth);
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
          with_number(one),
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
  // Each group with each batch, dealt out to the threads in turns: groups that follow each other take like times.
  std::vector<std::pair<const std::vector<GemmCandidate*>*, std::size_t>> tasks;
  for (const auto& [key, group] : groups) {
    for (std::size_t first = 0; first < elements.size(); first += batch) tasks.emplace_back(&group, first);
  }
  const auto threads = static_cast<std::size_t>(threads_);
  std::vector<std::size_t> order;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    for (std::size_t task = thread; task < tasks.size(); task += threads) order.push_back(task);
  }
  parallel_for(
      tasks.size(), threads_,
      [&](std::size_t begin, std::size_t end) {
        for (const std::size_t task : std::span(order).subspan(begin, end - begin)) {
          const auto [group, first] = tasks[task];
          const auto some = elements.subspan(first, std::min(batch, elements.size() - first));
          compute_group(*group, some, false,
                        [&](GemmCandidate& one, std::size_t i, float result) { use(one, first + i, result); });
        }
      },
      1);
}

/// The values that a tile goes on from, of elements in that tile: the accumulators of another one.
void GemmScorer::add_stale(const GemmCandidate& one, std::span<const std::size_t> elements,
                           std::span<float> starts) const {
  const StaleTile tile(one.blocks);
  const std::size_t columns = problem_.b().rows;
  std::vector<std::size_t> sources;
  std::vector<std::size_t> targets;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const GemmPlace at = problem_.element(elements[i]);
    if (!tile.has(at)) continue;
    const GemmPlace from = tile.source_of(at);
    sources.push_back(from.row * columns + from.column);
    targets.push_back(i);
  }
  if (sources.empty()) return;
  const std::vector<float> values = accumulators(one, sources);
  for (std::size_t i = 0; i < targets.size(); ++i) starts[targets[i]] = values[i];
}

/// Computes candidates that have the same partial sums.
void GemmScorer::compute_group(std::span<GemmCandidate* const> group, std::span<const std::size_t> elements,
                               bool as_accumulators, const Use& use) const {
  const GemmCandidate& first = *group.front();
  const GemmReading& own = reading_of(first.departure);
  const MmaModel& model = *first.model;
  const GemmAddends all{problem_.out().c, problem_.out().bias, problem_.a().rows, problem_.b().rows};
  std::vector<ElementAddends> addends(elements.size());
  std::vector<float> starts(elements.size());
  std::vector<float> accumulators(elements.size());
  const std::size_t depth = depth_of(first, problem_.a().depth);
  const GemmFacts facts = problem_.facts_for(model, own.blocks_as_tiles);
  const std::size_t blocks = model.scales && problem_.facts().tile_depth != 0 ? facts.block : 0;
  auto [left, right] = problem_.rows_of(elements, own.turned == Turned::out);
  if (own.rows_exchanged) exchange(left, problem_.a().rows);
  if (own.columns_exchanged) exchange(right, problem_.b().rows);
  const RowsOfGroup rows{first, own, depth, problem_.block_for(model) != 0, blocks};
  PlainRows a = rows.of(problem_.a(), left, Turned::a, own.a, problem_.b());
  PlainRows b = rows.of(problem_.b(), right, Turned::b, own.b, problem_.a());
  const float halves = halved_by(own);
  read_addends(first, all, left, right, addends);
  if (own.stale_start) {
    add_stale(first, elements, starts);
  } else {
    std::ranges::transform(addends, starts.begin(), &ElementAddends::c);
  }
  const auto partials = partial_sums_by(accumulated_recipe(first, depth), a, b, starts);
  const GemmSums sums{partials, a, b};
  const GemmCandidate* before = nullptr;
  for (GemmCandidate* one : group) {
    const GemmReading& reading = reading_of(one->departure);
    const GemmRecipe summed = accumulated_recipe(*one, depth);
    const ElementGemm accumulation(summed, facts, reading, problem_.a().tensor_scale, problem_.b().tensor_scale);
    const ElementGemm element(one->recipe, facts, reading, problem_.a().tensor_scale, problem_.b().tensor_scale);
    if (before == nullptr || before->departure != one->departure) {
      read_addends(*one, all, left, right, addends);
    }
    const bool is_new = before == nullptr || !accumulate_equally(*before, *one);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const ElementAddends start{own.stale_start ? starts[i] : addends[i].c, addends[i].bias};
      if (is_new) accumulators[i] = halves * accumulation.accumulated(sums, i, start);
      if (as_accumulators) {
        use(*one, i, accumulators[i]);
        continue;
      }
      const float result = element.finished(sums, i, addends[i], accumulators[i]);
      use(*one, i, one->factors.empty() ? result : result * factor_of(*one, elements[i]));
    }
    before = one;
  }
}

std::vector<float> GemmScorer::accumulators(const GemmCandidate& candidate,
                                            std::span<const std::size_t> elements) const {
  GemmCandidate one = candidate;
  GemmCandidate* const group = &one;
  std::vector<float> values(elements.size());
  for (std::size_t first = 0; first < elements.size(); first += batch) {
    const auto some = elements.subspan(first, std::min(batch, elements.size() - first));
    compute_group(std::span(&group, 1), some, true,
                  [&](const GemmCandidate&, std::size_t i, float value) { values[first + i] = value; });
  }
  return values;
}

void GemmScorer::score(std::vector<GemmCandidate>& candidates, std::span<const std::size_t> elements) const {
  compute(candidates, elements, [&](GemmCandidate& one, std::size_t i, float result) {
    if (word_of(one.recipe, result) == problem_.word(elements[i])) ++std::atomic_ref(one.matches);
  });
}

std::vector<std::uint64_t> GemmScorer::words(const GemmCandidate& candidate,
                                             std::span<const std::size_t> elements) const {
  std::vector<GemmCandidate> one{candidate};
  std::vector<std::uint64_t> words(elements.size());
  compute(one, elements,
          [&](const GemmCandidate& by, std::size_t i, float result) { words[i] = word_of(by.recipe, result); });
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
    take_departures(candidate, explanation.departures);
  }
  std::vector<std::size_t> all(problem.known());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return GemmScorer(problem).words(candidate, all);
}

}  // namespace fp8lab::doctor
