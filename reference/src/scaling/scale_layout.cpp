// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/scale_layout.hpp"

#include <limits>
#include <stdexcept>
#include <string>

#include "fp8lab/formats/parallel.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t swizzle_rows = 128;
constexpr std::size_t swizzle_columns = 4;

std::size_t rounded_up(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

std::size_t padded_place(std::size_t row, std::size_t column, std::size_t columns) {
  return row * rounded_up(columns, swizzle_columns) + column;
}

void check_size(const char* what, std::size_t size, std::size_t wanted, std::size_t rows, std::size_t columns) {
  if (size == wanted) return;
  throw std::invalid_argument(std::string(what) + " of " + std::to_string(rows) + " x " + std::to_string(columns) +
                              " scales must have " + std::to_string(wanted) + " bytes, not " + std::to_string(size));
}

/// Sizes whose product, padded, a size_t holds.
void check_shape(std::size_t rows, std::size_t columns) {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  constexpr std::size_t longest = most / 2;  // padding does not overflow below
  if (rows <= longest && columns <= longest &&
      (columns == 0 || rounded_up(rows, swizzle_rows) <= most / rounded_up(columns, swizzle_columns))) {
    return;
  }
  throw std::invalid_argument("there is no room for " + std::to_string(rows) + " x " + std::to_string(columns) +
                              " scales");
}

template <typename Place>
std::vector<std::uint8_t> spread(std::span<const std::uint8_t> scales, std::size_t rows, std::size_t columns,
                                 const Place& place) {
  check_shape(rows, columns);
  check_size("an array", scales.size(), rows * columns, rows, columns);
  std::vector<std::uint8_t> out(swizzled_size(rows, columns), 0);
  const auto work = [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) out[place(i / columns, i % columns, columns)] = scales[i];
  };
  parallel_for(scales.size(), 1, work, scalar_piece);
  return out;
}

template <typename Place>
std::vector<std::uint8_t> gather(std::span<const std::uint8_t> in, std::size_t rows, std::size_t columns,
                                 const Place& place) {
  check_shape(rows, columns);
  check_size("a padded array", in.size(), swizzled_size(rows, columns), rows, columns);
  std::vector<std::uint8_t> out(rows * columns);
  const auto work = [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) out[i] = in[place(i / columns, i % columns, columns)];
  };
  parallel_for(out.size(), 1, work, scalar_piece);
  return out;
}

}  // namespace

std::vector<std::uint8_t> pad_scales(std::span<const std::uint8_t> scales, std::size_t rows, std::size_t columns) {
  return spread(scales, rows, columns, padded_place);
}
std::vector<std::uint8_t> unpad_scales(std::span<const std::uint8_t> padded, std::size_t rows, std::size_t columns) {
  return gather(padded, rows, columns, padded_place);
}
std::vector<std::uint8_t> swizzle_scales(std::span<const std::uint8_t> scales, std::size_t rows, std::size_t columns) {
  return spread(scales, rows, columns, swizzled_place);
}
std::vector<std::uint8_t> unswizzle_scales(std::span<const std::uint8_t> swizzled, std::size_t rows,
                                           std::size_t columns) {
  return gather(swizzled, rows, columns, swizzled_place);
}

}  // namespace fp8lab
