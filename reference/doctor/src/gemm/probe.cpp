// SPDX-License-Identifier: Apache-2.0
// Inputs of a GEMM on which hypotheses differ.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "gemm/scorer.hpp"
#include "search/draw.hpp"
#include "search/probe.hpp"

namespace fp8lab::doctor {
namespace {

constexpr std::size_t most_side = 64;
constexpr std::size_t compared = 16;  ///< elements of each try
/// What is equal on these is compared on more elements of the best try, for at most so many products.
constexpr std::size_t most_products = std::size_t{1} << 26;
constexpr int tries = 12;

/// A code of the format without infinities and NaNs, with an exponent near that of 1 or, now and then, any.
std::uint8_t drawn_code(const Format& format, std::uint64_t word) {
  const auto top = static_cast<std::uint64_t>(format.max_code());
  const std::uint64_t one = static_cast<std::uint64_t>(format.bias) << format.mantissa_bits;
  const std::uint64_t step = std::uint64_t{1} << format.mantissa_bits;
  const std::uint64_t near = one - step + word % (3 * step);
  const std::uint64_t magnitude = (word >> 20) % 4 == 0 ? (word >> 24) % (top + 1) : std::min(near, top);
  return static_cast<std::uint8_t>(magnitude | ((word >> 60) % 2 == 0 ? 0 : format.sign_mask()));
}

std::vector<std::uint8_t> drawn_codes(const Format& format, std::size_t count, std::uint64_t seed) {
  std::vector<std::uint8_t> codes(count);
  for (std::size_t i = 0; i < count; ++i) codes[i] = drawn_code(format, drawn_word(seed, i));
  if (format.bits() != 4) return codes;
  std::vector<std::uint8_t> pairs((count + 1) / 2);
  pack_pairs(codes, pairs);
  return pairs;
}

/// Codes of scales from 1/4 to 4.
std::vector<std::uint8_t> drawn_blocks(const std::optional<BlockScales>& type, std::size_t rows, std::size_t depth,
                                       std::uint64_t seed) {
  if (!type) return {};
  const bool powers = type->format == e8m0;
  std::vector<std::uint8_t> codes(rows * (depth / static_cast<std::size_t>(type->block)));
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::uint8_t>((powers ? 125 : 0x28) + drawn_word(seed, i) % (powers ? 5 : 33));
  }
  return codes;
}

/// Numbers from 0.5 to 1.5 with all bits of float32.
std::vector<float> drawn_scales(std::size_t count, std::uint64_t seed) {
  std::vector<float> scales(count);
  for (std::size_t i = 0; i < count; ++i) scales[i] = 0.5F + static_cast<float>(drawn_word(seed, i) >> 40) * 0x1p-24F;
  return scales;
}

std::vector<float> drawn_tiles(std::size_t tile_rows, std::size_t tile_depth, const GemmProbe& probe, std::size_t rows,
                               std::uint64_t seed, bool powers) {
  if (tile_rows == 0) return {};
  const std::size_t count = (rows + tile_rows - 1) / tile_rows * ((probe.depth + tile_depth - 1) / tile_depth);
  std::vector<float> scales = drawn_scales(count, seed);
  if (powers) {
    for (float& scale : scales) scale = scale < 1 ? 0.5F : 1;
  }
  return scales;
}

GemmProbe drawn_probe(const GemmInputs& inputs, std::uint64_t seed, bool powers) {
  GemmProbe probe;
  probe.rows = std::min(inputs.rows, most_side);
  probe.columns = std::min(inputs.columns, most_side);
  probe.depth = inputs.depth;
  const std::uint64_t stream = seed * 16;
  probe.a = drawn_codes(inputs.format_a, probe.rows * probe.depth, stream);
  probe.b = drawn_codes(inputs.format_b, probe.columns * probe.depth, stream + 1);
  probe.blocks_a = drawn_blocks(inputs.blocks_a, probe.rows, probe.depth, stream + 2);
  probe.blocks_b = drawn_blocks(inputs.blocks_b, probe.columns, probe.depth, stream + 3);
  probe.tiles_a = drawn_tiles(inputs.tile_rows_a, inputs.tile_depth, probe, probe.rows, stream + 4, powers);
  probe.tiles_b = drawn_tiles(inputs.tile_rows_b, inputs.tile_depth, probe, probe.columns, stream + 5, powers);
  if (inputs.row_scales_a) probe.rows_a = drawn_scales(probe.rows, stream + 6);
  if (inputs.row_scales_b) probe.rows_b = drawn_scales(probe.columns, stream + 7);
  if (inputs.tensor_scale_a) probe.scale_a = 0.7310586F;  // products with these are rounded
  if (inputs.tensor_scale_b) probe.scale_b = 1.3132617F;
  if (inputs.scale_out) probe.scale_out = 0.8427008F;
  // As large as sums are.
  const auto spread = static_cast<float>(std::sqrt(static_cast<double>(probe.depth)));
  if (inputs.c) probe.c = drawn_scales(probe.rows * probe.columns, stream + 8);
  if (inputs.bias) probe.bias = drawn_scales(probe.columns, stream + 9);
  for (float& c : probe.c) c *= spread;
  for (float& bias : probe.bias) bias *= -spread;
  return probe;
}

/// The GEMM of a probe, and which of its elements are compared.
struct ProbedGemm {
  Operand a, b;
  GemmOutput out;

