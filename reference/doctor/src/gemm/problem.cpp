// SPDX-License-Identifier: Apache-2.0
#include "gemm/problem.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <ranges>
#include <string_view>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "gemm/plain_rows.hpp"
#include "search/draw.hpp"

namespace fp8lab::doctor {
namespace {

std::size_t tile_depth(const Operand& x) { return x.tile_scales.values.empty() ? 0 : x.tile_scales.depth; }

/// Whether there are scales that multiply in the epilogue.
bool has_scales(const Operand& x) {
  const auto is_not_one = [](float scale) { return scale != 1; };
  return std::ranges::any_of(x.row_scales, is_not_one) || x.tensor_scale != TensorScale{};
}

/// Types to which rounding changes c or the bias.
std::vector<StepType> addend_types(const GemmOutput& out) {
  std::vector<StepType> all{StepType::as_given};
  for (const StepType type : {StepType::to_float16, StepType::to_bfloat16}) {
    const auto changes = [&](float x) { return rounded_to(type, x) != x; };
    if (std::ranges::any_of(out.c, changes) || std::ranges::any_of(out.bias, changes)) all.push_back(type);
  }
  return all;
}

}  // namespace

std::uint64_t canonical_word(const Format& format, std::uint64_t word) {
  constexpr Format single = binary32;
  if (format == single) return std::isnan(std::bit_cast<float>(static_cast<std::uint32_t>(word))) ? 0x7FFFFFFF : word;
  return std::isnan(decode(format, static_cast<std::uint32_t>(word))) ? format.magnitude_mask() : word;
}

std::uint64_t word_of(const GemmRecipe& recipe, float x) {
  constexpr Format single = binary32;
  const bool is_single = recipe.output == single;
  return canonical_word(recipe.output,
                        is_single ? std::bit_cast<std::uint32_t>(x) : encode(recipe.output, cast_of(recipe), x));
}

GemmProblem::GemmProblem(const Operand& a, const Operand& b, const GemmOutput& out) : a_(a), b_(b), out_(out) {
  check();
  facts_ = {{.tile_depth = std::max(tile_depth(a), tile_depth(b)),
             .c = !out.c.empty(),
             .bias = !out.bias.empty(),
             .scale_out = out.scale_out}};
  facts_.rows = a.rows;
  facts_.columns = b.rows;
  facts_.depth = a.depth;
  facts_.scales_a = has_scales(a) || tile_depth(a) != 0;
  facts_.scales_b = has_scales(b) || tile_depth(b) != 0;
  // Codes that would be NaN say nothing of an output that is NaN everywhere.
  const std::uint64_t nan = canonical_word(out.format, out.format.magnitude_mask());
  const bool has_number =
      std::ranges::any_of(std::views::iota(std::size_t{0}, known()), [&](std::size_t i) { return word(i) != nan; });
  constexpr Format codes = e4m3;
  facts_.e4m3_a = a.format == codes && has_number;
  facts_.e4m3_b = b.format == codes && has_number;
  facts_.other_format_a = format_read_for(a.format).has_value() && has_number;
  facts_.other_format_b = format_read_for(b.format).has_value() && has_number;
  facts_.row_scales_a = a.row_scales.size() > 1;
  facts_.row_scales_b = b.row_scales.size() > 1;
  facts_.addend_types = addend_types(out);
  facts_.format = out.format;
  facts_.overflowed = overflowed();
  if (!a.scales.codes.empty() && a.scales.type) {
    facts_.block = static_cast<std::size_t>(a.scales.type->block);
    facts_.block_codes = true;
    facts_.power_blocks = a.scales.type->format == e8m0 && !facts_.scales_a && !facts_.scales_b;
    facts_.other_layout_a = has_other_layout(a);
    facts_.other_layout_b = has_other_layout(b);
  }
}

bool GemmProblem::is_at_end(std::uint64_t word) const {
  return (word & out_.format.magnitude_mask()) >= out_.format.max_code();
}

/// Whether an element is the largest number of its format, an infinity or a NaN.
bool GemmProblem::overflowed() const {
  if (out_.format.bits() > 16) return false;
  const auto at_end = [&](std::size_t i) { return is_at_end(word(i)); };
  return std::ranges::any_of(std::views::iota(std::size_t{0}, known()), at_end);
}

bool GemmProblem::is_at_ends(std::span<const std::size_t> elements) const {
  if (out_.format.bits() > 16) return false;
  return std::ranges::all_of(elements, [&](std::size_t i) { return is_at_end(word(i)); });
}

std::size_t GemmProblem::used_depth(std::span<const std::size_t> elements) const {
  const auto [left, right] = rows_of(elements, false);
  const PlainRows a(a_, left, a_.depth, {});
  const PlainRows b(b_, right, b_.depth, {});
  for (std::size_t k = a_.depth; k > 0; --k) {
    for (std::size_t i = 0; i < elements.size(); ++i) {
      if (a.value(i, k - 1) != 0 && b.value(i, k - 1) != 0) return k;
    }
  }
  return 0;
}

std::size_t GemmProblem::count_unexplained(std::span<const std::uint64_t> words) const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < words.size(); ++i) count += words[i] != word(i) ? 1 : 0;
  return count;
}

