// SPDX-License-Identifier: Apache-2.0
// What a kernel did is named from its codes and scales.
#include "fp8lab/doctor/diagnose.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "support.hpp"

using namespace fp8lab;
using namespace fp8lab::doctor;

namespace {

std::vector<float> normals(std::size_t count) {
  std::mt19937 random(5);
  std::vector<float> x(count);
  for (float& value : x) {
    const auto bits = static_cast<std::uint32_t>(random());
    const int exponent = -std::countr_zero(static_cast<std::uint32_t>(random()) | 0x1000U);
    value =
        std::ldexp(1 + static_cast<float>(bits & 0x7FFFFF) * 0x1p-23F, exponent) * ((bits >> 31) != 0 ? -1.0F : 1.0F);
  }
  return x;
}

Dump dump_of(const Quantized& q) {
  Dump dump{.codes = q.codes, .format = q.format, .scales = {}};
  dump.scales.format = scale_format_of(q.recipe);
  dump.scales.bytes =
      q.scale_codes.empty() ? std::as_bytes(std::span(q.scale_inv)) : std::as_bytes(std::span(q.scale_codes));
  return dump;
}

bool names(const Diagnosis& diagnosis, std::string_view name) {
  return std::any_of(diagnosis.explanations.begin(),
                     diagnosis.explanations.begin() + static_cast<std::ptrdiff_t>(diagnosis.tied),
                     [&](const Explanation& one) {
                       const auto& also = one.hypothesis.also;
                       return one.hypothesis.base == name || std::ranges::count(also, name) != 0;
                     });
}

}  // namespace

TEST_CASE("Every named recipe is found and is correct") {
  const std::vector<float> x = normals(128 * 256);
  const MatrixView view(x, 128, 256);
  std::size_t number = 0;
  for (const NamedRecipe& one : recipes()) {
    if (tests::sanitized && number++ % 8 != 0) continue;
    if (is_stochastic(one.recipe)) continue;
    const Quantized q = quantize(view, one.recipe);
    const Diagnosis diagnosis = diagnose(view, dump_of(q));
    INFO(one.name << ": " << diagnosis.verdict);
    CHECK(diagnosis.correct());
    CHECK(names(diagnosis, one.name));
  }
}

TEST_CASE("A diagnosis is the same on any number of threads") {
  const std::vector<float> x = normals(64 * 256);
  const MatrixView view(x, 64, 256);
  const auto told = [](const Diagnosis& diagnosis) {
    std::string text = diagnosis.verdict + '\n' + std::to_string(diagnosis.searched);
    for (const Explanation& one : diagnosis.explanations) {
      text += '\n' + describe(one.hypothesis) + ' ' + std::to_string(one.codes) + ' ' + std::to_string(one.scales);
    }
    for (const std::string& note : diagnosis.notes) text += '\n' + note;
    return text;
  };
  Quantized q = quantize(view, find_recipe("modelopt_nvfp4").recipe);
  for (std::size_t i = 0; i < q.codes.size(); i += 3) q.codes[i] ^= 1;
  const std::string expected = told(diagnose(view, dump_of(q), {.most_shown = 60}));
  CHECK(told(diagnose(view, dump_of(q), {.most_shown = 60, .threads = 16})) == expected);
}

TEST_CASE("What quantize() alone has is told where it leaves least, though others leave little") {
  // 1. One row has another amax than the tensor: all else is as if its scale were each row's.
  std::vector<float> x = normals(64 * 256);
  for (float& one : x) one = std::clamp(one, -1.0F, 1.0F);
  for (std::size_t row = 0; row < 64; ++row) x[row * 257] = row == 40 ? 3.0F : 5.0F;
  // 2. A transform of a few numbers among zeros.
  std::vector<float> narrow = normals(128 * 16);
  for (std::size_t i = 0; i < narrow.size(); ++i) {
    if (i % 16 != 3 || i >= 256) narrow[i] = 0;
  }
  struct Case {
    MatrixView view;
    std::string_view name;
    Direction direction;
  };
  for (const Case& one : {Case{MatrixView(x, 64, 256), "te_nvfp4_row_scaled", Direction::rowwise},
                          Case{MatrixView(narrow, 128, 16), "te_nvfp4_rht", Direction::columnwise}}) {
    const Quantized q = quantize(one.view, find_recipe(one.name).recipe, one.direction);
    const Diagnosis diagnosis = diagnose(one.view, dump_of(q), {.most_shown = 1});
    INFO(diagnosis.verdict);
    CHECK(names(diagnosis, one.name));
    CHECK(diagnosis.explanations.front().unexplained() == 0);
  }
}

