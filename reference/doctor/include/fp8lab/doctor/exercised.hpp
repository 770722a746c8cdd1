// SPDX-License-Identifier: Apache-2.0
// What an input shows of a kernel: whether it has ties, subnormals, zeros and the like, on which kernels differ.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"

namespace fp8lab::doctor {

/// Kinds of elements and tiles that tell kernels apart, and that drawn numbers do not have.
enum class InputKind : std::uint8_t {
  ties,             ///< scaled elements halfway between two normal codes
  subnormal_ties,   ///< the same, where the codes are subnormal, or one is 0
  subnormals,       ///< scaled elements within the subnormals, not nearest to 0
  underflow,        ///< scaled elements but zero that are nearest to 0
  saturation,       ///< finite scaled elements above the largest number
  zeros,            ///< elements that are 0
  negative_zeros,   ///< elements that are -0
  nan,              ///< elements that are NaN
  infinity,         ///< elements that are infinite
  zero_tiles,       ///< tiles of zeros alone
  small_tiles,      ///< tiles whose amax is smaller than an epsilon or a floor, but not 0
  edges,            ///< tiles whose scale is a power of two, or next to one, before it is rounded to one
  incomplete_tiles  ///< tiles at the end of rows or columns that have fewer elements
};
inline constexpr std::array named_input_kinds{
    Named{"exact ties", InputKind::ties},
    Named{"exact ties of subnormal codes", InputKind::subnormal_ties},
    Named{"subnormal codes", InputKind::subnormals},
    Named{"underflow", InputKind::underflow},
    Named{"saturation", InputKind::saturation},
    Named{"zeros", InputKind::zeros},
    Named{"negative zeros", InputKind::negative_zeros},
    Named{"NaN", InputKind::nan},
    Named{"infinity", InputKind::infinity},
    Named{"tiles of zeros", InputKind::zero_tiles},
    Named{"tiles with a very small amax", InputKind::small_tiles},
    Named{"amaxes at the edges of binades", InputKind::edges},
    Named{"incomplete tiles", InputKind::incomplete_tiles},
};
[[nodiscard]] constexpr std::span<const Named<InputKind>> named_values(InputKind /*kind*/) { return named_input_kinds; }

/// How often an input has a kind.
struct Exercised {
  InputKind kind;
  std::uint64_t count = 0;  ///< of elements or tiles
  bool is_needed = false;   ///< whether the input that exercise() makes for the recipe has it
};

/// An input that has as many kinds as one tensor can have under a recipe.
struct ExerciseInput {
  std::size_t rows = 0, columns = 0;
  std::vector<float> values = {};  ///< row-major
};

/// Makes one, of values of that type (binary32, binary16 or bfloat16). A tensor with one scale has neither NaN nor
/// infinity, which would leave nothing else. Throws std::invalid_argument where the recipe is none.
[[nodiscard]] ExerciseInput exercise(const Recipe& recipe, Direction direction = Direction::rowwise,
                                     const Format& input_type = binary32);

/// The kinds of each element under a recipe: bit i is that of InputKind i. Row-major; of the columnwise direction by
/// the rows of the transpose. Kinds of scaled elements and of tiles are told where the scales follow from the tensor as
/// the recipe says, and not, where they are given. Throws std::invalid_argument where the recipe is none.
[[nodiscard]] std::vector<std::uint16_t> kinds_of_elements(const MatrixView& x, const Recipe& recipe,
                                                           Direction direction = Direction::rowwise);

/// A sentence for each kind that all elements are of that differ, and few of the others; `differs` is 0 for those that
/// are equal. Throws std::invalid_argument where there are not as many of both.
[[nodiscard]] std::vector<std::string> findings_by_kind(std::span<const std::uint16_t> kinds,
                                                        std::span<const std::uint8_t> differs);

}  // namespace fp8lab::doctor
