// SPDX-License-Identifier: Apache-2.0
#include "gemm/search.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "gemm/expected.hpp"
#include "gemm/factors.hpp"
#include "gemm/stale.hpp"
#include "gemm/suggest.hpp"
#include "gemm/whole.hpp"
#include "search/rank.hpp"

namespace fp8lab::doctor {
namespace {

/// There are many more hypotheses with a defect: of those that explain few of these elements, none is looked at again.
constexpr std::size_t first_elements = 4;
/// Elements that contradict what explains a sample, of those beyond it: so many are compared with all hypotheses.
constexpr std::size_t most_joined = 1024;
/// This many hypotheses are checked where all leave elements of the sieve unexplained: the best ones.
constexpr std::size_t most_imperfect = 12;
/// Hypotheses that are compared with a whole output.
constexpr std::size_t most_wholes = 4;
/// Elements of the second sieve that contradict what explained the first.
constexpr std::size_t contradicting_elements = 12;

std::size_t best_of(const std::vector<GemmCandidate>& candidates) {
  std::size_t best = 0;
  for (const GemmCandidate& one : candidates) best = std::max(best, one.matches);
  return best;
}

/// Drops those that explain less than the best of them, which has to explain something.
void keep_promising(std::vector<GemmCandidate>& candidates, std::size_t seen) {
  const std::size_t best = std::max<std::size_t>(best_of(candidates), seen == 0 ? 0 : 1);
  std::erase_if(candidates, [&](const GemmCandidate& one) { return one.matches < best; });
}

/// Whether scales multiply c or the bias in all that explain the sieve: few mean that, and one that is small changes
/// nothing then.
bool scale_addends(const std::vector<GemmCandidate>& candidates, std::size_t seen) {
  return std::ranges::all_of(candidates, [&](const GemmCandidate& one) {
    const GemmRecipe& r = one.recipe;
    const bool from_c = r.c_enters == CEntry::accumulator && r.scale_order;
    return one.matches != seen || one.departure != nullptr || r.addition == Addition::before_scales || from_c;
  });
}

/// A departure that reads blocks of K, with its numbers.
struct ReadBlocks {
  const GemmDeparture* row = nullptr;
  std::size_t number = 0;
  std::vector<std::size_t> blocks = {};
};

/// The row that says in the fewest words that these blocks of K are multiplied.
ReadBlocks simplest_reading(const SuggestedDeparture& one, std::size_t depth) {
  const std::size_t count = depth / one.number;
  const std::vector<std::size_t>& blocks = one.blocks;
  const auto ascends = [](std::span<const std::size_t> some, std::size_t first) {
    return std::ranges::all_of(some, [&](const std::size_t& block) {
      return block == first + static_cast<std::size_t>(&block - some.data());
    });
  };
  if (blocks.size() < count && ascends(blocks, 0)) return {&dropped_tail(), blocks.size() * one.number};
  if (blocks.size() < count && ascends(blocks, count - blocks.size())) {
    return {&row_of_products(ProductReading::head_missing), depth - blocks.size() * one.number};
  }
  if (blocks.size() == count + 1 && ascends(std::span(blocks).first(count), 0) && blocks.back() == count - 1) {
    return {&row_of_products(ProductReading::tail_twice), one.number};
  }
  if (blocks.size() == count + 1 && ascends(std::span(blocks).subspan(1), 0) && blocks.front() == 0) {
    return {&row_of_products(ProductReading::head_twice), one.number};
  }
  return {&row_of_products(ProductReading::blocks), one.number, blocks};
}

/// Whether it is told where nothing explains the output: one of blocks, or one that is nearer than those before.
bool is_told(const SuggestedDeparture& one, double& least) {
  constexpr double near = 0.1;
  if (!one.blocks.empty()) return true;
  if (!(one.distance < std::min(near, least))) return false;
  least = one.distance;
  return true;
}

}  // namespace

GemmSearcher::GemmSearcher(const GemmProblem& problem, const GemmDoctorOptions& options, StepType dequantized)
    : problem_(problem),
      options_(options),
      dequantized_(dequantized),
      scorer_(problem, options.threads),
      stages_(problem, dequantized, options.without) {
  for (const std::string& name : options.without) static_cast<void>(find_gemm_departure(name));
  if (options.expected) expected_ = expected_candidate(*options.expected, problem);
}

GemmFindings GemmSearcher::find(std::vector<std::size_t>& order) const {
  order = problem_.order_of_elements(sieve_elements);
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
  return found;
}

/// Goes through the hypotheses, and checks those that are left.
GemmFindings GemmSearcher::search(std::vector<std::size_t>& order) const {
  GemmFindings found;
  const auto sieve = std::span<const std::size_t>(order).first(std::min(sieve_elements, order.size()));
  std::vector<GemmCandidate>& candidates = found.candidates;
  // 1. GEMMs as they usually are, then in other orders of K and with other rules for zeros, then with a defect.
  candidates = stages_.usual();
  add_expected(candidates);
  found.searched = candidates.size();
  scorer_.score(candidates, sieve);
  if (dequantized_ != StepType::as_given && best_of(candidates) != sieve.size()) {
    rank(candidates);
    found.seen = found.checked = sieve.size();
    return found;
  }
  for (const bool with_defects : {false, true}) {
    if (best_of(candidates) == sieve.size()) {
      found.is_cut_short = true;
      break;
    }
    if (with_defects) add_scaled(found, order, sieve);
    add_unusual(found, with_defects ? stages_.defects() : stages_.unusual(), sieve);
  }
  if (best_of(candidates) != sieve.size()) add_suggested(found, order, sieve);
  if (best_of(candidates) == sieve.size() && scale_addends(candidates, sieve.size())) {
    add_unusual(found, stages_.missing_addends(), sieve);
  }
  // 2. What is left, on all elements.
  keep_best(found, sieve.size());
  check_rest(found, order, sieve.size());
  rank(candidates);
  check_whole(found, order);
  try_stale_tile(found, order);
  return found;
}

/// The elements that contradict a candidate.
std::vector<std::size_t> GemmSearcher::contradicting(const GemmFindings& found, std::size_t number,
                                                     std::span<const std::size_t> order) const {
  const bool is_whole = number == 0 && found.whole;
  const std::vector<std::uint64_t> words = is_whole ? *found.whole : scorer_.words(found.candidates[number], order);
  std::vector<std::size_t> wrong;
  for (std::size_t i = 0; i < problem_.known(); ++i) {
    const std::size_t element = is_whole ? i : order[i];
    if (words[i] != problem_.word(element)) wrong.push_back(element);
  }
  return wrong;
}

/// Takes the first candidate with a tile that goes on from another one, where that explains the whole output.
void GemmSearcher::try_stale_tile(GemmFindings& found, std::span<const std::size_t> order) const {
  const std::size_t all = problem_.known();
  const bool is_affordable = all * problem_.facts().depth <= options_.most_products;
  const bool is_some = found.candidates.front().matches * 4 > found.checked;
  if (!problem_.is_whole() || found.unexplained() == 0 || !is_some || stages_.is_left_out(&stale_tile())) return;
  const std::size_t tried = std::min<std::size_t>(most_wholes, found.candidates.size());
  for (std::size_t number = 0; number < tried; ++number) {
    const GemmCandidate& base = found.candidates[number];
    if (!is_affordable && (number != 0 || !found.whole)) return;
    const std::vector<std::size_t> wrong = contradicting(found, number, order);
    auto stale = with_stale_tile(problem_, scorer_, base, wrong);
    if (!stale) continue;
    if (wrong.size() * 2 * problem_.facts().depth > options_.most_products) continue;
    std::vector<GemmCandidate> one{*stale};
    one.front().matches = 0;
    scorer_.score(one, wrong);
    if (one.front().matches != wrong.size()) continue;
    // What is not in the tile is as it was: all of the output is compared.
    one.front().matches = found.checked;
    found.candidates = std::move(one);
    found.runner_up.reset();
    found.whole.emplace(all);
    for (std::size_t i = 0; i < all; ++i) (*found.whole)[i] = problem_.word(i);
    found.whole_unexplained = 0;
    return;
  }
}

/// Adds hypotheses of an output that is multiplied with numbers.
void GemmSearcher::add_scaled(GemmFindings& found, std::span<const std::size_t> order,
                              std::span<const std::size_t> sieve) const {
  std::vector<GemmCandidate> bases = stages_.usual();
  found.searched += bases.size();
  auto scaled = scaled_candidates(problem_, scorer_, std::move(bases), order, sieve.size(), options_.most_products);
  std::erase_if(scaled, [&](const GemmCandidate& one) { return stages_.is_left_out(one.departure); });
  scorer_.score(scaled, sieve);
  std::ranges::move(scaled, std::back_inserter(found.candidates));
}

/// Adds hypotheses with departures, one or two, under which exact sums come near the output.
void GemmSearcher::add_suggested(GemmFindings& found, std::span<const std::size_t> order,
                                 std::span<const std::size_t> sieve) const {
  double least = 1;
  for (const SuggestedDeparture& one : suggested_departures(problem_, order)) {
    if (is_told(one, least)) found.nearest = describe(one);
    if (one.is_single()) continue;
    const GemmDeparture* departure = one.departure;
    ReadBlocks read{.number = problem_.facts().depth};
    if (!one.blocks.empty()) {
      read = simplest_reading(one, problem_.facts().depth);
      departure = departure == nullptr ? read.row : both_departures(*departure, *read.row);
      if (departure == nullptr) continue;
    }
    std::vector<GemmCandidate> some =
        departure == nullptr ? stages_.usual() : stages_.with(*departure, read.number, read.blocks);
    if (one.is_relu) {
      for (GemmCandidate& candidate : some) candidate.recipe.activation = GemmActivation::relu;
    }
    found.searched += some.size();
    if (one.scaled_by != ScaledBy::nothing) {
      some = scaled_candidates(problem_, scorer_, std::move(some), order, sieve.size(), options_.most_products);
      std::erase_if(some, [&](const GemmCandidate& candidate) { return stages_.is_left_out(candidate.departure); });
    }
    add_unusual(found, std::move(some), sieve);
    if (best_of(found.candidates) == sieve.size()) break;
  }
}

/// Adds those that explain most of the sieve.
void GemmSearcher::add_unusual(GemmFindings& found, std::vector<GemmCandidate> unusual,
                               std::span<const std::size_t> sieve) const {
  found.searched += unusual.size();
  const auto few = sieve.first(std::min(first_elements, sieve.size()));
  scorer_.score(unusual, few);
  keep_promising(unusual, few.size());
  scorer_.score(unusual, sieve.subspan(few.size()));
  std::ranges::move(unusual, std::back_inserter(found.candidates));
}

/// The elements in another order: first some that contradict the best candidate, then a few that do not.
std::vector<std::size_t> GemmSearcher::contradictions_first(const GemmFindings& found,
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
bool GemmSearcher::is_better(const GemmFindings& again, const GemmFindings& found,
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

/// In the place of the one that is the same.
void GemmSearcher::add_expected(std::vector<GemmCandidate>& candidates) const {
  if (!expected_) return;
  std::erase_if(candidates, [&](const GemmCandidate& one) { return is_same(one, *expected_); });
  candidates.insert(candidates.begin(), *expected_);
}

/// By what they explain, then the expected one, then the usual ones.
void GemmSearcher::rank(std::vector<GemmCandidate>& candidates) const {
  const std::size_t most = best_of(candidates);
  sort_by_rank(candidates, [&](const GemmCandidate& one) {
    const bool is_expected = expected_ && one.is_like(*expected_);
    return Rank{most - one.matches, is_expected ? -1 : strangeness(one)};
  });
}

/// Keeps the candidates that explain all of `seen`, or if none does, the best ones.
void GemmSearcher::keep_best(GemmFindings& found, std::size_t seen) const {
  std::vector<GemmCandidate>& candidates = found.candidates;
  rank(candidates);
  if (candidates.front().matches == seen) {
    keep_perfect(found, seen);
  } else if (candidates.size() > most_imperfect) {
    candidates.resize(most_imperfect);
  }
}

/// Drops those that leave some of `seen` elements unexplained, and remembers the best of them.
void GemmSearcher::keep_perfect(GemmFindings& found, std::size_t seen) const {
  std::vector<GemmCandidate>& candidates = found.candidates;
  std::vector<GemmCandidate> dropped;
  std::ranges::copy_if(candidates, std::back_inserter(dropped), [&](const auto& one) { return one.matches < seen; });
  if (dropped.empty()) return;
  rank(dropped);
  found.runner_up = dropped.front();
  std::erase_if(candidates, [&](const GemmCandidate& one) { return one.matches < seen; });
}

/// Compares the candidates with more elements as long as the products last.
void GemmSearcher::check_rest(GemmFindings& found, std::span<const std::size_t> order, std::size_t seen) const {
  std::size_t products = options_.most_products;
  while (seen < order.size()) {
    std::map<GemmScorer::Key, std::size_t> groups;
    for (const GemmCandidate& one : found.candidates) ++groups[scorer_.key_of(one)];
    const std::size_t count = std::min(batch_elements, order.size() - seen);
    const std::size_t cost = groups.size() * count * problem_.a().depth;
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
void GemmSearcher::check_whole(GemmFindings& found, std::vector<std::size_t>& order) const {
  std::vector<GemmCandidate>& candidates = found.candidates;
  const bool is_hopeless = candidates.front().matches * 2 < found.seen;
  if (!problem_.is_whole() || found.seen == order.size() || is_hopeless) return;
  const auto is_like = [](const GemmCandidate& one) {
    return [&one](const GemmCandidate& other) { return other.is_like(one); };
  };
  std::vector<GemmCandidate> compared;
  GemmCandidate best;
  for (std::size_t next = 0; next < candidates.size() && compared.size() < most_wholes;) {
    const GemmCandidate h = candidates[next];
    compared.push_back(h);
    auto whole = whole_output(candidates[next], problem_, options_.threads);
    if (!whole && (!found.whole || candidates[next].matches == found.checked)) {  // it explains more than the others
      found.whole.reset();
      best = h;
      break;
    }
    const std::size_t unexplained = whole ? problem_.count_unexplained(*whole) : problem_.known();
    if (whole && (!found.whole || unexplained < found.whole_unexplained)) {
      best = h;
      found.whole_unexplained = unexplained;
      found.whole = std::move(whole);
      if (unexplained == 0) break;
      join_contradictions(found, order);
      rank(candidates);
    }
    // The next one that explains more than the best, of those that were not compared yet.
    for (next = 0; next < candidates.size() && std::ranges::any_of(compared, is_like(candidates[next]));) {
      next = candidates[next].is_like(best) ? candidates.size() : next + 1;
    }
  }
  const auto at = std::ranges::find_if(candidates, is_like(best));
  std::rotate(candidates.begin(), at, at + 1);
}

/// Adds elements that contradict the first candidate to those that all candidates have met.
void GemmSearcher::join_contradictions(GemmFindings& found, std::vector<std::size_t>& order) const {
  const auto contradicts = [&](std::size_t i) { return (*found.whole)[i] != problem_.word(i); };
  const auto begin = order.begin() + static_cast<std::ptrdiff_t>(found.checked);
  const auto others = std::partition(begin, order.end(), contradicts);
  const std::size_t count = std::min(static_cast<std::size_t>(others - begin), most_joined);
  scorer_.score(found.candidates, std::span<const std::size_t>(order).subspan(found.checked, count));
  found.checked += count;
}

}  // namespace fp8lab::doctor
