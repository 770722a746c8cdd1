// SPDX-License-Identifier: Apache-2.0
#include "speed_cases.hpp"

#include <span>
#include <string_view>

#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"

namespace fp8lab::gpu {
namespace {

constexpr std::size_t rows = 8192;
constexpr std::size_t columns = 8192;

/// The directions that a case makes, and how often it must read the tensor.
struct Work {
  bool rowwise = true, columnwise = false;
  double reads = 1;
};

/// Takes arrays from a place, each at a multiple of 256 bytes.
class Arrays {
 public:
  explicit Arrays(std::byte* begin) : begin_(begin) {}
  template <typename T>
  std::span<T> next(std::size_t count) {
    auto* const place = begin_ == nullptr ? nullptr : reinterpret_cast<T*>(begin_ + used_);  // null: sizes alone
    used_ += (count * sizeof(T) + 255) / 256 * 256;
    return {place, count};
  }
  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::byte* begin_;
  std::size_t used_ = 0;
};

/// Whether the amax of the tensor has a place: scales depend on it, or it is taken beside a given one.
bool takes_amax(const Recipe& recipe) { return recipe.tile_across == 0 || has_tensor_scale(recipe); }

QuantizedArrays arrays_of(const Recipe& recipe, Direction direction, Arrays& arrays) {
  const QuantizedSizes sizes = quantized_sizes(recipe, direction, rows, columns);
  QuantizedArrays own{arrays.next<std::uint8_t>(sizes.codes), arrays.next<float>(sizes.scale_inv),
                      arrays.next<std::uint8_t>(sizes.scale_codes)};
  if (takes_amax(recipe)) own.amax = arrays.next<float>(1).data();
  return own;
}

QuantizeCall call_of(const Recipe& recipe, const Work& work, ElementType type, const std::byte* in, Arrays& arrays) {
  const std::size_t width = type == ElementType::float32 ? 4 : 2;
  QuantizeCall call{.x = {{in, rows * columns * width}, type, rows, columns}, .recipe = recipe};
  if (work.rowwise) call.rowwise = arrays_of(recipe, Direction::rowwise, arrays);
  if (work.columnwise) call.columnwise = arrays_of(recipe, Direction::columnwise, arrays);
  return call;
}

SpeedCase quantize_case(std::string_view name, std::string_view recipe_name, const Work& work,
                        ElementType type = ElementType::bfloat16) {
  const Recipe recipe = find_recipe(recipe_name).recipe;
  Arrays sizes(nullptr);
  static_cast<void>(call_of(recipe, work, type, nullptr, sizes));
  const std::size_t in_bytes = rows * columns * (type == ElementType::float32 ? 4 : 2);
  return {.name = std::string(name),
          .is_bfloat16 = type == ElementType::bfloat16,
          .in_bytes = in_bytes,
          .out_bytes = sizes.used(),
          .bytes = work.reads * static_cast<double>(in_bytes) + static_cast<double>(sizes.used()),
          .call = [recipe, work, type](const std::byte* in, std::byte* out) {
            Arrays arrays(out);
            return call_of(recipe, work, type, in, arrays);
          }};
}

}  // namespace

const std::vector<SpeedCase>& speed_cases() {
  static const std::vector<SpeedCase> all{
      quantize_case("cast bfloat16 to E4M3 with its amax", "given_scale", {}),
      quantize_case("cast float32 to E4M3 with its amax", "given_scale", {}, ElementType::float32),
      quantize_case("the same, with the transpose", "given_scale", {.columnwise = true}),
      quantize_case("just-in-time, bfloat16", "te_current_scaling", {.reads = 2}),
      quantize_case("MXFP8 rowwise, bfloat16", "te_mxfp8", {}),
      quantize_case("MXFP8 columnwise, bfloat16", "te_mxfp8", {.rowwise = false, .columnwise = true}),
      quantize_case("MXFP8 both, bfloat16", "te_mxfp8", {.columnwise = true}),
      quantize_case("1 x 128 blocks, bfloat16", "te_block_1x128", {}),
      quantize_case("128 x 128 blocks, bfloat16", "te_block_128x128", {}),
      quantize_case("NVFP4, bfloat16", "te_nvfp4", {.reads = 2}),
  };
  return all;
}

}  // namespace fp8lab::gpu
