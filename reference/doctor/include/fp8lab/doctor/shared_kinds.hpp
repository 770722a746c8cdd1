// SPDX-License-Identifier: Apache-2.0
// Kinds of elements that all differences of two arrays share: subnormal codes, the largest number, exact ties, ...
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/doctor/compare.hpp"

namespace fp8lab::doctor {

/// Finds the kinds that all differing elements of two arrays are of, and counts the other elements of each. The arrays
/// come piece by piece, in order, as those of a Comparer do.
class SharedKinds {
 public:
  /// Throws std::invalid_argument where the type does not check.
  explicit SharedKinds(const ElementType& type);

  /// The next elements: the bytes of both, and where it is known, what each was made of. Throws std::invalid_argument
  /// where the numbers of bytes differ, they end within an element, or there is another number of inputs.
  void add(std::span<const std::byte> a, std::span<const std::byte> b, std::span<const double> input = {});

  /// Whether some kind is still that of all differences: if not, further elements change nothing.
  [[nodiscard]] bool is_open() const { return open_ != 0; }
  /// A sentence for each kind that all differences are of, and few of the other elements. A tie counts where the input
  /// lies halfway between both values, or does so times a power of two, since the scale is not known.
  [[nodiscard]] std::vector<std::string> findings() const;

  static constexpr std::size_t most_kinds = 16;

 private:
  struct PairOfWords {
    std::uint64_t a, b;
    double value_a, value_b;
  };

  [[nodiscard]] std::uint32_t kinds_of(const PairOfWords& pair) const;
  [[nodiscard]] std::uint32_t kinds_of_input(const PairOfWords& pair, double input) const;
  void count(std::uint32_t kinds, bool differs);

  ElementType type_;
  std::vector<double> values_;  ///< of codes of up to 8 bits
  std::uint32_t open_;          ///< kinds that all differences up to now are of
  std::uint64_t elements_ = 0, differing_ = 0;
  std::array<std::uint64_t, most_kinds> others_{};  ///< elements of each kind that do not differ
};

}  // namespace fp8lab::doctor