namespace {

/// Numbers whose amax is the last, and in no other line.
std::vector<float> numbers_below_the_last(std::size_t count) {
  std::vector<float> x = normals(count);
  x.back() = 3.4F;
  return x;
}

std::vector<float> transposed(const std::vector<float>& x, std::size_t rows, std::size_t columns) {
  std::vector<float> turned(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) turned[i % columns * rows + i / columns] = x[i];
  return turned;
}

/// Zeros in tiles that two recipes do not make the same of, but for a few of these and the last.
void keep_what_is_alike(std::vector<float>& x, const Quantized& one, const Quantized& other) {
  constexpr std::size_t tile = 16;
  constexpr std::size_t kept = 3;
  std::size_t unlike = 0;
  for (std::size_t i = 0; i + 1 < one.scale_codes.size(); ++i) {
    const auto codes_of = [&](const Quantized& q) { return std::span(q.codes).subspan(i * tile / 2, tile / 2); };
    if (std::ranges::equal(codes_of(one), codes_of(other)) && one.scale_codes[i] == other.scale_codes[i]) continue;
    if (unlike++ >= kept) std::ranges::fill(std::span(x).subspan(i * tile, tile), 0.0F);
  }
}

}  // namespace

TEST_CASE("A few lines leave out no recipe whose scale of the tensor they do not know") {
  // 1. A recipe without the choice makes nearly all of it. It leaves fewer codes than would be wrong in the first lines
  // with the scale of their own amax.
  constexpr std::size_t rows = 64, columns = 256;
  const NamedRecipe& named = find_recipe("te_nvfp4_4over6_448");
  Recipe without_choice = named.recipe;
  without_choice.block_choice = BlockChoice::none;
  std::vector<float> x = numbers_below_the_last(rows * columns);
  const MatrixView view(x, rows, columns);
  keep_what_is_alike(x, quantize(view, without_choice), quantize(view, named.recipe));
  const std::vector<float> turned = transposed(x, rows, columns);
  // 2. Rows as well as columns.
  for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
    const bool is_rowwise = direction == Direction::rowwise;
    const MatrixView own = is_rowwise ? view : MatrixView(turned, columns, rows);
    const Diagnosis diagnosis = diagnose(own, dump_of(quantize(own, named.recipe, direction)), {.most_shown = 1});
    INFO(diagnosis.verdict);
    CHECK(names(diagnosis, named.name));
    CHECK(diagnosis.explanations.front().hypothesis.direction == direction);
    CHECK(diagnosis.correct());
  }
}

TEST_CASE("Of a large tensor a few lines with its scale leave the recipe that made it") {
  constexpr std::size_t side = 1024;
  const std::vector<float> x = numbers_below_the_last(side * side);
  const MatrixView view(x, side, side);
  for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
    const Diagnosis diagnosis =
        diagnose(view, dump_of(quantize(view, find_recipe("te_nvfp4_4over6_448_mse").recipe, direction)));
    INFO(diagnosis.verdict);
    CHECK(names(diagnosis, "te_nvfp4_4over6_448_mse"));
    CHECK(diagnosis.explanations.front().hypothesis.direction == direction);
    CHECK(diagnosis.correct());
  }
}

