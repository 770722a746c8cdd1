// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/reference/operators/functions.hpp"
#include "operators/tensor_pieces.hpp"

namespace fp8lab {

void apply_elementary(std::string_view name, std::span<const float> x, std::span<float> out, int threads) {
  const auto function = find_named(elementary_functions, "name", name).value;
  check_size("out", out.size(), x.size());
  check_apart_or_same("x", x, "out", out);
  const RowFunctions loops = row_functions();
  for_each_tensor_piece(x.size(), threads, [&](std::size_t first, std::size_t count) {
    alignas(64) TensorPiece values{};
    widen_row(x.data() + first, count, values.data());
    if (function == rounded_exp) {
      loops.exp(values.data(), padded(count), values.data());
    } else if (function == rounded_tanh) {
      loops.tanh(values.data(), padded(count), values.data());
    } else {
      for (std::size_t i = 0; i < count; ++i) values[i] = function(values[i]);
    }
    narrow_row(values.data(), count, out.data() + first);
  });
}

}  // namespace fp8lab
