// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/gpu/recorder/kernel_cases.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/gpu/device.hpp"
#include "fp8lab/gpu/gemm.hpp"
#include "fp8lab/gpu/quantize.hpp"
#include "fp8lab/gpu/recorder/digest.hpp"
#include "fp8lab/gpu/recorder/memory.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"

namespace fp8lab::gpu {
namespace {

using Bytes = std::vector<std::uint8_t>;

/// Floats of random bits, of a count that no block size divides.
std::vector<float> random_floats(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random_word(9, i)));
  return values;
}

Bytes encode_output(const Format& format, bool on_device) {
  const std::vector<float> in = random_floats((1U << 20) + 3);
  Bytes codes(in.size(), 0xA5);
  if (on_device) {
    encode_on_device(format, {}, in, codes);
  } else {
    encode(format, {}, in, codes);
  }
  return codes;
}

/// Values from 2^-8 to 2^7 of either sign, and one in 512 of random bits, in a type.
std::vector<std::byte> tensor_bytes(ElementType type, std::size_t count) {
  const std::size_t width = type == ElementType::float32 ? 4 : 2;
  std::vector<std::byte> bytes(count * width);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t random = random_word(11, i);
    auto word = static_cast<std::uint32_t>(random);
    if ((random >> 40) % 512 != 0) word = (word & 0x87FFFFFFU) + 0x3B800000U;
    if (i == 1000) word = 0xFFC00000;  // a NaN with a sign
    if (type == ElementType::float16) word = encode(binary16, ieee_policy, std::bit_cast<float>(word));
    if (type == ElementType::bfloat16) word >>= 16;
    for (std::size_t byte = 0; byte < width; ++byte) bytes[i * width + byte] = static_cast<std::byte>(word >> 8 * byte);
  }
  return bytes;
}

/// The recipe, the element type and the layout of scales that a case of the quantizer has.
struct QuantizerInput {
  Recipe recipe;
  ElementType type = ElementType::bfloat16;
  ScaleLayout layout = ScaleLayout::compact;
  std::optional<PhiloxState> random = {};
  bool rowwise_alone = false;  ///< which takes other kernels than both directions do
  std::size_t rows = 128, columns = 384;
};

bool has_amax(const Recipe& recipe) {
  return recipe.tensor_scale != TensorScaleRule::none ||
         (recipe.tile_across == 0 && recipe.quotient != Quotient::given_scale &&
          recipe.quotient != Quotient::given_scale_inv);
}

/// Codes, scales and amaxes of both directions, or of one, and the values back.
Bytes quantize_output(const QuantizerInput& of, bool on_device) {
  KernelMemory memory(on_device);
  const ElementMatrix x{memory.put(tensor_bytes(of.type, of.rows * of.columns)), of.type, of.rows, of.columns};
  const auto arrays_of = [&](Direction direction) {
    const QuantizedSizes sizes = quantized_sizes(of.recipe, direction, of.rows, of.columns, of.layout);
    return QuantizedArrays{memory.out<std::uint8_t>(sizes.codes), memory.out_with_any_nan(sizes.scale_inv),
                           memory.out<std::uint8_t>(sizes.scale_codes),
                           has_amax(of.recipe) ? memory.out_with_any_nan(1).data() : nullptr};
  };
  QuantizeCall call{
      .x = x, .recipe = of.recipe, .rowwise = arrays_of(Direction::rowwise), .layout = of.layout, .random = of.random};
  if (!of.rowwise_alone) call.columnwise = arrays_of(Direction::columnwise);
  on_device ? quantize_on_device(call) : quantize_on_host(call);
  for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
    const auto& made = direction == Direction::rowwise ? call.rowwise : call.columnwise;
    if (!made) continue;
    const QuantizedArrays& arrays = *made;
    const QuantizedView view{.recipe = of.recipe,
                             .direction = direction,
                             .rows = of.rows,
                             .columns = of.columns,
                             .codes = arrays.codes,
                             .scale_inv = arrays.scale_inv,
                             .scale_codes = arrays.scale_codes,
                             .layout = of.layout,
                             .amax = arrays.amax};
    const std::span<float> values = memory.out_with_any_nan(of.rows * of.columns);
    on_device ? dequantize_on_device(view, values) : dequantize_on_host(view, values);
  }
  return memory.output();
}

Bytes update_output(bool on_device) {
  KernelMemory memory(on_device);
  constexpr std::size_t tensors = 1000;
  const Delayed recipe{.amax_history_len = 16, .version = te_1_7};  // which writes scale_inv, too
  std::vector<float> amaxes(16 * tensors);
  for (std::size_t i = 0; i < amaxes.size(); ++i) {
    amaxes[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random_word(13, i)) & 0x7FFFFFFFU);
  }
  const DelayedStates states{memory.changed(amaxes), memory.changed(std::vector<float>(tensors, 1)),
                             memory.changed(std::vector<float>(tensors, 1))};
  on_device ? update_scales_on_device(recipe, Pass::forward, states)
            : update_scales_on_host(recipe, Pass::forward, states);
  return memory.output();
}

