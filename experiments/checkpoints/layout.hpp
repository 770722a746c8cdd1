// SPDX-License-Identifier: Apache-2.0
// How systems write quantized weights into checkpoints, as records of facts: names, dtypes, shapes, and the arithmetic
// of who reads them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/named.hpp"

namespace fp8lab::experiments {

/// Who writes a layout.
enum class Family : std::uint8_t {
  deepseek,
  transformers,
  mistral,
  gpt_oss,
  compressed_tensors,
  modelopt,
  fbgemm,
  quark,
  torchao,
  comfyui,
  gguf,
};
[[nodiscard]] std::span<const Named<Family>> named_values(Family of_type);

/// How the codes of a row lie in bytes.
enum class Packing : std::uint8_t {
  bytes,            ///< one code a byte
  pairs_low_first,  ///< two 4-bit codes a byte, the even element in the low nibble
  pairs_high_first,
  fours,           ///< four 6-bit codes in three bytes, the first in the low bits of the first byte
  gpt_oss_blocks,  ///< pairs, low first, in blocks of 16 bytes: a last index of 16
  gguf_mxfp4,      ///< 17 bytes: an E8M0 scale, then of 32 codes the first 16 in low nibbles, the others in high ones
  gguf_nvfp4,      ///< 36 bytes: 4 scales, then for each of them 8 bytes of 16 codes, in halves as above
};
[[nodiscard]] std::span<const Named<Packing>> named_values(Packing of_type);

/// The elements that share a scale.
enum class Grouping : std::uint8_t { tensor, row, column, block, group };
[[nodiscard]] std::span<const Named<Grouping>> named_values(Grouping of_type);

/// What a scale is stored as.
enum class ScaleType : std::uint8_t {
  number,  ///< F32, BF16 or F16
  e8m0,    ///< a byte b, which is 2^(b - 127): U8 or F8_E8M0
  e4m3,    ///< F8_E4M3
  ue4m3,   ///< a byte of GGUF: E4M3 without a sign, 7F is 0 and FF 480
};
[[nodiscard]] std::span<const Named<ScaleType>> named_values(ScaleType of_type);

/// The shape of the tensor of scales, of a weight of (N, K); stacks have the experts before it.
enum class ScaleShape : std::uint8_t {
  scalar,      ///< () or (1,); of a stack also (E,)
  column,      ///< (N, 1)
  vector,      ///< (N,)
  columns,     ///< (1, K) or (K, 1): a scale of each column
  grid,        ///< (N / block rows, K / block columns), both rounded up
  grid_4d,     ///< (N / block rows, 1, K / block columns, 1)
  groups,      ///< (N, K / group)
  tile_order,  ///< groups, in the order of cuBLAS's tiles of 128x4, padded to whole tiles
  in_block,    ///< beside the codes: there is no tensor of scales
};
[[nodiscard]] std::span<const Named<ScaleShape>> named_values(ScaleShape of_type);

/// What a companion of a weight is for.
enum class Role : std::uint8_t {
  scale,               ///< of groups, blocks, rows, or the tensor
  global_scale,        ///< of the tensor, over those of groups
  input_scale,         ///< of the layer's input
  input_global_scale,  ///< the same over scales of groups
  pre_quant_scale,     ///< of each column: the input is multiplied by it, and the weight before is this one times it
  bias,
  marker,  ///< a tensor that says which layout it is
  other,
};
[[nodiscard]] std::span<const Named<Role>> named_values(Role of_type);

/// Whether a tensor's scale multiplies or divides on dequantize.
enum class GlobalScale : std::uint8_t {
  none,
  multiplier,
  divisor,
  after,  ///< a multiplier of the product of the layer, which GGUF applies after it
};
[[nodiscard]] std::span<const Named<GlobalScale>> named_values(GlobalScale of_type);

/// Who reads a checkpoint.
enum class Loader : std::uint8_t {
  format,  ///< the layout's own library
  compressed_tensors,
  deepseek,
  gguf,
  modelopt,
  quark,
  transformers,
  vllm,
};
[[nodiscard]] std::span<const Named<Loader>> named_values(Loader of_type);

/// How code c, scale s and global scale g become a value. Each step is in float32 unless it says bfloat16; the value is
/// rounded to bfloat16 at the end.
enum class Product : std::uint8_t {
  scale,               ///< c * s
  rounded_scale,       ///< c * bf16(s)
  multiplied,          ///< c * (s * g)
  divided,             ///< c * (s / g)
  divided_rounded,     ///< c * bf16(s / g)
  rounded_multiplied,  ///< c * bf16(bf16(g) * s)
  codes_first,         ///< (c * s) * g
};
[[nodiscard]] std::span<const Named<Product>> named_values(Product of_type);

/// The arithmetic of one loader.
struct Dequantization {
  Loader loader;
  Product product;
  /// The block's rows and columns are those of the weight over those of the grid, not what the configuration says.
  bool block_from_shapes = false;
  bool positive_zero = false;  ///< the code of -0 counts as +0
  std::string_view source = {};
};

struct CompanionName {
  std::string_view suffix;
  Role role;
};

/// The syntax of a configuration's list of modules that are not quantized.
enum class Exclusion : std::uint8_t {
  none,
  dotted,    ///< a regular expression from the begin to a dot, or a suffix: transformers
  module,    ///< a name, a class, or re: and a regular expression from the begin: compressed-tensors
  wildcard,  ///< * and ?, as fnmatch() has them: ModelOpt, Quark
  exact,
};
[[nodiscard]] std::span<const Named<Exclusion>> named_values(Exclusion of_type);

/// One layout. A checkpoint may hold several.
struct Layout {
  std::string_view name;
  Family family;
  std::string_view words;
  std::string_view source;  ///< whose writer or reader was read

