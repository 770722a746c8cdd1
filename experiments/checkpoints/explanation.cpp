// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/explanation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <unordered_map>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/widen.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"

namespace fp8lab::experiments {

namespace {

/// Numbers have at most 6 digits.
template <typename... Parts>
std::string text(const Parts&... parts) {
  std::string all;
  const auto append = [&all](const auto& part) {
    if constexpr (std::is_floating_point_v<std::remove_cvref_t<decltype(part)>>) {
      all += fmt::format("{:.6g}", part);
    } else {
      all += fmt::format("{}", part);
    }
  };
  (append(parts), ...);
  return all;
}
float as_float(float x) { return x; }
float as_float(double x) { return static_cast<float>(x); }
template <typename T>
float as_float(T x) {
  return widened(x);
}

bool same_word(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}
std::size_t count_of_differing(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return std::max(a.size(), b.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += same_word(a[i], b[i]) ? 0 : 1;
  return count;
}
std::size_t count_of_differing(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  if (a.size() != b.size()) return std::max(a.size(), b.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] == b[i] ? 0 : 1;
  return count;
}

/// 2^ceil(log2(x)) of a positive normal number.
float power_above(float x) {
  int exponent = 0;
  const float mantissa = std::frexp(x, &exponent);
  return std::ldexp(1.0F, mantissa == 0.5F ? exponent - 1 : exponent);
}
/// The E8M0 byte of a scale, rounded up, as a number.
float byte_as_number(float x) {
  int exponent = 0;
  const float mantissa = std::frexp(x, &exponent);
  return static_cast<float>((mantissa == 0.5F ? exponent - 1 : exponent) + 127);
}

/// The grid of scales in the order of cuBLAS's tiles of 128 x 4, read as if it were row-major.
std::vector<float> swizzled(const CodedMatrix& matrix) {
  const std::size_t rows = matrix.grid_rows();
  const std::size_t columns = matrix.grid_columns();
  if (rows % 128 != 0 || columns % 4 != 0) return {};
  std::vector<float> out(matrix.scales.size());
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      const std::size_t tile = row / 128 * (columns / 4) + column / 4;
      const std::size_t place = tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + column % 4;
      out[place] = matrix.scales[row * columns + column];
    }
  }
  return out;
}

/// What scales may be instead of those that are expected.
struct ScaleChange {
  FindingKind kind;
  std::string words;
  std::vector<float> scales;
};

std::vector<float> changed(std::span<const float> scales, const std::function<float(float)>& change) {
  std::vector<float> out(scales.begin(), scales.end());
  for (float& scale : out) scale = change(scale);
  return out;
}

/// Scales of the blocks that lie `down` rows and `right` columns before.
std::vector<float> rolled(const CodedMatrix& matrix, std::size_t down, std::size_t right) {
  const std::size_t rows = matrix.grid_rows();
  const std::size_t columns = matrix.grid_columns();
  std::vector<float> out(matrix.scales.size());
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      out[(row + down) % rows * columns + (column + right) % columns] = matrix.scales[row * columns + column];
    }
  }
  return out;
}

std::vector<float> transposed_grid(const CodedMatrix& matrix) {
  const std::size_t rows = matrix.grid_rows();
  const std::size_t columns = matrix.grid_columns();
  std::vector<float> out(matrix.scales.size());
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column)
      out[column * rows + row] = matrix.scales[row * columns + column];
  }
  return out;
}

