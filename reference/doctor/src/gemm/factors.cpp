// SPDX-License-Identifier: Apache-2.0
#include "gemm/factors.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "fp8lab/formats/decode.hpp"

namespace fp8lab::doctor {
namespace {

constexpr double endless = std::numeric_limits<double>::infinity();
/// Elements that tell a number to its last bit.
constexpr std::size_t telling_elements = 1024;
/// Hypotheses whose numbers are computed.
constexpr std::size_t most_bases = 12;
/// Elements of a row that tell its number.
constexpr std::size_t elements_of_line = 64;
/// A row or column of fewer elements says nothing of its number that another defect would not explain.
constexpr std::size_t least_of_line = 8;
/// Rows or columns that part the hypotheses before the likeliest ones are kept.
constexpr std::size_t sampled_lines = 4;

/// The value of a magnitude, of binary32 too.
double value_of_code(const Format& format, std::uint64_t code) {
  constexpr Format single = binary32;
  if (format == single) return std::bit_cast<float>(static_cast<std::uint32_t>(code));
  return decode(format, static_cast<std::uint32_t>(code));
}

/// Results that round to the word to nearest; all where it does not tell: 0, the largest number, infinite or NaN.
std::optional<AllowedFactors> rounds_to(const Format& format, std::uint64_t word) {
  const std::uint64_t magnitude = word & format.magnitude_mask();
  if (magnitude == 0 || magnitude >= format.max_code()) return std::nullopt;
  const double value = value_of_code(format, magnitude);
  const double low = (value + value_of_code(format, magnitude - 1)) / 2;
  const double high = (value + value_of_code(format, magnitude + 1)) / 2;
  if (magnitude != word) return AllowedFactors{-high, -low};
  return AllowedFactors{low, high};
}

/// Keeps the numbers that the element allows as well.
void narrow(AllowedFactors& all, const GemmRecipe& recipe, std::uint64_t word, float result) {
  const auto range = rounds_to(recipe.output, word);
  if (!range || !std::isfinite(result)) return;
  if (result == 0) {
    all = {1, 0};
    return;
  }
  constexpr double slack = 0x1p-23;  // the product is rounded to float32 first
  constexpr Format single = binary32;
  auto [low, high] = std::minmax({range->low / static_cast<double>(result), range->high / static_cast<double>(result)});
  if (recipe.output != single) {
    low -= std::abs(low) * slack;
    high += std::abs(high) * slack;
  }
  all.low = std::max(all.low, low);
  all.high = std::min(all.high, high);
}

/// The numbers that those elements allow, of each hypothesis.
std::vector<AllowedFactors> intervals_of(const GemmProblem& problem, const GemmScorer& scorer,
                                         std::vector<GemmCandidate>& bases, std::span<const std::size_t> elements) {
  std::vector<AllowedFactors> all(bases.size(), {-endless, endless});
  constexpr std::size_t batch = GemmScorer::batch;  // so that one thread at a time narrows a candidate's
  for (std::size_t first = 0; first < elements.size(); first += batch) {
    const auto some = elements.subspan(first, std::min(batch, elements.size() - first));
    scorer.compute(bases, some, [&](const GemmCandidate& one, std::size_t i, float result) {
      const auto number = static_cast<std::size_t>(&one - bases.data());
      narrow(all[number], one.recipe, problem.word(some[i]), result);
    });
  }
  return all;
}

bool is_found(const AllowedFactors& one) {
  return !one.is_empty() && std::isfinite(one.low) && std::isfinite(one.high);
}

/// Drops hypotheses of which no number explains the elements.
void keep_possible(const GemmProblem& problem, const GemmScorer& scorer, std::vector<GemmCandidate>& bases,
                   std::span<const std::size_t> elements) {
  const std::vector<AllowedFactors> intervals = intervals_of(problem, scorer, bases, elements);
  std::vector<GemmCandidate> kept;
  for (std::size_t i = 0; i < bases.size(); ++i) {
    if (is_found(intervals[i])) kept.push_back(std::move(bases[i]));
  }
  bases = std::move(kept);
}

/// Drops all but the likeliest ones.
void keep_likely(std::vector<GemmCandidate>& bases) {
  std::ranges::stable_sort(bases, {}, strangeness);
  if (bases.size() > most_bases) bases.resize(most_bases);
}

GemmCandidate scaled(GemmCandidate base, ScaledBy by, std::vector<float> factors) {
  const GemmDeparture& row = scaled_elements(by);
  base.departure = base.departure == nullptr ? &row : both_departures(*base.departure, row);
  base.factors = std::move(factors);
  base.matches = 0;
  return base;
}

/// Elements of a row or column of the output.
std::vector<std::size_t> line_of(const GemmProblem& problem, ScaledBy by, std::size_t number) {
  const std::size_t columns = problem.facts().columns;
  const std::size_t length = by == ScaledBy::rows ? columns : problem.facts().rows;
  std::vector<std::size_t> elements(std::min(length, elements_of_line));
  for (std::size_t i = 0; i < elements.size(); ++i) {
    elements[i] = by == ScaledBy::rows ? number * columns + i : i * columns + number;
  }
  return elements;
}

/// Hypotheses with a number for each row, or each column.
std::vector<GemmCandidate> scaled_lines(const GemmProblem& problem, const GemmScorer& scorer,
                                        std::vector<GemmCandidate> bases, ScaledBy by, std::size_t most_products) {
  const std::size_t count = by == ScaledBy::rows ? problem.facts().rows : problem.facts().columns;
  const std::size_t length = by == ScaledBy::rows ? problem.facts().columns : problem.facts().rows;
  std::vector<GemmCandidate> found;
  if (!problem.is_whole() || count < 2 || length < least_of_line) return found;
  for (std::size_t line = 0; line < std::min(count, sampled_lines); ++line) {
    keep_possible(problem, scorer, bases, line_of(problem, by, line));
  }
  keep_likely(bases);
  const std::size_t cost = count * std::min(length, elements_of_line) * problem.facts().depth;
  if (bases.size() * cost > most_products) bases.resize(most_products / cost);
  std::vector<std::vector<float>> factors(bases.size());
  std::vector<char> fails(bases.size(), 0);
  for (std::size_t line = 0; line < count && std::ranges::count(fails, 0) != 0; ++line) {
    const auto intervals = intervals_of(problem, scorer, bases, line_of(problem, by, line));
    for (std::size_t i = 0; i < bases.size(); ++i) {
      // A row that tells nothing, such as one of zeros, may have any number.
      const bool is_any = !intervals[i].is_empty() && !is_found(intervals[i]);
      const auto factor = is_any ? std::optional<float>(1.0F) : simplest_factor(intervals[i]);
      if (factor) factors[i].push_back(*factor);
      if (!factor) fails[i] = 1;
    }
  }
  for (std::size_t i = 0; i < bases.size(); ++i) {
    if (fails[i] == 0) found.push_back(scaled(bases[i], by, factors[i]));
  }
  return found;
}

std::optional<float> in(const AllowedFactors& interval, double x) {
  const auto near = static_cast<float>(x);
  if (interval.low <= static_cast<double>(near) && static_cast<double>(near) <= interval.high) return near;
  return std::nullopt;
}

/// The number of the fewest decimal digits.
std::optional<float> of_fewest_digits(const AllowedFactors& interval) {
  const double middle = interval.low + (interval.high - interval.low) / 2;
  constexpr int most_digits = 9;  // which tell every float32
  std::string room(32, ' ');
  for (int digits = 1; digits <= most_digits; ++digits) {
    auto* const end =
        std::to_chars(room.data(), room.data() + room.size(), middle, std::chars_format::scientific, digits - 1).ptr;
    double x = 0;
    std::from_chars(room.data(), end, x);
    if (const auto found = in(interval, x)) return found;
  }
  return in(interval, middle);
}

}  // namespace

std::optional<float> simplest_factor(const AllowedFactors& interval) {
  if (!is_found(interval) || interval.low * interval.high <= 0)
    return std::nullopt;  // of either sign: it tells nothing
  const double sign = interval.low < 0 ? -1 : 1;
  const double low = std::min(std::abs(interval.low), std::abs(interval.high));
  const double high = std::max(std::abs(interval.low), std::abs(interval.high));
  // 1. A power of two.
  const int exponent = std::ilogb(high);
  if (const auto found = in(interval, sign * std::ldexp(1.0, exponent))) return found;
  // 2. n, 1 / n and 1 / sqrt(n), as long as neighbours lie far apart beside the interval.
  const double apart = 8 * (high - low) / high;
  const double most = std::min(65536.0, 1 / std::max(apart, 0x1p-40));
  for (const double n : {std::round(high), std::round(1 / high)}) {
    if (n < 2 || n > most) continue;
    if (const auto found = in(interval, sign * (high > 1 ? n : 1 / n))) return found;
  }
  const double n = std::round(1 / (high * high));
  if (n >= 2 && n <= most / 2) {
    if (const auto found = in(interval, sign / std::sqrt(n))) return found;
  }
  return of_fewest_digits(interval);
}

std::vector<GemmCandidate> scaled_candidates(const GemmProblem& problem, const GemmScorer& scorer,
                                             std::vector<GemmCandidate> bases, std::span<const std::size_t> order,
                                             std::size_t sieve, std::size_t most_products) {
  const Format& format = problem.facts().format;
  std::erase_if(bases, [](const GemmCandidate& one) {
    const GemmDeparture* own = one.departure;
    return (own != nullptr && own->first != nullptr) || !is_rounded_once(one.recipe);
  });
  // 1. One number.
  std::vector<GemmCandidate> found;
  std::vector<GemmCandidate> possible = bases;
  for (const std::size_t count : {sieve, 8 * sieve}) {
    keep_possible(problem, scorer, possible, order.first(std::min(count, order.size())));
  }
  keep_likely(possible);
  const std::size_t affordable = most_products / std::max<std::size_t>(problem.facts().depth * most_bases, 1);
  const std::size_t count = std::min({order.size(), telling_elements, std::max(affordable, sieve)});
  const auto intervals = intervals_of(problem, scorer, possible, order.first(count));
  for (std::size_t i = 0; i < possible.size(); ++i) {
    const auto factor = simplest_factor(intervals[i]);
    if (factor && *factor != 1) found.push_back(scaled(possible[i], ScaledBy::one_number, {*factor}));
  }
  // 2. One for each row or column. (Bytes say too little of a number.)
  for (const ScaledBy by : {ScaledBy::rows, ScaledBy::columns}) {
    if (!found.empty() || format.bits() <= 8) break;
    std::ranges::move(scaled_lines(problem, scorer, bases, by, most_products), std::back_inserter(found));
  }
  return found;
}

}  // namespace fp8lab::doctor