GemmInputs GemmProblem::inputs() const {
  const auto tile_rows = [](const Operand& x) { return x.tile_scales.values.empty() ? 0 : x.tile_scales.rows; };
  return {.rows = a_.rows,
          .columns = b_.rows,
          .depth = a_.depth,
          .format_a = a_.format,
          .format_b = b_.format,
          .format = out_.format,
          .tensor_scale_a = a_.tensor_scale != TensorScale{},
          .tensor_scale_b = b_.tensor_scale != TensorScale{},
          .row_scales_a = !a_.row_scales.empty(),
          .row_scales_b = !b_.row_scales.empty(),
          .tile_rows_a = tile_rows(a_),
          .tile_rows_b = tile_rows(b_),
          .tile_depth = facts_.tile_depth,
          .blocks_a = a_.scales.type,
          .blocks_b = b_.scales.type,
          .c = facts_.c,
          .bias = facts_.bias,
          .scale_out = out_.scale_out != 1};
}

GemmFacts GemmProblem::facts_for(const MmaModel& model, bool blocks_as_tiles) const {
  if (blocks_as_tiles) {
    GemmFacts facts = facts_;  // where scales of blocks multiply sums
    facts.tile_depth = facts_.block;
    facts.block = 0;
    facts.scales_a = facts.scales_b = true;
    return facts;
  }
  if (!model.scales || facts_.tile_depth == 0) return facts_;
  GemmFacts facts = facts_;
  facts.tile_depth = 0;
  facts.scales_a = has_scales(a_);
  facts.scales_b = has_scales(b_);
  facts.block = block_for(model);
  return facts;
}

std::size_t GemmProblem::block_for(const MmaModel& model) const {
  return model.scales && facts_.tile_depth != 0 ? static_cast<std::size_t>(model.scales->block) : facts_.block;
}

std::size_t GemmProblem::known() const { return out_.indices.empty() ? a_.rows * b_.rows : out_.indices.size(); }

std::size_t bytes_of(const Format& format) {
  if (format.bits() <= 8) return 1;
  return format.bits() <= 16 ? 2 : 4;
}

void GemmProblem::check() const {
  if (a_.depth != b_.depth) refuse("a and b must have the same K, not ", a_.depth, " and ", b_.depth);
  if (a_.rows == 0 || b_.rows == 0 || a_.depth == 0) refuse("a and b must not be empty");
  constexpr Format widest = binary64;
  if (a_.format == widest || b_.format == widest || out_.format == widest) {
    const std::string_view inputs = a_.format == widest ? "a" : "b";
    refuse(out_.format == widest ? "out" : inputs, " must not be float64, which is not diagnosed");
  }
  if (out_.words.size() != known() * bytes()) {
    refuse("out must have ", known(), " elements of ", bytes(), " bytes, not ", out_.words.size(), " bytes");
  }
  if (!out_.c.empty() && out_.c.size() != a_.rows * b_.rows) {
    refuse("c must have ", a_.rows, " x ", b_.rows, " elements, not ", out_.c.size());
  }
  if (!out_.bias.empty() && out_.bias.size() != b_.rows) {
    refuse("the bias must have ", b_.rows, " elements, one for each row of b, not ", out_.bias.size());
  }
  for (const std::size_t index : out_.indices) {
    if (index >= a_.rows * b_.rows) refuse("index ", index, " is beyond an output of ", a_.rows, " x ", b_.rows);
  }
  if (tile_depth(a_) != 0 && tile_depth(b_) != 0 && tile_depth(a_) != tile_depth(b_)) {
    refuse("tile scales of a and b must be of the same depth");
  }
}

GemmPlace GemmProblem::element(std::size_t i) const {
  const std::size_t index = out_.indices.empty() ? i : out_.indices[i];
  return {index / b_.rows, index % b_.rows};
}
std::uint64_t GemmProblem::word(std::size_t i) const {
  std::uint64_t word = 0;
  std::memcpy(&word, out_.words.data() + i * bytes(), bytes());
  return canonical_word(out_.format, word);
}

std::vector<std::size_t> GemmProblem::order_of_elements(std::size_t first) const {
  constexpr std::size_t drawn = 192;
  std::vector<std::size_t> order(known());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (std::size_t i = 0; i + 1 < order.size(); ++i)
    std::swap(order[i], order[i + drawn_word(0, i) % (order.size() - i)]);
  const std::size_t count = std::min(drawn, order.size());
  const auto [left, right] = rows_of(std::span(order).first(count), false);
  const PlainRows a(a_, left, a_.depth, {});
  const PlainRows b(b_, right, b_.depth, {});
  std::vector<std::pair<double, std::size_t>> cancellation;
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0;
    double magnitude = 0;
    for (std::size_t k = 0; k < a_.depth; ++k) {
      const double product = a.value(i, k) * b.value(i, k);
      sum += product;
      magnitude += std::abs(product);
    }
    const double ratio = sum == 0 ? 0 : magnitude / std::abs(sum);
    cancellation.emplace_back(std::isfinite(ratio) ? -ratio : 0, order[i]);
  }
  // Every fourth stays as drawn, so that the sieve has usual elements, too.
  std::ranges::sort(cancellation);
  for (std::size_t i = 0; i < count; ++i) order[i] = cancellation[i].second;
  for (std::size_t i = 0; i < first / 4 && count > first; ++i) {
    std::swap(order[4 * i + 3], order[count - 1 - i]);
  }
  return order;
}

GemmProblem::Rows GemmProblem::rows_of(std::span<const std::size_t> elements, bool transposed) const {
  Rows rows;
  for (const std::size_t i : elements) {
    const GemmPlace at = element(i);
    const std::size_t index = at.row * b_.rows + at.column;
    rows.first.push_back(transposed ? index % a_.rows : at.row);
    rows.second.push_back(transposed ? index / a_.rows : at.column);
  }
  return rows;
}

}  // namespace fp8lab::doctor
