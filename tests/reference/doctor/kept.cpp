// SPDX-License-Identifier: Apache-2.0
// What the doctor keeps of one hypothesis for others: the scales of a rule, and what was refuted.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "quantize/kernel_model.hpp"
#include "quantize/named_rows.hpp"
#include "quantize/suspect.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using doctor::Hypothesis;
using doctor::KernelModel;
using doctor::Source;

constexpr std::size_t rows_of_kept = 128;
constexpr std::size_t columns_of_kept = 256;

std::vector<float> elements_of_kept() {
  std::mt19937 random(21);
  std::normal_distribution<float> numbers;
  std::vector<float> x(rows_of_kept * columns_of_kept);
  for (float& one : x) one = numbers(random);
  return x;
}

Hypothesis kept_by_name(std::string_view name) {
  return {.base = std::string(name), .recipe = find_recipe(name).recipe};
}

/// The same, of which some rows have amaxes at the ends of the range, or special ones.
std::vector<float> elements_of_all_ranges() {
  std::vector<float> x = elements_of_kept();
  const std::array factors{0x1p-149F, 0x1p-127F, 0x1p-126F, 0x1p-100F, 0x1p100F, 0x1p125F, 0.0F, inf, nan};
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const auto row = std::span(x).subspan(3 * i * columns_of_kept, columns_of_kept);
    for (float& one : row.last(columns_of_kept - 32)) one *= factors[i];
  }
  return x;
}

/// All recipes, those with tiles of one shape beside each other, and NVFP4 under scales of the tensor that are given.
std::vector<Hypothesis> hypotheses_of_scales() {
  std::vector<Hypothesis> all;
  for (const NamedRecipe& one : recipes()) all.push_back({.base = std::string(one.name), .recipe = one.recipe});
  for (const float scale : {100.0F, 200.0F, 100.0F}) {
    for (const std::uint64_t place : {0, 1}) {
      all.push_back(kept_by_name("te_nvfp4"));
      all.back().deviations.push_back({&doctor::rows::tensor_scale_stale, place, place == 1 ? 1 / scale : scale});
    }
  }
  const auto shape = [](const Hypothesis& one) { return std::pair(one.recipe.tile_across, one.recipe.tile_along); };
  std::ranges::stable_sort(all, {}, shape);
  return all;
}

/// Codes by a hypothesis, and which of the stored scales differ: once all scales are made, or as a sample asks.
std::pair<std::vector<std::uint8_t>, std::vector<std::uint8_t>> made_by(const Source& source, const Hypothesis& own,
                                                                        const doctor::StoredDump& dump,
                                                                        bool is_sample = false) {
  const KernelModel model(source, own, &dump);
  if (!model.applies()) return {};
  if (!is_sample) model.complete();
  std::vector<std::uint8_t> codes(source.size());
  std::vector<std::uint8_t> others(source.size());
  for (std::size_t row = 0; row < source.rows(); ++row) {
    const std::size_t at = row * source.columns();
    model.predict({row, 0, source.columns()}, std::span(codes).subspan(at, source.columns()),
                  std::span(others).subspan(at, source.columns()));
  }
  return {std::move(codes), model.scale_grid().is_wrong};
}

TEST_CASE("scales that are kept of a rule are those of the rule, whatever was asked before") {
  const std::vector<float> x = elements_of_all_ranges();
  const MatrixView view(std::span<const float>(x), rows_of_kept, columns_of_kept);
  const std::vector<Hypothesis> all = hypotheses_of_scales();
  std::size_t compared = 0;
  // Packed codes are of 4 bits, others of any.
  for (const std::string_view written : {"te_nvfp4", "te_mxfp8"}) {
    const Recipe& recipe = find_recipe(written).recipe;
    const Quantized q = quantize(view, recipe);
    const doctor::StoredDump dump(
        view,
        {.codes = q.codes, .format = recipe.format, .scales = {.bytes = std::as_bytes(std::span(q.scale_codes))}});
    const Source shared(view, 1);
    for (const bool backward : {false, true}) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        const Hypothesis& own = all[backward ? all.size() - 1 - i : i];
        CAPTURE(written, describe(own));
        const auto alone = made_by(Source(view, 1), own, dump);
        CHECK(made_by(shared, own, dump, true) == alone);  // from what others made, if anything
        CHECK(made_by(shared, own, dump) == alone);
        CHECK(made_by(shared, own, dump) == alone);  // from what was kept just now
        compared += alone.first.empty() ? 0 : 1;
      }
    }
  }
  CHECK(compared > 2 * all.size());
}

