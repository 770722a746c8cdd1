// SPDX-License-Identifier: Apache-2.0
// GEMMs composed by hand of single instructions, and checks of what the GEMM doctor says of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "fp8lab/doctor/diagnose_gemm.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/tensor_core/mma.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "support.hpp"

namespace fp8lab::tests {

using doctor::diagnose_gemm;
using doctor::GemmDiagnosis;
using doctor::GemmExplanation;
using doctor::GemmOutput;

/// A GEMM of codes, composed element by element.
struct HandGemm {
  std::size_t rows, columns, depth;
  std::vector<std::uint8_t> a, b;  // (rows, depth), (columns, depth)
  Format format = e4m3;
  std::vector<std::uint8_t> block_a, block_b;
  std::size_t block = 0;
  std::vector<float> tile_a, tile_b, row_a, row_b;
  float scale_a = 1, scale_b = 1;
  std::vector<float> c, bias;  // (rows, columns) and (columns)
  float scale_out = 1;
  ZeroRule zero_rule = ZeroRule::floor;

  explicit HandGemm(std::uint64_t seed = 1, std::size_t k = 512, std::size_t m = 8, std::size_t n = 9)
      : rows(m), columns(n), depth(k) {
    const auto draw = [&](std::vector<std::uint8_t>& codes, std::size_t count, std::uint64_t stream) {
      for (std::size_t i = 0; i < count; ++i) {
        double x = 0.3;  // a mean makes sums grow, so that small products are cut
        for (std::uint64_t j = 0; j < 4; ++j) {
          x += static_cast<double>(random_bits(seed + stream, 4 * i + j) >> 40) * 0x1p-23 - 1;
        }
        // Magnitudes differ, or float32 would hold the sums.
        x = std::ldexp(x, static_cast<int>(random_bits(seed + stream + 7, i) % 13) - 6);
        codes.push_back(static_cast<std::uint8_t>(encode(e4m3, CastPolicy{}, static_cast<float>(x))));
      }
    };
    draw(a, rows * depth, 100);
    draw(b, columns * depth, 200);
  }

  /// The accumulator of products [first, last), from `start`.
  [[nodiscard]] float chain(const MmaModel& model, std::size_t row, std::size_t column, std::size_t first,
                            std::size_t last, float start = 0) const {
    std::vector<std::size_t> ks(last - first);
    std::iota(ks.begin(), ks.end(), first);
    return chain_of(model, row, column, ks, start);
  }

  /// The same of products in an order of their own. (Scales of blocks go with products that ascend.)
  [[nodiscard]] float chain_of(const MmaModel& model, std::size_t row, std::size_t column,
                               const std::vector<std::size_t>& ks, float start = 0) const {
    const auto width = model.k() == 0 ? ks.size() : static_cast<std::size_t>(model.k());
    float sum = start;
    Half half{static_cast<std::uint16_t>(encode(binary16, CastPolicy{}, start))};
    for (std::size_t at = 0; at < ks.size(); at += width) {
      const std::size_t k = ks[at];
      std::vector<std::uint8_t> x(width);
      std::vector<std::uint8_t> y(width);
      for (std::size_t i = 0; i < width && at + i < ks.size(); ++i) {
        x[i] = a[row * depth + ks[at + i]];
        y[i] = b[column * depth + ks[at + i]];
      }
      std::vector<std::uint8_t> scales_x;
      std::vector<std::uint8_t> scales_y;
      for (std::size_t i = 0; block != 0 && i < width / block; ++i) {
        scales_x.push_back(block_a[row * (depth / block) + k / block + i]);
        scales_y.push_back(block_b[column * (depth / block) + k / block + i]);
      }
      const Operand left = Operand::codes(x, format, 1, width, scales_x);
      const Operand right = Operand::codes(y, format, 1, width, scales_y);
      if (model.accumulator() == binary16) {
        mma(model, left, right, std::span<const Half>(&half, 1), std::span<Half>(&half, 1), zero_rule);
        sum = static_cast<float>(decode(binary16, half.bits));
      } else {
        mma(model, left, right, std::span<const float>(&sum, 1), std::span<float>(&sum, 1), zero_rule);
      }
    }
    return sum;
  }

  [[nodiscard]] Operand left() const { return operand(a, rows, block_a, tile_a, 1, row_a, scale_a); }
  [[nodiscard]] Operand right() const { return operand(b, columns, block_b, tile_b, 128, row_b, scale_b); }

