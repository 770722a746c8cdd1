// SPDX-License-Identifier: Apache-2.0
// The search for what explains a dump.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/doctor/diagnose.hpp"
#include "quantize/hypotheses.hpp"
#include "quantize/kernel_model.hpp"
#include "quantize/offered.hpp"
#include "quantize/suspect.hpp"

namespace fp8lab::doctor {

/// How often elements that contradict join the sample.
inline constexpr int most_rounds = 4;

/// Sieves hypotheses on a sample, compares what is left with everything, and goes on from the best with one change or
/// departure more.
class Search {
 public:
  Search(const MatrixView& x, const Dump& dump, const DiagnoseOptions& options);

  [[nodiscard]] Diagnosis run();

 private:
  /// Finds the least amax of runs of elements, by which departures are searched.
  void find_least_runs();
  /// The hypotheses that are offered at a time.
  struct Stage {
    int changes;         ///< 0: plain hypotheses; 1: with one change or departure; 2: with one more than the best have
    std::size_t sides;   ///< the first of them
    bool only_expected;  ///< departures from the expected recipe alone
    double most_cost;    ///< an explanation of all with less ends the search
  };
  void try_stage(const Stage& stage, bool is_zero);
  /// Whether the best explains all that is stored.
  [[nodiscard]] bool is_explained() const { return !verified_.empty() && verified_.front().all() == 0; }
  void sieve(const Stage& stage, const std::vector<Suspect>& parents);
  [[nodiscard]] bool is_wanted(const Stage& stage, const Candidate& candidate) const;
  /// Offers recipes with two changes or departures, of which neither alone explains much: likely_bases().
  void cross(const Stage& stage);
  /// Offers the same recipes with scales that are rounded in another way and a small number that is added, or a floor:
  /// where many amaxes are smaller than the number, neither alone explains much.
  void cross_numbers(const Stage& stage);
  /// Offers further numbers for recipes whose scales are stored.
  void try_more_numbers(const Stage& stage);
  /// The most plausible recipes that have as many scales as there are, of those that `accepts` takes.
  [[nodiscard]] std::vector<Candidate> likely_bases(const Stage& stage,
                                                    const std::function<bool(const KernelModel&)>& accepts) const;
  /// Offers the changes and departures that explain most on all other recipes.
  void try_other_recipes();
  /// What explains most, of each set of changes and departures no more than two recipes.
  [[nodiscard]] std::vector<Suspect> best_of_each_kind(bool only_expected) const;
  /// Offers likely recipes for what an earlier quantization of the tensor has left.
  void quantize_again(const Stage& stage);
  /// Recipes that a KernelModel does not have all of: by quantize(), without departures.
  void quantize_others();
  /// How many codes of the first rows (columnwise: columns), `lines` of them, are not those of a recipe by quantize(),
  /// where these tell.
  [[nodiscard]] std::uint64_t wrong_in_band(const Hypothesis& hypothesis, float amax, std::size_t lines) const;
  /// The codes of these, with the scale of a tensor with that amax, or that of the band.
  [[nodiscard]] std::vector<std::uint8_t> codes_of_band(const Hypothesis& hypothesis, std::optional<float> amax,
                                                        std::size_t lines) const;
  /// How many codes and scales a recipe may leave to be told: enough others leave no more.
  [[nodiscard]] std::uint64_t most_told() const;
  /// How many codes a recipe leaves at least, as a few lines tell that need not know the tensor's scale.
  [[nodiscard]] std::uint64_t wrong_at_least(const Hypothesis& hypothesis) const;
  /// Leaves those that are nearest to the first rows or columns of a large tensor.
  void keep_nearest(std::vector<Suspect>& others) const;
  void sort_verified();
  /// Whether all codes are 0, and x has a number: then recipes are told from their scales alone, and the search is
  /// over.
  bool finds_nothing_written();
  void vary(const Side& side, const Candidate& candidate);
  /// A candidate that waits until threads compare some with the sample.
  struct Waiting {
    const Side* side;
    Candidate candidate;
    int changes;
    Contradictions* known;                    ///< from before, to add to; null where there is no room for it
    std::optional<std::uint64_t> count = {};  ///< how often it contradicts the sample; nothing where that is too often
  };
  /// Keeps the candidate, once it was weighed, where it contradicts the sample less than others.
  void offer(const Side& side, Candidate candidate, int changes);
  /// Compares those that wait with the sample, and keeps the best in the order in which they were offered.
  void weigh();
  /// How often one contradicts the sample; nothing where it does more often than the limit, or in most elements.
  void count_contradictions(Waiting& one, std::uint64_t limit) const;
  /// How often a hypothesis may contradict the sample, of those whose scales follow from nothing or of the others.
  [[nodiscard]] std::uint64_t most_in_sample(bool has_no_rule) const;
  /// Drops the last of either where there are too many.
  void drop_last(bool has_no_rule);
  /// Whether it was compared with everything.
  [[nodiscard]] bool is_verified(const Suspect& one) const;
  /// Compares with everything, or takes over what was found of the same arithmetic under another name.
  void verify_or_copy(Suspect& one);
  /// Compares what agrees with the sample, or else the best, with everything.
  void verify_best();
  /// Whether a departure in one place, compared with everything, leaves less than that: what does not is remembered.
  [[nodiscard]] bool leaves_less(Suspect& suspect, std::uint64_t limit);
  /// Compares each with everything that was not.
  void verify_each(std::vector<Suspect>& suspects);
  /// Adds elements that contradict what agreed with the sample. Whether there were some.
  bool learn();
  /// Looks for departures in one place, which elements left unexplained suggest.
  void localize();
  /// Looks for a rule where stored scales that follow from nothing explain everything.
  void doubt_stored_scales();
  /// Looks for departures in one place of the best of each kind.
  [[nodiscard]] std::vector<Suspect> local_suspects();
  /// What scales suggest that tell by themselves what they are.
  void add_rules_of_scales(std::vector<Suspect>& found);
  /// What they suggest of each recipe.
  void add_by_scales(std::vector<Suspect>& found);
  /// What scales suggest that the best of each kind do not explain.
  void add_by_wrong_scales(std::vector<Suspect>& found) const;
  /// How implausible it is that the kernel quantized in the direction of that side.
  [[nodiscard]] double cost_of(const Side& side) const;
  /// Whether another scale of the tensor explains the sample: before departures are searched, for it explains most of
  /// what is wrong then.
  void try_tensor_scales();
  /// The rule of most scales, and the stored ones for tiles that have another.
  void add_tiles_as_stored(std::vector<Suspect>& found);
  /// One factor for all elements, whatever the tensor.
  void add_stale(std::vector<Suspect>& found);
  /// One scale of the tensor over those of tiles, whatever the tensor: where it is not given.
  void add_tensor_scales(std::vector<Suspect>& found, bool only_likely);

