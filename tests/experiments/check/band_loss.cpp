// SPDX-License-Identifier: Apache-2.0
// What a band loses without its codes, against quantize(), dequantize() and plain loops over all elements.
#include "check/band_loss.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/formats/widen.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using experiments::BandedMatrix;
using experiments::BandLoss;
using experiments::RowLoss;

/// A matrix of finite values in float32, and of the words of its own type.
template <typename T>
struct LossMatrix {
  std::size_t rows, columns;
  std::vector<T> words;

  [[nodiscard]] MatrixView view() const { return {std::span<const T>(words), rows, columns}; }
};

template <typename T>
T loss_word(float x) {
  if constexpr (std::is_same_v<T, float>) return x;
  if constexpr (std::is_same_v<T, Half>) return {static_cast<std::uint16_t>(encode(binary16, CastPolicy{}, x))};
  if constexpr (std::is_same_v<T, BFloat16>) return {static_cast<std::uint16_t>(encode(bfloat16, CastPolicy{}, x))};
}

/// Rows in turns: of many binades, of ties of E4M3 and E2M1 below their largest values, of zeros but for one, of
/// values near 2^-14 times the others, of one magnitude, and of subnormal numbers.
float loss_value(std::size_t row, std::size_t column, std::uint64_t seed) {
  const std::uint64_t bits = random_bits(seed, row * 4099 + column);
  const auto uniform = static_cast<float>(static_cast<double>(bits >> 11U) * 0x1p-53);
  const float sign = (bits & 1U) != 0 ? -1.0F : 1.0F;
  const auto code = static_cast<std::uint8_t>(bits >> 8U);
  switch (row % 7) {
    case 0: return sign * std::ldexp(uniform, static_cast<int>(bits % 40U) - 30);
    case 1: return column % 16 == 0 ? 448 : sign * (decode(e4m3, code % 126U) + decode(e4m3, code % 126U + 1)) / 2;
    case 2: return column % 16 == 0 ? 6 : sign * (decode(e2m1, code % 7U) + decode(e2m1, code % 7U + 1)) / 2;
    case 3: return column == 5 ? sign : 0.0F;
    case 4: return sign * uniform * 0x1p-14F;
    case 5: return sign * 0x1.8p3F;
    default: return sign * uniform * (column % 3 == 0 ? 0x1p-140F : 0x1p-120F);
  }
}

template <typename T>
LossMatrix<T> loss_matrix(std::size_t rows, std::size_t columns, std::uint64_t seed) {
  LossMatrix<T> matrix{rows, columns, {}};
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      matrix.words.push_back(loss_word<T>(loss_value(row, column, seed)));
    }
  }
  return matrix;
}

/// The loss of a row by what dequantize() gives; sums in the order that row_loss.hpp states.
RowLoss plain_loss(std::span<const float> back, std::span<const float> x, std::span<const std::uint8_t> codes,
                   const Format& format) {
  std::array<double, 8> lanes{};
  RowLoss loss;
  const unsigned magnitudes = 1U << (format.bits() - 1);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double error = static_cast<double>(back[i]) - static_cast<double>(x[i]);
    lanes[i % 8] += error * error;
    if (back[i] == 0 && x[i] != 0) ++loss.zeroed;
    const unsigned magnitude = codes[i] % magnitudes;
    if (magnitude != 0 && magnitude < 1U << static_cast<unsigned>(format.mantissa_bits)) ++loss.subnormal;
  }
  loss.noise = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  return loss;
}

