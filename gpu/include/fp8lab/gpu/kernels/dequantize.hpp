// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp8lab/gpu/kernels/scale_maker.hpp"

namespace fp8lab::gpu {

/// The value of a code; NaN is a NaN.
[[nodiscard]] FP8LAB_HD inline float value_of_code(CodeFormat format, std::uint32_t code) {
  std::uint32_t halves = 0;
  switch (format) {
    case CodeFormat::e4m3: halves = ptx::halves_of_e4m3x2(code); break;
    case CodeFormat::e5m2: halves = ptx::halves_of_e5m2x2(code); break;
    case CodeFormat::e2m1: halves = ptx::halves_of_e2m1x2(code); break;
  }
  return ptx::float_of(Half{static_cast<std::uint16_t>(halves)});
}

/// The values that codes and scales stand for, row-major, of any recipe and direction.
///
/// Bound: reads 1 byte an element (E2M1: 1/2) and writes 4.
struct Dequantize {
  static constexpr unsigned threads = 256;
  struct Shared {
    ScaleConstants constants;
  };

  std::size_t rows, columns;  ///< of the tensor
  CodeFormat format;
  const std::uint8_t* codes;
  bool transposed;  ///< codes are those of the transpose
  const float* scale_inv;
  const std::uint8_t* scale_codes;  ///< null: scales are float32
  ScaleStore layout;                ///< of the scales: its place() alone counts
  bool scales_transposed;           ///< a row of the layout has the scales of a column
  std::size_t scale_rows;           ///< rows and columns of the tensor that share an entry
  std::size_t scale_columns;
  ScaleMaker<AnyRecipe> scales;
  float* out;

  [[nodiscard]] std::size_t runs_of_row() const { return ceil_div(columns, run_length); }
  [[nodiscard]] std::size_t blocks() const { return ceil_div(rows * runs_of_row(), threads); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& shared) const {
    team.for_each(1, [&](std::size_t) { shared.constants = scales.known_constants(); });
    team.for_each_thread([&](std::size_t t) {
      const std::size_t run = block * threads + t;
      const std::size_t row = run / ceil_div(columns, run_length);
      const std::size_t column = run % ceil_div(columns, run_length) * run_length;
      if (row >= rows) return;
      const std::size_t valid = columns - column;
      const RunCodes own = transposed ? gathered(row, column, valid) : codes_at(row * columns + column, valid);
      Run<float> values{};
      float factor = 0;
      unrolled<run_length>([&](unsigned i) {
        if (i >= valid) return;
        if (i == 0 || (column + i) % scale_columns == 0) factor = multiplier(shared.constants, row, column + i);
        values.words[i] = std::bit_cast<std::uint32_t>(product(own.words[i / 4] >> (i % 4 * 8) & 0xFFU, factor));
      });
      put(values, out + row * columns + column, valid);
    });
  }

 private:
  [[nodiscard]] FP8LAB_HD std::uint32_t code_at(std::size_t i) const {
    if (format != CodeFormat::e2m1) return codes[i];
    return codes[i / 2] >> (i % 2 * 4) & 0xFU;
  }
  /// Codes of a run, a byte each.
  [[nodiscard]] FP8LAB_HD RunCodes codes_at(std::size_t at, std::size_t valid) const {
    RunCodes run{};
    if (format != CodeFormat::e2m1 && valid >= run_length && is_aligned<run_length>(codes + at)) {
      const auto words = load<4>(reinterpret_cast<const std::uint32_t*>(codes + at));
      unrolled<4>([&](unsigned i) { run.words[i] = words[i]; });
      return run;
    }
    unrolled<run_length>([&](unsigned i) {
      if (i < valid) run.words[i / 4] |= code_at(at + i) << (i % 4 * 8);
    });
    return run;
  }
  [[nodiscard]] FP8LAB_HD RunCodes gathered(std::size_t row, std::size_t column, std::size_t valid) const {
    RunCodes run{};
    unrolled<run_length>([&](unsigned i) {
      if (i < valid) run.words[i / 4] |= code_at((column + i) * rows + row) << (i % 4 * 8);
    });
    return run;
  }
  [[nodiscard]] FP8LAB_HD float multiplier(const ScaleConstants& constants, std::size_t row, std::size_t column) const {
    const std::size_t down = row / scale_rows;
    const std::size_t right = column / scale_columns;
    const std::size_t at = scales_transposed ? layout.place(right, down) : layout.place(down, right);
    if (scale_codes == nullptr) return scale_inv[at];
    return value_of_scale_code(scales.rule.recipe(), constants, scales.amax == nullptr ? 0 : *scales.amax,
                               scale_codes[at]);
  }
  /// fl(value * factor): a NaN code keeps its sign, a NaN that arises has none.
  [[nodiscard]] FP8LAB_HD float product(std::uint32_t code, float factor) const {
    const float value = value_of_code(format, code);
    const float result = value * factor;
    if (result == result) return result;
    const bool negative = value != value && code >= 0x80U;
    return std::bit_cast<float>(negative ? 0xFFC00000U : 0x7FC00000U);
  }
  static FP8LAB_HD void put(const Run<float>& values, float* to, std::size_t valid) {
    if (valid >= run_length && is_aligned<4>(to)) {
      unrolled<4>([&](unsigned i) {
        store(Vector<float, 4>{values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]},
              to + std::size_t{4} * i);
      });
      return;
    }
    unrolled<run_length>([&](unsigned i) {
      if (i < valid) to[i] = values[i];
    });
  }
};

}  // namespace fp8lab::gpu