std::vector<ScaleChange> scale_changes(const CodedMatrix& expected) {
  const std::size_t rows = expected.grid_rows();
  const std::size_t columns = expected.grid_columns();
  std::vector<ScaleChange> all{
      {FindingKind::bfloat16_scale, "scales are rounded to bfloat16, and the codes are those of float32 scales",
       changed(expected.scales, nearest_bfloat16)},
      {FindingKind::scale_rounded_after,
       "scales are rounded up to powers of two, and the codes are those of scales that are not",
       changed(expected.scales, power_above)},
      {FindingKind::e8m0_as_number, "scales are the exponent bytes of E8M0 as numbers, 127 for 1",
       changed(expected.scales, byte_as_number)},
      {FindingKind::transposed_scale, "the grid of scales is transposed", transposed_grid(expected)},
      {FindingKind::swizzled_scale, "block scales lie in the order of tiles of 128 x 4", swizzled(expected)},
  };
  if (rows > 1) {
    all.push_back({FindingKind::rolled_scale, "scales are those of the row of blocks before", rolled(expected, 1, 0)});
    all.push_back(
        {FindingKind::rolled_scale, "scales are those of the row of blocks behind", rolled(expected, rows - 1, 0)});
  }
  if (columns > 1) {
    all.push_back({FindingKind::rolled_scale, "scales are those of the block before", rolled(expected, 0, 1)});
    all.push_back(
        {FindingKind::rolled_scale, "scales are those of the block behind", rolled(expected, 0, columns - 1)});
  }
  return all;
}

/// Whether all scales have one ratio, and which. A quotient of two float32 numbers, each half a unit of its last place
/// off, has the ratio within 2^-22.
std::optional<double> one_ratio(std::span<const float> given, std::span<const float> expected) {
  std::optional<double> ratio;
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (expected[i] == 0 && given[i] == 0) continue;
    const double here = double{given[i]} / double{expected[i]};
    if (!std::isfinite(here) || here <= 0) return {};
    if (ratio && std::abs(here / *ratio - 1) > 0x1p-22) return {};
    if (!ratio) ratio = here;
  }
  return ratio;
}
bool are_inverses(std::span<const float> given, std::span<const float> expected) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!(std::abs(double{given[i]} * double{expected[i]} - 1) < 0x1p-22)) return false;
  }
  return true;
}

std::optional<Explanation> explain_global(const CodedMatrix& given, const CodedMatrix& expected) {
  if (!given.global || !expected.global || same_word(*given.global, *expected.global)) return {};
  if (are_inverses(std::span(&*given.global, 1), std::span(&*expected.global, 1))) {
    return Explanation{FindingKind::inverted_global_scale,
                       text("the tensor's scale is ", *given.global, ", the inverse of ", *expected.global)};
  }
  const double ratio = double{*given.global} / double{*expected.global};
  return Explanation{FindingKind::stale_global_scale,
                     text("the tensor's scale is ", *given.global, ", not ", *expected.global, ": every value is ",
                          given.global_divides ? 1 / ratio : ratio,
                          " times that of the recipe, whose codes and block scales these are")};
}

/// Scales that differ where the codes do not.
Explanation explain_scales(const CodedMatrix& given, const CodedMatrix& expected) {
  for (const ScaleChange& change : scale_changes(expected)) {
    if (count_of_differing(given.scales, change.scales) == 0) return {change.kind, change.words};
  }
  if (given.scales.size() == expected.scales.size()) {
    if (const auto ratio = one_ratio(given.scales, expected.scales); ratio && *ratio != 1) {
      int exponent = 0;
      if (std::frexp(*ratio, &exponent) == 0.5) {
        const int powers = exponent - 1;
        return {FindingKind::exponent_offset,
                text("all scales are ", powers < 0 ? "" : "+", powers, " powers of two off: every value is ", *ratio,
                     " times the recipe's")};
      }
      return {FindingKind::other_scale, text("all scales are ", *ratio, " times the recipe's, whose codes these are")};
    }
    if (are_inverses(given.scales, expected.scales)) {
      return {FindingKind::inverted_scale, "the inverse of each scale is stored: 448 / amax instead of amax / 448"};
    }
  }
  std::vector<std::size_t> differ;
  for (std::size_t i = 0; i < std::min(given.scales.size(), expected.scales.size()); ++i) {
    if (!same_word(given.scales[i], expected.scales[i])) differ.push_back(i);
  }
  return {FindingKind::damaged,
          text(differ.size(), " of ", given.scales.size(), " scales are not the recipe's, and all codes are"),
          places(differ, given.grid_columns())};
}

