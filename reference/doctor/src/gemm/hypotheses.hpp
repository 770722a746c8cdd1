// SPDX-License-Identifier: Apache-2.0
// Hypotheses on how a GEMM came to its output.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "fp8lab/doctor/diagnose_gemm.hpp"
#include "gemm/element_gemm.hpp"

namespace fp8lab::doctor {

/// The facts that hypotheses must go with: sizes, which scales and addends there are, and the type of the output.
struct GemmFacts : GemmGiven {
  std::size_t rows = 0, columns = 0, depth = 0;
  bool scales_a = false;  ///< float32 scales of a that are not 1
  bool scales_b = false;
  std::size_t block = 0;                                ///< elements that share a scale of the tensor core; 0: none
  bool block_codes = false;                             ///< these are codes of the operands, and not scales of tiles
  bool e4m3_a = false, e4m3_b = false;                  ///< codes of the operands
  bool other_format_a = false, other_format_b = false;  ///< they may be taken for another format
  bool row_scales_a = false, row_scales_b = false;
  bool power_blocks = false;                            ///< they are powers of two, without a float32 scale beside them
  bool other_layout_a = false, other_layout_b = false;  ///< has_other_layout()
  std::vector<StepType> addend_types = {StepType::as_given};  ///< that differ for these numbers
  Format format = binary32;                                   ///< of the output
  bool overflowed = false;  ///< the output has its largest number, an infinity or a NaN
};

/// How far a search goes.
enum class GemmSearch : std::uint8_t {
  usual,         ///< K ascending, ZeroRule::floor
  orders,        ///< of K, other than ascending; and promotions within a tile
  zeros,         ///< rules for zeros other than floor
  rounded_sums,  ///< ranges, or the accumulator, are rounded to 16 bits before they are added or scaled
};

/// Whether a departure changes something for such operands.
[[nodiscard]] bool is_searched(const GemmDeparture& departure, const GemmFacts& facts);
/// The departure that drops products from a depth on.
[[nodiscard]] const GemmDeparture& dropped_tail();
/// Both departures, as one that has no row of the table; null where they change the same.
[[nodiscard]] const GemmDeparture* both_departures(const GemmDeparture& first, const GemmDeparture& second);
/// The departures that it is made of: both, or itself.
[[nodiscard]] std::vector<const GemmDeparture*> parts_of(const GemmDeparture& departure);
/// The row of the table that reads products, or promotions, so.
[[nodiscard]] const GemmDeparture& row_of_products(ProductReading products,
                                                   PromotionReading promotion = PromotionReading::own);
/// The row of a tile that goes on from another one.
[[nodiscard]] const GemmDeparture& stale_tile();
/// The departure of elements that are scaled so.
[[nodiscard]] const GemmDeparture& scaled_elements(ScaledBy by);
/// Products that a GEMM of that depth adds which drops or repeats `count` of them.
[[nodiscard]] std::size_t depth_with(ProductReading reading, std::size_t depth, std::size_t count,
                                     std::size_t blocks = 0);
/// How a GEMM with that departure reads what it is given; none: as it is meant.
[[nodiscard]] const GemmReading& reading_of(const GemmDeparture* departure);

/// A hypothesis about a GEMM while it is looked at.
struct GemmCandidate {
  GemmRecipe recipe;                         ///< resolved()
  const GemmDeparture* departure = nullptr;  ///< none: it is as it is meant
  std::size_t depth = 0;                     ///< of a departure that drops or repeats products: that of FoundDeparture
  std::vector<float> factors = {};           ///< of a departure that scales elements
  std::vector<std::size_t> blocks = {};      ///< of K, or a tile and its source: as FoundDeparture has them
  const MmaModel* model = nullptr;           ///< that of the recipe, as an entry of its table
  std::size_t matches = 0;                   ///< elements that it explains

  /// Whether both are the same hypothesis.
  [[nodiscard]] bool is_like(const GemmCandidate& other) const {
    return departure == other.departure && depth == other.depth && factors == other.factors && blocks == other.blocks &&
           recipe == other.recipe;
  }
};

/// All hypotheses about that model with that departure, or none. (Departures that do not go with the facts give none.)
/// `number` are products that count, or where the departure drops others or repeats some, how many; of a list of
/// `blocks` of K, those in each.
[[nodiscard]] std::vector<GemmCandidate> gemm_hypotheses(const MmaModel& model, const GemmFacts& facts,
                                                         const GemmDeparture* departure, std::size_t number,
                                                         GemmSearch search = GemmSearch::usual,
                                                         std::span<const std::size_t> blocks = {});
/// Gives a candidate the departures of an explanation. Throws std::invalid_argument where they do not go together.
void take_departures(GemmCandidate& candidate, std::span<const FoundDeparture> departures);
/// The departures of a candidate, with their numbers.
[[nodiscard]] std::vector<FoundDeparture> departures_of(const GemmCandidate& candidate);

/// Whether the result is rounded once, to the nearest output.
[[nodiscard]] bool is_rounded_once(const GemmRecipe& recipe);

/// How far from usual a hypothesis is: what explains equally much is ranked by it.
[[nodiscard]] double strangeness(const GemmCandidate& candidate);

}  // namespace fp8lab::doctor
