// SPDX-License-Identifier: Apache-2.0
// A hypothesis under examination, and what it leaves unexplained.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "quantize/hypotheses.hpp"
#include "quantize/kernel_model.hpp"
#include "quantize/localize.hpp"
#include "search/rank.hpp"

namespace fp8lab::doctor {

/// A piece of a sample, with its number in the order in which they joined.
struct SamplePiece : Piece {
  std::size_t number;
};

/// The tensor as one direction of quantization sees it.
struct Side {
  Source source;
  SearchFacts facts;
  std::vector<SamplePiece> sample;
};

/// A hypothesis under examination.
struct Suspect {
  Candidate candidate;
  const Side* side;
  bool is_by_quantize = false;  // and not by a KernelModel
  std::uint64_t in_sample = 0;  // unexplained codes and scales of the sample
  std::uint64_t codes = 0, scales = 0;
  Unexplained unexplained = {};
  std::vector<std::uint64_t> examples = {};        // indices of the side's source
  std::vector<std::uint64_t> scale_examples = {};  // the first element of tiles whose scales differ

  [[nodiscard]] std::uint64_t all() const { return codes + scales; }
  /// Among others that were compared with everything, and by the sample alone.
  [[nodiscard]] Rank rank() const { return {all(), candidate.cost}; }
  [[nodiscard]] Rank rank_in_sample() const { return {in_sample, candidate.cost}; }
};

/// Whether it explains more of the sample, or as much and is more plausible.
[[nodiscard]] inline bool is_before(const Suspect& a, const Suspect& b) {
  return a.rank_in_sample() < b.rank_in_sample();
}

/// The codes that some casts do not explain, which other recipes may make as well.
class ComparedCasts {
 public:
  /// Whether they are known of what the model makes: then the suspect has them.
  [[nodiscard]] bool find(const KernelModel& model, Suspect& suspect);
  /// Adds those of what was looked for last.
  void add(const Suspect& suspect);

 private:
  struct Entry {
    CastOfTiles cast;
    std::uint64_t codes;
    Unexplained unexplained;
    std::vector<std::uint64_t> examples;
  };

  std::vector<Entry> entries_;  // what was found last comes last
  std::optional<CastOfTiles> sought_;
};

/// Remembers what was compared with everything and leaves too much.
class RefutedBefore {
 public:
  /// Whether it is known to leave that many codes and scales, or more.
  [[nodiscard]] bool leaves(const Suspect& suspect, std::uint64_t limit) const;
  void add(const Suspect& suspect, std::uint64_t at_least);

 private:
  struct Entry {
    const Side* side;
    Recipe recipe;
    std::vector<Deviation> deviations;
    std::uint64_t at_least;
  };

  std::vector<Entry> entries_;
};

/// Compares with every element and scale.
void verify(Suspect& suspect, const StoredDump& dump);
/// Compares with every element and scale, unless `known` says which codes differ. Ends where `enough` codes are
/// unexplained, of which it then says no more than that: codes is at least that number.
void verify(Suspect& suspect, const StoredDump& dump, ComparedCasts& known,
            std::uint64_t enough = std::numeric_limits<std::uint64_t>::max());

}  // namespace fp8lab::doctor