  ProbedGemm(const GemmProbe& probe, const GemmInputs& inputs, std::size_t most_compared)
      : a(Operand::codes(probe.a, inputs.format_a, probe.rows, probe.depth, probe.blocks_a)),
        b(Operand::codes(probe.b, inputs.format_b, probe.columns, probe.depth, probe.blocks_b)),
        out{.format = inputs.format, .c = probe.c, .bias = probe.bias, .scale_out = probe.scale_out} {
    a.packed = inputs.format_a.bits() == 4;
    b.packed = inputs.format_b.bits() == 4;
    a.scales.type = inputs.blocks_a;
    b.scales.type = inputs.blocks_b;
    a.tile_scales = {probe.tiles_a, std::max<std::size_t>(inputs.tile_rows_a, 1), inputs.tile_depth};
    b.tile_scales = {probe.tiles_b, std::max<std::size_t>(inputs.tile_rows_b, 1), inputs.tile_depth};
    a.row_scales = probe.rows_a;
    b.row_scales = probe.rows_b;
    a.tensor_scale = {probe.scale_a};
    b.tensor_scale = {probe.scale_b};
    const std::size_t elements = probe.rows * probe.columns;
    for (std::size_t i = 0; i < std::min(most_compared, elements); ++i) {
      out.indices.push_back(elements <= most_compared ? i : static_cast<std::size_t>(drawn_word(7, i) % elements));
    }
  }

  /// The words of the compared elements by a hypothesis.
  [[nodiscard]] std::vector<std::uint64_t> words_by(GemmExplanation one) const {
    for (FoundDeparture& departure : one.departures) departure.depth = std::min(departure.depth, a.depth);
    return words_by_explanation(one, a, b, out);
  }
};

/// Drops pairs from those that are alike which differ in more elements than were compared.
void compare_more(GemmProbe& probe, const GemmInputs& inputs, std::span<const GemmExplanation> explanations) {
  std::map<std::size_t, std::vector<std::uint64_t>> words;
  for (const auto& [i, j] : probe.alike) words[i] = words[j] = {};
  if (words.empty()) return;
  const ProbedGemm probed(probe, inputs, most_products / (words.size() * probe.depth));
  for (auto& [number, own] : words) own = probed.words_by(explanations[number]);
  std::erase_if(probe.alike, [&](const auto& pair) { return words.at(pair.first) != words.at(pair.second); });
}

/// The best probe of that K.
GemmProbe best_probe(std::span<const GemmExplanation> explanations, const GemmInputs& inputs, bool powers) {
  const auto draw = [&](int number) { return drawn_probe(inputs, static_cast<std::uint64_t>(number) + 1, powers); };
  const auto ask = [&](const GemmProbe& probe) {
    const ProbedGemm probed(probe, inputs, compared);
    std::vector<std::vector<std::uint64_t>> words;
    words.reserve(explanations.size());
    for (const GemmExplanation& one : explanations) words.push_back(probed.words_by(one));
    return words;
  };
  auto best = most_parting<GemmProbe>(tries, draw, ask);
  compare_more(best, inputs, explanations);
  return best;
}

/// Lengths of K that are tried, the shortest first.
std::vector<std::size_t> depths_of_probe(std::span<const GemmExplanation> explanations, const GemmInputs& inputs) {
  std::size_t longest = 0;
  const auto block_of = [](const std::optional<BlockScales>& blocks) {
    return blocks ? static_cast<std::size_t>(blocks->block) : std::size_t{1};
  };
  std::size_t unit =
      std::max({inputs.tile_depth, block_of(inputs.blocks_a), block_of(inputs.blocks_b), std::size_t{32}});
  for (const GemmExplanation& one : explanations) {
    const GemmRecipe& r = one.recipe;
    if (r.k_order.ways != 1 || !r.split_k.empty() || !one.departures.empty()) return {inputs.depth};
    longest = std::max({longest, static_cast<std::size_t>(r.promote_k), r.range_k});
    unit = std::max(unit, static_cast<std::size_t>(r.model.k()));
  }
  const std::size_t most = longest == 0 ? inputs.depth : 2 * longest;
  std::vector<std::size_t> all;
  for (std::size_t k = unit; k < most; k *= 2) all.push_back(k);
  if (longest != 0 && (longest + unit) % unit == 0 && longest + unit < most) all.push_back(longest + unit);
  all.push_back(most);
  std::ranges::sort(all);
  return all;
}

}  // namespace

