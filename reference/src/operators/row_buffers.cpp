// SPDX-License-Identifier: Apache-2.0
#include "operators/row_buffers.hpp"

#include <type_traits>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"

namespace fp8lab {

void check_kernel_floats(std::string_view name, const MatrixView& x) {
  if (std::holds_alternative<std::span<const double>>(x.values())) {
    refuse(name, " must be of float32, float16 or bfloat16, not float64: no kernel reads that");
  }
}

void check_function_words(const OperatorOptions& options) {
  if (options.function_words == 0 || options.functions == Functions::correctly_rounded) return;
  refuse("function_words must be 0 with functions of ", name_of(options.functions), ", not ", options.function_words);
}

void check_exact_functions(std::string_view name, const OperatorOptions& options) {
  if (options.function_words != 0) refuse("function_words must be 0 for ", name, ", not ", options.function_words);
}

void check_rounded_functions(std::string_view name, const OperatorOptions& options) {
  check_exact_functions(name, options);
  if (options.functions == Functions::correctly_rounded) return;
  refuse("functions must be correctly_rounded for ", name, ", whose sums are not known on a device, not ",
         name_of(options.functions));
}

std::size_t output_size(const FloatOutput& out) {
  return std::visit([](auto values) { return values.size(); }, out);
}

void check_size(std::string_view name, std::size_t actual, std::size_t size) {
  if (actual != size) refuse(name, " must have ", size, " elements, not ", actual);
}

void check_apart_from(std::string_view name, const MatrixView& x, std::string_view out_name, const FloatOutput& out) {
  x.visit([&](auto in) { std::visit([&](auto to) { check_apart(name, in, out_name, to); }, out); });
}
void check_apart_or_same_as(std::string_view name, const MatrixView& x, std::string_view out_name,
                            const FloatOutput& out) {
  x.visit([&](auto in) { std::visit([&](auto to) { check_apart_or_same(name, in, out_name, to); }, out); });
}

void read_piece(const MatrixView& x, std::size_t first, std::size_t count, float* out) {
  x.visit([&]<typename T>(std::span<const T> in) {
    if constexpr (!std::is_same_v<T, double>) widen_row(in.data() + first, count, out);
  });
}

void write_piece(const float* in, std::size_t count, const FloatOutput& out, std::size_t first) {
  std::visit([&](auto to) { narrow_row(in, count, to.data() + first); }, out);
}

void BlockSums::total(std::span<float> out) {
  const DefaultEnvironment environment;
  const RowFunctions loops = row_functions();
  for (std::size_t half = sum_blocks / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) loops.add(of_block(i + half), padded(columns_), of_block(i));
  }
  narrow_row(of_block(0), columns_, out.data());
}

void for_each_block(std::size_t rows, int threads,
                    const std::function<void(std::size_t block, std::size_t first, std::size_t last)>& work) {
  const std::size_t of_block = (rows + sum_blocks - 1) / sum_blocks;
  parallel_for(
      sum_blocks, threads,
      [&](std::size_t begin, std::size_t end) {
        for (std::size_t block = begin; block < end; ++block) {
          work(block, std::min(block * of_block, rows), std::min((block + 1) * of_block, rows));
        }
      },
      1);
}

}  // namespace fp8lab