  [[nodiscard]] Diagnosis report();
  /// Leaves one of those that are the same.
  void join_verified();
  /// Puts the recipe itself before departures from it that explain next to nothing.
  void prefer_plain();
  /// Drops explanations that take stored scales as they are where others need fewer of them, or none.
  void drop_needless_scales(Diagnosis& diagnosis);
  void list_explanations(Diagnosis& diagnosis) const;
  /// What is known of scales that follow from nothing.
  void note_scales(Diagnosis& diagnosis) const;
  /// Whether the expected recipe takes the tensor.
  void note_expected(Diagnosis& diagnosis) const;
  void tell_rest(Diagnosis& diagnosis) const;
  /// What of a correct kernel the tensor shows.
  void tell_exercised(Diagnosis& diagnosis) const;
  /// Where the tiles lie whose scales do not follow from them.
  void note_tiles_as_stored(Diagnosis& diagnosis) const;
  /// How many codes are NaNs of another sign, which counts as explained.
  void note_signs_of_nan(Diagnosis& diagnosis) const;
  void discriminate(Diagnosis& diagnosis) const;

  const MatrixView& x_;
  StoredDump dump_;
  const DiagnoseOptions& options_;
  std::vector<Side> sides_;
  std::vector<Waiting> waiting_;
  std::vector<Suspect> kept_;      // by the sample
  std::vector<Suspect> verified_;  // by everything, the best first
  RefutedBefore refuted_;
  OfferedBefore offered_;
  ComparedCasts compared_;
  std::optional<FactorInterval> factor_;
  std::optional<std::pair<std::string, FactorInterval>> scale_factor_;  // a rule, and what all scales are times its own
  /// Where the scale of the tensor over those of tiles may lie, if it is one number, and the tiles that tell it.
  std::optional<std::pair<std::optional<FactorInterval>, std::vector<Piece>>> tensor_scale_bounds_;
  bool has_tensor_scales_ = false;    // whether all scales of the tensor over those of tiles were looked for
  bool has_stale_ = false;            // whether one factor for all elements was looked for
  bool has_rules_of_scales_ = false;  // whether what scales suggest of recipes was looked for
  std::size_t searched_ = 0;
};

}  // namespace fp8lab::doctor