/// Where element i of the given codes is found in the expected ones.
struct CodeOrder {
  FindingKind kind;
  std::string_view words;
  std::function<std::size_t(std::size_t)> place;
};

/// Whether given[i] is expected[place(i)] everywhere, but for `open` places at an end.
bool is_in_order(const CodedMatrix& given, const CodedMatrix& expected, const CodeOrder& order, std::size_t open) {
  std::size_t differ = 0;
  for (std::size_t i = 0; i < given.codes.size(); ++i) {
    const std::size_t place = order.place(i);
    const bool is_same = place < expected.codes.size() && given.codes[i] == expected.codes[place];
    if (!is_same && ++differ > open) return false;
  }
  return true;
}

std::optional<Explanation> explain_order(const CodedMatrix& given, const CodedMatrix& expected) {
  const std::size_t size = given.codes.size();
  const std::size_t group = given.block_columns;
  std::vector<CodeOrder> orders;
  if (given.format.bits() == 4) {
    orders.push_back({FindingKind::nibble_order, "the even element of each pair is in the high nibble",
                      [](std::size_t i) { return i ^ 1; }});
    if (group > 1 && given.columns % group == 0) {
      orders.push_back({FindingKind::nibble_order,
                        "low nibbles are the first half of a block and high nibbles the second, as in GGUF",
                        [group](std::size_t i) {
                          const std::size_t in_group = i % group;
                          return i - in_group + in_group / 2 + in_group % 2 * (group / 2);
                        }});
    }
  }
  orders.push_back({FindingKind::elements_shifted, "each element is the one before it",
                    [size](std::size_t i) { return (i + size - 1) % size; }});
  orders.push_back({FindingKind::elements_shifted, "each element is the one behind it",
                    [size](std::size_t i) { return (i + 1) % size; }});
  for (const CodeOrder& order : orders) {
    if (is_in_order(given, expected, order, 1)) return Explanation{order.kind, std::string(order.words)};
  }
  return {};
}

/// A row's codes as a text, to find it again.
std::string row_key(const CodedMatrix& matrix, std::size_t row) {
  const auto begin = matrix.codes.begin() + static_cast<std::ptrdiff_t>(row * matrix.columns);
  return {begin, begin + static_cast<std::ptrdiff_t>(matrix.columns)};
}

std::optional<Explanation> explain_rows(const CodedMatrix& given, const CodedMatrix& expected) {
  std::unordered_map<std::string, std::size_t> row_of;
  for (std::size_t row = expected.rows; row-- > 0;) row_of[row_key(expected, row)] = row;
  std::vector<std::size_t> from(given.rows);
  std::vector<bool> is_there(given.rows);
  std::size_t moved = 0;
  for (std::size_t row = 0; row < given.rows; ++row) {
    const auto found = row_of.find(row_key(given, row));
    if (found == row_of.end()) return {};
    from[row] = found->second;
    is_there[found->second] = true;
    if (row_key(expected, row) != found->first) ++moved;
  }
  if (moved == 0) return {};
  const std::size_t half = given.rows / 2;
  const auto all = [&](const auto& rule) {
    for (std::size_t row = 0; row < given.rows; ++row) {
      if (from[row] != rule(row) && row_key(expected, rule(row)) != row_key(given, row)) return false;
    }
    return true;
  };
  if (all([half](std::size_t row) { return row < half ? 2 * row : 2 * (row - half) + 1; })) {
    return Explanation{FindingKind::rows_permuted,
                       "the even rows come first and then the odd ones: gate and up do not alternate"};
  }
  if (all([half](std::size_t row) { return row % 2 == 0 ? row / 2 : half + row / 2; })) {
    return Explanation{FindingKind::rows_permuted, "the rows of both halves alternate"};
  }
  if (all([half](std::size_t row) { return row % half; })) {
    return Explanation{FindingKind::repeated_rows,
                       text("rows ", half, " to ", given.rows - 1, " repeat rows 0 to ", half - 1)};
  }
  const bool are_all_there = std::ranges::find(is_there, false) == is_there.end();
  return Explanation{are_all_there ? FindingKind::rows_permuted : FindingKind::repeated_rows,
                     text(moved, " of ", given.rows, " rows are other rows of the original")};
}

