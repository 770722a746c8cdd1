// SPDX-License-Identifier: Apache-2.0
// Lists the hypotheses that are searched, in order of plausibility.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "fp8lab/doctor/diagnose.hpp"
#include "quantize/kernel_model.hpp"

namespace fp8lab::doctor {

/// A hypothesis and how implausible it is: 0 for the expected recipe, about 1 for each change and departure.
struct Candidate {
  Hypothesis hypothesis;
  double cost = 0;
};

/// Costs from here on are not of named recipes and profiles that tell a scale of their own.
inline constexpr double cost_of_departure = 1;

/// Facts that say which hypotheses differ from others.
struct SearchFacts {
  Format input_type = binary32;
  Direction direction = Direction::rowwise;
  bool is_packed = false;
  std::optional<Format> format;   ///< of codes
  std::uint8_t largest_code = 0;  ///< that is there
  bool may_be_e5m2 = false;       ///< the largest magnitude is the largest of E5M2, which E4M3 has no reason to end at
  std::size_t rows = 0, columns = 0;  ///< of the tensor, as the direction sees it
  std::size_t scales = 0;             ///< that are stored
  bool scales_are_bytes = false;      ///< codes of E8M0 or E4M3
  std::optional<float> tensor_scale;  ///< that is given
  std::optional<float> scale;         ///< the stored one, where there is one
  float least_run = 0;  ///< the least amax of 16 elements in a row of the tensor, from a multiple of 16 on
};

/// A hypothesis that may have one departure more, and what is known of the tensor and the dump.
class SearchCase {
 public:
  SearchCase(const Hypothesis& hypothesis, const SearchFacts& facts) : hypothesis_(&hypothesis), facts_(&facts) {}

  [[nodiscard]] const Hypothesis& hypothesis() const { return *hypothesis_; }
  [[nodiscard]] const Recipe& recipe() const { return hypothesis_->recipe; }
  [[nodiscard]] const SearchFacts& facts() const { return *facts_; }
  /// Whether a row has tiles.
  [[nodiscard]] bool has_tiles() const { return recipe().tile_along != 0; }
  [[nodiscard]] std::size_t tiles_across() const { return tiles_of(facts_->columns, recipe().tile_along); }
  [[nodiscard]] std::size_t tiles_down() const { return tiles_of(facts_->rows, recipe().tile_across); }
  /// A bound below the amaxes of all tiles; 0 where none is known.
  [[nodiscard]] float least_amax() const;
  /// A bound below all scale_inv of recipes without a tensor's scale: amaxes over the largest value of any format.
  [[nodiscard]] float least_scale() const;

 private:
  [[nodiscard]] static std::size_t tiles_of(std::size_t length, std::size_t tile) {
    return tile == 0 ? 1 : (length + tile - 1) / tile;
  }

  const Hypothesis* hypothesis_;
  const SearchFacts* facts_;
};

/// The rows and columns of a tile; 0: all.
struct TileShape {
  std::size_t across, along;
};
/// Tiles of usual lengths, and of whole rows or columns, whose number is that of the stored scales.
[[nodiscard]] std::vector<TileShape> shapes_of_as_many_tiles(const SearchFacts& facts);

/// Whether codes may be of that format, by what is known of them.
[[nodiscard]] bool may_be_codes(const SearchFacts& facts, const Format& format);

/// The expected recipe, the named ones, and casts without scale by each profile.
[[nodiscard]] std::vector<Candidate> plain_candidates(const SearchFacts& facts, const DiagnoseOptions& options);

/// Whether small numbers that are added, and floors, are among variants: there are many.
enum class Numbers : std::uint8_t { with, without, alone };

/// Calls f for each candidate that has one change or departure more.
void for_each_variant(const Candidate& candidate, const SearchFacts& facts, const std::function<void(Candidate)>& f,
                      Numbers numbers = Numbers::with);

/// The same for the further numbers of departures whose stored scales are those of the candidate.
void for_each_further_number(const Candidate& candidate, const SearchFacts& facts,
                             const std::function<void(Candidate)>& f);

/// The candidate with one departure more.
[[nodiscard]] Candidate with_deviation(Candidate candidate, const Deviation& deviation, double cost);

/// The changes and departures of a candidate, made to another plain one instead of `base`, from which they are told.
/// Nothing where the other has not what they change.
[[nodiscard]] std::optional<Candidate> moved_to(const Candidate& other, const Candidate& candidate,
                                                const Candidate& base);

/// Joins hypotheses that are the same, in the order of their costs.
void join_equals(std::vector<Candidate>& candidates);

}  // namespace fp8lab::doctor
