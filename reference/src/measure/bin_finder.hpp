// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fp8lab/reference/measure/histogram.hpp"
#include "simd/measure.hpp"

namespace fp8lab {

/// Adds one to the count of slot(i) for every i below `size`, which is at most 2^32.
template <typename Slot>
void count_slots(std::size_t size, std::span<std::uint64_t> counts, const Slot& slot) {
  constexpr std::size_t tables = 4;  // an increment need not wait for the one before
  std::vector<std::uint32_t> room(tables * counts.size());
  std::array<std::uint32_t*, tables> table{};
  for (std::size_t k = 0; k < tables; ++k) table[k] = &room[k * counts.size()];
  std::size_t i = 0;
  for (; i + tables <= size; i += tables) {
    for (std::size_t k = 0; k < tables; ++k) ++table[k][slot(i + k)];
  }
  for (; i < size; ++i) ++table[0][slot(i)];
  for (std::size_t k = 0; k < tables; ++k) {
    for (std::size_t bin = 0; bin < counts.size(); ++bin) counts[bin] += table[k][bin];
  }
}

/// Finds the bins of many values, as the edges of a histogram define them. A value gets a slot:
/// 0 zero, 1 below the bins, 2 to n + 1 the n bins, n + 2 above them, n + 3 infinity, n + 4 NaN.
///
/// Bins of magnitudes are looked up by the value's exponent and first fraction bits: where these say that a value lies
/// around an edge, a comparison with the edge decides. Bins of equal width are computed; where that may be off by one,
/// comparisons with the edges decide.
class BinFinder {
 public:
  /// Null for bins of codes, of more than 4096, and where neither method is exact.
  [[nodiscard]] static std::shared_ptr<const BinFinder> make(const Bins& bins, const std::vector<double>& edges);

  [[nodiscard]] std::size_t slots() const { return bins_ + 5; }
  /// Adds the values' slots to `counts`, which has slots() of them. In the default environment; at most 2^31 values.
  void count(std::span<const double> values, std::span<std::uint64_t> counts) const;

 private:
  /// Values of one key: those below `edge`, as bits, have the first slot, the others the second.
  struct Key {
    std::uint64_t edge;
    std::array<std::uint32_t, 2> slots;
  };

  explicit BinFinder(const std::vector<double>& edges) : bins_(edges.size() - 1), edges_(edges) {}
  /// Whether a table of `fraction_bits` decides every magnitude.
  bool make_table(int fraction_bits);
  bool make_linear(const LinearBins& bins);
  /// The slot by the definition.
  [[nodiscard]] std::size_t slot_of(double x) const;
  void count_by_table(std::span<const double> values, std::span<std::uint64_t> counts) const;
  void count_linear(const LinearConstants& bins, std::span<const double> values, std::span<std::uint64_t> counts) const;
  void correct(std::span<const double> values, std::span<std::int32_t> slots) const;

  std::size_t bins_;
  std::vector<double> edges_;
  // Magnitudes:
  unsigned shift_ = 0;  // from a magnitude's bits to its key
  std::vector<Key> keys_;
  // Equal width:
  std::optional<LinearConstants> linear_;
  bool is_exact_ = false;
  std::vector<double> begins_, ends_;  // of the slots
};

}  // namespace fp8lab
