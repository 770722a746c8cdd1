// SPDX-License-Identifier: Apache-2.0
// The multiples that systems want of a Linear layer's sizes, which they refuse to compute otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/linear/linear_recipe.hpp"
#include "fp8lab/reference/linear/tensor_parallel.hpp"

namespace fp8lab {

/// The sizes of a Linear layer: x is (tokens, in), w (out, in), dy (tokens, out). Tokens are the product of all
/// dimensions of x but the last.
struct LinearShape {
  std::size_t tokens, in, out;
};
enum class LinearDimension : std::uint8_t { tokens, in, out };
[[nodiscard]] std::span<const Named<LinearDimension>> named_values(LinearDimension of_type);

/// Who checks a size.
enum class ShapeCheck : std::uint8_t {
  split,      ///< the ranks, which share the dimension
  module,     ///< the layer, before it does anything: of x and w alone
  quantizer,  ///< what casts the tensor: all of its blocks must be whole
  gemm,       ///< the GEMM, whose rows in memory must begin at multiples of 16 bytes
};
[[nodiscard]] std::span<const Named<ShapeCheck>> named_values(ShapeCheck of_type);

/// A multiple that a system wants of a size.
struct ShapeRule {
  LinearPass pass;  ///< the pass that stops; a rule of fprop's x or w may stop another one, too, by a rule of its own
  LinearTensor tensor;
  LinearDimension dimension;
  std::size_t multiple;  ///< of what one rank has
  std::size_t ranks;     ///< that share the dimension at this check: the size is a multiple of multiple * ranks
  ShapeCheck check;
  LinearSystem system;
  std::string_view source;  ///< package, version and file
};

/// A size and what a rule says about it.
struct ShapeFit {
  ShapeRule rule;
  std::size_t size;   ///< of the whole dimension
  std::size_t below;  ///< the largest size up to this one that no rule of the recipe refuses; 0: there is none
  std::size_t above;  ///< the smallest one from this one on

  [[nodiscard]] bool fits() const { return size % (rule.multiple * rule.ranks) == 0; }
};

/// The largest size.
inline constexpr std::size_t most_size = std::size_t{1} << 40;

/// All rules of the recipe's system for such a layer, pass by pass, in the order in which it checks them; empty where
/// the system is LinearSystem::none. Where the GEMM runs decides its model: FP8 GEMMs of one scale a tensor take both
/// operands with K contiguous (TN) on Ada, Hopper and RTX Blackwell; blackwell_tcgen05_fp8 takes all layouts.
///
/// Ranks each check what they have: a dimension that is split counts per rank. Tokens of a split sequence are gathered
/// before the GEMM; only the module and the quantizer of a column-parallel layer's x see a part of them. (A dy whose
/// part does not fit is gathered in high precision.)
///
/// Throws std::invalid_argument for sizes that are not from 1 to most_size, and as check_tensor_parallel() and
/// check_linear_recipe() do.
[[nodiscard]] std::vector<ShapeFit> shape_fits(const LinearRecipe& recipe, const LinearShape& shape,
                                               const TensorParallel& parallel = {});

/// In words: the tensor, the dimension, the multiple that is wanted, the size, the nearest ones where it does not fit,
/// and who checks.
[[nodiscard]] std::string describe(const ShapeFit& fit);

/// Throws std::invalid_argument where the recipe's system refuses this pass of such a layer, with describe() of the
/// first rule that is broken.
void check_shape(const LinearRecipe& recipe, LinearPass pass, const LinearShape& shape,
                 const TensorParallel& parallel = {});

}  // namespace fp8lab
