// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "formats/simd/tiles.hpp"
#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "scaling/given_scales.hpp"
#include "scaling/quantize_plan.hpp"
#include "scaling/scale_values.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t most_codes = 4096;

void check_size(const char* what, std::size_t size, std::size_t wanted) {
  if (size == wanted) return;
  throw std::invalid_argument(std::string(what) + " must have " + std::to_string(wanted) + " elements, not " +
                              std::to_string(size));
}

void check_sizes(const Quantized& q, const QuantizePlan& plan) {
  if (q.rows == 0 || q.columns == 0 || q.rows > std::numeric_limits<std::size_t>::max() / q.columns) {
    throw std::invalid_argument("rows and columns of a Quantized must be 1 or more, and make a size, not " +
                                std::to_string(q.rows) + " x " + std::to_string(q.columns));
  }
  if (q.format != plan.format || q.transposed != plan.transposed) {
    throw std::invalid_argument("format and transposed must be as the recipe and the direction have them");
  }
  check_size("codes", q.codes.size(), plan.format.bits() == 4 ? q.rows * q.columns / 2 : q.rows * q.columns);
  const std::size_t high = plan.uniform ? 1 : blocks_of(q.rows, plan.scale_height(q.direction));
  const std::size_t wide = plan.uniform ? 1 : blocks_of(q.columns, plan.scale_width(q.direction));
  if (q.scale_rows != (plan.transposed ? wide : high) || q.scale_columns != (plan.transposed ? high : wide)) {
    throw std::invalid_argument("scale_rows and scale_columns must be " +
                                std::to_string(plan.transposed ? wide : high) + " and " +
                                std::to_string(plan.transposed ? high : wide) + ", not " +
                                std::to_string(q.scale_rows) + " and " + std::to_string(q.scale_columns));
  }
  check_size("scale_codes", q.scale_codes.size(), plan.scale_codes ? high * wide : 0);
  check_size("row_amaxes", q.row_amaxes.size(), q.recipe.tensor_scale_for_each_row ? q.scale_rows : 0);
  check_size("scale_inv", q.scale_inv.size(), plan.scale_codes ? 0 : high * wide);
  check_tensor_scale("tensor_scale", q.tensor_scale);
  check_tensor_scale("tensor_scale_inv", q.tensor_scale_inv);
}

/// Codes of 4 bits fill their bytes.
void check_widths(const Quantized& q, int threads) {
  if (q.format.bits() != 4) check_codes(q.format, q.codes, "codes", threads);
  if (q.recipe.scale_type == ScaleType::e4m3_code) check_codes(ue4m3, q.scale_codes, "scale_codes");
}

/// Codes from `first` on, as they lie in memory, a byte each.
std::span<const std::uint8_t> codes_from(const Quantized& q, std::size_t first, std::size_t count,
                                         std::vector<std::uint8_t>& room) {
  if (q.format.bits() != 4) return std::span(q.codes).subspan(first, count);
  // `first` may be odd in a piece of a row: begin with its pair.
  const std::size_t lead = first % 2;
  room.resize(lead + count);
  unpack_pairs(std::span(q.codes).subspan(first / 2, (room.size() + 1) / 2), room);
  return std::span<const std::uint8_t>(room).subspan(lead);
}

/// Rows, columns and scales in the order in which the codes are stored.
struct StoredLayout {
  std::size_t rows, columns;
  std::size_t height, width;  // of the elements that share a scale
  std::size_t scale_columns;

  StoredLayout(const Quantized& q, const QuantizePlan& plan)
      : rows(q.code_rows()),
        columns(q.code_columns()),
        height(plan.uniform ? rows : plan.scale_height(q.direction)),
        width(plan.uniform ? columns : plan.scale_width(q.direction)),
        scale_columns(q.scale_columns) {
    if (plan.transposed && !plan.uniform) std::swap(height, width);
    const bool flat = !plan.transposed && (plan.uniform || (height == 1 && columns % width == 0));
    if (!flat) return;
    scale_columns *= q.scale_rows;
    columns *= rows;
    if (plan.uniform) width = columns;
    rows = height = 1;
  }
  /// The number of elements to decode at a time: those of whole scales, or a part of those of one.
  [[nodiscard]] std::size_t step() const { return width >= most_codes ? most_codes : most_codes / width * width; }
};

class Dequantizer {
 public:
  Dequantizer(const Quantized& q, const QuantizePlan& plan, const StoredLayout& layout, std::span<float> out)
      : q_(q), plan_(plan), layout_(layout), decoder_(q.format), scales_(q), out_(out) {}

  /// The codes of a row from `column` to below `end`; a scale wider than a piece may end between them.
  void run(std::size_t row, std::size_t column, std::size_t end) {
    while (column < end) {
      const std::size_t next = (column / layout_.width + 1) * layout_.width;
      const std::size_t stop = layout_.width >= most_codes ? std::min(end, next) : end;
      run_piece(row, column, stop - column);
      column = stop;
    }
  }

 private:
  void run_piece(std::size_t row, std::size_t column, std::size_t count) {
    const std::size_t at = row * layout_.columns + column;
    if (plan_.transposed) values_.resize(count);
    const auto to = plan_.transposed ? std::span(values_) : out_.subspan(at, count);
    const std::size_t scale = row / layout_.height * layout_.scale_columns + column / layout_.width;
    decoder_(codes_from(q_, at, count, room_), std::min(layout_.width, count),
             multipliers(scale, blocks_of(count, layout_.width)), to);
    if (!plan_.transposed) return;
    for (std::size_t k = 0; k < count; ++k) out_[(column + k) * layout_.rows + row] = to[k];
  }

  /// The factors that multiply the codes under `count` scales from `scale` on.
  std::span<const float> multipliers(std::size_t scale, std::size_t count) {
    if (q_.scale_codes.empty()) return std::span(q_.scale_inv).subspan(scale, count);
    multipliers_.resize(count);
    for (std::size_t i = 0; i < count; ++i) multipliers_[i] = scales_[scale + i];
    return multipliers_;
  }

  const Quantized& q_;
  const QuantizePlan& plan_;
  const StoredLayout& layout_;
  TileDecoder decoder_;
  ScaleValues scales_;
  std::span<float> out_;
  std::vector<float> multipliers_;
  std::vector<float> values_;
  std::vector<std::uint8_t> room_;
};

}  // namespace

void check_quantized(const Quantized& q) {
  check_sizes(q, plan_of(q));
  check_widths(q, 1);
}

void dequantize(const Quantized& q, std::span<float> out, int threads) {
  const DefaultEnvironment environment;
  const QuantizePlan plan = plan_of(q);
  check_sizes(q, plan);
  check_size("out", out.size(), q.rows * q.columns);
  check_apart("codes", std::span(q.codes), "out", out);
  check_apart("scale_inv", std::span(q.scale_inv), "out", out);
  check_apart("scale_codes", std::span(q.scale_codes), "out", out);
  check_widths(q, threads);
  const StoredLayout layout(q, plan);
  const std::size_t across = blocks_of(layout.columns, layout.step());
  parallel_for(layout.rows * across, threads, [&](std::size_t first, std::size_t last) {
    Dequantizer dequantizer(q, plan, layout, out);
    for (std::size_t i = first; i < last; ++i) {
      if (i % 16 == 0) checkpoint();  // every 65536 elements
      const std::size_t column = i % across * layout.step();
      dequantizer.run(i / across, column, std::min(column + layout.step(), layout.columns));
    }
  });
}

}  // namespace fp8lab
