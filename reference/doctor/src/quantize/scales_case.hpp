// SPDX-License-Identifier: Apache-2.0
// The stored scales beside those of a recipe: what they say of a departure.
#pragma once

#include <cstddef>
#include <optional>

#include "fp8lab/doctor/diagnose.hpp"
#include "quantize/kernel_model.hpp"

namespace fp8lab::doctor {

/// A departure that stored scales suggest, and how implausible it is where they do.
struct Suggestion {
  Deviation deviation;
  double cost;
};

/// A recipe whose scales are made of tiles alone, a tensor, and as many stored scales as the tensor has tiles.
class ScalesCase {
 public:
  /// The model and the source must outlive it.
  ScalesCase(const KernelModel& model, const Source& source, std::size_t count, Direction direction);

  [[nodiscard]] const KernelModel& model() const { return *model_; }
  [[nodiscard]] const Recipe& recipe() const { return model_->recipe(); }
  [[nodiscard]] const Source& source() const { return *source_; }
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] Direction direction() const { return direction_; }
  /// The number that all stored scales are times those of the recipe, if there is one, and not 1.
  [[nodiscard]] const std::optional<FactorInterval>& factor() const { return factor_; }
  /// Where that may be a power of two, it.
  [[nodiscard]] std::optional<float> power() const;
  /// How implausible it is that a number multiplies: few scales may have a common factor by chance.
  [[nodiscard]] double cost_of_factor() const { return count_ < 4 ? 1.5 : 1.1; }

 private:
  const KernelModel* model_;
  const Source* source_;
  std::size_t count_;
  Direction direction_;
  std::optional<FactorInterval> factor_;
};

/// The number in an interval with the fewest decimal digits, and no more than three.
[[nodiscard]] std::optional<float> short_decimal(const FactorInterval& interval);

}  // namespace fp8lab::doctor
