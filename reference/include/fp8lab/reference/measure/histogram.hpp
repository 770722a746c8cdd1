// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/reference/measure/outcome.hpp"

namespace fp8lab {

/// `count` bins of equal width over [low, high), signed values.
struct LinearBins {
  double low;
  double high;
  int count;
  friend bool operator==(const LinearBins&, const LinearBins&) = default;
};
/// `count` bins of equal width in log10 |value| over [low, high), low > 0.
struct LogBins {
  double low;
  double high;
  int count;
  friend bool operator==(const LogBins&, const LogBins&) = default;
};
/// A bin for each binade 2^e <= |value| < 2^(e + 1), e from `lowest` to `highest`.
struct BinadeBins {
  int lowest;
  int highest;
  friend bool operator==(const BinadeBins&, const BinadeBins&) = default;
};
/// A bin for each code of `format` (at most 16 bits): the code that the value is encoded to.
struct CodeBins {
  Format format;
  CastPolicy policy = {};
  friend bool operator==(const CodeBins&, const CodeBins&) = default;
};
using Bins = std::variant<LinearBins, LogBins, BinadeBins, CodeBins>;

class BinFinder;

/// Counts values in bins, and apart from them: zeros, infinities, NaNs, values below and above all bins, and the
/// elements that a cast underflowed or saturated. Every value is counted exactly once.
class Histogram {
 public:
  /// Throws std::invalid_argument for bounds or counts that make no bins.
  explicit Histogram(const Bins& bins);

  void add(double value, Outcome outcome = Outcome::rounded);
  void add(std::span<const double> values);
  void add(std::span<const float> values);
  /// Throws std::invalid_argument where the sizes differ.
  void add(std::span<const double> values, std::span<const Outcome> outcomes);
  /// Counts a code as such, zeros and NaNs too. Precondition: CodeBins, and the code is one of the format's.
  void add_code(std::uint32_t code) { ++counts_[code]; }
  /// Adds all codes of an array, of at most 8 bits each or of more.
  void add_codes(std::span<const std::uint8_t> codes);
  void add_codes(std::span<const std::uint16_t> codes);
  /// Replaces the counts of the bins, by those of a saved histogram for instance. Throws std::invalid_argument
  /// where there are not as many as bins.
  void set_counts(std::span<const std::uint64_t> counts);
  /// Adds `other`'s counts. Throws std::invalid_argument where its bins differ.
  void merge(const Histogram& other);

  [[nodiscard]] const Bins& bins() const { return bins_; }
  [[nodiscard]] const std::vector<std::uint64_t>& counts() const { return counts_; }
  /// Bin i is [edges[i], edges[i + 1]); for CodeBins the codes.
  [[nodiscard]] const std::vector<double>& edges() const { return edges_; }
  [[nodiscard]] std::uint64_t total() const;

  std::uint64_t zeros = 0;
  std::uint64_t infinities = 0;
  std::uint64_t nans = 0;
  std::uint64_t below = 0;
  std::uint64_t above = 0;
  std::uint64_t underflows = 0;
  std::uint64_t saturations = 0;

  friend bool operator==(const Histogram& a, const Histogram& b);

 private:
  [[nodiscard]] std::uint64_t& counter_of(double value, Outcome outcome);
  void add_piece(std::span<const double> values);

  Bins bins_;
  std::vector<double> edges_;
  std::vector<std::uint64_t> counts_;
  std::shared_ptr<const BinFinder> finder_;  ///< of arrays' bins, from the first array on; null where there is none
  bool has_sought_finder_ = false;
};

/// The histogram as CSV: "low,high,count" a bin, then the counts apart, each with its name as low and an empty high.
[[nodiscard]] std::string to_csv(const Histogram& histogram);

}  // namespace fp8lab
