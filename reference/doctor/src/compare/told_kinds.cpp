// SPDX-License-Identifier: Apache-2.0
#include "compare/told_kinds.hpp"

#include <bit>
#include <cmath>

#include "fp8lab/formats/text_stream.hpp"

namespace fp8lab::doctor {
namespace {

/// Whether so many elements, drawn at random, would all be of a kind that `others` more are of.
bool is_by_chance(const KindCounts& counts, std::uint64_t others, bool is_half) {
  constexpr double seldom = 0.01;
  double part = static_cast<double>(counts.differing + others) / static_cast<double>(counts.elements);
  if (is_half) part = 0.5;
  return part != 1 && std::pow(part, static_cast<double>(counts.differing)) > seldom;
}

}  // namespace

std::vector<std::string> told_kinds(std::span<const KindWords> all, std::uint32_t shared, const KindCounts& counts) {
  std::vector<std::string> sentences;
  if (counts.differing == 0) return sentences;
  for (const KindWords& one : all) {
    if ((shared & one.kind) == 0 || (shared & one.instead) != 0) continue;
    const std::uint64_t others = counts.others[static_cast<std::size_t>(std::countr_zero(one.kind))];
    if (is_by_chance(counts, others, one.is_half)) continue;
    TextStream text;
    text << "Every one " << one.words << '.';
    const bool has_equal = counts.differing != counts.elements && !one.is_half;
    if (has_equal && others == 0) text << " No element that is equal is of that kind.";
    if (has_equal && others == 1) text << " 1 element that is equal is of that kind, too.";
    if (has_equal && others > 1) text << ' ' << others << " elements that are equal are of that kind, too.";
    sentences.push_back(text.str());
  }
  return sentences;
}

}  // namespace fp8lab::doctor