TEST_CASE("Of an amax of some elements all numbers of elements are told that make the scales") {
  // 1. In row i the largest element so far is number 90 + i, then number 300 - i.
  constexpr std::size_t rows = 8, columns = 640;
  std::vector<float> first = normals(rows * columns);
  std::vector<float> amaxes(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    for (float& one : std::span(first).subspan(row * columns, columns)) one = std::clamp(one, -1.0F, 1.0F);
    amaxes[row] = first[row * columns + 90 + row] = 1.25F + static_cast<float>(row) / 16;
    first[row * columns + 300 - row] = 3;
  }
  std::vector<float> last = first;
  for (std::size_t row = 0; row < rows; ++row) std::ranges::reverse(std::span(last).subspan(row * columns, columns));
  // 2. What counts is the first or last elements of each row, or the first ones of the tensor.
  struct Case {
    const std::vector<float>& x;
    std::string_view recipe;
    std::span<const float> amaxes;
    std::string_view words;
  };
  const std::span<const float> all(amaxes);
  for (const Case& one :
       {Case{first, "vllm_per_token", all, "first 256 elements of each row (98 to 293 make the same scales)"},
        Case{last, "vllm_per_token", all, "last 128 elements of each row (98 to 293 make the same scales)"},
        Case{first, "te_current_scaling", all.first(1), "its first 256 elements (91 to 300 make the same scale)"}}) {
    const MatrixView view(one.x, rows, columns);
    const Quantized q =
        quantize(view, find_recipe(one.recipe).recipe, Direction::rowwise, {.given = {.amaxes = one.amaxes}});
    const Diagnosis diagnosis = diagnose(view, dump_of(q));
    CHECK_THAT(describe(diagnosis.explanations.front().hypothesis), Catch::Contains(std::string(one.words)));
    CHECK(diagnosis.explanations.front().unexplained() == 0);
  }
}

TEST_CASE("Another scale of the tensor is found to its last bits, after others that explain nearly all") {
  std::mt19937 random(106);
  std::normal_distribution<float> numbers;
  std::vector<float> x(128 * 256);
  for (float& one : x) one = numbers(random);
  const MatrixView view(x, 128, 256);
  for (const float amax : {0x1.A3C5F2p2F, 0x1.D2E6B4p3F}) {
    const Quantized q =
        quantize(view, find_recipe("te_nvfp4").recipe, Direction::rowwise, {.given = {.tensor_amax = amax}});
    const Diagnosis diagnosis = diagnose(view, dump_of(q));
    INFO(diagnosis.verdict);
    CHECK(names(diagnosis, "te_nvfp4"));
    CHECK(diagnosis.explanations.front().hypothesis.deviations.size() == 1);
    CHECK(diagnosis.explanations.front().unexplained() == 0);
  }
}

TEST_CASE("Codes that are as many bytes as pairs but of another shape are told") {
  using Shape = std::vector<std::uint64_t>;
  const Shape x{64, 256};
  for (const Shape& usual :
       {Shape{64, 128}, Shape{256, 32}, Shape{8192}, Shape{1, 8192}, Shape{64, 256}, Shape{5, 3}}) {
    CHECK(note_on_pairs(x, usual).empty());
  }
  CHECK(note_on_pairs(x, Shape{32, 256}) ==
        "Codes are half as many bytes as x has elements and are taken as pairs of codes of 4 bits, but their shape is "
        "(32, 256), and that of pairs would have rows of 128 bytes: half of them may be missing.");
  CHECK(note_on_pairs(Shape{2, 32, 256}, Shape{2, 32, 128}).empty());
  CHECK(note_on_pairs(Shape{2, 32, 256}, Shape{64, 128}).empty());
  CHECK(note_on_pairs(Shape{2, 32, 256}, Shape{2, 256, 16}).empty());
  CHECK(note_on_pairs(Shape{2, 32, 256}, Shape{256, 32}).empty());
  CHECK_FALSE(note_on_pairs(Shape{2, 32, 256}, Shape{1, 32, 256}).empty());
  CHECK(note_on_pairs({}, Shape{2, 2}).empty());
  // Blocks of 16 bytes, as checkpoints of gpt-oss have them.
  CHECK(note_on_pairs(Shape{1, 256, 512}, Shape{1, 256, 16, 16}).empty());
  CHECK(note_on_pairs(Shape{256, 512}, Shape{1, 256, 16, 16}).empty());
  CHECK_FALSE(note_on_pairs(Shape{1, 256, 512}, Shape{1, 256, 8, 32, 1, 1, 1}).size() > 0);
  CHECK_FALSE(note_on_pairs(Shape{1, 256, 512}, Shape{1, 128, 32, 16}).empty());
}