/// Recipes that make other bytes of the same original, and what they mean.
struct OtherMaker {
  FindingKind kind;
  std::string words;
  Recipe recipe;
};

std::vector<OtherMaker> other_makers(const Recipe& recipe) {
  std::vector<OtherMaker> makers;
  const auto add = [&](FindingKind kind, std::string words, const std::function<void(Recipe&)>& change) {
    Recipe other = recipe;
    change(other);
    if (is_valid(other)) makers.push_back({kind, std::move(words), other});
  };
  add(FindingKind::toward_zero, "codes are rounded toward zero",
      [](Recipe& other) { other.cast.rounding = Rounding::toward_zero; });
  if (recipe.format == e4m3) {
    add(FindingKind::fnuz_codes,
        "codes and scales are those of E4M3 FNUZ: read as E4M3, values are doubled and 7F is NaN",
        [](Recipe& other) { other.format = e4m3fnuz; });
    add(FindingKind::e5m2_codes, "codes and scales are those of E5M2", [](Recipe& other) { other.format = e5m2; });
  }
  return makers;
}

/// How many rows a block has where the rows are cut into as many blocks as the grid has, all alike; 0: as they are.
std::size_t even_block_rows(const CodedMatrix& given) {
  const std::size_t grid = given.grid_rows();
  const bool is_even = given.block_rows > 1 && grid > 1 && given.rows % grid == 0;
  return is_even && given.rows / grid != given.block_rows ? given.rows / grid : 0;
}

/// What a rule makes of each `rows` rows by themselves.
CodedMatrix made_in_slabs(const ExpectedMatrix& maker, std::size_t rows) {
  CodedMatrix all;
  const std::size_t columns = maker.original.columns();
  maker.original.visit([&]<typename T>(std::span<const T> values) {
    for (std::size_t first = 0; first < maker.original.rows(); first += rows) {
      ExpectedMatrix slab = maker;
      slab.original = MatrixView(values.subspan(first * columns, rows * columns), rows, columns);
      CodedMatrix made = quantized_as(slab);
      all.codes.insert(all.codes.end(), made.codes.begin(), made.codes.end());
      all.scales.insert(all.scales.end(), made.scales.begin(), made.scales.end());
    }
  });
  return all;
}

/// The same codes and scales, where the blocks of one are told as those of the other.
bool has_same_bytes(const CodedMatrix& given, const CodedMatrix& made) {
  return count_of_differing(given.codes, made.codes) == 0 && count_of_differing(given.scales, made.scales) == 0;
}

std::optional<Explanation> explain_maker(const CodedMatrix& given, const ExpectedMatrix& maker,
                                         std::span<const Recipe> rules) {
  for (const Recipe& rule : rules) {
    for (const OtherMaker& other : other_makers(rule)) {
      ExpectedMatrix changed_maker = maker;
      changed_maker.recipe = other.recipe;
      changed_maker.make = nullptr;
      const CodedMatrix made = quantized_as(changed_maker);
      if (has_same_bytes(given, made)) return Explanation{other.kind, other.words};
    }
    if (const std::size_t rows = even_block_rows(given); rows != 0 && rule.tile_across > 1) {
      ExpectedMatrix slabs = maker;
      slabs.recipe = rule;
      slabs.make = nullptr;
      if (has_same_bytes(given, made_in_slabs(slabs, rows))) {
        return Explanation{FindingKind::other_block, text("blocks have ", rows, " rows, not ", given.block_rows)};
      }
    }
  }
  // Codes of scales that are no powers of two, under scales that are.
  if (maker.recipe.rounding != ScaleRounding::none) {
    ExpectedMatrix unrounded = maker;
    unrounded.make = nullptr;
    unrounded.recipe.rounding = ScaleRounding::none;
    unrounded.recipe.scale_type = fp8lab::ScaleType::float32;
    if (is_valid(unrounded.recipe)) {
      const CodedMatrix made = quantized_as(unrounded);
      if (count_of_differing(given.codes, made.codes) == 0) return explain_scales(given, made);
    }
  }
  return {};
}