/// Compares all rows of a matrix, as one band; false where the recipe is not known or makes scales that are not finite.
template <typename T>
bool same_losses(const LossMatrix<T>& matrix, const Recipe& recipe, Mismatches& mismatches) {
  // 1. Magnitudes, their runs and the amax.
  std::vector<float> x(matrix.words.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = widened(matrix.words[i]);
  std::vector<float> magnitudes(x.size());
  experiments::magnitudes_of(std::span<const T>(matrix.words), magnitudes);
  const std::size_t runs_a_row = (matrix.columns + experiments::run_length - 1) / experiments::run_length;
  std::vector<float> runs(matrix.rows * runs_a_row);
  BandedMatrix banded{.rows = matrix.rows, .columns = matrix.columns};
  if (std::is_same_v<T, Half>) banded.input_type = binary16;
  if (std::is_same_v<T, BFloat16>) banded.input_type = bfloat16;
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    const auto values = std::span<const float>(magnitudes).subspan(row * matrix.columns, matrix.columns);
    (void)experiments::energy_and_amaxes(values, std::span(runs).subspan(row * runs_a_row, runs_a_row));
    banded.amax = std::max(banded.amax, experiments::finite_amax(values).amax);
  }
  if (!BandLoss::knows(recipe, banded)) return false;
  BandLoss loss(recipe, banded);
  if (!loss.make_scales(runs, matrix.rows)) return false;
  // 2. The same by codes.
  const Quantized q = quantize(matrix.view(), recipe);
  std::vector<float> back(q.rows * q.columns);
  dequantize(q, back);
  std::vector<std::uint8_t> codes(q.rows * q.columns);
  if (q.format.bits() == 4) {
    unpack_pairs(q.codes, codes);
  } else {
    std::ranges::copy(q.codes, codes.begin());
  }
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    const auto part = [&](auto& all, std::size_t width) {
      return std::span(std::as_const(all)).subspan(row * width, matrix.columns);
    };
    const RowLoss made = loss.add_row(row, part(magnitudes, matrix.columns));
    const RowLoss plain = plain_loss(part(back, q.columns), part(x, matrix.columns), part(codes, q.columns), q.format);
    const auto word = std::bit_cast<std::uint64_t>(plain.noise);
    mismatches.compare(row, row, std::bit_cast<std::uint64_t>(made.noise), word, "noise");
    mismatches.compare(row, row, made.zeroed, plain.zeroed, "zeroed");
    mismatches.compare(row, row, made.subnormal, plain.subnormal, "subnormal");
  }
  return true;
}

}  // namespace

TEST_CASE("band loss: without codes it is what quantize() and dequantize() make, by every recipe and target") {
  const UnforceTarget unforce;
  std::size_t known = 0;
  std::size_t number = 0;
  for (const std::string_view target : targets()) {
    force_target(target);
    for (const NamedRecipe& named : recipes()) {
      Mismatches mismatches;
      bool is_known = false;
      const auto add = [&]<typename T>(T /*of_type*/) {
        for (const auto& [rows, columns] : {std::pair{28U, 256U}, {130U, 128U}, {14U, 1152U}, {9U, 40U}, {7U, 66U}}) {
          const Recipe& recipe = named.recipe;
          if ((recipe.whole_tiles || recipe.pads_tiles) &&
              (rows % std::max<std::size_t>(1, recipe.tile_across) != 0 ||
               columns % std::max<std::size_t>(1, recipe.tile_along) != 0)) {
            continue;
          }
          if (number++ % 4 != 0 && !exhaustive()) continue;  // another shape and type of each recipe on each target
          is_known |= same_losses(loss_matrix<T>(rows, columns, rows), recipe, mismatches);
        }
      };
      add(BFloat16{});
      add(Half{});
      add(float{});
      INFO(named.name << " on " << target << '\n' << mismatches.lines());
      CHECK(mismatches.count() == 0);
      known += is_known ? 1 : 0;
    }
    for (const char* usual : {"modelopt_fp8", "compressed_tensors_channel", "compressed_tensors_block",
                              "ocp_mxfp8_e4m3", "ocp_mxfp4", "modelopt_nvfp4"}) {
      INFO(usual);
      CHECK(BandLoss::knows(find_recipe(usual).recipe, {.rows = 4, .columns = 64, .input_type = bfloat16}));
    }
  }
  CHECK(known >= targets().size() * 40);
}

