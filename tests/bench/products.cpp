// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <random>

#include "bench.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/measure/random.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace fp8lab::bench {
namespace {

constexpr std::size_t rows = 1024;
constexpr std::size_t columns = 768;
constexpr std::size_t depth = 768;

/// Gaussian operands of 1024 x 768 x 768, as floats and as codes.
struct Side {
  std::vector<float> values;
  std::vector<std::uint8_t> e4m3_codes, e5m2_codes, e2m1_codes;
  std::vector<std::uint8_t> fnuz_codes;
  std::vector<std::uint16_t> fp16_codes, bf16_codes;
  std::vector<std::uint8_t> adversarial_codes;  // E5M2 of any exponent, with zeros, infinities and NaN
  std::vector<std::uint8_t> scales;             // of moderate size in E8M0 and in UE4M3 alike

  Side(std::size_t size, std::uint64_t seed)
      : values(size),
        e4m3_codes(size),
        e5m2_codes(size),
        e2m1_codes(size),
        fnuz_codes(size),
        fp16_codes(size),
        bf16_codes(size),
        adversarial_codes(size),
        scales(size / 16) {
    torch_cuda_normal(seed, 0, {}, 0, 1, values);
    encode(e4m3, {}, std::span<const float>(values), e4m3_codes);
    encode(e5m2, {}, std::span<const float>(values), e5m2_codes);
    encode(e2m1, {}, std::span<const float>(values), e2m1_codes);
    encode(e4m3fnuz, {}, std::span<const float>(values), fnuz_codes);
    encode(binary16, {}, std::span<const float>(values), fp16_codes);
    encode(bfloat16, {}, std::span<const float>(values), bf16_codes);
    std::mt19937_64 random(seed);
    std::ranges::generate(adversarial_codes, [&] { return static_cast<std::uint8_t>(random()); });
    std::ranges::generate(scales, [&] { return static_cast<std::uint8_t>(120 - random() % 16); });
  }
  [[nodiscard]] Operand scaled(const std::vector<std::uint8_t>& codes, const Format& format, std::size_t count,
                               std::size_t block) const {
    return Operand::codes(codes, format, count, depth, std::span(scales).first(count * depth / block));
  }
};

struct Data {
  Side a{rows * depth, 1};
  Side b{columns * depth, 2};
  std::vector<float> out = std::vector<float>(rows * columns);
};

/// Elements k to k + count of every row, or of row 0 for every one of `columns` rows.
template <typename Element>
std::vector<Element> part(std::span<const Element> matrix, std::size_t width, std::size_t k, std::size_t count,
                          bool first_row_only) {
  std::vector<Element> result;
  for (std::size_t row = 0; row < columns && !matrix.empty(); ++row) {
    const auto from = matrix.subspan((first_row_only ? 0 : row) * width + k, count);
    result.insert(result.end(), from.begin(), from.end());
  }
  return result;
}

/// accumulator = what one instruction makes of it.
void instruction(const MmaModel& model, const Operand& a, const Operand& b, std::vector<float>& accumulator) {
  if (model.accumulator() == binary32) return mma(model, a, b, accumulator, std::span<float>(accumulator));
  std::vector<Half> halves;
  for (const float x : accumulator) halves.push_back({static_cast<std::uint16_t>(encode(binary16, {}, x))});
  mma(model, a, b, halves, std::span<Half>(halves));
  std::ranges::transform(halves, accumulator.begin(), [](Half x) { return decode(binary16, x.bits); });
}

/// The first row again, instruction by instruction.
bool first_row_is_right(const MmaModel& model, const Operand& a, const Operand& b, const std::vector<float>& out,
                        std::size_t promote_k) {
  const std::size_t step = model.k() == 0 ? depth : static_cast<std::size_t>(model.k());
  std::vector<float> accumulator(columns);
  std::vector<float> promoted(columns);
  for (std::size_t k = 0; k < depth; k += step) {
    std::visit(
        [&](auto left) {
          const auto right = std::get<decltype(left)>(b.elements);
          const auto x = part(left, depth, k, step, true);
          const auto y = part(right, depth, k, step, false);
          Operand one{.elements = std::span(x), .format = a.format, .rows = columns, .depth = step};
          Operand other{.elements = std::span(y), .format = b.format, .rows = columns, .depth = step};
          one.tf32_rounding = other.tf32_rounding = Rounding::nearest_away;  // as gemm() has it
          const std::size_t block = model.scales ? static_cast<std::size_t>(model.scales->block) : 1;
          const auto scale_x = part(a.scales.codes, depth / block, k / block, step / block, true);
          const auto scale_y = part(b.scales.codes, depth / block, k / block, step / block, false);
          if (model.scales) {
            one.scales.codes = scale_x;
            other.scales.codes = scale_y;
          }
          instruction(model, one, other, accumulator);
        },
        a.elements);
    if (promote_k == 0 || (k + step) % promote_k != 0) continue;
    std::ranges::transform(promoted, accumulator, promoted.begin(), std::plus<>());
    std::ranges::fill(accumulator, 0.0F);
  }
  std::ranges::transform(promoted, accumulator, promoted.begin(), std::plus<>());
  return std::ranges::equal(promoted, std::span(out).first(columns), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) || (std::isnan(x) && std::isnan(y));
  });
}