/// Whether another quantization came before: recipes that others publish checkpoints by.
std::optional<Explanation> explain_second_quantization(const CodedMatrix& given, const ExpectedMatrix& maker) {
  constexpr std::array<std::string_view, 7> before{
      "compressed_tensors_channel", "compressed_tensors_tensor", "modelopt_fp8",  "modelopt_fp8_channel",
      "transformers_fp8_weight",    "deepseek_v3_2025",          "vllm_per_token"};
  for (const std::string_view name : before) {
    const NamedRecipe& first = find_recipe(name);
    ExpectedMatrix step{.original = maker.original, .recipe = first.recipe, .threads = maker.threads};
    if (step.recipe == maker.recipe) continue;
    std::vector<float> values;
    try {
      values = values_of(quantized_as(step));
    } catch (const std::invalid_argument&) {
      continue;  // its blocks do not fit
    }
    for (float& value : values) value = nearest_bfloat16(value);
    ExpectedMatrix second = maker;
    second.original = MatrixView(std::span<const float>(values), given.rows, given.columns);
    const CodedMatrix made = quantized_as(second);
    if (has_same_bytes(given, made)) {
      return Explanation{FindingKind::double_quantized, text("made of what ", name, " had made, not of the original")};
    }
  }
  return {};
}

/// Codes that are the nearest to the original by the stored scales, whatever made these.
std::optional<Explanation> explain_fit(const CodedMatrix& given, const CodedMatrix& expected,
                                       const ExpectedMatrix& maker) {
  constexpr double most_misfits = 0.01;  // products with an inverse in place of quotients move a few of a thousand
  const float largest = max_value(given.format);
  std::size_t misfits = 0;
  std::size_t clipped = 0;
  unsigned top = 0;
  double worst = 1;
  const auto mask = static_cast<unsigned>(given.format.magnitude_mask());
  const CastPolicy nearest{.overflow = Overflow::saturate};
  maker.original.visit([&]<typename T>(std::span<const T> values) {
    for (std::size_t i = 0; i < given.codes.size(); ++i) {
      const float factor = factor_of(given, given.scale_of(i / given.columns, i % given.columns));
      const float quotient = as_float(values[i]) / factor;
      top = std::max(top, given.codes[i] & mask);
      // Zeros of both signs are one, and the quotient may have been rounded to bfloat16.
      const auto fits = [&](float number) {
        const std::uint32_t code = encode(given.format, nearest, number);
        return code == given.codes[i] || (code & mask) + (given.codes[i] & mask) == 0;
      };
      if (!fits(quotient) && !fits(nearest_bfloat16(quotient))) ++misfits;
      if (std::abs(quotient) > largest * 1.0625F) {
        ++clipped;
        worst = std::max(worst, double{std::abs(quotient)} / double{largest});
      }
    }
  });
  if (static_cast<double>(misfits) > most_misfits * static_cast<double>(given.codes.size())) return {};
  if (clipped > 0) {
    return Explanation{FindingKind::clipped, text(clipped, " of ", given.codes.size(), " elements are cut off at ",
                                                  largest, " scales, the largest of which is ", worst, " times that")};
  }
  if (top < mask / 2) {
    return Explanation{FindingKind::unused_range,
                       text("the largest code is ", fmt::format("{:02X}", top), " of ",
                            fmt::format("{:02X}", given.format.max_code()), ": the scale is too large")};
  }
  const auto ratio = one_ratio(given.scales, expected.scales);
  return Explanation{FindingKind::other_scale,
                     ratio && *ratio != 1 ? text("scales are ", *ratio, " times the recipe's, and codes fit them")
                                          : std::string("scales are not the recipe's, and codes fit them")};
}

}  // namespace

