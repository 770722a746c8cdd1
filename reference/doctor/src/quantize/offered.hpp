// SPDX-License-Identifier: Apache-2.0
// What is known of hypotheses that were offered to a sample before: rounds and stages of the search offer them again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "quantize/suspect.hpp"

namespace fp8lab::doctor {

/// How often a hypothesis contradicts a side's sample, as far as it was looked at.
struct Contradictions {
  std::optional<bool> applies;                       // to the tensor and the dump
  std::optional<std::uint64_t> of_begins;            // the first elements of a few pieces
  std::vector<std::optional<std::uint32_t>> pieces;  // by their numbers
  bool is_awaited = false;                           // whether a hypothesis waits for what is looked at next

  /// How often it contradicts that piece, which `count` counts where it is not known.
  template <typename F>
  [[nodiscard]] std::uint64_t of_piece(std::size_t number, const F& count) {
    if (pieces.size() <= number) pieces.resize(number + 1);
    std::optional<std::uint32_t>& known = pieces[number];
    if (!known) known = static_cast<std::uint32_t>(count());
    return *known;
  }
};

/// Remembers them by side, recipe and departures.
class OfferedBefore {
 public:
  /// What is known of a hypothesis, which may be nothing, to add to. Null where there is no room for more.
  [[nodiscard]] Contradictions* of(const Side& side, const Hypothesis& hypothesis);

 private:
  struct Entry {
    const Side* side;
    Recipe recipe;
    std::vector<Deviation> deviations;
    Contradictions known = {};
  };

  std::unordered_multimap<std::size_t, Entry> entries_;
};

}  // namespace fp8lab::doctor
