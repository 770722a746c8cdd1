// SPDX-License-Identifier: Apache-2.0
#include "search/located.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/text_stream.hpp"

namespace fp8lab::doctor {

Comparison comparison_of(const WordPair& pair) {
  return compare(pair.type, pair.predicted, pair.written,
                 {.columns = pair.columns, .most_shown = 0, .threads = pair.threads});
}

namespace {

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
  explicit Rest(const WordPair& pair)
      : pair_(pair), width_(static_cast<std::size_t>(pair.type.bits() + 7) / 8), all_(comparison_of(pair)) {
    columns_ = dense_of(all_.columns, all_.rows.length);
    rows_ = dense_of(all_.rows, all_.columns.length);
    const int bits = pair.type.format.bits();
    for (std::uint64_t code = 0; bits <= 8 && code >> bits == 0; ++code) values_.push_back(value_of(pair.type, code));
    parts_.resize(pair.predicted.size() / width_, as_predicted);
    std::mutex mutex;
    parallel_for(
        parts_.size(), pair.threads,
        [&](std::size_t first, std::size_t last) {
          const PartCounts own = split_blocks(first, last);
          const std::scoped_lock lock(mutex);
          for (std::size_t i = 0; i < own.size(); ++i) counts_[i] += own[i];
        },
        4 * scalar_piece);
  }

  [[nodiscard]] std::vector<std::string> told(std::string_view noun) const {
    std::vector<std::string> sentences;
    for (const Part part : {in_columns, in_rows, zero_signs, nans, others}) {
      if (counts_[part] == 0) continue;
      const bool is_all = counts_[part] == all_.differing;
      const Comparison own = is_all ? all_ : of_part(part);
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
  using PartCounts = std::array<std::uint64_t, as_predicted + 1>;

  /// Says of which part those elements are that differ, and how many of each are.
  PartCounts split_blocks(std::size_t first, std::size_t last) {
    constexpr std::size_t at_once = 256;
    PartCounts counts{};
    for (std::size_t block = first; block < last; block += at_once) {
      const std::size_t count = std::min(at_once, last - block);
      const auto of = [&](std::span<const std::byte> words) { return words.data() + block * width_; };
      if (std::memcmp(of(pair_.written), of(pair_.predicted), count * width_) != 0) split(block, block + count, counts);
    }
    return counts;
  }
  void split(std::size_t first, std::size_t last, PartCounts& counts) {
    for (std::size_t i = first; i < last; ++i) {
      if (word(pair_.written, i) == word(pair_.predicted, i)) continue;
      parts_[i] = part_of(i);
      ++counts[parts_[i]];
    }
  }

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
    for (std::size_t i = 0; i < parts_.size() && (are_small || are_largest); ++i) {
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
    if (width_ == 1) return std::to_integer<std::uint64_t>(bytes[index]);
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
    return comparison_of({pair_.type, pair_.predicted, written, pair_.columns, pair_.threads});
  }

  const WordPair& pair_;
  std::size_t width_;
  Comparison all_;
  std::vector<bool> columns_, rows_;
  std::vector<double> values_;  // of codes of up to 8 bits
  std::vector<Part> parts_;     // of each element
  PartCounts counts_{};         // of each part
};

}  // namespace

std::vector<std::string> located(const WordPair& pair, std::string_view noun) { return Rest(pair).told(noun); }

}  // namespace fp8lab::doctor
