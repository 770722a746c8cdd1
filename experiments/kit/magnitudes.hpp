// SPDX-License-Identifier: Apache-2.0
// How many elements of a tensor have which magnitude: whose energy it is, and which scale of a cast loses least.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/reference/measure/exact_sqnr.hpp"
#include "kit/tensor.hpp"

namespace fp8lab::experiments {

/// The few elements that hold most of a tensor's energy, the sum of squares.
struct Concentration {
  std::uint64_t elements;
  double share;  ///< of the energy, from 0 to 1
};

/// Counts the finite elements by magnitude in float32: a bin for each value of 12 significant bits, so that bfloat16,
/// float16 and all formats of 8 bits are counted exactly, and others to 2^-12 of themselves.
class Magnitudes {
 public:
  void add(std::span<const float> values);
  void add(std::span<const double> values);
  void add(std::span<const Half> values);
  void add(std::span<const BFloat16> values);
  void merge(const Magnitudes& other);

  [[nodiscard]] std::uint64_t size() const { return size_; }
  /// The largest magnitude, exact; 0 where no element is finite.
  [[nodiscard]] float amax() const { return amax_; }
  /// The largest elements, where at most a thousandth of all hold half of the energy or more: those above the widest
  /// gap between magnitudes. None where that is not so, and of fewer than 1000 elements.
  [[nodiscard]] std::optional<Concentration> concentration() const;
  /// The scale of the highest SQNR of a saturating cast to nearest. 32 scales a binade are tried, from half of the one
  /// that maps the amax to the format's largest value to where the root mean square is four times that value; then the
  /// neighbours of the best (golden section). All are rounded to float32. None where no element is finite and nonzero.
  /// Throws std::invalid_argument where the format has no sign or more than 8 bits.
  [[nodiscard]] std::optional<BestScale> best_scale(const Format& format) const;

 private:
  static constexpr int dropped_bits = 11;
  static constexpr std::size_t binades = 255;  // of finite numbers
  static constexpr std::size_t bins_of_binade = std::size_t{1} << (23 - dropped_bits);

  static double lower_end(std::size_t bin);
  void add(float x);
  void count(std::uint32_t word, std::uint64_t elements);
  /// Calls use(magnitude, count) for each bin that has elements, but for that of zero, in order; downward while it
  /// says true.
  template <typename Use>
  void for_bins(const Use& use) const;
  template <typename Use>
  void for_bins_downward(const Use& use) const;

  std::array<std::vector<std::uint64_t>, binades> counts_;  // empty where a binade has no elements
  std::uint64_t size_ = 0;
  float amax_ = 0;
};

/// "6 of 1048576 elements hold 85.2 % of the energy; the SQNR is theirs".
[[nodiscard]] std::string concentration_words(const Concentration& one, std::uint64_t size);

}  // namespace fp8lab::experiments
