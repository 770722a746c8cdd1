// SPDX-License-Identifier: Apache-2.0
#include "kit/draws.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/refuse.hpp"

namespace fp8lab::experiments {
namespace {

constexpr long long most_steps = 1 << 16;
constexpr long long most_drawn = 1LL << 40;  // elements of all tensors
constexpr float jump_factor = 32;
constexpr float outlier_factor = 256;
constexpr std::size_t outlier_spacing = 4096;

constexpr std::array stream_kinds{
    Named{"stationary", StreamKind::stationary, "no tensor differs from the others but by chance"},
    Named{"drift", StreamKind::drift, "step t is multiplied by 2^(t / 8)"},
    Named{"outliers", StreamKind::outliers, "in steps 4, 12, 20, ... one element of 4096 is multiplied by 256"},
    Named{"jump", StreamKind::jump, "the middle third of the steps is multiplied by 32"}};
static_assert(is_in_order(stream_kinds));

/// Throws where there are more outliers than `lines`, or their factor is not positive and finite in float32.
void check_outliers(const char* what, const OutlierLines& outliers, long long lines) {
  constexpr long long most_lines = 1LL << 31;  // so that the product of two line numbers fits in 64 bits
  if (outliers.count < 0 || outliers.count > std::min(lines, most_lines)) {
    refuse("the count of ", what, " must be from 0 to ", std::min(lines, most_lines), ", not ", outliers.count);
  }
  if (outliers.count > 0 && lines > most_lines)
    refuse(what, " can be chosen from at most 2^31 lines, not from ", lines);
  const auto factor = static_cast<float>(outliers.factor);
  if (factor > 0 && std::isfinite(factor)) return;
  refuse("the factor of ", what, " must be positive and finite in float32, not ", outliers.factor);
}

/// Calls use(line) for each outlier among lines [first, last), in order; there are `lines` in all.
template <typename Use>
void for_each_outlier(const OutlierLines& outliers, std::uint64_t lines, std::uint64_t first, std::uint64_t last,
                      const Use& use) {
  const auto count = static_cast<std::uint64_t>(outliers.count);
  for (std::uint64_t i = first * count / lines; i < count && i * lines / count < last; ++i) {
    if (i * lines / count >= first) use(i * lines / count);
  }
}

/// Multiplies the outliers among elements [first, first + out.size()), in the order of rows, by their factors.
void multiply_outliers(const Draws& draws, std::uint64_t first, std::span<float> out) {
  const auto rows = static_cast<std::uint64_t>(draws.rows);
  const auto columns = static_cast<std::uint64_t>(draws.columns);
  const std::uint64_t end = first + out.size();
  const auto row_factor = static_cast<float>(draws.outlier_rows.factor);
  for_each_outlier(draws.outlier_rows, rows, first / columns, (end + columns - 1) / columns, [&](std::uint64_t row) {
    const std::uint64_t begin = std::max(first, row * columns);
    for (std::uint64_t i = begin; i < std::min(end, (row + 1) * columns); ++i) {
      checkpoint(i);
      out[i - first] *= row_factor;
    }
  });
  const auto column_factor = static_cast<float>(draws.outlier_columns.factor);
  for_each_outlier(draws.outlier_columns, columns, 0, columns, [&](std::uint64_t column) {
    checkpoint();
    for (std::uint64_t i = first + (column + columns - first % columns) % columns; i < end; i += columns) {
      out[i - first] *= column_factor;
    }
  });
}

/// In one step of a stream, elements 0, every, 2 * every, ... are multiplied by `factor`.
struct StepFactor {
  float factor = 1;
  std::size_t every = 1;
};
StepFactor factor_of(const Draws& draws, std::size_t step) {
  const auto steps = static_cast<std::size_t>(draws.steps);
  switch (draws.kind) {
    case StreamKind::stationary: break;
    case StreamKind::drift: return {static_cast<float>(std::exp2(static_cast<double>(step) / 8))};
    case StreamKind::outliers:
      if (step % 8 == 4) return {outlier_factor, outlier_spacing};
      break;
    case StreamKind::jump:
      if (step >= steps / 3 && step < steps - steps / 3) return {jump_factor};
      break;
  }
  return {};
}

}  // namespace

std::span<const Named<StreamKind>> named_values(StreamKind /*any*/) { return stream_kinds; }

void check_draws(const Draws& draws) {
  if (draws.steps < 1 || draws.steps > most_steps) {
    refuse("steps must be from 1 to ", most_steps, ", not ", draws.steps);
  }
  if (draws.rows * draws.columns > most_drawn / draws.steps) {
    refuse("steps * rows * columns must be at most 2^40, not ", draws.steps, " * ", draws.rows, " * ", draws.columns);
  }
  check_outliers("outlier_rows", draws.outlier_rows, draws.rows);
  check_outliers("outlier_columns", draws.outlier_columns, draws.columns);
}

void draw(const Draws& draws, std::size_t step, std::uint64_t first, std::span<float> out) {
  const auto size = static_cast<std::uint64_t>(draws.rows * draws.columns);
  sample(draws.distribution, draws.seed, step * size + first, out);
  const auto [factor, every] = factor_of(draws, step);
  if (factor != 1) {
    for (auto i = static_cast<std::size_t>((every - first % every) % every); i < out.size(); i += every) {
      out[i] *= factor;
    }
  }
  multiply_outliers(draws, first, out);
}

}  // namespace fp8lab::experiments