  // Names: a weight is called STEM + codes, its scale STEM + scale.
  std::string_view codes = ".weight";
  std::string_view scale = {};
  std::string_view global_scale = {};
  std::vector<CompanionName> companions = {};  ///< the others, STEM + suffix
  std::string_view restored = ".weight";       ///< what follows STEM in the name of the weight before

  // Bytes.
  std::vector<std::string_view> code_dtypes = {"F8_E4M3"};
  std::vector<std::string_view> scale_dtypes = {"F32"};
  Format format = e4m3;
  Packing packing = Packing::bytes;
  ScaleType scale_type = ScaleType::number;
  ScaleShape scale_shape = ScaleShape::scalar;
  Grouping grouping = Grouping::tensor;
  GlobalScale global = GlobalScale::none;
  bool transposed = false;  ///< the weight before is (experts, K, N)
  std::uint64_t group = 0;  ///< columns that share a scale; of blocks what the configuration may change
  std::uint64_t block_rows = 1;

  // The configuration.
  std::vector<std::string_view> methods = {};  ///< quant_method; empty: there is none
  Exclusion exclusion = Exclusion::none;
  std::vector<std::string_view> exclusion_keys = {};
  /// Layers that a server makes one of, whose global scales should be one: parts of names.
  std::vector<std::vector<std::string_view>> fused = {};

  /// Recipes of fp8lab that make its codes and scales bit for bit: the writer's own first. Empty where the writer makes
  /// them by steps that no recipe has: ModelOpt's export of FP8 for instance, whose amax is float32 whatever the weight
  /// is.
  std::vector<std::string_view> recipes = {};
  /// The rule by which a checkpoint of this layout is written, one of the keys of writers_of(); empty: none is written.
  std::string_view writer = {};
  std::vector<Dequantization> loaders = {};  ///< the first is that of the format

  [[nodiscard]] bool has_scale_tensor() const { return scale_shape != ScaleShape::in_block; }
  /// The bytes of so many codes, without scales beside them.
  [[nodiscard]] std::uint64_t bytes_of_codes(std::uint64_t count) const {
    return count * static_cast<std::uint64_t>(format.bits()) / 8;
  }
};

/// All of them, by families. Where tensors alone fit several, the earlier counts if no configuration decides.
[[nodiscard]] const std::vector<Layout>& all_layouts();
/// Throws std::invalid_argument that lists the known names.
[[nodiscard]] const Layout& find_layout(std::string_view name);

/// The names of the weights that a server makes one layer of with this one, itself among them; empty: of none.
[[nodiscard]] std::vector<std::string> fused_names(const Layout& layout, const std::string& weight);

}  // namespace fp8lab::experiments
