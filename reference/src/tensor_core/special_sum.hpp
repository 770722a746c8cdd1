// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tensor_core/factors.hpp"

namespace fp8lab {

/// The sum of terms among which is a NaN or an infinity.
class SpecialSum {
 public:
  void add(const Factor& x) {
    nan_ = nan_ || x.kind == Kind::nan;
    if (x.kind == Kind::infinite) add_infinity(x.value < 0);
  }
  void add_product(const Factor& a, const Factor& b) {
    const bool nan = a.kind == Kind::nan || b.kind == Kind::nan;
    const bool infinite = a.kind == Kind::infinite || b.kind == Kind::infinite;
    const bool zero = a.kind == Kind::zero || b.kind == Kind::zero;
    nan_ = nan_ || nan || (infinite && zero);
    if (infinite && !nan && !zero) add_infinity((a.value < 0) != (b.value < 0));
  }
  void add_infinity(bool negative) { (negative ? below_ : above_) = true; }
  [[nodiscard]] bool any() const { return nan_ || above_ || below_; }
  /// Precondition: any().
  [[nodiscard]] std::uint32_t word(const Format& format) const {
    if (nan_ || (above_ && below_)) return static_cast<std::uint32_t>(format.magnitude_mask());
    return static_cast<std::uint32_t>(format.infinity_code() | (below_ ? format.sign_mask() : 0));
  }

 private:
  bool nan_ = false, above_ = false, below_ = false;
};

}  // namespace fp8lab
