// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <memory>

#include "bench.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/gemm.hpp"
#include "fp8lab/reference/random.hpp"

namespace fp8lab::bench {
namespace {

constexpr std::size_t rows = 1024;
constexpr std::size_t columns = 768;
constexpr std::size_t depth = 768;

/// Gaussian operands of 1024 x 768 x 768, as floats and as codes.
struct Operand {
  std::vector<float> values;
  std::vector<std::uint8_t> e4m3_codes, e5m2_codes;
  Operand(std::size_t size, std::uint64_t seed) : values(size), e4m3_codes(size), e5m2_codes(size) {
    torch_cuda_normal(seed, 0, {}, 0, 1, values);
    encode(e4m3, {}, std::span<const float>(values), e4m3_codes);
    encode(e5m2, {}, std::span<const float>(values), e5m2_codes);
  }
};

struct Data {
  Operand a{rows * depth, 1};
  Operand b{columns * depth, 2};
  std::vector<float> out = std::vector<float>(rows * columns);
};

/// The first row again, step by step.
bool first_row_is_right(const MmaModel& model, const Operands& a, const Operands& b, const std::vector<float>& out,
                        std::size_t promote_k) {
  const auto left = factors(model, a, "a");
  const auto right = factors(model, b, "b");
  const std::size_t step = model.products_per_step == 0 ? depth : static_cast<std::size_t>(model.products_per_step);
  for (std::size_t column = 0; column < columns; ++column) {
    float accumulator = 0;
    float promoted = 0;
    for (std::size_t k = 0; k < depth; k += step) {
      accumulator = mma_step(model, std::span(left).subspan(k, step),
                             std::span(right).subspan(column * depth + k, step), accumulator);
      if (promote_k != 0 && (k + step) % promote_k == 0) {
        promoted += accumulator;
        accumulator = 0;
      }
    }
    const float expected = promote_k == 0 ? accumulator : promoted + accumulator;
    if (std::bit_cast<std::uint32_t>(expected) != std::bit_cast<std::uint32_t>(out[column])) return false;
  }
  return true;
}

}  // namespace

std::vector<Row> product_rows() {
  const auto data = std::make_shared<Data>();
  const auto native = [data] {
    sgemm(data->a.values.data(), data->b.values.data(), data->out.data(), rows, columns, depth);
  };
  std::vector<Row> result;
  const auto add = [&](const std::string& name, const MmaModel& model, const Operands& a, const Operands& b,
                       int promote_k) {
    const auto work = [=] { gemm(model, a, b, data->out, {.promote_k = promote_k}); };
    result.push_back({name + ", 1024x768x768", "Eigen sgemm", work, native, 1, [=] {
                        work();
                        return first_row_is_right(model, a, b, data->out, static_cast<std::size_t>(promote_k));
                      }});
  };
  const auto a = Operands::codes(data->a.e4m3_codes, e4m3, rows, depth);
  const auto b = Operands::codes(data->b.e4m3_codes, e4m3, columns, depth);
  add("hopper_wgmma_fp8 e4m3 x e4m3", hopper_wgmma_fp8, a, b, 0);
  add("hopper_wgmma_fp8 e5m2 x e4m3", hopper_wgmma_fp8, Operands::codes(data->a.e5m2_codes, e5m2, rows, depth), b, 0);
  add("hopper_wgmma_fp8 promoted every 128", hopper_wgmma_fp8, a, b, 128);
  add("hopper_tf32", hopper_tf32, Operands::floats(data->a.values, rows, depth),
      Operands::floats(data->b.values, columns, depth), 0);
  add("exact", exact, Operands::floats(data->a.values, rows, depth), Operands::floats(data->b.values, columns, depth),
      0);
  return result;
}

}  // namespace fp8lab::bench
