// SPDX-License-Identifier: Apache-2.0
// A GEMM is its record: every field counts, and what it says is computed, also by the path that takes element by
// element. Expected values are accumulators of parts of K, put together by hand.
#include "fp8lab/reference/gemm/gemm_recipe.hpp"

#include <cmath>
#include <functional>
#include <set>
#include <string>

#include "fp8lab/reference/gemm/gemm_activation.hpp"
#include "fp8lab/reference/gemm/gemm_recipe_names.hpp"
#include "fp8lab/reference/gemm/named_gemm_recipes.hpp"
#include "fp8lab/reference/operators/row_sums.hpp"
#include "reference/gemm/problems.hpp"

namespace fp8lab::tests {
namespace {

/// Another value of a field.
template <typename Value>
void change(Value& value) {
  if constexpr (std::is_same_v<Value, MmaModel>) {
    value = hopper_wgmma_fp8;
  } else if constexpr (std::is_same_v<Value, KOrder>) {
    value = {2, 1, 64};
  } else if constexpr (std::is_same_v<Value, std::vector<std::size_t>>) {
    value.push_back(1);
  } else if constexpr (std::is_same_v<Value, std::optional<ScaleOrder>>) {
    value = ScaleOrder::b_first;
  } else if constexpr (std::is_same_v<Value, std::optional<CastPolicy>>) {
    value = CastPolicy{};
  } else if constexpr (std::is_same_v<Value, ZeroRule>) {
    value = ZeroRule::skip_terms;
  } else if constexpr (std::is_enum_v<Value>) {
    value = named_values(value)[1].value;
  } else if constexpr (std::is_same_v<Value, bool>) {
    value = !value;
  } else if constexpr (std::is_same_v<Value, Format>) {
    value = bfloat16;
  } else {
    value = Value{2};
  }
}

using Matrix = std::vector<float>;

/// A product whose recipes are of one model, and its accumulators of products [first, last) of K.
struct Parts {
  Problem p = problem(3, 5, 256, 1, 7);
  MmaModel model = blackwell_tcgen05_fp8;

