// SPDX-License-Identifier: Apache-2.0
// Departures of a GEMM: each that changes one of these GEMMs is planted by its row, and the doctor names it.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "fp8lab/doctor/diagnose_gemm.hpp"
#include "gemm/hypotheses.hpp"
#include "gemm/problem.hpp"
#include "quantize/departure.hpp"
#include "reference/doctor/hand_gemm.hpp"
#include "support.hpp"

using namespace fp8lab;
using namespace fp8lab::doctor;

namespace {

constexpr std::size_t right_rows = 20, right_columns = 24, right_depth = 512;

/// A GEMM that is right.
struct RightGemm {
  std::string_view name;
  tests::HandGemm given;
  GemmRecipe recipe;

  [[nodiscard]] GemmOutput output(const std::vector<std::uint32_t>& words) const {
    return {.format = binary32,
            .words = std::as_bytes(std::span(words)),
            .c = given.c,
            .bias = given.bias,
            .scale_out = given.scale_out};
  }
  /// Its words, or with a departure from it.
  [[nodiscard]] std::vector<std::uint32_t> words(const std::vector<FoundDeparture>& departures) const {
    const std::vector<std::uint32_t> none(given.rows * given.columns);
    std::vector<std::uint32_t> all;
    for (const std::uint64_t word :
         gemm_words({.recipe = recipe, .departures = departures}, given.left(), given.right(), output(none))) {
      all.push_back(static_cast<std::uint32_t>(word));
    }
    return all;
  }
};

std::vector<float> signed_draws(std::size_t count, std::uint64_t seed) {
  std::vector<float> all = tests::drawn_scales(count, seed);
  for (std::size_t i = 0; i < count; ++i) all[i] *= tests::random_bits(seed + 1, i) % 2 == 0 ? 1000.0F : -1000.0F;
  return all;
}

std::vector<std::uint8_t> power_codes(std::size_t count, std::uint64_t seed) {
  std::vector<std::uint8_t> codes(count);
  for (std::size_t i = 0; i < count; ++i) codes[i] = static_cast<std::uint8_t>(122 + tests::random_bits(seed, i) % 9);
  return codes;
}

void set_tensor_scales(RightGemm& gemm) {
  gemm.given.scale_a = 0.0137F;
  gemm.given.scale_b = 1.731F;
  gemm.recipe.scale_order = ScaleOrder::scales_first;
  gemm.recipe.tensor_scales = TensorScaleUse::with_rows;
}

/// GEMMs with scales of each kind, and with what an epilogue adds.
std::vector<RightGemm> right_gemms() {
  const tests::HandGemm codes(31, right_depth, right_rows, right_columns);
  std::vector<RightGemm> all;
  const GemmRecipe promoted{.model = hopper_wgmma_fp8, .promote_k = 128};
  RightGemm tensors{"scales of tensors, c, a bias and a scale of the output", codes, promoted};
  set_tensor_scales(tensors);
  tensors.given.c = signed_draws(right_rows * right_columns, 300);
  tensors.given.bias = signed_draws(right_columns, 400);
  tensors.given.scale_out = 0.37F;
  all.push_back(tensors);
  RightGemm scaled_rows{"scales of rows", codes, promoted};
  scaled_rows.given.row_a = tests::drawn_scales(right_rows, 500);
  scaled_rows.given.row_b = tests::drawn_scales(right_columns, 600);
  all.push_back(scaled_rows);
  RightGemm tiles{"scales of tiles", codes, promoted};
  tiles.given.tile_a = tests::drawn_scales(right_rows * right_depth / 128, 700);
  tiles.given.tile_b = tests::drawn_scales(right_depth / 128, 800);
  all.push_back(tiles);
  RightGemm blocks{"scales of blocks", codes, {.model = blackwell_mxf8}};
  blocks.given.block = 32;
  blocks.given.block_a = power_codes(right_rows * right_depth / 32, 900);
  blocks.given.block_b = power_codes(right_columns * right_depth / 32, 1000);
  all.push_back(blocks);
  RightGemm both = blocks;
  both.name = "scales of blocks and tensors";
  set_tensor_scales(both);
  all.push_back(both);
  constexpr std::size_t side = 128;  // blocks of 4 x 128, which the swizzled layout has in other places
  RightGemm swizzled{"scales of blocks that may be swizzled", tests::HandGemm(37, side, side, side), blocks.recipe};
  swizzled.given.block = 32;
  swizzled.given.block_a = power_codes(side * side / 32, 1100);
  swizzled.given.block_b = power_codes(side * side / 32, 1200);
  all.push_back(swizzled);
  return all;
}

/// The words of the departure from it, where it is searched there and changes something.
std::optional<std::vector<std::uint32_t>> departed_words(const RightGemm& right,
                                                         const std::vector<std::uint32_t>& meant,
                                                         const GemmDeparture& departure) {
  const Operand a = right.given.left();
  const Operand b = right.given.right();
  const GemmOutput out = right.output(meant);
  if (!is_searched(departure, GemmProblem(a, b, out).facts_for(right.recipe.model))) return std::nullopt;
  GemmCandidate own{.recipe = right.recipe, .departure = &departure, .depth = 128};
  if (departure.reading.products == ProductReading::descending) own.depth = 64;  // half of what is promoted
  if (departure.reading.promotion == PromotionReading::kept) own.blocks = {0, 1, 1, 2, 3};
  if (departure.reading.promotion == PromotionReading::never_cleared) own.blocks = {0, 0, 1, 0, 1, 2, 0, 1, 2, 3};
  const std::vector<std::uint32_t> changed = right.words(departures_of(own));
  if (changed == meant) return std::nullopt;
  return changed;
}

/// Whether it cannot be planted here: its numbers follow from an output, or it changes no bit where scales of blocks
/// are powers of two.
bool is_left_out(const GemmDeparture& one) {
  return one.reading.blocks_as_tiles || one.reading.scaled_by != ScaledBy::nothing || one.reading.stale_start ||
         (one.reading.products == ProductReading::blocks && one.reading.promotion == PromotionReading::own);
}

/// Whether what explains all and is as plausible as the first has the departure.
bool tells_departure(const GemmDiagnosis& found, const GemmDeparture& departure) {
  return std::any_of(found.explanations.begin(),
                     found.explanations.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(found.tied, 1)),
                     [&](const GemmExplanation& one) {
                       return std::ranges::any_of(one.departures,
                                                  [&](const auto& own) { return own.row == &departure; });
                     });
}

}  // namespace