  using Element = std::function<float(std::size_t, std::size_t)>;
  [[nodiscard]] std::vector<float> all(const Element& element) const {
    std::vector<float> out;
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t column = 0; column < columns; ++column) out.push_back(element(row, column));
    }
    return out;
  }

 private:
  [[nodiscard]] Operand operand(const std::vector<std::uint8_t>& codes, std::size_t count,
                                const std::vector<std::uint8_t>& blocks, const std::vector<float>& tiles,
                                std::size_t tile_rows, const std::vector<float>& row_scales, float scale) const {
    Operand result = Operand::codes(codes, format, count, depth, blocks);
    if (block != 0) result.scales.type = BlockScales{e8m0, static_cast<int>(block)};
    if (!tiles.empty()) result.tile_scales = {tiles, tile_rows, 128};
    result.row_scales = row_scales;
    result.tensor_scale = {scale};
    return result;
  }
};

inline std::vector<float> drawn_scales(std::size_t count, std::uint64_t seed) {
  std::vector<float> scales(count);
  for (std::size_t i = 0; i < count; ++i) {
    scales[i] = 0.01F + static_cast<float>(random_bits(seed, i) >> 44) * 0x1p-22F;
  }
  return scales;
}

/// Requires that the first explanation, where it explains all, gives the words that it was found from: with its
/// departures, and where there are none, its recipe by gemm().
template <typename Word>
void check_recomputed(const HandGemm& made, const std::vector<Word>& words, const GemmOutput& out,
                      const GemmDiagnosis& found) {
  if (!found.explained() || found.explanations.front().checked != words.size()) return;
  const GemmExplanation& first = found.explanations.front();
  INFO(describe(first));
  std::vector<std::uint64_t> there;
  for (const Word word : words) {
    if constexpr (sizeof(Word) == 4) {
      there.push_back(std::isnan(word) ? 0x7FFFFFFFU : bits(word));
    } else {
      there.push_back(std::isnan(decode(out.format, word)) ? out.format.magnitude_mask() : word);
    }
  }
  REQUIRE(gemm_words(first, made.left(), made.right(), out) == there);
  if (!first.departures.empty()) return;
  std::vector<Word> again(words.size());
  gemm(first.recipe, made.left(), made.right(), std::span<Word>(again),
       {.c = made.c, .bias = made.bias, .scale_out = made.scale_out});
  for (std::size_t i = 0; i < words.size(); ++i) {
    if constexpr (sizeof(Word) == 4) {
      REQUIRE(bits(again[i]) == there[i]);
    } else {
      REQUIRE((std::isnan(decode(out.format, again[i])) ? out.format.magnitude_mask() : again[i]) == there[i]);
    }
  }
}

template <typename Word>
GemmDiagnosis diagnosed(const HandGemm& made, const std::vector<Word>& words, const Format& format) {
  const GemmOutput out{.format = format,
                       .words = std::as_bytes(std::span(words)),
                       .c = made.c,
                       .bias = made.bias,
                       .scale_out = made.scale_out};
  GemmDiagnosis found = diagnose_gemm(made.left(), made.right(), out);
  check_recomputed(made, words, out, found);
  return found;
}

/// What the doctor should name: a recipe, whose scales multiply in that order where it says one, and a departure.
struct Planted {
  GemmRecipe recipe = {};
  std::string departure = {};
  std::size_t depth = 0;

  [[nodiscard]] GemmExplanation explanation() const {
    GemmExplanation expected{.recipe = recipe};
    if (recipe.scale_order) expected.recipe.tensor_scales = TensorScaleUse::with_rows;
    if (!departure.empty()) expected.departures = {{&doctor::find_gemm_departure(departure), depth}};
    return expected;
  }
};

/// The name of the departure that was found; empty: there is none.
inline std::string departure_of(const GemmExplanation& explanation) {
  return explanation.departures.empty() ? "" : std::string(explanation.departures.front().row->name);
}

/// Whether the first explanation is what was planted, by that model or others that give the same.
inline void check_named(const GemmDiagnosis& found, const Planted& planted) {
  INFO(found.verdict);
  REQUIRE(found.explained());
  CHECK(found.explanations.front().checked == found.elements);
  const GemmExplanation expected = planted.explanation();
  GemmExplanation first = found.explanations.front();
  CHECK(std::ranges::count(first.models, expected.recipe.model.name) == 1);
  first.recipe.model = expected.recipe.model;
  CHECK(describe(first) == describe(expected));
  CHECK(found.correct() == expected.is_plain());
}

inline std::vector<std::uint16_t> rounded_to(const Format& format, const std::vector<float>& values,
                                             Rounding rounding = Rounding::nearest_even) {
  CastPolicy policy = cuda_nosat_policy;
  policy.rounding = rounding;
  std::vector<std::uint16_t> words;
  for (const float x : values) words.push_back(static_cast<std::uint16_t>(encode(format, policy, x)));
  return words;
}

}  // namespace fp8lab::tests