TEST_CASE("band loss: energies and amaxes are those of plain loops, and tell what is not finite, on every target") {
  const UnforceTarget unforce;
  std::vector<BFloat16> words;
  for (std::size_t i = 0; i < 300; ++i) words.push_back(loss_word<BFloat16>(loss_value(i % 7, i, 5)));
  words[40] = {0x7F80};   // infinity
  words[113] = {0xFFC1};  // NaN
  words[299] = {0x7F81};
  std::vector<float> x(words.size());
  std::ranges::transform(words, x.begin(), [](BFloat16 word) { return widened(word); });
  for (const std::string_view target : targets()) {
    force_target(target);
    for (const std::size_t size : {300, 299, 113, 40, 33, 16, 15, 1}) {
      INFO(size << " elements on " << target);
      // 1. What a plain loop finds.
      float amax = 0;
      std::uint64_t not_finite = 0;
      std::array<double, 8> lanes{};
      std::vector<float> amaxes((size + 15) / 16);
      for (std::size_t i = 0; i < size; ++i) {
        const float magnitude = std::fabs(x[i]);
        if (std::isfinite(magnitude)) amax = std::max(amax, magnitude);
        if (!std::isfinite(magnitude)) ++not_finite;
        float& of_run = amaxes[i / 16];
        if (std::isfinite(of_run) && !(magnitude <= of_run)) of_run = magnitude;
        lanes[i % 8] += static_cast<double>(magnitude) * static_cast<double>(magnitude);
      }
      const double energy =
          ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
      // 2. The same, many at a time.
      const experiments::FiniteAmax of_words = experiments::finite_amax(std::span<const BFloat16>(words).first(size));
      CHECK(of_words.amax == amax);
      CHECK(of_words.not_finite == not_finite);
      const experiments::FiniteAmax of_floats = experiments::finite_amax(std::span<const float>(x).first(size));
      CHECK(of_floats.amax == amax);
      CHECK(of_floats.not_finite == not_finite);
      std::vector<float> made(amaxes.size());
      const double sum = experiments::energy_and_amaxes(std::span<const float>(x).first(size), made);
      CHECK((std::isnan(energy) ? std::isnan(sum) : sum == energy));
      for (std::size_t run = 0; run < made.size(); ++run) {
        CHECK(std::isfinite(made[run]) == std::isfinite(amaxes[run]));
        if (std::isfinite(amaxes[run])) CHECK(made[run] == amaxes[run]);
      }
    }
  }
}

TEST_CASE("band loss: tiles whose amax is beyond the largest value are told by the quotient in double") {
  CHECK(!experiments::is_beyond(448, 1, 448));
  CHECK(experiments::is_beyond(449, 1, 448));
  CHECK(!experiments::is_beyond(std::nextafter(448 * 0.3F, 1000.0F), 0.3F, 448));  // by the rounding of a scale
  CHECK(experiments::is_beyond(448 * 0.3F * 1.001F, 0.3F, 448));
  CHECK(experiments::is_beyond(1, 0, 448));
  CHECK(!experiments::is_beyond(0, 0, 448));
  CHECK(!experiments::is_beyond(1, nan, 448));
  CHECK(!experiments::is_beyond(nan, 0.25F, 448));
  // A power of two is exact, subnormal or not; other scales may be rounded by 2^-23.
  CHECK(experiments::is_beyond(std::nextafter(448 * 0.25F, 1000.0F), 0.25F, 448));
  CHECK(experiments::is_beyond(std::nextafter(448 * 0x1p-140F, 1.0F), 0x1p-140F, 448));
  CHECK(!experiments::is_beyond(448 * 0x1p-140F, 0x1p-140F, 448));
  CHECK(!experiments::is_beyond(448 * 0x1.8p-140F, 0x1.8p-140F, 448));
  CHECK(experiments::is_beyond(std::numeric_limits<float>::max(), 0x1p100F, 448));
}

}  // namespace fp8lab::tests