  [[nodiscard]] Operand left() const { return Operand::codes(p.a, e4m3, p.rows, p.depth); }
  [[nodiscard]] Operand right() const { return Operand::codes(p.b, e4m3, p.columns, p.depth); }
  [[nodiscard]] Matrix part(std::size_t first, std::size_t last) const {
    std::vector<std::uint8_t> a;
    std::vector<std::uint8_t> b;
    for (std::size_t i = 0; i < p.rows; ++i) {
      for (std::size_t k = first; k < last; ++k) a.push_back(p.a[i * p.depth + k]);
    }
    for (std::size_t i = 0; i < p.columns; ++i) {
      for (std::size_t k = first; k < last; ++k) b.push_back(p.b[i * p.depth + k]);
    }
    Matrix out(p.rows * p.columns);
    gemm({.model = model}, Operand::codes(a, e4m3, p.rows, last - first),
         Operand::codes(b, e4m3, p.columns, last - first), out);
    return out;
  }
  [[nodiscard]] Matrix run(GemmRecipe recipe, const GemmCall& call = {}) const {
    return run(recipe, left(), right(), call);
  }
  [[nodiscard]] Matrix run(GemmRecipe recipe, const Operand& a, const Operand& b, const GemmCall& call = {}) const {
    recipe.model = model;
    Matrix out(p.rows * p.columns);
    gemm(recipe, a, b, out, call);
    return out;
  }
};

/// What `element` makes of each place.
Matrix each(std::size_t count, const std::function<float(std::size_t)>& element) {
  Matrix out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = element(i);
  return out;
}

float as_brain(float x) { return decode(bfloat16, encode(bfloat16, cuda_nosat_policy, x)); }

}  // namespace

TEST_CASE("a GEMM recipe differs from one with another value in any field") {
  std::size_t fields = 0;
  GemmRecipe changed;
  for_fields(changed, [&](const char* name, auto& field) {
    INFO(name);
    const auto before = field;
    const std::string words = describe(changed);
    change(field);
    CHECK(!(changed == GemmRecipe{}));
    if (std::string_view(name) != "split_order" && std::string_view(name) != "tensor_scales") {
      CHECK(describe(changed) != words);
    }
    field = before;
    CHECK(changed == GemmRecipe{});
    ++fields;
  });
  CHECK(fields == 30);
  std::set<std::string_view> names;
  for (const NamedGemmRecipe& one : gemm_recipes()) {
    check_gemm_recipe(one.recipe);
    CHECK(!one.source.empty());
    CHECK(&find_gemm_recipe(one.name) == &one);
    names.insert(one.name);
  }
  CHECK(names.size() == gemm_recipes().size());
}

TEST_CASE("a GEMM recipe that makes no sense, or is not computed yet, is refused by the field's name") {
  const auto refused = [](const GemmRecipe& recipe, const char* message) {
    CHECK_THROWS_WITH(check_gemm_recipe(recipe), ContainsSubstring(message));
  };
  refused({.activation = GemmActivation::gelu}, "activation gelu is known of Hopper's cuBLASLt alone");
  refused({.activation = GemmActivation::dgelu}, "activation dgelu is known of Hopper's cuBLASLt alone");
  refused({.model = hopper_tf32, .activation = GemmActivation::gelu}, "as of hopper_tf32, it is gelu_float32");
  refused({.model = hopper_bf16, .activation = GemmActivation::gelu_float32}, "as of hopper_bf16, it is gelu");
  refused({.bias_gradient = BiasGradient::of_a},
          "bias_gradient of_a is known of the models hopper_bf16 and hopper_tf32");
  refused({.model = hopper_bf16, .bias_gradient = BiasGradient::of_b}, "bias_gradient of_b is added in an order");
  refused({.model = hopper_tf32, .alpha = 2, .bias_gradient = BiasGradient::of_a}, "known where alpha is 1, not 2");
  refused({.ranges = 2, .range_k = 64}, "one of ranges, range_k and split_k");
  refused({.order = PartialOrder::pairwise}, "order must not be pairwise where K is not split");
  refused({.total_type = StepType::to_bfloat16}, "total_type must be left out where K is not split");
  refused({.k_order = {2, 3, 64}}, "k_order must have a window");
  refused({.alpha = INFINITY}, "alpha must be finite");
  refused({.beta = NAN}, "beta must be finite");
  refused({.cast = CastPolicy{}}, "cast must be left out");
  refused({.output = binary64}, "output must not be float64: exact has no float64 accumulator");
}

TEST_CASE("the input of a GELU goes with its gradient alone, which needs it") {
  Parts of;
  of.model = hopper_wgmma_fp8;
  const Matrix input(of.p.rows * of.p.columns, 1.0F);
  CHECK_THROWS_WITH(of.run({.activation = GemmActivation::relu}, {.activation_input = input}),
                    "activation_input goes with the activation dgelu, not with relu");
  CHECK_THROWS_WITH(of.run({.activation = GemmActivation::dgelu}, {.activation_input = std::span(input).first(3)}),
                    "activation_input must have 3 * 5 elements, not 3");
  CHECK_THROWS_WITH(of.run({.activation = GemmActivation::dgelu}, GemmCall{}),
                    "activation dgelu needs an activation_input of 3 * 5 elements");
  const Matrix sum = of.run({}, GemmCall{});
  Matrix expected(sum.size());
  apply_gemm_activation(GemmActivation::dgelu, sum, input, expected, 1);
  CHECK(expected != sum);
  CHECK(of.run({.activation = GemmActivation::dgelu}, {.activation_input = input}) == expected);
  Matrix in_place = input;
  apply_gemm_activation(GemmActivation::dgelu, sum, in_place, in_place, 1);
  CHECK(in_place == expected);
}

TEST_CASE("the gradient of a bias is the sum of a along K in cuBLASLt's order, beside the same output") {
  const std::size_t rows = 3, columns = 5, depth = 200;
  const Matrix a = each(rows * depth, [](auto i) { return 1.0F + 0x1p-20F * static_cast<float>(i * i % 7919); });
  const Matrix b = each(columns * depth, [](auto i) { return static_cast<float>(i % 13); });
  const GemmRecipe plain{.model = hopper_tf32};
  GemmRecipe recipe = plain;
  recipe.bias_gradient = BiasGradient::of_a;
  Matrix out(rows * columns), same(out.size()), gradient(rows);
  const auto run = [&](const GemmRecipe& of, const Operand& left, std::span<float> to, std::span<float> sums) {
    gemm(of, left, Operand::floats(b, columns, depth), to, {.bias_gradient = sums});
  };
  const Operand left = Operand::floats(a, rows, depth);
  run(recipe, left, out, gradient);
  run(plain, left, same, {});
  CHECK(out == same);
  const Matrix turned = each(a.size(), [&](auto i) { return a[i % rows * depth + i / rows]; });
  const Matrix expected = cublaslt_row_sums(MatrixView(std::span<const float>(turned), depth, rows));
  CHECK(gradient == expected);
  Operand stored = Operand::floats(turned, rows, depth);
  stored.transposed = true;
  Matrix again(rows);
  run(recipe, stored, out, again);
  CHECK((again == expected && out == same));
  CHECK_THROWS_WITH(run(plain, left, out, gradient), "bias_gradient goes with a recipe that has one");
  CHECK_THROWS_WITH(run(recipe, left, out, std::span(gradient).first(2)),
                    "bias_gradient must have 3 elements, one a row of a, not 2");
  Operand scaled = left;
  scaled.tensor_scale = {2};
  CHECK_THROWS_WITH(run(recipe, scaled, out, gradient), ContainsSubstring("operand without scales"));
  CHECK_THROWS_WITH(run(recipe, left, out, std::span(out).first(3)), ContainsSubstring("bias_gradient"));
}

TEST_CASE("the gradient of a bias is the same of words of bfloat16 and of their values, stored either way") {
  const std::size_t rows = 3, depth = 40;
  std::vector<std::uint16_t> words, turned;
  for (std::size_t i = 0; i < rows * depth; ++i) words.push_back(static_cast<std::uint16_t>(0x3F80 + i * i % 251));
  for (std::size_t i = 0; i < words.size(); ++i) turned.push_back(words[i % rows * depth + i / rows]);
  const Matrix values = each(words.size(), [&](auto i) { return decode(bfloat16, turned[i]); });
  const Matrix expected = cublaslt_row_sums(MatrixView(std::span<const float>(values), depth, rows));
  for (const bool is_transposed : {false, true}) {
    Operand a = Operand::codes(is_transposed ? turned : words, bfloat16, rows, depth);
    a.transposed = is_transposed;
    Matrix out(rows * rows), sums(rows);
    gemm({.model = hopper_bf16, .bias_gradient = BiasGradient::of_a}, a, Operand::codes(words, bfloat16, rows, depth),
         out, {.bias_gradient = sums});
    CHECK(sums == expected);
  }
}

TEST_CASE("the gelu of a GEMM is its activation of the sum, and that of special numbers is the formula's") {
  Parts of;
  of.model = hopper_wgmma_fp8;
  Operand a = of.left();
  a.tensor_scale = {0.02F};
  const Matrix sum = of.run({}, a, of.right());
  Matrix expected(sum.size());
  apply_gemm_activation(GemmActivation::gelu, sum, {}, expected, 1);
  CHECK(expected != sum);
  CHECK(of.run({.activation = GemmActivation::gelu}, a, of.right()) == expected);
  // Words for which an H200 decided between formulas: each is near the middle of two bfloat16 numbers.
  const Matrix decisive{
      -0x1.3e017ep+1F, -0x1.04e750p+2F, -0x1.0b4370p+2F, -0x1.21d768p+2F, INFINITY, 0, -0.0F, 100, NAN};
  Matrix out(decisive.size());
  apply_gemm_activation(GemmActivation::gelu, decisive, {}, out, 2);
  const Matrix rounded = each(4, [&](auto i) { return as_brain(out[i]); });
  CHECK(rounded == Matrix{-0x1p-6F, -0x1.98p-15F, -0x1.ecp-16F, -0x1.18p-18F});
  CHECK((std::isinf(out[4]) && out[5] == 0 && out[6] == 0 && out[7] == 100 && std::isnan(out[8])));
  CHECK_THROWS_WITH(apply_gemm_activation(GemmActivation::dgelu, sum, {}, expected, 1),
                    ContainsSubstring("activation_input must have"));
  CHECK_THROWS_WITH(apply_gemm_activation(GemmActivation::gelu, sum, sum, expected, 1),
                    "activation_input goes with dgelu, not with gelu");
  CHECK_THROWS_WITH(apply_gemm_activation(GemmActivation::relu, sum, {}, out, 1), ContainsSubstring("out must have"));
}

TEST_CASE("a GEMM is found by the name of a recipe, or of a model") {
  for (const NamedGemmRecipe& one : gemm_recipes()) CHECK(find_gemm(one.name) == one.recipe);
  CHECK(find_gemm("hopper_wgmma_fp8") == GemmRecipe{.model = hopper_wgmma_fp8});
  CHECK(find_gemm("cuda_cores_fma") == GemmRecipe{.model = cuda_cores_fma});
  CHECK_THROWS_WITH(find_gemm("deepgemm_1d2d_hoper"), ContainsSubstring("unknown GEMM recipe or model") &&
                                                          ContainsSubstring("known: deepgemm_1d2d_hopper, ") &&
                                                          ContainsSubstring("did you mean deepgemm_1d2d_hopper?"));
  CHECK_THROWS_WITH(find_gemm("exac"), !ContainsSubstring("exact, exact"));  // a recipe and a model, named once
}

TEST_CASE("partial sums of K are added as the recipe says") {
  const Parts of;
  const Matrix a = of.part(0, 64), b = of.part(64, 128), c = of.part(128, 192), d = of.part(192, 256);
  const std::size_t n = a.size();
  using enum PartialOrder;
  CHECK(of.run({.range_k = 64}) == each(n, [&](auto i) { return a[i] + b[i] + c[i] + d[i]; }));
  CHECK(of.run({.ranges = 4}) == of.run({.range_k = 64}));
  CHECK(of.run({.range_k = 64, .order = descending}) == each(n, [&](auto i) { return d[i] + c[i] + b[i] + a[i]; }));
  CHECK(of.run({.promote_k = 64, .order = descending}) ==
        each(n, [&](auto i) { return 0.0F + d[i] + c[i] + b[i] + a[i]; }));
  CHECK(of.run({.ranges = 4, .order = pairwise}) == each(n, [&](auto i) { return (a[i] + b[i]) + (c[i] + d[i]); }));
  constexpr StepType brain = StepType::to_bfloat16;
  CHECK(of.run({.range_k = 64, .partial_type = brain}) ==
        each(n, [&](auto i) { return as_brain(a[i]) + as_brain(b[i]) + as_brain(c[i]) + as_brain(d[i]); }));
  CHECK(of.run({.range_k = 64, .partial_type = brain, .total_type = brain}) == each(n, [&](auto i) {
          return as_brain(as_brain(as_brain(as_brain(a[i]) + as_brain(b[i])) + as_brain(c[i])) + as_brain(d[i]));
        }));
  CHECK(of.run({.range_k = 64, .total_type = brain}) ==
        each(n, [&](auto i) { return as_brain(as_brain(as_brain(as_brain(a[i]) + b[i]) + c[i]) + d[i]); }));
  CHECK(slow_because({.model = of.model, .ranges = 4, .order = pairwise}, of.left(), of.right()) ==
        "order is pairwise");
  CHECK(slow_because({.model = of.model, .range_k = 64}, of.left(), of.right()).empty());
}

TEST_CASE("scales enter a GEMM where the recipe says") {
  const Parts of;
  const Matrix sum = of.part(0, 256);
  const std::size_t n = sum.size();
  Operand a = of.left(), b = of.right();
  a.tensor_scale = {0.37F};
  b.tensor_scale = {1.9F, 3};
  const float alpha = 0.37F * 1.9F * (1 / 3.0F);
  CHECK(of.run({}, a, b) == each(n, [&](auto i) { return sum[i] * alpha; }));
  CHECK(of.run({.divided = true}, a, b) == each(n, [&](auto i) { return sum[i] * (0.37F * 1.9F / 3); }));
  CHECK(of.run({.alpha = 0.7F}, a, b) == each(n, [&](auto i) { return sum[i] * (0.7F * alpha); }));
  const Matrix c = each(n, [](auto i) { return 0.3F + static_cast<float>(i); });
  CHECK(of.run({.beta = 0.3F}, a, b, {.c = c}) == each(n, [&](auto i) { return sum[i] * alpha + 0.3F * c[i]; }));
  CHECK(of.run({.beta = 0}, a, b, {.c = Matrix(n, NAN)}) == of.run({}, a, b));
  CHECK(of.run({.addition = Addition::fused}, a, b, {.c = c}) ==
        each(n, [&](auto i) { return std::fma(sum[i], alpha, c[i]); }));
  CHECK(of.run({.activation = GemmActivation::relu}, a, b, {.scale_out = 2}) ==
        each(n, [&](auto i) { return (sum[i] * alpha < 0 ? 0.0F : sum[i] * alpha) * 2; }));
  b.tensor_scale = {1.9F};
  using enum ScaleOrder;
  constexpr TensorScaleUse with_rows = TensorScaleUse::with_rows;
  CHECK(of.run({.scale_order = accumulator_first, .tensor_scales = with_rows}, a, b) ==
        each(n, [&](auto i) { return sum[i] * 0.37F * 1.9F; }));
  CHECK(of.run({.scale_order = b_first, .tensor_scales = with_rows}, a, b) ==
        each(n, [&](auto i) { return sum[i] * 1.9F * 0.37F; }));
  // Tiles, whose scales multiply at promotions: unfused, b first, and in two promotions for each tile.
  const Matrix first = of.part(0, 128), second = of.part(128, 256);
  a = of.left();
  b = of.right();
  const Matrix scales_a{0.3F, 1.7F, 0.9F, 2.3F, 0.77F, 1.1F}, scales_b{1.3F, 0.61F};
  a.tile_scales = {scales_a, 1, 128};
  b.tile_scales = {scales_b, 128, 128};
  const auto scale = [&](std::size_t i, std::size_t tile) { return scales_a[i / of.p.columns * 2 + tile]; };
  CHECK(of.run({.fused = false}, a, b) == each(n, [&](auto i) {
          const float one = first[i] * (scale(i, 0) * scales_b[0]);
          const float other = second[i] * (scale(i, 1) * scales_b[1]);
          return one + other;
        }));
  CHECK(of.run({.scale_order = b_first}, a, b) == each(n, [&](auto i) {
          const float one = std::fma(first[i] * scales_b[0], scale(i, 0), 0.0F);
          return std::fma(second[i] * scales_b[1], scale(i, 1), one);
        }));
  CHECK(of.run({.promote_k = 64}, a, b) == each(n, [&](auto i) {
          float total = 0;
          for (std::size_t k = 0; k < 256; k += 64) {
            total = std::fma(scale(i, k / 128) * scales_b[k / 128], of.part(k, k + 64)[i], total);
          }
          return total;
        }));
}

TEST_CASE("a GEMM without a tensor core adds rounded products, or fuses them, and one without FP8 rounds its codes") {
  const std::vector<float> x{1.1F, 3.3F, -0.7F}, y{0.3F, 1.7F, 2.9F};
  std::vector<float> out(1);
  const Operand a = Operand::floats(x, 1, 3), b = Operand::floats(y, 1, 3);
  gemm({.model = cuda_cores}, a, b, out);
  CHECK(out[0] == x[0] * y[0] + x[1] * y[1] + x[2] * y[2]);
  gemm({.model = cuda_cores_fma}, a, b, out);
  CHECK(out[0] == std::fma(x[2], y[2], std::fma(x[1], y[1], x[0] * y[0])));
  const Parts of;
  Operand left = of.left();
  left.tensor_scale = {0.37F};
  std::vector<std::uint16_t> rounded, plain;
  for (const std::uint8_t code : of.p.a) {
    rounded.push_back(static_cast<std::uint16_t>(encode(bfloat16, cuda_nosat_policy, decode(e4m3, code) * 0.37F)));
  }
  for (const std::uint8_t code : of.p.b) {
    plain.push_back(static_cast<std::uint16_t>(encode(bfloat16, cuda_nosat_policy, decode(e4m3, code))));
  }
  Matrix first(of.p.rows * of.p.columns), then(first.size());
  gemm({.model = hopper_bf16, .dequantized = StepType::to_bfloat16}, left, of.right(), then);
  gemm({.model = hopper_bf16}, Operand::codes(rounded, bfloat16, of.p.rows, of.p.depth),
       Operand::codes(plain, bfloat16, of.p.columns, of.p.depth), first);
  CHECK(then == first);
}

TEST_CASE("both paths of a GEMM give the same bits where both can") {
  const Parts of;
  Operand a = of.left(), b = of.right();
  a.tensor_scale = {0.37F};
  const Matrix rows(of.p.columns, 1.3F);
  b.row_scales = rows;
  const Matrix c(of.p.rows * of.p.columns, 0.1F);
  // One window of K that is dealt out to one part after the other: elements ascend, but the fast path does not look.
  for (const int promote_k : {0, 64}) {
    GemmRecipe fast{.model = of.model, .promote_k = promote_k};
    GemmRecipe slow = fast;
    slow.k_order = {2, 128, 256};
    CHECK(!slow_because(slow, a, b).empty());
    Matrix x(c.size()), y(c.size());
    gemm(fast, a, b, x, {.c = c});
    gemm(slow, a, b, y, {.c = c, .threads = 2});
    CHECK(x == y);
  }
}

}  // namespace fp8lab::tests
