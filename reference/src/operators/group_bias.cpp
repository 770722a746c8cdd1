// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/group_bias.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "operators/row_buffers.hpp"

namespace fp8lab {

namespace {

void check_group_offsets(std::span<const std::int64_t> offsets, std::size_t rows) {
  if (offsets.size() < 2)
    refuse("offsets must have an entry more than there are groups, at least 2, not ", offsets.size());
  if (offsets.front() < 0 || !std::ranges::is_sorted(offsets) || std::cmp_greater(offsets.back(), rows)) {
    refuse("offsets must ascend from 0 or more to at most the ", rows, " rows");
  }
}

void check_group_outputs(const MatrixView& grad, std::span<const std::int64_t> offsets, std::span<float> dbias) {
  check_kernel_floats("grad", grad);
  check_group_offsets(offsets, grad.rows());
  check_size("dbias", dbias.size(), (offsets.size() - 1) * grad.columns());
  check_apart_from("grad", grad, "dbias", dbias);
}

void add_to(float sum, float& total) {
  total += sum;
  if (total != total) total = std::bit_cast<float>(0x7FFFFFFFU);
}

/// Adds the sums of each group to dbias. What adder(group) gives adds the i-th row to sums of the columns: it is called
/// with i, the row and the sums.
template <typename Adder>
void add_groups(const MatrixView& grad, std::span<const std::int64_t> offsets, std::span<float> dbias, int threads,
                const Adder& adder) {
  const std::size_t columns = grad.columns();
  for (std::size_t group = 0; group + 1 < offsets.size(); ++group) {
    const auto begin = static_cast<std::size_t>(offsets[group]);
    const std::size_t count = static_cast<std::size_t>(offsets[group + 1]) - begin;
    if (count == 0) continue;
    BlockSums sums(columns);
    for_each_block(count, threads, [&](std::size_t block, std::size_t first, std::size_t last) {
      std::vector<float> row(padded(columns));
      auto add_row = adder(group);
      for (std::size_t i = begin + first; i < begin + last; ++i) {
        checkpoint();
        read_piece(grad, i * columns, columns, row.data());
        add_row(i, row, sums.of_block(block));
      }
    });
    std::vector<float> totals(columns);
    sums.total(totals);
    for (std::size_t j = 0; j < columns; ++j) add_to(totals[j], dbias[group * columns + j]);
  }
}

}  // namespace

void group_bias_gradient(const MatrixView& grad, std::span<const std::int64_t> offsets, std::span<float> dbias,
                         int threads) {
  check_group_outputs(grad, offsets, dbias);
  const DefaultEnvironment environment;
  const RowFunctions loops = row_functions();
  add_groups(grad, offsets, dbias, threads, [&](std::size_t /*group*/) {
    return
        [&](std::size_t /*i*/, const std::vector<float>& row, float* sums) { loops.add(row.data(), row.size(), sums); };
  });
}

void scaled_group_bias_gradient(const MatrixView& grad, std::span<const float> scales, const MatrixView& bias,
                                std::span<const std::int64_t> offsets, std::span<float> dbias, std::span<float> dscales,
                                int threads) {
  check_group_outputs(grad, offsets, dbias);
  check_kernel_floats("bias", bias);
  const std::size_t columns = grad.columns();
  check_size("scales", scales.size(), grad.rows());
  check_size("bias", bias.size(), dbias.size());
  check_size("dscales", dscales.size(), grad.rows());
  check_apart_from("grad", grad, "dscales", dscales);
  check_apart_from("bias", bias, "dbias", dbias);
  const DefaultEnvironment environment;
  const RowFunctions loops = row_functions();
  const std::size_t width = padded(columns);
  std::vector<float> biases((offsets.size() - 1) * width);
  for (std::size_t group = 0; group + 1 < offsets.size(); ++group) {
    read_piece(bias, group * columns, columns, biases.data() + group * width);
  }
  add_groups(grad, offsets, dbias, threads, [&](std::size_t group) {
    const float* const own_bias = biases.data() + group * width;
    return [&, own_bias, scale = std::vector<float>(width), products = std::vector<float>(width)](
               std::size_t i, const std::vector<float>& row, float* sums) mutable {
      std::ranges::fill(scale, scales[i]);
      const NormSums found =
          loops.norm_gradient_sums(row.data(), scale.data(), own_bias, width, products.data(), sums, nullptr);
      add_to(found.of_dy, dscales[i]);
    };
  });
}

}  // namespace fp8lab