/// The host's model of the current device's mma.sync.
HostChip chip_of_device() {
  const int capability = device_capability();
  if (capability >= 120) return HostChip::rtx_blackwell;
  if (capability >= 100) return HostChip::blackwell;
  return capability >= 90 ? HostChip::hopper : HostChip::ada;
}

std::vector<std::uint8_t> random_codes(std::size_t count, std::uint64_t seed) {
  std::vector<std::uint8_t> codes(count);
  for (std::size_t i = 0; i < count; ++i) {
    codes[i] = static_cast<std::uint8_t>(random_word(seed, i));
    if ((codes[i] & 0x7CU) == 0x7CU) codes[i] &= 0xBFU;  // neither NaN nor infinity, in both formats
  }
  return codes;
}
std::vector<float> random_scales(std::size_t count, std::uint64_t seed) {
  std::vector<float> scales(count);
  for (std::size_t i = 0; i < count; ++i) {
    scales[i] = std::bit_cast<float>(0x3C000000U + (static_cast<std::uint32_t>(random_word(seed, i)) & 0x03FFFFFFU));
  }
  return scales;
}

/// Codes from 56 to 63: as E8M0 from 2^-71 to 2^-64, as E4M3 from 1 to 1.875.
Bytes random_block_scales(std::size_t count, std::uint64_t seed) {
  Bytes scales(count);
  for (std::size_t i = 0; i < count; ++i) scales[i] = static_cast<std::uint8_t>(56 + random_word(seed, i) % 8);
  return scales;
}

/// The kernel and the types of operands that a case of GEMM has.
struct GemmInput {
  GemmKernel kernel;
  MmaType type_a = MmaType::e4m3, type_b = MmaType::e4m3;
};

/// Operands, and scales as the kernel takes them; compact block scales, so that they are swizzled too.
GemmArguments gemm_arguments(const GemmInput& of, KernelMemory& memory) {
  const std::size_t m = kind_of(of.kernel) ? 72 : 136;  // whose instructions are 128 x 128, and take the host long
  constexpr std::size_t n = 200;
  constexpr std::size_t k = 416;
  const auto kind = kind_of(of.kernel);
  const bool is_packed_k = kind && is_packed(*kind);
  const std::size_t row_bytes = is_packed_k ? k / 2 : k;
  GemmArguments arguments{.m = m,
                          .n = n,
                          .k = k,
                          .type_a = of.type_a,
                          .type_b = of.type_b,
                          .a = memory.put(random_codes(m * row_bytes, 21)),
                          .b = memory.put(random_codes(n * row_bytes, 22)),
                          .bias = memory.put(random_scales(n, 23))};
  const bool is_1d2d = of.kernel == GemmKernel::wgmma_scaled_1d2d;
  if (is_1d2d || of.kernel == GemmKernel::wgmma_scaled_1d1d) {
    arguments.tile_scales_a = memory.put(random_scales(m * ceil_div(k, 128), 24));
    arguments.tile_scales_b = memory.put(random_scales((is_1d2d ? ceil_div(n, 128) : n) * ceil_div(k, 128), 25));
    return arguments;
  }
  arguments.scale_a = memory.put(random_scales(1, 26));
  arguments.scale_b = memory.put(random_scales(1, 27));
  if (kind && scales_of(*kind) > 0) {
    const std::size_t blocks = k / block_of(*kind);
    arguments.block_scales_a.codes = memory.put(random_block_scales(m * blocks, 28));
    arguments.block_scales_b.codes = memory.put(random_block_scales(n * blocks, 29));
  }
  return arguments;
}

Bytes gemm_output(const GemmInput& of, bool on_device) {
  KernelMemory memory(on_device);
  GemmArguments arguments = gemm_arguments(of, memory);
  arguments.out = memory.out<float>(arguments.m * arguments.n);
  const auto chip = device_count() > 0 ? std::optional(chip_of_device()) : std::nullopt;
  on_device ? gemm_on_device(of.kernel, arguments) : gemm_on_host(of.kernel, arguments, {}, chip);
  return memory.output();
}

