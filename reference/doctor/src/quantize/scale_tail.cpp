// SPDX-License-Identifier: Apache-2.0
// The part of the search for stored scales that were not written.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "quantize/named_rows.hpp"
#include "quantize/search.hpp"

namespace fp8lab::doctor {
namespace {

/// What a place of the stored scales has.
enum class ScaleState : std::uint8_t { padding, as_predicted, other };

/// The stored scales from the first that is not as predicted to the last one.
struct ScaleTail {
  std::size_t begin = 0;
  std::uint64_t before = 0;                    // scales
  std::uint64_t as_predicted = 0, others = 0;  // from there on
  std::optional<std::uint32_t> word = {};      // of all of them
};

ScaleTail tail_of_scales(const std::vector<ScaleState>& places, const std::vector<std::uint32_t>& words) {
  ScaleTail tail;
  const auto first = std::ranges::find(places, ScaleState::other);
  tail.begin = static_cast<std::size_t>(first - places.begin());
  tail.before = static_cast<std::uint64_t>(std::count(places.begin(), first, ScaleState::as_predicted));
  tail.as_predicted = static_cast<std::uint64_t>(std::count(first, places.end(), ScaleState::as_predicted));
  tail.others = static_cast<std::uint64_t>(std::count(first, places.end(), ScaleState::other));
  if (first == places.end()) return tail;
  tail.word = words[tail.begin];
  for (std::size_t i = tail.begin; i < places.size(); ++i) {
    if (places[i] != ScaleState::padding && words[i] != *tail.word) tail.word.reset();
    if (!tail.word) break;
  }
  return tail;
}

/// Whether memory that was not written looks like that: zeros, one word, or numbers that have nothing to do with the
/// predicted ones, of which few are right by chance.
bool is_unwritten(const ScaleTail& tail, const KernelModel& model) {
  constexpr std::uint64_t many = 8;
  constexpr std::uint32_t few_ulps = 64;
  const std::uint64_t count = tail.as_predicted + tail.others;
  if (tail.others == 0 || tail.before == 0 || tail.before * 8 < count) return false;
  if (tail.word) return *tail.word == 0 || count >= many;
  if (tail.others < many || tail.as_predicted * 16 > count) return false;
  const ScaleGrid grid = model.scale_grid();
  return grid.lowest_ratio != grid.highest_ratio && grid.most_ulps > few_ulps;
}

}  // namespace

void Search::add_scale_tails(std::vector<Suspect>& found) const {
  constexpr std::size_t most_looked_at = 6;
  constexpr std::size_t many_scales = std::size_t{1} << 16;
  std::size_t looked_at = 0;
  for (const Suspect& one : best_of_each_kind(false)) {
    if (one.scales == 0 || looked_at++ >= most_looked_at) continue;
    const KernelModel model(one.side->source, one.candidate.hypothesis, &dump_);
    if (!model.applies() || dump_.scales.empty() || !model.has_room_for_scales()) continue;
    // The last scale is looked at first where there are very many.
    if (dump_.scales.size() > many_scales && model.has_last_scale()) continue;
    model.complete();
    std::vector<ScaleState> places(dump_.scales.size(), ScaleState::padding);
    model.for_each_scale([&](std::size_t place, bool is_as_predicted) {
      places[place] = is_as_predicted ? ScaleState::as_predicted : ScaleState::other;
    });
    const ScaleTail tail = tail_of_scales(places, dump_.scales);
    if (!is_unwritten(tail, model)) continue;
    Suspect suspect{.candidate = one.candidate, .side = one.side};
    const std::uint64_t kind = !tail.word ? 0 : *tail.word == 0 ? 1 : 2;
    suspect.candidate.hypothesis.deviations.push_back(
        {.departure = &rows::stored_end_unwritten, .place = tail.begin, .last = kind});
    suspect.candidate.cost += rows::stored_end_unwritten.cost;
    found.push_back(std::move(suspect));
  }
}

}  // namespace fp8lab::doctor
