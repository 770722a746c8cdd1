// SPDX-License-Identifier: Apache-2.0
// Quantizers as kernels: on arrays in the memory of a device, and the same kernels on the host team.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/gpu/host_team.hpp"
#include "fp8lab/reference/scaling/delayed_scaling.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"

namespace fp8lab::gpu {

// Every span is of memory that the kernel can reach: of the current device for the functions "on_device", of the host
// for those "on_host". Any alignment that the element type has will do; addresses that are multiples of 16 bytes, and
// rows that are, are quicker. The functions on_device start kernels on a stream, a cudaStream_t, and do not wait.
//
// All throw std::invalid_argument where a size, a type or an address does not fit; those on_device also NoDeviceError
// and CudaError (cuda_error.hpp).

/// The type of a tensor's elements.
enum class ElementType : std::uint8_t { float32, float16, bfloat16 };

/// A row-major matrix.
struct ElementMatrix {
  std::span<const std::byte> values;  ///< of all elements
  ElementType type = ElementType::float32;
  std::size_t rows = 0;
  std::size_t columns = 0;
};

/// Where the Philox generator stands: the random words of stochastic rounding. Codes of a direction, in their order,
/// take 32 bits for four, shared out as by ptx_random(); words 4 g to 4 g + 3 are
/// philox4x32({offset, offset >> 32, g, g >> 32}, {seed, seed >> 32}), as cuRAND draws them for subsequence g.
struct PhiloxState {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  ///< in calls of Philox
};
/// Draws the first `words` random words from that state.
[[nodiscard]] std::vector<std::uint32_t> philox_words(const PhiloxState& state, std::size_t words);

/// How many elements the arrays of a direction have.
struct QuantizedSizes {
  std::size_t codes = 0;        ///< bytes
  std::size_t scale_inv = 0;    ///< floats
  std::size_t scale_codes = 0;  ///< bytes
};
/// Columnwise scales are swizzled as those of the transpose, also where the codes are not transposed. Throws as
/// quantize() does for recipes and sizes that do not go together, and where float32 scales are to be swizzled.
[[nodiscard]] QuantizedSizes quantized_sizes(const Recipe& recipe, Direction direction, std::size_t rows,
                                             std::size_t columns, ScaleLayout layout = ScaleLayout::compact);

/// Where the result in one direction goes. The arrays are those of a Quantized, of quantized_sizes().
struct QuantizedArrays {
  std::span<std::uint8_t> codes;
  std::span<float> scale_inv;
  std::span<std::uint8_t> scale_codes;
  /// Where the amax of the tensor goes, one float. Recipes whose scales depend on it need the place, and set it; by a
  /// given scale it may be left out, and is raised to the amax: set it to 0 before, or let delayed scaling do so.
  float* amax = nullptr;
};

/// The tensor that a call quantizes, the recipe, and the arrays that it writes.
struct QuantizeCall {
  ElementMatrix x;
  Recipe recipe;
  std::optional<QuantizedArrays> rowwise = {};
  std::optional<QuantizedArrays> columnwise = {};
  ScaleLayout layout = ScaleLayout::compact;
  const float* scale = nullptr;            ///< for a given scale: where it lies; left out, the recipe's given_scale
  std::optional<PhiloxState> random = {};  ///< for stochastic rounding, which both directions begin with
};

/// Whether quantize_on_device() and quantize_on_host() take the recipe.
[[nodiscard]] bool has_kernel(const Recipe& recipe);
/// The names of recipes() that they take.
[[nodiscard]] std::vector<std::string_view> recipes_with_kernel();

/// Quantizes as quantize() of the reference does, bit for bit.
///
/// Throws also where the recipe has no kernel; the message names those that have one.
void quantize_on_device(const QuantizeCall& call, void* stream = nullptr);
/// Runs the same kernels on the host team.
void quantize_on_host(const QuantizeCall& call, HostOrder order = {});

/// The largest magnitude of x goes to `amax`: NaN counts as the recipe's nan_in_amax says.
void amax_on_device(const ElementMatrix& x, NanInAmax nan, float* amax, void* stream = nullptr);
void amax_on_host(const ElementMatrix& x, NanInAmax nan, float* amax, HostOrder order = {});

/// A quantized direction that is read.
struct QuantizedView {
  Recipe recipe;
  Direction direction = Direction::rowwise;
  std::size_t rows = 0;  ///< of the tensor
  std::size_t columns = 0;
  std::span<const std::uint8_t> codes;
  std::span<const float> scale_inv;
  std::span<const std::uint8_t> scale_codes;
  ScaleLayout layout = ScaleLayout::compact;
  const float* amax = nullptr;  ///< one float, where the recipe has a tensor's scale over those of tiles
};
/// The values that codes and scales stand for, (rows, columns), as dequantize() of the reference has them.
void dequantize_on_device(const QuantizedView& q, std::span<float> out, void* stream = nullptr);
void dequantize_on_host(const QuantizedView& q, std::span<float> out, HostOrder order = {});

/// The states of many tensors that share a Delayed and a Pass, as Transformer Engine keeps them.
struct DelayedStates {
  std::span<float> amaxes;          ///< (amax_history_len, tensors), row-major: row 0 is the running step's
  std::span<float> scale;           ///< a float for each tensor
  std::span<float> scale_inv = {};  ///< the same; versions whose casts write it leave it as it is, and it may be empty
};
/// The end of a step for all tensors in one launch: update_scale().
///
/// Throws also where the recipe's version is none of a kernel for all tensors (te_1_6, te_1_7 and te_current), or its
/// amax_compute_algo is a function.
void update_scales_on_device(const Delayed& recipe, Pass pass, const DelayedStates& states, void* stream = nullptr);
void update_scales_on_host(const Delayed& recipe, Pass pass, const DelayedStates& states, HostOrder order = {});

}  // namespace fp8lab::gpu
