// SPDX-License-Identifier: Apache-2.0
#include "gemm/dequantized.hpp"

#include <algorithm>
#include <numeric>
#include <span>

#include "fp8lab/formats/encode.hpp"
#include "gemm/plain_rows.hpp"

namespace fp8lab {
namespace {

/// Rows that are gathered at a time.
constexpr std::size_t rows_at_once = 128;

}  // namespace

DequantizedOperand::DequantizedOperand(const Operand& from, StepType type)
    : format_(type == StepType::to_float16 ? binary16 : bfloat16), rows_(from.rows), depth_(from.depth) {
  const float of_tensor = from.tensor_scale.factor / from.tensor_scale.divisor;
  words_.resize(rows_ * depth_);
  std::vector<float> values(std::min(rows_at_once, rows_) * depth_);
  for (std::size_t first = 0; first < rows_; first += rows_at_once) {
    std::vector<std::size_t> numbers(std::min(rows_at_once, rows_ - first));
    std::iota(numbers.begin(), numbers.end(), first);
    const PlainRows rows(from, numbers, depth_, {});
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::vector<double> row = rows.values(i);
      for (std::size_t k = 0; k < depth_; ++k) {
        float x = static_cast<float>(row[k]) * rows.block_scale(i, k);
        x = x * rows.tile_scale(i, k) * rows.row_scale(i) * of_tensor;
        values[i * depth_ + k] = x;
      }
    }
    const std::size_t count = numbers.size() * depth_;
    encode(format_, cuda_nosat_policy, std::span<const float>(values).first(count),
           std::span(words_).subspan(first * depth_, count));
  }
}

}  // namespace fp8lab