void add_quantizers(std::vector<KernelCase>& all) {
  const auto add = [&](const std::string& name, const QuantizerInput& of) {
    all.push_back({.name = name, .output = [of](bool on_device) { return quantize_output(of, on_device); }});
  };
  for (const std::string_view name : recipes_with_kernel()) {
    const Recipe recipe = find_recipe(name).recipe;
    const std::string called = std::string("quantize by ").append(name);
    add(called, {recipe, ElementType::bfloat16});
    add(called + ", float32", {recipe, ElementType::float32});
    add(called + ", float16", {recipe, ElementType::float16});
  }
  for (const std::string_view name : {"te_mxfp8", "te_nvfp4"}) {
    add(std::string("quantize by ").append(name) + ", scales swizzled",
        {.recipe = find_recipe(name).recipe, .layout = ScaleLayout::swizzled});
  }
  for (const std::string_view name : {"te_mxfp8", "te_nvfp4", "te_block_1x128", "te_current_scaling", "given_scale"}) {
    const std::string called = std::string("quantize by ").append(name) + ", rowwise alone";
    const Recipe recipe = find_recipe(name).recipe;
    add(called, {.recipe = recipe, .rowwise_alone = true});
    add(called + ", float32", {.recipe = recipe, .type = ElementType::float32, .rowwise_alone = true});
  }
  // Blocks of threads that end beyond the tensor, and elements that are not aligned.
  for (const std::string_view name : {"te_block_1x128", "te_block_128x128", "te_current_scaling", "given_scale"}) {
    const Recipe recipe = find_recipe(name).recipe;
    add(std::string("quantize by ").append(name) + ", 200 x 300", {.recipe = recipe, .rows = 200, .columns = 300});
    add(std::string("quantize by ").append(name) + ", 131 x 77", {.recipe = recipe, .rows = 131, .columns = 77});
  }
  add("quantize by te_mxfp8, 160 x 416", {.recipe = find_recipe("te_mxfp8").recipe, .rows = 160, .columns = 416});
  add("quantize by te_nvfp4, 48 x 80", {.recipe = find_recipe("te_nvfp4").recipe, .rows = 48, .columns = 80});
  add("quantize by te_mxfp8, rowwise alone, scales swizzled",
      {.recipe = find_recipe("te_mxfp8").recipe, .layout = ScaleLayout::swizzled, .rowwise_alone = true});
  add("quantize to NVFP4, turned, stochastic",
      {.recipe = NvFp4{.stochastic_rounding = true, .with_rht = true}, .random = PhiloxState{0x123456789ABCDEFU, 77}});
  all.push_back({.name = "delayed scaling's update", .output = update_output});
}

/// Lists the compute capabilities of the chips that have a kernel's instructions.
std::vector<int> chips_of(GemmKernel kernel) {
  const auto kind = kind_of(kernel);
  if (!kind)
    return kernel == GemmKernel::mma_sync || kernel == GemmKernel::mma_sync_float16 ? std::vector<int>{}
                                                                                    : std::vector{90};
  return *kind == MmaKind::f8f6f4 || *kind == MmaKind::mxf4nvf4_ue8m0 ? std::vector{100} : std::vector{100, 120};
}

void add_products(std::vector<KernelCase>& all) {
  for (const GemmKernel kernel : gemm_kernels()) {
    const auto kind = kind_of(kernel);
    const auto add = [&](const std::string& formats, MmaType type_a) {
      all.push_back(
          {.name = std::string("gemm ").append(name_of(kernel)) + formats,
           .chips = chips_of(kernel),
           .least = 89,
           .output = [of = GemmInput{kernel, type_a}](bool on_device) { return gemm_output(of, on_device); }});
    };
    if (kind && is_packed(*kind)) {
      add("", MmaType::e4m3);
    } else {
      add(", e4m3 and e4m3", MmaType::e4m3);
      add(", e5m2 and e4m3", MmaType::e5m2);
    }
  }
}

}  // namespace

const std::vector<KernelCase>& kernel_cases() {
  static const std::vector<KernelCase> cases = [] {
    std::vector<KernelCase> all{
        {.name = "encode to e4m3", .output = [](bool on_device) { return encode_output(e4m3, on_device); }},
        {.name = "encode to e5m2", .output = [](bool on_device) { return encode_output(e5m2, on_device); }},
        {.name = "encode to e8m0", .output = [](bool on_device) { return encode_output(e8m0, on_device); }}};
    add_quantizers(all);
    add_products(all);
    return all;
  }();
  return cases;
}

KernelCheck check_on_device(const KernelCase& one) {
  const DefaultEnvironment environment;
  const Bytes got = one.output(true);
  const Bytes expected = one.output(false);
  KernelCheck check{.compared = got.size()};
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i] || check.wrong++ > 0) continue;
    TextStream text;
    text << "byte " << i << " of the output: " << +got[i] << ", expected " << +expected[i];
    check.first = text.str();
  }
  return check;
}

}  // namespace fp8lab::gpu
