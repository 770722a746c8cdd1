// SPDX-License-Identifier: Apache-2.0
#include "quantize/by_quantize.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "quantize/differing.hpp"
#include "search/draw.hpp"

namespace fp8lab::doctor {
namespace {

/// Magnitudes over many binades, zeros of both signs, subnormals, and rows with infinity and NaN.
std::vector<float> elements_of_all_kinds(std::size_t rows, std::size_t columns) {
  std::vector<float> x(rows * columns);
  Generator draw(7);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint32_t bits = draw.bits();
    const int exponent = static_cast<int>(bits >> 26 & 7) - static_cast<int>(i / columns % 24);
    x[i] = drawn_number(bits, exponent);
    if ((bits >> 29 & 3) == 0) x[i] = std::copysign(0.0F, x[i]);
    if (i / columns == 5) x[i] = std::copysign(0.0F, x[i]);
    if (i / columns == 6) x[i] *= 0x1p-120F;
  }
  return x;
}

std::vector<std::uint8_t> unpacked_codes(const Quantized& q) {
  std::vector<std::uint8_t> codes(q.rows * q.columns);
  if (q.format.bits() == 4) {
    unpack_pairs(q.codes, codes);
  } else {
    std::ranges::copy(q.codes, codes.begin());
  }
  return codes;
}

bool is_same_on(const std::vector<float>& x, std::size_t rows, std::size_t columns, const Recipe& recipe) {
  const MatrixView view(std::span<const float>(x), rows, columns);
  const Stored stored = stored_by_quantize(view, recipe, Direction::rowwise, 1);
  if (stored.is_refused) return false;
  Dump dump{.codes = stored.codes, .format = recipe.format};
  dump.scales.format = scale_format_of(recipe);
  dump.scales.bytes = stored.scale_codes.empty() ? std::as_bytes(std::span(stored.scale_inv))
                                                 : std::as_bytes(std::span(stored.scale_codes));
  const StoredDump same(view, dump);
  const Source source(view, 1);
  const Hypothesis hypothesis{.base = "", .recipe = recipe};
  const KernelModel model(source, hypothesis, &same);
  if (!model.applies() || model.scale_mismatches() != 0) return false;
  for (std::size_t row = 0; row < rows; ++row) {
    if (model.code_mismatches({row, 0, columns}) != 0) return false;
  }
  return true;
}

}  // namespace

namespace {

bool has_model(const Recipe& recipe) {
  // Whole tiles of any size.
  const auto whole = [](std::size_t length, std::size_t tile) {
    return tile < 2 ? length : (length + tile - 1) / tile * tile;
  };
  const std::size_t rows = whole(128, recipe.tile_across);
  const std::size_t columns = whole(256, recipe.tile_along);
  Recipe own = recipe;
  if (is_stochastic(own)) own.cast.rounding = Rounding::nearest_even;  // that needs no random words
  std::vector<float> x = elements_of_all_kinds(rows, columns);
  if (!is_same_on(x, rows, columns, own)) return false;
  x[3 * columns + 17] = std::numeric_limits<float>::infinity();
  x[9 * columns + 200] = std::numeric_limits<float>::quiet_NaN();
  return is_same_on(x, rows, columns, own);
}

}  // namespace

bool is_modelled(const Recipe& recipe) {
  constexpr std::size_t most = 512;  // named recipes, and some that callers made
  thread_local std::vector<std::pair<Recipe, bool>> known;
  const auto found = std::ranges::find(known, recipe, &std::pair<Recipe, bool>::first);
  if (found != known.end()) return found->second;
  const bool is = has_model(recipe);
  if (known.size() < most) known.emplace_back(recipe, is);
  return is;
}

Stored stored_by_quantize(const MatrixView& x, const Recipe& recipe, Direction direction, int threads,
                          std::optional<float> tensor_amax) {
  Stored stored;
  if (is_stochastic(recipe)) {
    stored.is_refused = true;
    return stored;
  }
  try {
    const Quantized q = quantize(x, recipe, direction, {.given = {.tensor_amax = tensor_amax}, .threads = threads});
    stored = {false, unpacked_codes(q), q.scale_inv, q.scale_codes};
  } catch (const std::invalid_argument&) {
    stored.is_refused = true;
  }
  return stored;
}

std::uint64_t code_mismatches(const Stored& stored, const Format& format, const StoredDump& dump, int threads) {
  constexpr std::size_t at_once = 256;
  std::atomic<std::uint64_t> all = 0;
  const auto count_each = [&](std::size_t begin, std::size_t end) {
    std::uint64_t count = 0;
    for (std::size_t first = begin; first < end; first += at_once) {
      const auto own = std::span(stored.codes).subspan(first, std::min(at_once, end - first));
      const std::uint8_t* const there = &dump.codes[first];
      const auto sign = static_cast<std::uint8_t>(format.sign_mask());
      const auto [wrong, in_sign] = differing_bytes(there, own, own.data(), sign);
      count += wrong;
      for (std::size_t i = 0; i < own.size() && in_sign != 0 && format.has_nan(); ++i)
        count -= is_nan_of_other_sign(format, own[i], there[i]) ? 1 : 0;
    }
    all += count;
  };
  parallel_for(stored.codes.size(), threads, count_each, 16 * scalar_piece);
  return all;
}

std::uint64_t scale_mismatches(const Stored& stored, const StoredDump& dump) {
  if (dump.scales.empty()) return 0;
  const bool has_codes = !stored.scale_codes.empty();
  if (dump.scales.size() != (has_codes ? stored.scale_codes.size() : stored.scale_inv.size()))
    return dump.scales.size();
  const bool is_float = dump.scale_format && dump.scale_format->bits() > 8;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < dump.scales.size(); ++i) {
    const auto own =
        has_codes ? std::uint32_t{stored.scale_codes[i]} : std::bit_cast<std::uint32_t>(stored.scale_inv[i]);
    const auto value = std::bit_cast<float>(own);
    const bool are_nan = is_float && std::isnan(value) && std::isnan(std::bit_cast<float>(dump.scales[i]));
    count += has_codes != is_float && (own == dump.scales[i] || are_nan) ? 0 : 1;
  }
  return count;
}

}  // namespace fp8lab::doctor
