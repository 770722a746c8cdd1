// SPDX-License-Identifier: Apache-2.0
// Tensors that are drawn: how they change from step to step, and which rows and columns are larger than the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/measure/distributions.hpp"

namespace fp8lab::experiments {

/// How the drawn tensors of a stream change from step to step; step 0 is the first.
enum class StreamKind : std::uint8_t {
  stationary,  ///< not at all: draws of one distribution
  drift,       ///< step t is multiplied by 2^(t / 8)
  outliers,    ///< in steps 4, 12, 20, ... one element of 4096 is multiplied by 256
  jump,        ///< the middle third of the steps is multiplied by 32
};
/// The enumerators with their names, and words such as "the middle third of the steps is multiplied by 32".
[[nodiscard]] std::span<const Named<StreamKind>> named_values(StreamKind of_type);

/// Rows, or columns, that are larger than the others: the i-th of `count` is number i * n / count of n, and multiplied
/// by `factor` in float32.
struct OutlierLines {
  long long count = 0;
  double factor = 1;  ///< positive and finite in float32
};

/// float32 draws of sample(), row-major: `steps` tensors (at most 2^16) of rows x columns, each tensor's draws after
/// those of the one before. All together they have at most 2^40 elements.
struct Draws {
  Distribution distribution = distributions.front();
  std::uint64_t seed = 1;
  long long rows = 1;
  long long columns = 1 << 20;
  long long steps = 1;
  StreamKind kind = StreamKind::stationary;
  OutlierLines outlier_rows = {};     ///< tokens, where rows are tokens
  OutlierLines outlier_columns = {};  ///< channels
};
/// Throws std::invalid_argument for a number of steps, elements or outliers that is out of range, or a factor that is
/// not positive and finite in float32. Precondition: rows * columns does not overflow.
void check_draws(const Draws& draws);

/// Draws elements [first, first + out.size()) of the tensor of a step, in the order of rows.
void draw(const Draws& draws, std::size_t step, std::uint64_t first, std::span<float> out);

}  // namespace fp8lab::experiments
