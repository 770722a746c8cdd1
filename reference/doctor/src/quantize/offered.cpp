// SPDX-License-Identifier: Apache-2.0
#include "quantize/offered.hpp"

#include <bit>
#include <functional>
#include <string>

#include "quantize/departure.hpp"

namespace fp8lab::doctor {
namespace {

/// What differs between hypotheses, but for recipes of one name.
std::size_t hash_of(const Hypothesis& hypothesis) {
  std::size_t hash = std::hash<std::string>{}(hypothesis.base);
  const auto add = [&](std::size_t own) { hash = std::rotl(hash, 5) * 0x9E3779B97F4A7C15U + own; };
  for (const std::string& change : hypothesis.changes) add(std::hash<std::string>{}(change));
  for (const Deviation& one : hypothesis.deviations) {
    add(std::hash<std::string_view>{}(one.departure->name));
    add(one.place);
    add(std::bit_cast<std::uint32_t>(one.value));
    add(one.last);
  }
  return hash;
}

}  // namespace

Contradictions* OfferedBefore::of(const Side& side, const Hypothesis& hypothesis) {
  constexpr std::size_t most = std::size_t{1} << 17;  // some hundred bytes each
  const std::size_t hash = hash_of(hypothesis);
  const auto [first, last] = entries_.equal_range(hash);
  for (auto one = first; one != last; ++one) {
    Entry& own = one->second;
    if (own.side == &side && own.recipe == hypothesis.recipe && own.deviations == hypothesis.deviations)
      return &own.known;
  }
  if (entries_.size() == most) return nullptr;
  return &entries_.emplace(hash, Entry{&side, hypothesis.recipe, hypothesis.deviations})->second.known;
}

}  // namespace fp8lab::doctor
