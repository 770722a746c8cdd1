// SPDX-License-Identifier: Apache-2.0
// Parts of two arrays, which threads compare.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "fp8lab/doctor/compare.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"

namespace fp8lab::doctor {
namespace {

/// Bytes of each array that are worth a thread, and those between two looks at the clock.
constexpr std::uint64_t least_bytes_of_thread = std::uint64_t{1} << 20;
constexpr std::size_t bytes_between_checkpoints = std::size_t{1} << 18;
/// Columns of a word of segments of tiles; no tile lies across two.
constexpr std::uint64_t columns_of_word = 1024;

/// Adds the counts of elements that come later. `has_before` and `has_later`: whether any element differs.
void append_places(Places& places, const Places& later, bool has_before, bool has_later) {
  for (std::size_t i = 0; i < places.counts.size(); ++i) places.counts[i] += later.counts[i];
  if (!has_later) return;
  places.first = has_before ? std::min(places.first, later.first) : later.first;
  places.last = has_before ? std::max(places.last, later.last) : later.last;
}

}  // namespace

std::vector<ElementRange> Comparer::parts(std::size_t most) const {
  const std::uint64_t columns = options_.columns;
  // 1. Where a part may end: below so many rows, or within a row where no tile has several.
  std::uint64_t height = 1;
  for (const Tiles& tiles : result_.tiles) height = std::max(height, tiles.rows);
  const bool is_odd = result_.type.pairs && columns % 2 != 0 && result_.rows.length > 1;
  if (is_odd) height = std::max<std::uint64_t>(height, 2);
  const auto end_near = [&](std::uint64_t element) {
    const std::uint64_t row = element / columns;
    if (height > 1) return row / height * height * columns;
    return element - element % columns % columns_of_word;
  };
  // 2. Parts of like size; those that would be empty are left out.
  std::vector<ElementRange> all;
  std::uint64_t first = 0;
  for (std::size_t i = 1; i < most; ++i) {
    const std::uint64_t last = end_near(result_.elements / most * i);
    if (last == first) continue;
    all.push_back({first, last});
    first = last;
  }
  if (first < result_.elements || all.empty()) all.push_back({first, result_.elements});
  return all;
}

Comparer Comparer::part(const ElementRange& range) const {
  Comparer own(result_.type, result_.elements, options_);
  own.begin_ = own.next_ = range.first;
  own.end_ = range.last;
  return own;
}

void Comparer::append(Comparer next) {
  if (next.begin_ != next_ || next.next_ != next.end_) throw std::logic_error("a part is missing, or not whole");
  finish_counts();
  next.finish_counts();
  next_ = next.next_;
  // 1. Counts.
  for (std::size_t i = 0; i < kinds_.size(); ++i) kinds_[i] += next.kinds_[i];
  const Comparison& later = next.result_;
  result_.opposite_signs += later.opposite_signs;
  result_.opposite_values += later.opposite_values;
  result_.became_zero += later.became_zero;
  result_.was_zero += later.was_zero;
  result_.distances.largest = std::max(result_.distances.largest, later.distances.largest);
  // 2. Where they lie.
  const bool has_before = result_.differing != 0;
  const bool has_later = later.differing != 0;
  append_places(result_.rows, later.rows, has_before, has_later);
  append_places(result_.columns, later.columns, has_before, has_later);
  result_.differing += later.differing;
  for (std::size_t kind = 0; kind < result_.tiles.size(); ++kind) {
    Tiles& tiles = result_.tiles[kind];
    if (tiles.touched == 0) tiles.first = later.tiles[kind].first;
    tiles.touched += later.tiles[kind].touched;
    tiles.missing += later.tiles[kind].missing;
  }
  // 3. The first ones: those of the parts before come before.
  const std::size_t room = options_.most_shown - result_.first.size();
  const auto shown = std::span(later.first).first(std::min(room, later.first.size()));
  result_.first.insert(result_.first.end(), shown.begin(), shown.end());
}

int useful_threads(int threads, std::uint64_t bytes) {
  check_threads(threads);
  return static_cast<int>(
      std::clamp<std::uint64_t>(bytes / least_bytes_of_thread, 1, static_cast<std::uint64_t>(threads)));
}

Comparison compare(const ElementType& type, std::span<const std::byte> a, std::span<const std::byte> b,
                   const CompareOptions& options) {
  type.check();
  const auto bits = static_cast<std::uint64_t>(type.bits());
  if (a.size() * 8 % bits != 0) refuse(a.size(), " bytes end within an element of ", bits / 8, " bytes");
  if (a.size() != b.size()) refuse("a has ", a.size(), " bytes, b ", b.size());
  Comparer comparer(type, a.size() * 8 / bits, options);
  const int threads = useful_threads(options.threads, a.size());
  const std::vector<ElementRange> ranges = comparer.parts(static_cast<std::size_t>(threads));
  std::vector<Comparer> parts;
  parts.reserve(ranges.size());
  for (const ElementRange& range : ranges) parts.push_back(comparer.part(range));
  parallel_for(ranges.size(), threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      const auto end = static_cast<std::size_t>(ranges[i].last * bits / 8);
      for (auto at = static_cast<std::size_t>(ranges[i].first * bits / 8); at < end; at += bytes_between_checkpoints) {
        checkpoint();
        const std::size_t size = std::min(bytes_between_checkpoints, end - at);
        parts[i].add(a.subspan(at, size), b.subspan(at, size));
      }
    }
  });
  for (Comparer& part : parts) comparer.append(std::move(part));
  return comparer.result();
}

}  // namespace fp8lab::doctor
