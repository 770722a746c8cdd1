// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/scaling/delayed_scaling.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace fp8lab {

/// The GEMMs of a Linear layer with input x (tokens, in), weight w (out, in) and output gradient dy (tokens, out).
enum class LinearPass : std::uint8_t {
  fprop,  ///< y = x w^T + bias
  dgrad,  ///< dx = dy w
  wgrad,  ///< dw = dy^T x
};

/// The tensors that these GEMMs multiply.
enum class LinearTensor : std::uint8_t { x, w, dy };

/// One factor of a GEMM: the tensor, and the direction in which it is quantized. Both directions are always made of the
/// original tensor, never one of the other.
struct LinearFactor {
  LinearTensor tensor;
  Direction direction;
};
/// Both factors of a GEMM, a and b of gemm().
struct LinearFactors {
  LinearFactor a, b;
};

/// The factors of a pass: fprop takes x and w rowwise, dgrad dy rowwise and w columnwise, wgrad dy and x columnwise.
/// Source: NVIDIA/TransformerEngine, transformer_engine/pytorch/module/linear.py.
[[nodiscard]] LinearFactors factors_of(LinearPass pass);

/// How a tensor becomes an operand. A recipe quantizes it. A format, binary32, binary16 or bfloat16, leaves it in high
/// precision: its values are rounded to that type, nearest even. (A model for TF32 rounds binary32 further, as gemm()
/// says.)
using LinearCast = std::variant<Format, Recipe>;

/// One GEMM of a Linear layer.
struct LinearGemm {
  /// How it is composed. Where it does not promote is what Transformer Engine calls fast accumulation, every 128 its
  /// split accumulator. The output is binary32, binary16 or bfloat16. In fprop and dgrad it is e4m3 or e5m2, too, where
  /// both operands have given scales: the GEMM's FP8 output, which is fused for delayed scaling alone.
  GemmRecipe recipe = {};
  LinearCast a = binary32;  ///< how the tensor on the left is cast: x in fprop, dy in dgrad and wgrad
  LinearCast b = binary32;  ///< how the tensor on the right is cast: w in fprop and dgrad, x in wgrad
};

/// Calls f(name, field) for each field of a LinearGemm, in order.
template <typename AnyGemm, typename Function>
  requires std::same_as<std::remove_const_t<AnyGemm>, LinearGemm>
void for_fields(AnyGemm& gemm, const Function& f) {
  f("recipe", gemm.recipe);
  f("a", gemm.a);
  f("b", gemm.b);
}

/// The system that computes the layer. It decides which sizes are refused: see shape_rules.hpp.
enum class LinearSystem : std::uint8_t {
  none,                ///< no system: all sizes are computed
  transformer_engine,  ///< te.Linear, with cuBLAS's GEMMs
  deepseek,            ///< DeepSeek-V3's casts, with DeepGEMM's GEMMs
};

/// How a Linear layer computes its three GEMMs. Real systems are entries of a table, linear_recipes().
///
/// A recipe with a given scale is one of delayed scaling, too: linear() and its like take operands that
/// quantize(x, Delayed, ...) made, whose scales come from a history. From a plain tensor they use the given scale,
/// which is 1 in the table, as in Transformer Engine's first iteration.
struct LinearRecipe {
  LinearGemm fprop, dgrad, wgrad;
  LinearSystem system = LinearSystem::none;
};

/// The GEMM of that pass.
[[nodiscard]] const LinearGemm& gemm_of(const LinearRecipe& recipe, LinearPass pass);

/// The type that the bias is rounded to before it is added in float32: the output's, but bfloat16 where the operands
/// are quantized and the output is binary32, or FP8.
/// Source: NVIDIA/TransformerEngine, transformer_engine/pytorch/module/linear.py (bias_dtype).
[[nodiscard]] Format bias_format_of(const LinearGemm& gemm);

/// The recipe with the GEMMs that `high_precision` marks taken from `other`, but for their output, which stays: what
/// Transformer Engine 0.1 to 1.13 called override_linear_precision. (It took wgrad alone; here any of them.)
[[nodiscard]] LinearRecipe override_linear_precision(LinearRecipe recipe, const LinearPrecision& high_precision,
                                                     const LinearRecipe& other);

/// Throws std::invalid_argument where a GEMM casts one operand by a recipe and the other to a format, or to a format or
/// an output that is not one of those above, or has an FP8 output and operands whose scales are not given, or its model
/// has a float64 accumulator; and as check_gemm_recipe() and check_recipe() do. The message names the pass and the
/// field.
void check_linear_recipe(const LinearRecipe& recipe);

/// In words: for each pass what its operands are cast to, the model, its promotion and the output.
[[nodiscard]] std::string describe(const LinearRecipe& recipe);

/// A linear recipe with the name users call it by and the source that defines it.
struct NamedLinearRecipe {
  std::string_view name;
  LinearRecipe recipe;
  std::string_view source;
};

/// The linear recipes of real systems on the tensor cores that they run on.
[[nodiscard]] std::span<const NamedLinearRecipe> linear_recipes();

/// The linear recipe called `name`. Throws std::invalid_argument that lists the known names.
[[nodiscard]] const NamedLinearRecipe& find_linear_recipe(std::string_view name);

/// The enumerators with their names (see named.hpp).
[[nodiscard]] std::span<const Named<LinearPass>> named_values(LinearPass of_type);
[[nodiscard]] std::span<const Named<LinearTensor>> named_values(LinearTensor of_type);
[[nodiscard]] std::span<const Named<LinearSystem>> named_values(LinearSystem of_type);

}  // namespace fp8lab
