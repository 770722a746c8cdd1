// SPDX-License-Identifier: Apache-2.0
#include "forensics/rest.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "forensics/by_quantize.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/text_stream.hpp"

namespace fp8lab::forensics {
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
  std::vector<std::uint8_t> others(source.columns());
  for (std::size_t row = 0; row < source.rows(); ++row) {
    const auto predicted = std::span(pair.predicted).subspan(row * source.columns(), source.columns());
    model.predict({row, 0, source.columns()}, predicted, others);
    for (std::size_t column = 0; column < source.columns(); ++column) {
      const std::uint64_t place = model.place_of(row, column);
      const std::uint8_t there = place < dump.codes.size() ? dump.codes[place] : predicted[column];
      if (there == others[column]) predicted[column] = there;
      pair.written[row * source.columns() + column] = there;
    }
  }
  return pair;
}

Comparison comparison_of(const Format& format, std::span<const std::uint8_t> a, std::span<const std::uint8_t> b,
                         std::size_t columns) {
  return compare({format}, std::as_bytes(a), std::as_bytes(b), {.columns = columns, .most_shown = 0});
}

/// Which indices of a dimension have more than half of their elements different; none where that says nothing.
std::vector<bool> dense_of(const Places& places, std::uint64_t elements_of_index) {
  std::vector<bool> dense(places.length);
  if (places.indices_per_bin != 1 || elements_of_index < 8) return dense;
  std::size_t count = 0;
  for (std::size_t i = 0; i < dense.size(); ++i) {
    dense[i] = places.counts[i] * 2 > elements_of_index;
    count += dense[i] ? 1 : 0;
  }
  if (count * 2 > dense.size()) dense.assign(dense.size(), false);
  return dense;
}

/// Parts of the rest that are told apart.
enum Part : std::uint8_t { in_columns, in_rows, zero_signs, nans, others, parts };

/// Splits the rest, and tells of each part what it has in common.
class Rest {
 public:
  Rest(const Format& format, const CodePair& pair) : format_(format), pair_(pair) {
    const Comparison all = comparison_of(format, pair.predicted, pair.written, pair.columns);
    columns_ = dense_of(all.columns, all.rows.length);
    rows_ = dense_of(all.rows, all.columns.length);
  }

  [[nodiscard]] std::vector<std::string> told() const {
    std::vector<std::string> sentences;
    for (int part = 0; part < parts; ++part) {
      const Comparison own = of_part(static_cast<Part>(part));
      if (own.equal()) continue;
      TextStream text;
      text << own.differing << (own.differing == 1 ? " code is" : " codes are")
           << " not as predicted (a: predicted, b: written).";
      for (const std::string& finding : findings(own)) text << ' ' << finding;
      sentences.push_back(text.str());
    }
    return sentences;
  }

 private:
  [[nodiscard]] Part part_of(std::size_t index) const {
    if (columns_[index % pair_.columns]) return in_columns;
    if (rows_[index / pair_.columns]) return in_rows;
    const float a = decode(format_, pair_.predicted[index]);
    const float b = decode(format_, pair_.written[index]);
    if (std::isnan(a) || std::isnan(b)) return nans;
    return a == b ? zero_signs : others;
  }

  /// All other elements are as predicted.
  [[nodiscard]] Comparison of_part(Part part) const {
    std::vector<std::uint8_t> written = pair_.predicted;
    for (std::size_t i = 0; i < written.size(); ++i) {
      if (pair_.written[i] != written[i] && part_of(i) == part) written[i] = pair_.written[i];
    }
    return comparison_of(format_, pair_.predicted, written, pair_.columns);
  }

  Format format_;
  const CodePair& pair_;
  std::vector<bool> columns_, rows_;
};

/// The scales that are left: how many, by what factor they differ, and where.
std::vector<std::string> rest_of_scales(const Suspect& suspect, const StoredDump& dump) {
  const KernelModel model(suspect.side->source, suspect.candidate.hypothesis, &dump);
  const ScaleGrid grid = model.scale_grid();
  TextStream text;
  text << suspect.scales << (suspect.scales == 1 ? " scale is" : " scales are") << " not as predicted.";
  if (grid.is_wrong.empty()) {
    text << " There are " << dump.scales.size() << ", and the hypothesis has another number of tiles.";
    return {text.str()};
  }
  if (grid.lowest_ratio == grid.highest_ratio) {
    text << " Each is the predicted one times " << grid.lowest_ratio << '.';
  } else if (grid.lowest_ratio < grid.highest_ratio) {
    text << " They are the predicted ones times " << grid.lowest_ratio << " to " << grid.highest_ratio << '.';
  }
  const std::vector<std::uint8_t> none(grid.is_wrong.size());
  for (const std::string& place : places_of(comparison_of(e8m0, none, grid.is_wrong, grid.columns)))
    text << ' ' << place;
  return {text.str()};
}

}  // namespace

std::vector<std::string> rest_of(const Suspect& suspect, const MatrixView& x, const StoredDump& dump) {
  std::vector<std::string> all;
  if (suspect.codes != 0) {
    const CodePair pair = codes_of(suspect, x, dump);
    all = Rest(suspect.candidate.hypothesis.recipe.format, pair).told();
  }
  if (suspect.scales == 0 || suspect.is_by_quantize) return all;
  for (std::string& sentence : rest_of_scales(suspect, dump)) all.push_back(std::move(sentence));
  return all;
}

}  // namespace fp8lab::forensics