std::string places(std::span<const std::size_t> indices, std::size_t columns) {
  constexpr std::size_t most = 4;
  std::string all;
  for (std::size_t i = 0; i < std::min(most, indices.size()); ++i) {
    all += text(i == 0 ? "" : ", ", "[", indices[i] / columns, ", ", indices[i] % columns, "]");
  }
  if (indices.size() > most) all += text(" and ", indices.size() - most, " more");
  return all;
}

CodedMatrix quantized_as(const ExpectedMatrix& expected) {
  if (expected.make != nullptr) return expected.make(expected);
  QuantizeOptions options{.threads = expected.threads};
  const std::array<float, 1> amax{expected.group_amax.value_or(0)};
  if (expected.group_amax) {
    if (expected.recipe.tensor_scale != TensorScaleRule::none) {
      options.given.tensor_amax = amax[0];
    } else {
      options.given.amaxes = amax;
    }
  }
  const Format input_type = expected.original.visit([]<typename T>(std::span<const T>) {
    if (std::is_same_v<T, float>) return binary32;
    return std::is_same_v<T, Half> ? binary16 : bfloat16;
  });
  Quantized made = quantize(expected.original, expected.recipe, Direction::rowwise, options);
  if (expected.group_amax) made.amax = *expected.group_amax;
  if (options.given.tensor_scale != 0 || options.given.tensor_scale_inv != 0) {
    made.tensor_scale = options.given.tensor_scale;
    made.tensor_scale_inv = options.given.tensor_scale_inv;
  }
  return coded_matrix(made, input_type, expected.global_divides);
}

Differences differences(const CodedMatrix& a, const CodedMatrix& b) {
  const bool has_other_global =
      a.global.has_value() != b.global.has_value() || (a.global && !same_word(*a.global, *b.global));
  return {count_of_differing(a.codes, b.codes), count_of_differing(a.scales, b.scales), has_other_global};
}

Explanation explain(const CodedMatrix& given, const CodedMatrix& expected, const ExpectedMatrix& maker,
                    std::span<const Recipe> rules) {
  const Differences differ = differences(given, expected);
  // 1. All codes are right.
  if (differ.codes == 0 && differ.scales == 0) {
    if (const auto global = explain_global(given, expected)) return *global;
    return {FindingKind::damaged, "there is a scale of the tensor where the recipe has none, or none where it has one"};
  }
  if (differ.codes == 0) return explain_scales(given, expected);
  // 2. The codes are the right ones, elsewhere or without their sign.
  if (const auto order = explain_order(given, expected)) return *order;
  if (const auto rows = explain_rows(given, expected)) return *rows;
  const auto sign = static_cast<std::uint8_t>(given.format.sign_mask());
  bool are_magnitudes = true;
  for (std::size_t i = 0; i < given.codes.size() && are_magnitudes; ++i) {
    are_magnitudes = given.codes[i] == (expected.codes[i] & ~sign);
  }
  if (are_magnitudes) return {FindingKind::sign_lost, "the sign of every code is lost"};
  // 3. Another rule, another quantization before this one, or other scales.
  if (const auto made = explain_maker(given, maker, rules)) return *made;
  if (differ.scales == 0 || differ.codes * 2 < given.codes.size()) {
    if (const auto second = explain_second_quantization(given, maker)) return *second;
  }
  if (const auto fit = explain_fit(given, expected, maker)) return *fit;
  return {FindingKind::damaged,
          text(differ.codes, " of ", given.codes.size(), " codes and ", differ.scales, " of ", given.scales.size(),
               " scales are not the recipe's"),
          {}};
}

}  // namespace fp8lab::experiments
