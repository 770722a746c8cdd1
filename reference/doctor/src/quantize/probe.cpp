// SPDX-License-Identifier: Apache-2.0
// Tensors on which hypotheses differ.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "fp8lab/doctor/diagnose.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "quantize/by_quantize.hpp"
#include "quantize/kernel_model.hpp"
#include "search/draw.hpp"
#include "search/probe.hpp"

namespace fp8lab::doctor {
namespace {

constexpr std::size_t probe_rows = 128;
constexpr std::size_t probe_columns = 256;

/// The exponent of the magnitudes of a row. Some rows lie below the floors that recipes have for amaxes and scales,
/// each within the binades of a format.
int scale_of_row(std::size_t row, int kind) {
  const int near = static_cast<int>(row % 8);
  if (row % 16 == 9 && kind % 2 == 1) return near - 120;
  if (row % 16 == 13) return -12 - 12 * static_cast<int>(row / 16);
  return near - 4;
}

/// One of the kinds of tensors that are tried. Rows have magnitudes of their own; the first elements of blocks of 16
/// are amaxes beside those where rules for powers of two differ.
std::vector<float> tensor_of(int kind) {
  Generator draw(static_cast<std::uint64_t>(kind) + 11);
  const bool has_specials = kind % 4 == 1;  // infinities, and zero tiles
  const bool has_nan = kind % 4 == 2;
  constexpr std::array<std::uint32_t, 3> spreads{4, 12, 24};
  // Quotients of short numbers often lie halfway between two codes, or nearly: there the last bit of a factor shows.
  constexpr std::array<int, 4> lengths{23, 10, 7, 8};
  const int mantissa_bits = lengths[static_cast<std::size_t>(kind) / 6 % lengths.size()];
  const std::uint32_t spread = spreads[static_cast<std::size_t>(kind) % spreads.size()];
  std::vector<float> x(probe_rows * probe_columns);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t row = i / probe_columns;
    const int scale = scale_of_row(row, kind);
    const int exponent = scale - static_cast<int>(draw.bits() % spread);
    x[i] = drawn_number(draw.bits(), exponent, mantissa_bits);
    if (i % 16 == 0) {
      constexpr std::array edges{1.0F, 1.75F, 1.5F, 1.9375F, 1.875F, 1.96875F};
      const float edge = std::ldexp(edges[draw.bits() % edges.size()], scale + 1);
      const auto step = draw.bits() % 3 - 1;
      x[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(edge) + step) * (draw.bits() % 2 == 0 ? -1.0F : 1.0F);
      if (mantissa_bits != 23 && row % 2 == 1) x[i] = drawn_number(draw.bits(), scale + 1, mantissa_bits);
    }
    if (draw.bits() % 64 == 0) x[i] = std::copysign(0.0F, x[i]);
    if (has_specials && (row == 17 || i % probe_columns / 128 + row == 40)) x[i] = std::copysign(0.0F, x[i]);
    if (has_specials && row == 21) x[i] *= 0x1p-130F;
  }
  if (has_specials) x[90 * probe_columns + 33] = -std::numeric_limits<float>::infinity();
  if (has_nan) x[77 * probe_columns + 150] = std::numeric_limits<float>::quiet_NaN();
  return x;
}

std::uint64_t digest_of(std::span<const std::uint8_t> bytes) {
  std::uint64_t digest = 0xCBF29CE484222325U;
  for (const std::uint8_t byte : bytes) digest = (digest ^ byte) * 0x100000001B3U;
  return digest;
}

/// All codes as they are stored, a byte each.
std::vector<std::uint8_t> codes_by(const Hypothesis& hypothesis, const MatrixView& view, const Source& rowwise,
                                   const Source& columnwise) {
  if (hypothesis.deviations.empty()) {
    const Stored stored = stored_by_quantize(view, hypothesis.recipe, hypothesis.direction, 1);
    if (!stored.is_refused) return stored.codes;
  }
  const Source& source = hypothesis.direction == Direction::rowwise ? rowwise : columnwise;
  const KernelModel model(source, hypothesis, nullptr);
  std::vector<std::uint8_t> codes(source.size());
  if (!model.applies()) return codes;
  std::vector<std::uint8_t> row_codes(source.columns());
  std::vector<std::uint8_t> others(source.columns());
  for (std::size_t row = 0; row < source.rows(); ++row) {
    model.predict({row, 0, source.columns()}, row_codes, others);
    for (std::size_t column = 0; column < source.columns(); ++column) {
      const std::uint64_t place = model.place_of(row, column);
      if (place < codes.size()) codes[place] = row_codes[column];
    }
  }
  return codes;
}

}  // namespace

Probe probe(std::span<const Hypothesis> hypotheses, const Format& input_type) {
  const DefaultEnvironment environment;
  if (hypotheses.size() < 2) refuse("a probe parts at least two hypotheses; there are ", hypotheses.size());
  constexpr int kinds = 24;
  const auto draw = [&](int kind) {
    Probe one;
    one.rows = probe_rows;
    one.columns = probe_columns;
    one.values = tensor_of(kind);
    if (input_type == binary16) narrow(Narrowing::float16, one.values);
    if (input_type == bfloat16) narrow(Narrowing::bfloat16, one.values);
    return one;
  };
  const auto ask = [&](Probe& one) {
    const MatrixView view(std::span<const float>(one.values), one.rows, one.columns);
    const Source rowwise(view, 1);
    const Source columnwise = rowwise.transposed();
    for (const Hypothesis& hypothesis : hypotheses) {
      one.digests.push_back(digest_of(codes_by(hypothesis, view, rowwise, columnwise)));
    }
    return one.digests;
  };
  return most_parting<Probe>(kinds, draw, ask);
}

}  // namespace fp8lab::doctor