/// A product of quantized tensors beside that of their codes, a byte each, and their scales by hand.
Row quantized_row(const std::string& recipe, const MmaModel& model, const std::shared_ptr<Data>& data) {
  struct Sides {
    Quantized a, b;
    std::vector<std::uint8_t> a_codes, b_codes;
  };
  const auto sides = std::make_shared<Sides>();
  quantize({data->a.values, rows, depth}, find_recipe(recipe).recipe, Direction::rowwise, sides->a);
  quantize({data->b.values, columns, depth}, find_recipe(recipe).recipe, Direction::rowwise, sides->b);
  const auto plain = [](const Quantized& q, std::vector<std::uint8_t>& codes) {
    Operand operand = operand_of(q);
    if (!operand.packed) return operand;
    codes.resize(q.rows * q.columns);
    unpack_pairs(q.codes, codes);
    operand.elements = std::span<const std::uint8_t>(codes);
    operand.packed = false;
    return operand;
  };
  const Operand a = plain(sides->a, sides->a_codes);
  const Operand b = plain(sides->b, sides->b_codes);
  const auto by_hand = [=] { gemm({.model = model}, a, b, data->out); };
  const auto work = [=] { gemm({.model = model}, sides->a, sides->b, data->out); };
  return {std::string(model.name) + " of Quantized, " + recipe + ", 1024x768x768", "its arrays", work, by_hand, 1, [=] {
            by_hand();
            const std::vector<float> expected = data->out;
            work();
            return std::ranges::equal(data->out, expected, {}, std::bit_cast<std::uint32_t, float>,
                                      std::bit_cast<std::uint32_t, float>);
          }};
}

}  // namespace

std::vector<Row> product_rows() {
  const auto data = std::make_shared<Data>();
  const Sgemm sgemm = fastest_sgemm();
  const auto native = [data, multiply = sgemm.multiply] {
    multiply(data->a.values.data(), data->b.values.data(), data->out.data(), rows, columns, depth);
  };
  std::vector<Row> result;
  const auto add = [&](const std::string& name, const MmaModel& model, const Operand& a, const Operand& b,
                       int promote_k) {
    const auto work = [=] { gemm({.model = model, .promote_k = promote_k}, a, b, data->out); };
    result.push_back({name + ", 1024x768x768", sgemm.name, work, native, 1, [=] {
                        work();
                        return first_row_is_right(model, a, b, data->out, static_cast<std::size_t>(promote_k));
                      }});
  };
  const auto a = Operand::codes(data->a.e4m3_codes, e4m3, rows, depth);
  const auto b = Operand::codes(data->b.e4m3_codes, e4m3, columns, depth);
  const auto e5m2_a = Operand::codes(data->a.e5m2_codes, e5m2, rows, depth);
  const auto adversarial_a = Operand::codes(data->a.adversarial_codes, e5m2, rows, depth);
  const auto adversarial_b = Operand::codes(data->b.adversarial_codes, e5m2, columns, depth);
  add("hopper_wgmma_fp8 e4m3 x e4m3", hopper_wgmma_fp8, a, b, 0);
  add("hopper_wgmma_fp8 e5m2 x e4m3", hopper_wgmma_fp8, e5m2_a, b, 0);
  add("hopper_wgmma_fp8 promoted every 128", hopper_wgmma_fp8, a, b, 128);
  add("hopper_wgmma_fp8 adversarial e5m2", hopper_wgmma_fp8, adversarial_a, adversarial_b, 0);
  add("hopper_wgmma_fp8_f16", hopper_wgmma_fp8_f16, a, b, 0);
  add("ada_mma_fp8", ada_mma_fp8, a, b, 0);
  add("blackwell_tcgen05_fp8", blackwell_tcgen05_fp8, a, b, 0);
  add("blackwell_tcgen05_fp8 adversarial e5m2", blackwell_tcgen05_fp8, adversarial_a, adversarial_b, 0);
  add("blackwell_mxf8", blackwell_mxf8, data->a.scaled(data->a.e4m3_codes, e4m3, rows, 32),
      data->b.scaled(data->b.e4m3_codes, e4m3, columns, 32), 0);
  add("hopper_mma_sync_fp8", hopper_mma_sync_fp8, a, b, 0);
  add("blackwell_nvf4", blackwell_nvf4, data->a.scaled(data->a.e2m1_codes, e2m1, rows, 16),
      data->b.scaled(data->b.e2m1_codes, e2m1, columns, 16), 0);
  add("hopper_fp16", hopper_fp16, Operand::codes(data->a.fp16_codes, binary16, rows, depth),
      Operand::codes(data->b.fp16_codes, binary16, columns, depth), 0);
  add("hopper_bf16", hopper_bf16, Operand::codes(data->a.bf16_codes, bfloat16, rows, depth),
      Operand::codes(data->b.bf16_codes, bfloat16, columns, depth), 0);
  add("cdna3_fp8", cdna3_fp8, Operand::codes(data->a.fnuz_codes, e4m3fnuz, rows, depth),
      Operand::codes(data->b.fnuz_codes, e4m3fnuz, columns, depth), 0);
  add("hopper_tf32", hopper_tf32, Operand::floats(data->a.values, rows, depth),
      Operand::floats(data->b.values, columns, depth), 0);
  add("ampere_tf32", ampere_tf32, Operand::floats(data->a.values, rows, depth),
      Operand::floats(data->b.values, columns, depth), 0);
  add("exact", exact, Operand::floats(data->a.values, rows, depth), Operand::floats(data->b.values, columns, depth), 0);
  result.push_back(quantized_row("te_nvfp4", blackwell_nvf4, data));
  result.push_back(quantized_row("te_mxfp8", blackwell_mxf8, data));
  result.push_back(quantized_row("te_block_1x128_fp32", hopper_wgmma_fp8, data));
  return result;
}

}  // namespace fp8lab::bench