GemmProbe probe_gemm(std::span<const GemmExplanation> explanations, const GemmInputs& given, std::size_t depth) {
  const DefaultEnvironment environment;
  GemmInputs inputs = given;
  if (inputs.format_a.bits() > 8 || inputs.format_b.bits() > 8) refuse("probes are of formats of at most 8 bits");
  if (depth != 0) inputs.depth = depth;
  const bool has_pairs = inputs.format_a.bits() == 4 || inputs.format_b.bits() == 4;
  if (has_pairs && inputs.depth % 2 != 0) refuse("of codes of 4 bits, K must be even, not ", inputs.depth);
  if (explanations.size() < 2) refuse("a probe needs two hypotheses or more");
  // Scales of tiles become those of blocks where a hypothesis' model has such: powers of two.
  const bool powers = inputs.tile_depth != 0 && std::ranges::any_of(explanations, [](const GemmExplanation& one) {
                        return one.recipe.model.scales.has_value();
                      });
  std::vector<std::size_t> depths{inputs.depth};
  if (depth == 0) depths = depths_of_probe(explanations, inputs);
  inputs.depth = depths.front();
  GemmProbe best = best_probe(explanations, inputs, powers);
  for (const std::size_t k : std::span(depths).subspan(1)) {
    if (best.alike.empty()) break;
    inputs.depth = k;
    GemmProbe one = best_probe(explanations, inputs, powers);
    if (one.alike.size() < best.alike.size()) best = std::move(one);
  }
  return best;
}

GemmProbe prefix_probe(const GemmInputs& given, std::size_t depth) {
  const DefaultEnvironment environment;
  GemmInputs inputs = given;
  if (inputs.format_a.bits() > 8 || inputs.format_b.bits() > 8) refuse("probes are of formats of at most 8 bits");
  if (depth != 0) inputs.depth = depth;
  const auto block_of = [](const std::optional<BlockScales>& blocks) {
    return blocks ? static_cast<std::size_t>(blocks->block) : std::size_t{2};
  };
  const std::size_t unit = std::max(block_of(inputs.blocks_a), block_of(inputs.blocks_b));
  if (inputs.depth % unit != 0) refuse("K must be a multiple of ", unit, ", not ", inputs.depth);
  GemmProbe probe = drawn_probe(inputs, 1, false);
  // Elements of 4 bits are two in a byte.
  const std::size_t packing = inputs.format_a.bits() == 4 ? 2 : 1;
  const std::size_t bytes = probe.depth / packing;
  for (std::size_t row = 0; row < probe.rows; ++row) {
    const std::size_t share = ((row + 1) * probe.depth + probe.rows - 1) / probe.rows;
    const std::size_t end = std::min((share + unit - 1) / unit * unit, probe.depth) / packing;
    std::fill(probe.a.begin() + static_cast<std::ptrdiff_t>(row * bytes + end),
              probe.a.begin() + static_cast<std::ptrdiff_t>((row + 1) * bytes), std::uint8_t{0});
  }
  return probe;
}

}  // namespace fp8lab::doctor
