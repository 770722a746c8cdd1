// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/group_bias.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "operators/row_buffers.hpp"

namespace fp8lab {

namespace {

void check_group_offsets(std::span<const std::int64_t> offsets, std::size_t rows) {
  if (offsets.size() < 2) {
    refuse("offsets must have an entry more than there are groups, at least 2, not ", offsets.size());
  }
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

/// The biases as float32, each row filled up to whole vectors.
std::vector<float> padded_biases(const MatrixView& bias, std::size_t groups, std::size_t columns) {
  check_kernel_floats("bias", bias);
  check_size("bias", bias.size(), groups * columns);
  std::vector<float> biases(groups * padded(columns));
  for (std::size_t group = 0; group < groups; ++group) {
    read_piece(bias, group * columns, columns, biases.data() + group * padded(columns));
  }
  return biases;
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

void add_group_bias(const MatrixView& x, const MatrixView& bias, std::span<const std::int64_t> offsets,
                    std::span<const float> scales, FloatOutput out, int threads) {
  check_kernel_floats("x", x);
  check_group_offsets(offsets, x.rows());
  if (!scales.empty()) check_size("scales", scales.size(), x.rows());
  check_size("out", output_size(out), x.size());
  check_apart_or_same_as("x", x, "out", out);
  check_apart_from("bias", bias, "out", out);
  check_apart_from("scales", {scales, scales.size(), 1}, "out", out);
  const std::size_t columns = x.columns();
  const std::size_t width = padded(columns);
  const std::vector<float> biases = padded_biases(bias, offsets.size() - 1, columns);
  const DefaultEnvironment environment;
  const RowFunctions loops = row_functions();
  parallel_for(x.rows(), threads, [&](std::size_t first, std::size_t last) {
    std::vector<float> row(width);
    std::vector<float> scale(width);
    const std::vector<float> ones(width, 1);
    for (std::size_t i = first; i < last; ++i) {
      checkpoint();
      read_piece(x, i * columns, columns, row.data());
      const auto behind = std::ranges::upper_bound(offsets, static_cast<std::int64_t>(i));
      if (behind != offsets.begin() && behind != offsets.end()) {
        const float* const own = biases.data() + static_cast<std::size_t>(behind - offsets.begin() - 1) * width;
        if (scales.empty()) {
          loops.add(own, width, row.data());
        } else {
          std::ranges::fill(scale, scales[i]);
          loops.turn(own, row.data(), scale.data(), ones.data(), width, row.data());
        }
      }
      write_piece(row.data(), columns, out, i * columns);
    }
  });
}

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
  const std::size_t columns = grad.columns();
  check_size("scales", scales.size(), grad.rows());
  check_size("dscales", dscales.size(), grad.rows());
  check_apart_from("grad", grad, "dscales", dscales);
  const std::vector<float> biases = padded_biases(bias, offsets.size() - 1, columns);
  const DefaultEnvironment environment;
  const RowFunctions loops = row_functions();
  const std::size_t width = padded(columns);
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
