// SPDX-License-Identifier: Apache-2.0
// What the search remembers of hypotheses, and takes over from one for another.
#include "quantize/suspect.hpp"

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "quantize/named_rows.hpp"
#include "quantize/offered.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using doctor::Hypothesis;
using doctor::Side;
using doctor::Suspect;

constexpr std::size_t rows_of_suspects = 96;
constexpr std::size_t columns_of_suspects = 256;

std::vector<float> elements_of_suspects() {
  std::mt19937 random(11);
  std::normal_distribution<float> numbers;
  std::vector<float> x(rows_of_suspects * columns_of_suspects);
  for (float& one : x) one = numbers(random);
  return x;
}

Hypothesis named(std::string_view name) { return {.base = std::string(name), .recipe = find_recipe(name).recipe}; }

TEST_CASE("what contradicts a hypothesis is remembered by side, recipe and departures") {
  const std::vector<float> x = elements_of_suspects();
  const MatrixView view(std::span<const float>(x), rows_of_suspects, columns_of_suspects);
  const std::vector<Side> sides{{doctor::Source(view, 1), {}, {}}, {doctor::Source(view, 1), {}, {}}};
  std::vector<Hypothesis> all{named("te_current_scaling"), named("te_mxfp8")};
  for (const doctor::Deviation& one :
       {doctor::Deviation{&doctor::rows::scale_stale, 0, 2}, doctor::Deviation{&doctor::rows::scale_stale, 0, 3},
        doctor::Deviation{&doctor::rows::scale_stale, 1, 2}, doctor::Deviation{&doctor::rows::scale_stale, 0, 2, 1}}) {
    all.push_back(all.front());
    all.back().deviations.push_back(one);
  }
  // One name and one change, but another recipe.
  all.push_back(all.front());
  all.back().recipe.format = e5m2;
  doctor::OfferedBefore offered;
  const auto number_of = [](std::size_t side, std::size_t i) { return 100 * side + i; };
  for (std::size_t side = 0; side < sides.size(); ++side) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      doctor::Contradictions& known = *offered.of(sides[side], all[i]);
      CHECK(!known.applies);
      CHECK(known.of_piece(3, [&] { return number_of(side, i); }) == number_of(side, i));
      known.applies = true;
    }
  }
  for (std::size_t side = 0; side < sides.size(); ++side) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      doctor::Contradictions& known = *offered.of(sides[side], all[i]);
      CHECK(known.applies);
      CHECK(known.of_piece(3, [] { return std::uint64_t{7777}; }) == number_of(side, i));
      CHECK(known.of_piece(2, [] { return std::uint64_t{8888}; }) == 8888);
    }
  }
}

TEST_CASE("codes that equal casts leave unexplained are those of a comparison") {
  const std::vector<float> x = elements_of_suspects();
  const MatrixView view(std::span<const float>(x), rows_of_suspects, columns_of_suspects);
  for (const std::string_view written : {"te_current_scaling", "deepseek_v3_2025", "te_mxfp8"}) {
    Quantized q = quantize(view, find_recipe(written).recipe);
    for (std::size_t i = 0; i < q.codes.size(); i += 1009) q.codes[i] ^= 1;
    const auto scales =
        q.scale_codes.empty() ? std::as_bytes(std::span(q.scale_inv)) : std::as_bytes(std::span(q.scale_codes));
    const auto type = q.scale_codes.empty() ? binary32 : e8m0;
    const doctor::StoredDump dump(view,
                                  {.codes = q.codes, .format = e4m3, .scales = {.format = type, .bytes = scales}});
    const Side side{doctor::Source(view, 2), {}, {}};
    doctor::ComparedCasts known;
    // Recipes with tiles of one shape, and other factors, casts and ways to meet them; some are equal.
    std::vector<Hypothesis> all;
    for (const std::string_view name :
         {"te_current_scaling", "torchao_tensorwise", "flax_fp8", "vllm_input_to_float8", "deepseek_v3_2024",
          "deepseek_v3_2025", "vllm_group_ue8m0", "te_mxfp8", "te_current_scaling_e5m2", "te_current_scaling"}) {
      all.push_back(named(name));
    }
    for (const float factor : {64.0F, 65.0F, 64.0F}) {
      all.push_back(named("te_current_scaling"));
      all.back().deviations.push_back({&doctor::rows::scale_stale, 0, factor});
    }
    for (const Hypothesis& one : all) {
      Suspect alone{.candidate = {one}, .side = &side};
      Suspect taken = alone;
      doctor::verify(alone, dump);
      doctor::verify(taken, dump, known);
      INFO(written << " as " << describe(one));
      CHECK(taken.codes == alone.codes);
      CHECK(taken.scales == alone.scales);
      CHECK(taken.examples == alone.examples);
      CHECK(taken.scale_examples == alone.scale_examples);
      CHECK(taken.unexplained.count == alone.unexplained.count);
      CHECK(std::pair(taken.unexplained.first, taken.unexplained.last) ==
            std::pair(alone.unexplained.first, alone.unexplained.last));
    }
  }
}

TEST_CASE("a comparison that ended early is not taken for a whole one") {
  constexpr std::size_t rows = 1024;  // several pieces of a thread
  const std::vector<float> x(rows * columns_of_suspects, 1.0F);
  const MatrixView view(std::span<const float>(x), rows, columns_of_suspects);
  Quantized q = quantize(view, find_recipe("te_current_scaling").recipe);
  for (std::size_t i = 0; i < q.codes.size(); i += 100) q.codes[i] ^= 1;
  const doctor::StoredDump dump(view, {.codes = q.codes, .format = e4m3});
  const Side side{doctor::Source(view, 1), {}, {}};
  doctor::ComparedCasts known;
  Suspect early{.candidate = {named("te_current_scaling")}, .side = &side};
  Suspect whole = early;
  doctor::verify(early, dump, known, 1);
  REQUIRE(early.codes >= 1);
  REQUIRE(early.codes < (q.codes.size() + 99) / 100);
  doctor::verify(whole, dump, known);
  CHECK(whole.codes == (q.codes.size() + 99) / 100);
  // What is known of a whole one is taken over, and ends nothing early.
  Suspect again = early;
  doctor::verify(again, dump, known, 1);
  CHECK(again.codes == whole.codes);
}

}  // namespace
}  // namespace fp8lab::tests