TEST_CASE("Each departure of a GEMM that is searched is named where it is planted") {
  const std::size_t every = tests::sanitized || !tests::exhaustive() ? 24 : 1;
  const std::vector<RightGemm> gemms = right_gemms();
  std::vector<std::vector<std::uint32_t>> meant;
  for (const RightGemm& one : gemms) meant.push_back(one.words({}));
  std::size_t number = 0;
  for (const GemmDeparture& departure : gemm_departures()) {
    if (is_left_out(departure) || number++ % every != 0) continue;
    INFO(departure.name);
    std::size_t times = 0;
    for (std::size_t i = 0; i < gemms.size() && times == 0; ++i) {
      const RightGemm& right = gemms[i];
      const auto words = departed_words(right, meant[i], departure);
      if (!words) continue;
      ++times;
      INFO(right.name);
      const GemmDiagnosis found =
          diagnose_gemm(right.given.left(), right.given.right(), right.output(*words), {.expected = right.recipe});
      INFO(found.verdict);
      CHECK(found.explained());
      CHECK_FALSE(found.correct());
      CHECK(tells_departure(found, departure));
    }
    CHECK(times == 1);
  }
}

TEST_CASE("Departures of a GEMM are rows of the table: of a, of b and of both where they are of scales") {
  // These names are in users' programs, and of two that cost as much the first is ranked first: more may come among
  // them.
  constexpr std::array<std::string_view, 110> known{"a_transposed",
                                                    "b_transposed",
                                                    "out_transposed",
                                                    "scale_a_missing",
                                                    "scale_b_missing",
                                                    "scales_missing",
                                                    "scale_a_twice",
                                                    "scale_b_twice",
                                                    "scales_twice",
                                                    "scale_a_inverted",
                                                    "scale_b_inverted",
                                                    "scales_inverted",
                                                    "scale_a_of_previous_tile",
                                                    "scale_b_of_previous_tile",
                                                    "scales_of_previous_tile",
                                                    "scale_a_of_next_tile",
                                                    "scale_b_of_next_tile",
                                                    "scales_of_next_tile",
                                                    "tensor_scale_a_missing",
                                                    "tensor_scale_b_missing",
                                                    "tensor_scales_missing",
                                                    "block_scales_a_missing",
                                                    "block_scales_b_missing",
                                                    "block_scales_missing",
                                                    "scale_layout_a",
                                                    "scale_layout_b",
                                                    "scale_layouts",
                                                    "c_missing",
                                                    "c_transposed",
                                                    "bias_missing",
                                                    "addends_missing",
                                                    "bias_along_rows",
                                                    "bias_of_next_column",
                                                    "bias_in_each_range",
                                                    "bias_of_previous_column",
                                                    "scale_out_missing",
                                                    "scale_out_inverted",
                                                    "rows_exchanged",
                                                    "columns_exchanged",
                                                    "scales_a_without_mantissa",
                                                    "scales_b_without_mantissa",
                                                    "scales_without_mantissa",
                                                    "codes_a_as_other_format",
                                                    "codes_b_as_other_format",
                                                    "codes_as_other_format",
                                                    "scales_a_halved",
                                                    "scales_b_halved",
                                                    "scales_halved",
                                                    "operand_rows_a_exchanged",
                                                    "operand_rows_b_exchanged",
                                                    "operand_rows_exchanged",
                                                    "scale_a_of_previous_row",
                                                    "scale_b_of_previous_row",
                                                    "scales_of_previous_row",
                                                    "scale_a_of_next_row",
                                                    "scale_b_of_next_row",
                                                    "scales_of_next_row",
                                                    "first_of_four_scales_a",
                                                    "first_of_four_scales_b",
                                                    "first_of_four_scales",
                                                    "scale_words_a_as_bytes",
                                                    "scale_words_b_as_bytes",
                                                    "scale_words_as_bytes",
                                                    "scales_a_stored_turned",
                                                    "scales_b_stored_turned",
                                                    "scales_stored_turned",
                                                    "scales_a_read_turned",
                                                    "scales_b_read_turned",
                                                    "scales_read_turned",
                                                    "scales_a_of_other",
                                                    "scales_b_of_other",
                                                    "scales_of_other",
                                                    "row_scale_a_of_next",
                                                    "row_scale_b_of_next",
                                                    "row_scales_of_next",
                                                    "row_scale_a_of_previous",
                                                    "row_scale_b_of_previous",
                                                    "row_scales_of_previous",
                                                    "scales_a_from_next_tile",
                                                    "scales_b_from_next_tile",
                                                    "scales_from_next_tile",
                                                    "scales_a_from_previous_tile",
                                                    "scales_b_from_previous_tile",
                                                    "scales_from_previous_tile",
                                                    "scales_a_from_next_row",
                                                    "scales_b_from_next_row",
                                                    "scales_from_next_row",
                                                    "scales_a_from_previous_row",
                                                    "scales_b_from_previous_row",
                                                    "scales_from_previous_row",
                                                    "scales_a_of_first_tile",
                                                    "scales_b_of_first_tile",
                                                    "scales_of_first_tile",
                                                    "block_scales_after_sums",
                                                    "output_scaled",
                                                    "codes_a_as_fnuz",
                                                    "codes_b_as_fnuz",
                                                    "codes_as_fnuz",
                                                    "k_descending",
                                                    "promotion_missed",
                                                    "accumulator_kept",
                                                    "accumulator_never_cleared",
                                                    "tail_dropped",
                                                    "head_dropped",
                                                    "head_twice",
                                                    "tail_twice",
                                                    "stale_tile",
                                                    "k_blocks",
                                                    "rows_scaled",
                                                    "columns_scaled"};
  std::set<std::string> words;
  std::set<std::string> names;
  std::size_t number = 0;
  for (const GemmDeparture& one : gemm_departures()) {
    INFO(one.name);
    if (number < known.size() && one.name == known[number]) ++number;
    CHECK(names.insert(one.name).second);
    CHECK(words.insert(one.words).second);
    CHECK((one.row->operand.is_searched != nullptr) == (one.of_a || one.of_b));
    CHECK(&find_gemm_departure(one.name) == &one);
  }
  INFO("the first that is gone, or not in its place: " << (number < known.size() ? known[number] : ""));
  CHECK(number == known.size());
}
