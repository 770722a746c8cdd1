// SPDX-License-Identifier: Apache-2.0
// Computes the numbers that the stored scales of a tensor multiply with on dequantize.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/scale_rule.hpp"

namespace fp8lab {

/// The facts that the scales of a quantized tensor depend on.
[[nodiscard]] TensorFacts tensor_facts(const Quantized& q);

class ScaleValues {
 public:
  explicit ScaleValues(const Quantized& q);

  /// By the place of the scale in memory.
  [[nodiscard]] float operator[](std::size_t i) const {
    if (!q_->row_amaxes.empty()) return under_row(i);
    return has_codes_ ? of_code_[q_->scale_codes[i]] : q_->scale_inv[i];
  }

 private:
  /// Where each row has a tensor's scale.
  [[nodiscard]] float under_row(std::size_t i) const;

  const Quantized* q_;
  bool has_codes_;
  std::array<float, 256> of_code_{};
};

}  // namespace fp8lab
