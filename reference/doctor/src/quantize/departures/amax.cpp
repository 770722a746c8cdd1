// SPDX-License-Identifier: Apache-2.0
// Departures of the amax: which elements count in it, and what is made of it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fp8lab/reference/scaling/facts.hpp"
#include "quantize/departures/shared.hpp"
#include "quantize/landmarks.hpp"
#include "quantize/scales_case.hpp"

namespace fp8lab::doctor {
namespace {

template <Narrowing narrowing>
void narrow_counted(InputNarrowing& input, const Deviation& /*own*/) {
  input.counted = std::max(input.counted, narrowing);
}

template <AmaxPart part>
void count_part(AmaxKey& key, const Deviation& /*own*/, std::ptrdiff_t /*along*/) {
  key.part = part;
}

std::ptrdiff_t number_of(const Deviation& own) { return static_cast<std::ptrdiff_t>(own.value); }

bool has_tiles_or_rows(const SearchCase& one) { return one.has_tiles() || one.recipe().tile_across == 1; }
bool has_tiles_along(const SearchCase& one) { return one.has_tiles(); }

/// A vector of 8 elements or more is left out; half of a tile has a name of its own.
std::vector<Deviation> parts_of_tile(const SearchCase& one) {
  std::vector<Deviation> all;
  const std::size_t along = one.recipe().tile_along;
  for (std::size_t count = 8; count < along; count += 8) {
    if (count * 2 != along) all.push_back({.value = static_cast<float>(count)});
  }
  return all;
}

/// How many elements of a tile count. Of a row, `place` to `last` do the same.
void tell_part(TextStream& text, const Deviation& own, const Hypothesis& hypothesis) {
  text << ' ' << own.value;
  if (hypothesis.recipe.tile_along != 0) {
    text << " of " << hypothesis.recipe.tile_along << " elements";
    return;
  }
  text << (hypothesis.direction == Direction::columnwise ? " elements of each column" : " elements of each row");
  if (own.place != own.last) text << " (" << own.place << " to " << own.last << " make the same scales)";
}

/// How many elements of the tensor count in its amax. `place` to `last` do the same.
void tell_first(TextStream& text, const Deviation& own, const Hypothesis& /*hypothesis*/) {
  text << ' ' << static_cast<std::uint64_t>(own.value) << " elements";
  if (own.place != own.last) text << " (" << own.place << " to " << own.last << " make the same scale)";
}

bool is_part_of_tile(const ModelCase& model, const Deviation& own) {
  const std::size_t along = model.recipe.tile_along == 0 ? model.source.columns() : model.recipe.tile_along;
  return own.value < static_cast<float>(along);
}

// What stored scales say of the elements that count.

/// Numbers of elements: [lowest, highest], none where lowest is the larger one.
struct Counts {
  std::size_t lowest, highest;
};

/// How many of the first elements have an amax that makes their scale.
template <typename MakesScale>
Counts counts_of_first(std::span<const float> x, const Landmarks& landmarks, const MakesScale& makes_scale) {
  std::size_t lowest = 0;
  for (const std::uint64_t i : landmarks.records) {
    const bool makes = makes_scale(std::abs(x[i]));
    if (lowest != 0 && !makes) return {lowest, i};
    if (lowest == 0 && makes) lowest = i + 1;
  }
  return lowest == 0 ? Counts{1, 0} : Counts{lowest, x.size()};
}

/// The multiple of the largest power of two.
std::size_t roundest(const Counts& counts) {
  std::size_t power = 1;
  while (counts.highest / (power * 2) * (power * 2) >= counts.lowest) power *= 2;
  return counts.highest / power * power;
}

/// Whether the amax of each whole row is finite and makes its scale, and a larger amax makes no smaller one: then no
/// element of a row says that it does not count.
bool whole_rows_make_scales(const ScalesCase& one) {
  if (!has_rising_scales(one.model.recipe())) return false;
  for (std::size_t row = 0; row < one.source.rows(); ++row) {
    const std::optional<std::uint32_t> word = one.model.word_there(row, 0);
    const float amax = one.model.amax_at(row, 0);
    if (!word || !std::isfinite(amax) || !one.model.stores(amax, *word)) return false;
  }
  return true;
}

/// Elements of each row from the first, or to the last one, with an amax that makes its scale, where a row is a tile.
template <bool is_backward>
std::optional<Suggestion> part_of_rows(const ScalesCase& one) {
  const Source& source = one.source;
  const std::size_t columns = source.columns();
  if (one.model.recipe().tile_across != 1 || one.model.recipe().tile_along != 0 || source.rows() < 2)
    return std::nullopt;
  if (whole_rows_make_scales(one)) return std::nullopt;
  Counts all{1, columns};
  std::vector<float> turned;
  for (std::size_t row = 0; row < source.rows() && all.lowest <= all.highest; ++row) {
    const std::optional<std::uint32_t> word = one.model.word_there(row, 0);
    if (!word) return std::nullopt;
    std::span<const float> x = source.values({row, 0, columns});
    if (is_backward) {
      turned.assign(x.rbegin(), x.rend());
      x = turned;
    }
    const Counts counts =
        counts_of_first(x, landmarks_of(x, 1), [&](float amax) { return one.model.stores(amax, *word); });
    all = {std::max(all.lowest, counts.lowest), std::min(all.highest, counts.highest)};
  }
  if (all.lowest > all.highest || all.highest == columns) return std::nullopt;
  const std::size_t count =
      is_backward ? columns - roundest({columns - all.highest, columns - all.lowest}) : roundest(all);
  return Suggestion{{.place = all.lowest, .value = static_cast<float>(count), .last = all.highest}, 1.05};
}

/// The first elements of the tensor, where that is a tile, with an amax that makes its scale: whole rows, where they
/// may be.
std::optional<Suggestion> first_of_tensor(const ScalesCase& one) {
  const Source& source = one.source;
  const bool is_of_tensor = one.model.recipe().tile_across == 0 && one.model.recipe().tile_along == 0;
  if (!is_of_tensor || one.count != 1 || one.direction != Direction::rowwise) return std::nullopt;
  const std::optional<std::uint32_t> word = one.model.word_there(0, 0);
  if (!word) return std::nullopt;
  const Counts counts =
      counts_of_first(source.values(), source.landmarks(), [&](float amax) { return one.model.stores(amax, *word); });
  if (counts.lowest > counts.highest || counts.highest == source.size()) return std::nullopt;
  const std::size_t rows = (counts.lowest + source.columns() - 1) / source.columns() * source.columns();
  const std::size_t count = rows <= counts.highest ? rows : roundest(counts);
  constexpr double cost = 1.6;  // a stale amax may be that of some first elements by chance
  return Suggestion{{.place = counts.lowest, .value = static_cast<float>(count), .last = counts.highest}, cost};
}

/// A number of few digits that multiplies all amaxes. A power of two does not change how a scale is made.
std::optional<Suggestion> factor_of_amax(const ScalesCase& one) {
  if (!one.factor || one.power) return std::nullopt;
  const std::optional<float> value = short_decimal(*one.factor);
  if (!value) return std::nullopt;
  return Suggestion{{.value = *value}, one.cost_of_factor() + 0.0001};
}

constexpr auto amax_table = of_stage(
    KernelStage::amax,
    std::array{
        Departure{.name = "amax_float16",
                  .words = "the amax is that of the elements rounded to float16",
                  .cost = 1.0235,
                  .is_searched = [](const SearchCase& one) { return one.facts().input_type != binary16; },
                  .input = narrow_counted<Narrowing::float16>},
        Departure{.name = "amax_bfloat16",
                  .words = "the amax is that of the elements rounded to bfloat16",
                  .cost = 1.0242,
                  .is_searched = [](const SearchCase& one) { return one.facts().input_type != bfloat16; },
                  .input = narrow_counted<Narrowing::bfloat16>},
        Departure{.name = "amax_signed",
                  .words = "the largest element counts instead of the largest magnitude",
                  .cost = 1.0249,
                  .counted = [](AmaxKey& key, const Deviation&, std::ptrdiff_t) { key.is_signed = true; }},
        Departure{.name = "amax_misses_first",
                  .words = "the first element of each tile does not count in its amax",
                  .cost = 1.0256,
                  .counted = count_part<AmaxPart::without_first>},
        Departure{.name = "amax_misses_last",
                  .words = "the last element of each tile does not count in its amax",
                  .cost = 1.0347,
                  .counted = count_part<AmaxPart::without_last>},
        Departure{.name = "amax_of_first_half",
                  .words = "the first half of each tile alone counts in its amax",
                  .cost = 1.0263,
                  .is_searched = has_tiles_or_rows,
                  .counted = count_part<AmaxPart::first_half>},
        Departure{.name = "amax_of_second_half",
                  .words = "the second half of each tile alone counts in its amax",
                  .cost = 1.0270,
                  .is_searched = has_tiles_or_rows,
                  .counted = count_part<AmaxPart::second_half>},
        Departure{.name = "amax_of_even_elements",
                  .words = "every second element of each tile counts in its amax, from the first on",
                  .cost = 1.0277,
                  .is_searched = has_tiles_or_rows,
                  .counted = count_part<AmaxPart::even>},
        Departure{.name = "amax_of_odd_elements",
                  .words = "every second element of each tile counts in its amax, from the second on",
                  .cost = 1.0284,
                  .is_searched = has_tiles_or_rows,
                  .counted = count_part<AmaxPart::odd>},
        Departure{.name = "amax_reads_next",
                  .words = "the first element of the next tile counts in the amax, too",
                  .cost = 1.0291,
                  .is_searched = has_tiles_along,
                  .counted = [](AmaxKey& key, const Deviation&, std::ptrdiff_t) { key.end = 1; }},
        // The elements that count lie `value` places behind those of the tile, within the row.
        Departure{
            .name = "amax_of_moved_window",
            .words = "the amax is that of a window moved by",
            .cost = 1.0298,
            .is_searched = has_tiles_along,
            .numbers = [](const SearchCase&) { return with_values(std::array{1.0F, -1.0F}); },
            .details = [](TextStream& text, const Deviation& own,
                          const Hypothesis&) { text << (own.value > 0 ? " +" : " ") << own.value; },
            .counted = [](AmaxKey& key, const Deviation& own, std::ptrdiff_t) { key.begin = key.end = number_of(own); },
            .plant = {.value = 1}},
        Departure{.name = "amax_of_first",
                  .words = "the amax is that of the first",
                  .cost = 1.0305,
                  .is_searched = has_tiles_along,
                  .numbers = parts_of_tile,
                  .by_scales = part_of_rows<false>,
                  .makes_sense = is_part_of_tile,
                  .details = tell_part,
                  .counted = [](AmaxKey& key, const Deviation& own,
                                std::ptrdiff_t along) { key.end = number_of(own) - along; },
                  .plant = {.value = 96}},
        Departure{.name = "amax_of_last",
                  .words = "the amax is that of the last",
                  .cost = 1.0312,
                  .is_searched = has_tiles_along,
                  .numbers = parts_of_tile,
                  .by_scales = part_of_rows<true>,
                  .makes_sense = is_part_of_tile,
                  .details = tell_part,
                  .counted = [](AmaxKey& key, const Deviation& own,
                                std::ptrdiff_t along) { key.begin = along - number_of(own); },
                  .plant = {.value = 96}},
        Departure{.name = "amax_of_first_elements",
                  .words = "the amax of the tensor is that of its first",
                  .cost = 1.6,
                  .is_searched = never,
                  .by_scales = first_of_tensor,
                  .details = tell_first,
                  .counted = [](AmaxKey& key, const Deviation& own,
                                std::ptrdiff_t) { key.elements = static_cast<std::size_t>(own.value); },
                  .plant = {.recipe = "te_current_scaling", .value = 512}},
        Departure{.name = "amax_times",
                  .words = "the amax is multiplied by a number",
                  .cost = 1.1,
                  .is_searched = never,
                  .by_scales = factor_of_amax,
                  .details = tell_value,
                  .amax = [](float amax, const Deviation& own) { return amax * own.value; },
                  .plant = {.value = 1.1F}},
        Departure{.name = "amax_plus",
                  .words = "a number is added to the amax",
                  .cost = 1.0333,
                  // Many numbers: in pairs alone, under a tensor's scale not even there.
                  .is_searched =
                      [](const SearchCase& one) {
                        const std::size_t most = has_tensor_scale(one.recipe()) ? 0 : 1;
                        return one.hypothesis().deviations.size() <= most && !is_given(one.recipe());
                      },
                  .numbers = [](const SearchCase& one) { return small_numbers_above(one.least_amax()); },
                  .adds_small_number = true,
                  .details = tell_value,
                  .amax = [](float amax, const Deviation& own) { return amax + own.value; },
                  .plant = {.value = 1e-4F}},
        Departure{.name = "amax_of_other_axis",
                  .words = "the amax is that of the other axis",
                  .cost = 1.0340,
                  // Tiles of the transpose are as many where it is square, and others where tiles are not.
                  .makes_sense =
                      [](const ModelCase& model, const Deviation&) {
                        return model.source.rows() == model.source.columns() &&
                               model.recipe.tile_along != model.recipe.tile_across;
                      },
                  .counted = [](AmaxKey& key, const Deviation&, std::ptrdiff_t) { key.is_turned = true; }},
    });

}  // namespace

std::span<const Departure> amax_departures() { return amax_table; }

}  // namespace fp8lab::doctor
