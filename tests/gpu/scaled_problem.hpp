// SPDX-License-Identifier: Apache-2.0
// Block-scaled GEMMs with seeded operands, and what gemm() makes of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/gpu/gemm.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "support.hpp"

namespace fp8lab::tests {

inline const std::array host_orders{gpu::HostOrder{}, gpu::HostOrder{.kind = gpu::HostOrder::Kind::descending},
                                    gpu::HostOrder{.kind = gpu::HostOrder::Kind::shuffled, .seed = 5},
                                    gpu::HostOrder{.kind = gpu::HostOrder::Kind::shuffled, .seed = 6, .threads = 3}};

/// What stands in operands: numbers alone, or infinities, NaNs and scales of 0 and 255 too.
enum class Contents : std::uint8_t { numbers, specials };

/// Codes and scales of a matrix of (rows, K).
struct ScaledSide {
  Format format;
  std::size_t rows;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;    ///< compact
  std::vector<std::uint8_t> swizzled;  ///< NaNs in its padding

  ScaledSide(const std::optional<BlockScales>& scaling, const Format& elements, std::size_t row_count, std::size_t k,
             Contents contents, std::uint64_t seed)
      : format(elements),
        rows(row_count),
        codes(rows * k * (elements == e2m1 ? 1 : 2) / 2),
        scales(scaling ? rows * k / static_cast<std::size_t>(scaling->block) : 0) {
    const auto is_rare = [&](std::size_t i) {
      return contents == Contents::specials && random_bits(seed + 1, i) % 900 == 0;
    };
    for (std::size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<std::uint8_t>(random_bits(seed, i));
      const bool is_number = format == e2m1 || std::abs(decode(format, codes[i])) < inf;
      if (!is_number && !is_rare(i)) codes[i] &= 0x3F;
    }
    if (!scaling) return;
    for (std::size_t i = 0; i < scales.size(); ++i) {
      const std::uint64_t word = random_bits(seed + 2, i);
      scales[i] = static_cast<std::uint8_t>(scaling->format == e8m0 ? 120 + word % 16 : word % 0x7F);
      if (contents == Contents::specials && word >> 32 % 300 == 0) scales[i] = word >> 20 % 2 == 0 ? 0 : 0xFF;
    }
    const std::size_t columns = k / static_cast<std::size_t>(scaling->block);
    swizzled.assign(swizzled_size(rows, columns), 0xFF);
    for (std::size_t i = 0; i < scales.size(); ++i) {
      swizzled[swizzled_place(i / columns, i % columns, columns)] = scales[i];
    }
  }
  [[nodiscard]] Operand operand(std::size_t k) const {
    return {.elements = std::span<const std::uint8_t>(codes),
            .format = format,
            .rows = rows,
            .depth = k,
            .packed = format == e2m1,
            .scales = {.codes = scales}};
  }
};

/// A block-scaled GEMM, and its result by gemm().
struct ScaledProblem {
  std::size_t k;
  ScaledSide a, b;
  float alpha;
  std::vector<float> expected;

  ScaledProblem(const MmaModel& model, std::array<Format, 2> formats, std::array<std::size_t, 3> shape,
                Contents contents = Contents::numbers, float factor = 1)
      : k(shape[2]),
        a(model.scales, formats[0], shape[0], k, contents, 10),
        b(model.scales, formats[1], shape[1], k, contents, 20),
        alpha(factor),
        expected(a.rows * b.rows) {
    Operand left = a.operand(k);
    left.tensor_scale.factor = factor;
    gemm({.model = model}, left, b.operand(k), expected);
  }
  /// How `d` differs.
  [[nodiscard]] Mismatches compare(const std::vector<float>& d) const {
    Mismatches wrong;
    for (std::size_t i = 0; i < expected.size(); ++i) wrong.compare(i, i, bits(d[i]), bits(expected[i]));
    return wrong;
  }
  [[nodiscard]] std::size_t numbers() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(expected, [](float x) { return std::abs(x) < inf && x != 0; }));
  }
};

/// A kernel of Blackwell, the chip that it runs as, and the formats of its bytes.
struct ScaledKernel {
  gpu::GemmKernel kernel;
  gpu::HostChip chip = gpu::HostChip::blackwell;
  gpu::MmaType type_a = gpu::MmaType::e4m3, type_b = gpu::MmaType::e4m3;

  [[nodiscard]] std::array<Format, 2> formats() const {
    if (gpu::is_packed(*gpu::kind_of(kernel))) return {e2m1, e2m1};
    return {gpu::format_of(type_a), gpu::format_of(type_b)};
  }
  /// The result of the host team; scales are swizzled, their padding NaN, or compact.
  [[nodiscard]] std::vector<float> run(const ScaledProblem& problem, const gpu::HostOrder& order,
                                       ScaleLayout layout = ScaleLayout::swizzled) const {
    std::vector<float> d(problem.expected.size(), -77);
    const auto scales = [&](const ScaledSide& side) {
      return BlockScaleCodes{.codes = layout == ScaleLayout::swizzled ? side.swizzled : side.scales, .layout = layout};
    };
    gpu::gemm_on_host(kernel,
                      {.m = problem.a.rows,
                       .n = problem.b.rows,
                       .k = problem.k,
                       .type_a = type_a,
                       .type_b = type_b,
                       .a = problem.a.codes,
                       .b = problem.b.codes,
                       .block_scales_a = scales(problem.a),
                       .block_scales_b = scales(problem.b),
                       .scale_a = std::span(&problem.alpha, 1),
                       .out = std::span(d)},
                      order, chip);
    return d;
  }
  void check(std::array<std::size_t, 3> shape, Contents contents = Contents::numbers, float alpha = 1,
             const gpu::HostOrder& order = {}, ScaleLayout layout = ScaleLayout::swizzled) const {
    const ScaledProblem problem(gpu::model_of(kernel, chip), formats(), shape, contents, alpha);
    CHECK(problem.numbers() > problem.expected.size() / 3);
    const Mismatches wrong = problem.compare(run(problem, order, layout));
    REQUIRE_NO(wrong);
  }
};

}  // namespace fp8lab::tests
