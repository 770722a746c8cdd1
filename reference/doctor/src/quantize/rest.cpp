// SPDX-License-Identifier: Apache-2.0
#include "quantize/rest.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "compare/places.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "quantize/by_quantize.hpp"
#include "search/words.hpp"

namespace fp8lab::doctor {
namespace {

/// Codes by the hypothesis and those that are there, in rows of `columns`.
struct CodePair {
  std::vector<std::uint8_t> predicted, written;
  std::size_t columns;
};

/// By rows and columns of the suspect's side.
CodePair codes_of(const Suspect& suspect, const MatrixView& x, const StoredDump& dump) {
  const Source& source = suspect.side->source;
  const Hypothesis& hypothesis = suspect.candidate.hypothesis;
  if (suspect.is_by_quantize) {
    const Stored stored = stored_by_quantize(x, hypothesis.recipe, hypothesis.direction, source.threads());
    return {stored.codes, dump.codes, source.columns()};
  }
  const KernelModel model(source, hypothesis, &dump);
  CodePair pair{std::vector<std::uint8_t>(source.size()), std::vector<std::uint8_t>(source.size()), source.columns()};
  model.complete();
  parallel_for(
      source.rows(), source.threads(),
      [&](std::size_t first, std::size_t last) {
        std::vector<std::uint8_t> may_be(source.columns());
        for (std::size_t row = first; row < last; ++row) {
          const auto predicted = std::span(pair.predicted).subspan(row * source.columns(), source.columns());
          model.predict({row, 0, source.columns()}, predicted, may_be);
          for (std::size_t column = 0; column < source.columns(); ++column) {
            const std::uint64_t place = model.place_of(row, column);
            const std::uint8_t there = place < dump.codes.size() ? dump.codes[place] : predicted[column];
            const bool is_same_nan = is_nan_of_other_sign(hypothesis.recipe.format, there, predicted[column]);
            if (there == may_be[column] || is_same_nan) predicted[column] = there;
            pair.written[row * source.columns() + column] = there;
          }
        }
      },
      std::max<std::size_t>(1, scalar_piece / source.columns()));
  return pair;
}

}  // namespace

std::vector<std::string> rest_of_scales(const Suspect& suspect, const StoredDump& dump) {
  const KernelModel model(suspect.side->source, suspect.candidate.hypothesis, &dump);
  const ScaleGrid grid = model.scale_grid();
  TextStream text;
  text << counted(suspect.scales, "scale") << (suspect.scales == 1 ? " is" : " are") << " not as predicted.";
  if (grid.is_wrong.empty()) {
    const std::size_t tiles = model.tiles().tiles_down * model.tiles().tiles_across;
    text << (dump.scales.size() == 1 ? " There is " : " There are ") << dump.scales.size()
         << ", and the hypothesis has " << counted(tiles, "tile") << '.';
    return {text.str()};
  }
  constexpr std::uint32_t few = 64;
  if (grid.most_ulps != 0 && grid.most_ulps <= few) {
    text << (suspect.scales == 1 ? " It differs from the predicted one by "
                                 : " They differ from the predicted ones by ")
         << (grid.most_ulps == 1 || suspect.scales == 1 ? "" : "up to ") << counted(grid.most_ulps, "unit")
         << " in the last place.";
  } else if (grid.lowest_ratio == grid.highest_ratio) {
    text << (suspect.scales == 1 ? " It is" : " Each is") << " the predicted one times " << grid.lowest_ratio << '.';
  } else if (grid.lowest_ratio < grid.highest_ratio) {
    text << " They are the predicted ones times " << grid.lowest_ratio << " to " << grid.highest_ratio << '.';
  }
  const std::vector<std::uint8_t> none(grid.is_wrong.size());
  const WordPair pair{{e8m0}, std::as_bytes(std::span(none)), std::as_bytes(std::span(grid.is_wrong)), grid.columns};
  for (const std::string& place : places_of(comparison_of(pair))) text << ' ' << place;
  return {text.str()};
}

std::vector<std::string> rest_of(const Suspect& suspect, const MatrixView& x, const StoredDump& dump) {
  std::vector<std::string> all;
  if (suspect.codes != 0) {
    const CodePair pair = codes_of(suspect, x, dump);
    all = located({{suspect.candidate.hypothesis.recipe.format},
                   std::as_bytes(std::span(pair.predicted)),
                   std::as_bytes(std::span(pair.written)),
                   pair.columns,
                   suspect.side->source.threads()},
                  "code");
  }
  if (suspect.scales == 0 || suspect.is_by_quantize) return all;
  for (std::string& sentence : rest_of_scales(suspect, dump)) all.push_back(std::move(sentence));
  return all;
}

}  // namespace fp8lab::doctor
