// SPDX-License-Identifier: Apache-2.0
#include "quantize/rest.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "quantize/by_quantize.hpp"

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

Comparison comparison_of(const WordPair& pair) {
  return compare(pair.type, pair.predicted, pair.written, {.columns = pair.columns, .most_shown = 0});
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
enum Part : std::uint8_t { in_columns, in_rows, zero_signs, nans, others, as_predicted };

/// Splits the rest, and tells of each part what it has in common.
class Rest {
 public:
  explicit Rest(const WordPair& pair) : pair_(pair), width_(static_cast<std::size_t>(pair.type.bits() + 7) / 8) {
    const Comparison all = comparison_of(pair);
    columns_ = dense_of(all.columns, all.rows.length);
    rows_ = dense_of(all.rows, all.columns.length);
    const int bits = pair.type.format.bits();
    for (std::uint64_t code = 0; bits <= 8 && code >> bits == 0; ++code) values_.push_back(value_of(pair.type, code));
    parts_.resize(pair.predicted.size() / width_, as_predicted);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (word(pair_.written, i) != word(pair_.predicted, i)) parts_[i] = part_of(i);
    }
  }

  [[nodiscard]] std::vector<std::string> told(std::string_view noun) const {
    std::vector<std::string> sentences;
    for (const Part part : {in_columns, in_rows, zero_signs, nans, others}) {
      if (std::ranges::find(parts_, part) == parts_.end()) continue;
      const Comparison own = of_part(part);
      TextStream text;
      text << own.differing << ' ' << noun << (own.differing == 1 ? " is" : "s are") << " not as predicted"
           << where(part) << " (a: predicted, b: written).";
      for (const std::string& finding : findings(own)) text << ' ' << finding;
      text << range_of(part);
      sentences.push_back(text.str());
    }
    return sentences;
  }

 private:
  [[nodiscard]] static std::string_view where(Part part) {
    if (part == in_columns) return " in columns that differ in most places";
    return part == in_rows ? " in rows that differ in most places" : "";
  }

  /// Where all elements of a part lie at one end of the format, which one.
  [[nodiscard]] std::string_view range_of(Part part) const {
    const Format& format = pair_.type.format;
    if (pair_.type.pairs || format.bits() > 8 || !format.has_subnormals) return "";
    const std::uint64_t least_normal = std::uint64_t{1} << format.mantissa_bits;
    bool are_small = true;
    bool are_largest = true;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i] != part) continue;
      const std::uint64_t predicted = word(pair_.predicted, i) & format.magnitude_mask();
      const std::uint64_t written = word(pair_.written, i) & format.magnitude_mask();
      are_small = are_small && std::max(predicted, written) <= least_normal && predicted + written != 0;
      are_largest = are_largest && predicted == format.max_code();
    }
    if (are_largest) return " All are predicted to be the largest number.";
    return are_small ? " None is larger than the least normal number, as predicted or as written." : "";
  }

  [[nodiscard]] std::uint64_t word(std::span<const std::byte> bytes, std::size_t index) const {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + index * width_, width_);
    return word;
  }

  [[nodiscard]] double value(std::uint64_t word) const {
    return word < values_.size() ? values_[word] : value_of(pair_.type, word);
  }

  [[nodiscard]] Part part_of(std::size_t index) const {
    if (index % pair_.columns < columns_.size() && columns_[index % pair_.columns]) return in_columns;
    if (index / pair_.columns < rows_.size() && rows_[index / pair_.columns]) return in_rows;
    const double a = value(word(pair_.predicted, index));
    const double b = value(word(pair_.written, index));
    if (std::isnan(a) || std::isnan(b)) return nans;
    return a == b ? zero_signs : others;
  }

  /// All other elements are as predicted.
  [[nodiscard]] Comparison of_part(Part part) const {
    std::vector<std::byte> written(pair_.predicted.begin(), pair_.predicted.end());
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i] == part) std::memcpy(written.data() + i * width_, pair_.written.data() + i * width_, width_);
    }
    return comparison_of({pair_.type, pair_.predicted, written, pair_.columns});
  }

  const WordPair& pair_;
  std::size_t width_;
  std::vector<bool> columns_, rows_;
  std::vector<double> values_;  // of codes of up to 8 bits
  std::vector<Part> parts_;     // of each element
};

}  // namespace

std::vector<std::string> rest_of_scales(const Suspect& suspect, const StoredDump& dump) {
  const KernelModel model(suspect.side->source, suspect.candidate.hypothesis, &dump);
  const ScaleGrid grid = model.scale_grid();
  TextStream text;
  text << suspect.scales << (suspect.scales == 1 ? " scale is" : " scales are") << " not as predicted.";
  if (grid.is_wrong.empty()) {
    const std::size_t tiles = model.tiles().tiles_down * model.tiles().tiles_across;
    text << (dump.scales.size() == 1 ? " There is " : " There are ") << dump.scales.size()
         << ", and the hypothesis has " << tiles << (tiles == 1 ? " tile." : " tiles.");
    return {text.str()};
  }
  constexpr std::uint32_t few = 64;
  if (grid.most_ulps != 0 && grid.most_ulps <= few) {
    text << (suspect.scales == 1 ? " It differs from the predicted one by "
                                 : " They differ from the predicted ones by ")
         << (grid.most_ulps == 1 || suspect.scales == 1 ? "" : "up to ") << grid.most_ulps
         << (grid.most_ulps == 1 ? " unit in the last place." : " units in the last place.");
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

std::vector<std::string> located(const WordPair& pair, std::string_view noun) { return Rest(pair).told(noun); }

std::vector<std::string> rest_of(const Suspect& suspect, const MatrixView& x, const StoredDump& dump) {
  std::vector<std::string> all;
  if (suspect.codes != 0) {
    const CodePair pair = codes_of(suspect, x, dump);
    all = located({{suspect.candidate.hypothesis.recipe.format},
                   std::as_bytes(std::span(pair.predicted)),
                   std::as_bytes(std::span(pair.written)),
                   pair.columns},
                  "code");
  }
  if (suspect.scales == 0 || suspect.is_by_quantize) return all;
  for (std::string& sentence : rest_of_scales(suspect, dump)) all.push_back(std::move(sentence));
  return all;
}

}  // namespace fp8lab::doctor