TEST_CASE("what rounding decides is counted as each element says") {
  const std::vector<float> x = elements_of_kept();
  const MatrixView view(std::span<const float>(x), rows_of_kept, columns_of_kept);
  Hypothesis own = kept_by_name("te_nvfp4");
  const Quantized q = quantize(view, own.recipe);
  own.recipe.cast.rounding = Rounding::stochastic;
  const doctor::StoredDump dump(
      view,
      {.codes = q.codes, .format = own.recipe.format, .scales = {.bytes = std::as_bytes(std::span(q.scale_codes))}});
  const Source source(view, 1);
  const KernelModel model(source, own, &dump);
  REQUIRE(model.applies());
  constexpr std::array magnitudes{0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  const doctor::Piece piece{5, 0, columns_of_kept};
  std::vector<float> scaled(columns_of_kept);
  model.scaled(piece, scaled);
  doctor::Randomness expected;
  for (std::size_t i = 0; i < scaled.size(); ++i) {
    const double magnitude = std::abs(static_cast<double>(scaled[i]));
    if (magnitude >= magnitudes.back()) continue;
    const auto* const above = std::ranges::upper_bound(magnitudes, magnitude);
    const double part = (magnitude - *(above - 1)) / (*above - *(above - 1));
    if (part == 0) continue;
    const auto cut = static_cast<std::int64_t>(part * 1024);
    const bool went_down = magnitudes[dump.codes[piece.row * columns_of_kept + i] & 7U] == *(above - 1);
    const std::int64_t bias = (went_down ? 0 : 1024) - cut;
    const std::int64_t variance = cut * (1024 - cut);
    const std::int64_t from_middle = cut - 512;
    expected.add({1, bias, bias * from_middle, variance, variance * from_middle * from_middle});
  }
  doctor::PartsCut parts;
  model.add_parts_cut(piece, parts);
  const doctor::Randomness all = parts.randomness();
  CHECK(expected.inexact > 200);
  CHECK(all.inexact == expected.inexact);
  CHECK(all.bias == expected.bias);
  CHECK(all.slope == expected.slope);
  CHECK(all.bias_variance == expected.bias_variance);
  CHECK(all.slope_variance == expected.slope_variance);
}

TEST_CASE("codes that rounding decides are unexplained where they are not random") {
  const std::vector<float> x = elements_of_kept();
  const MatrixView view(std::span<const float>(x), rows_of_kept, columns_of_kept);
  Hypothesis own = kept_by_name("te_nvfp4");
  const Quantized q = quantize(view, own.recipe);  // to nearest
  const doctor::StoredDump dump(
      view,
      {.codes = q.codes, .format = own.recipe.format, .scales = {.bytes = std::as_bytes(std::span(q.scale_codes))}});
  std::uint64_t inexact = 0;
  const doctor::Side side{Source(view, 1), {}, {}};
  const KernelModel model(side.source, own, &dump);
  std::vector<float> scaled(columns_of_kept);
  for (std::size_t row = 0; row < rows_of_kept; ++row) {
    model.scaled({row, 0, columns_of_kept}, scaled);
    for (const float one : scaled) {
      const float magnitude = std::abs(one);
      const float rounded = decode(e2m1, encode(e2m1, {.rounding = Rounding::toward_zero}, magnitude));
      inexact += magnitude < 6 && rounded != magnitude ? 1 : 0;
    }
  }
  own.recipe.cast.rounding = Rounding::stochastic;
  doctor::Suspect suspect{.candidate = {own}, .side = &side};
  verify(suspect, dump);
  CHECK(inexact > x.size() / 2);
  CHECK(suspect.codes == inexact);
}

TEST_CASE("what was refuted is known by side, recipe, departures and how much it leaves") {
  const std::vector<float> x = elements_of_kept();
  const MatrixView view(std::span<const float>(x), rows_of_kept, columns_of_kept);
  const std::vector<doctor::Side> sides{{Source(view, 1), {}, {}}, {Source(view, 1), {}, {}}};
  doctor::Suspect own{.candidate = {kept_by_name("te_mxfp8")}, .side = &sides[0]};
  own.candidate.hypothesis.deviations.push_back({&doctor::rows::scale_stale, 1, 2});
  doctor::RefutedBefore known;
  CHECK(!known.leaves(own, 1));
  known.add(own, 100);
  CHECK(known.leaves(own, 100));
  CHECK(known.leaves(own, 1));
  CHECK(!known.leaves(own, 101));  // which it may leave less than
  doctor::Suspect other = own;
  other.side = &sides[1];
  CHECK(!known.leaves(other, 100));
  other = own;
  other.candidate.hypothesis.recipe.format = e5m2;
  CHECK(!known.leaves(other, 100));
  for (const doctor::Deviation& one :
       {doctor::Deviation{&doctor::rows::scale_as_stored, 1, 2}, doctor::Deviation{&doctor::rows::scale_stale, 2, 2},
        doctor::Deviation{&doctor::rows::scale_stale, 1, 3}, doctor::Deviation{&doctor::rows::scale_stale, 1, 2, 1}}) {
    other = own;
    other.candidate.hypothesis.deviations.back() = one;
    CHECK(!known.leaves(other, 100));
  }
  other = own;
  other.candidate.hypothesis.deviations.clear();
  CHECK(!known.leaves(other, 100));
  // One name, one recipe and the same departures: what else is told of a suspect does not matter.
  other = own;
  other.codes = 7;
  other.candidate.cost = 3;
  CHECK(known.leaves(other, 100));
  // What leaves more is known once it was seen to.
  known.add(own, 200);
  CHECK(known.leaves(own, 101));
  CHECK(!known.leaves(own, 201));
}

}  // namespace
}  // namespace fp8lab::tests
