// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/dequantize.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <vector>

#include "files/stored_file.hpp"
#include "files/tensor_file.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/widen.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"

namespace fp8lab::experiments {
namespace {

std::array<float, 256> values_of_codes(const Format& format) {
  std::array<float, 256> values{};
  const unsigned codes = 1U << static_cast<unsigned>(format.bits());
  for (unsigned code = 0; code < codes; ++code) values[code] = decode(format, code);
  return values;
}

/// 2^(b - 127). Of a byte 255 who takes bytes for numbers makes infinity, and whose dtype is E8M0 makes a NaN.
std::array<float, 256> values_of_exponents(bool has_nan) {
  std::array<float, 256> values{};
  for (int b = 0; b < 256; ++b) values[static_cast<std::size_t>(b)] = std::ldexp(1.0F, b - 127);
  if (has_nan) values[255] = std::numeric_limits<float>::quiet_NaN();
  return values;
}

/// E4M3 without its sign, where 7F is 0 and FF is 480, as ggml has it: it compares the whole byte.
std::array<float, 256> values_of_ue4m3() {
  std::array<float, 256> values{};
  for (unsigned b = 0; b < 256; ++b) values[b] = decode(e4m3, b & 0x7FU);
  values[0x7F] = 0;
  values[0xFF] = 480;
  return values;
}

/// The value of a number to bfloat16 and back.
float rounded_to_bfloat16(float x) {
  return widened(BFloat16{static_cast<std::uint16_t>(encode(bfloat16, ieee_policy, x))});
}

std::uint64_t blocks_of(std::uint64_t length, std::uint64_t block) {
  return length / block + (length % block != 0 ? 1 : 0);
}

float number_at(std::span<const std::byte> bytes, std::string_view dtype, std::size_t i) {
  if (dtype == "F32") {
    float x = 0;
    std::memcpy(&x, bytes.data() + 4 * i, 4);
    return x;
  }
  std::uint16_t word = 0;
  std::memcpy(&word, bytes.data() + 2 * i, 2);
  if (dtype == "F16") return widened(Half{word});
  return widened(BFloat16{word});
}

/// The bytes that the codes of a weight need, with the scales that stand between them.
std::uint64_t packed_bytes_of(const Weight& weight) {
  const Layout& layout = *weight.layout;
  if (layout.packing == Packing::gguf_mxfp4) return weight.elements() / 32 * 17;
  if (layout.packing == Packing::gguf_nvfp4) return weight.elements() / 64 * 36;
  return layout.bytes_of_codes(weight.elements());
}

/// Throws where bytes of a weight's tensors are not there, or not in the order of rows.
void check_bytes_of(const Checkpoint& checkpoint, const Weight& weight) {
  const std::string about = printable(weight.name);
  for (const StoredTensor* tensor : {weight.codes, weight.scale, weight.global_scale}) {
    if (tensor == nullptr) continue;
    if (!checkpoint.has_data(*tensor)) {
      throw std::runtime_error(cannot_read(in_one_line(checkpoint.files()[tensor->file].native()),
                                           "it ends within tensor " + printable(tensor->name)));
    }
    const std::optional<std::uint64_t> bits = bits_of_dtype(tensor->dtype);
    if (bits && tensor->bytes != (tensor->elements() * *bits + 7) / 8) {
      throw std::runtime_error(printable(tensor->name) + " has " + std::to_string(tensor->bytes) +
                               " bytes, which is not the size of its shape");
    }
  }
  const std::uint64_t packed = packed_bytes_of(weight);
  if (weight.codes->bytes != packed) {
    throw std::runtime_error(about + " has " + std::to_string(weight.codes->bytes) +
                             " bytes of codes; its shape needs " + std::to_string(packed));
  }
  if (weight.codes->fortran_order || (weight.scale != nullptr && weight.scale->fortran_order)) {
    throw std::invalid_argument(about + " is stored in Fortran's order, which is not read");
  }
}

}  // namespace

const Dequantization& find_dequantization(const Layout& layout, Loader loader) {
  for (const Dequantization& rule : layout.loaders) {
    if (rule.loader == loader) return rule;
  }
  std::string known;
  for (const Dequantization& rule : layout.loaders)
    known.append(known.empty() ? "" : ", ").append(name_of(rule.loader));
  throw std::invalid_argument("it is not known how " + std::string(name_of(loader)) + " reads the layout " +
                              std::string(layout.name) + "; known: " + known);
}

float factor_of(Product product, float scale, float global) {
  switch (product) {
    case Product::scale:
    case Product::codes_first: return scale;
    case Product::rounded_scale: return rounded_to_bfloat16(scale);
    case Product::multiplied: return scale * global;
    case Product::divided: return scale / global;
    case Product::divided_rounded: return rounded_to_bfloat16(scale / global);
    case Product::rounded_multiplied: return rounded_to_bfloat16(rounded_to_bfloat16(global) * scale);
  }
  return scale;
}

struct WeightReader::Content {
  const Checkpoint* checkpoint;
  const Weight* weight;
  Dequantization rule;
  std::uint64_t block_rows = 1, block_columns = 1;
  std::array<float, 256> code_values{};
  std::array<float, 256> scale_values{};
  std::vector<float> globals;
  std::vector<float> factors;  // of the tensor's global scale, by the byte of a scale: filled for one expert at a time

  [[nodiscard]] const Layout& layout() const { return *weight->layout; }
  /// Code values are doubled, and scales are half of what they are.
  [[nodiscard]] bool has_half_scales() const {
    return layout().packing == Packing::gguf_mxfp4 || layout().packing == Packing::gpt_oss_blocks;
  }

  /// Rows [first, first + count) of the codes' bytes; each has as many.
  [[nodiscard]] std::vector<std::byte> bytes_of_rows(std::uint64_t first, std::uint64_t count) const {
    const std::uint64_t a_row = weight->codes->bytes / (weight->experts * weight->rows);
    std::vector<std::byte> bytes(static_cast<std::size_t>(count * a_row));
    checkpoint->read(*weight->codes, first * a_row, bytes);
    return bytes;
  }

  void unpack_row(std::span<const std::byte> packed, std::span<std::uint8_t> codes) const {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(packed.data());
    switch (layout().packing) {
      case Packing::bytes: std::copy_n(bytes, codes.size(), codes.data()); return;
      case Packing::pairs_low_first:
      case Packing::gpt_oss_blocks:
        for (std::size_t k = 0; k < codes.size(); ++k) {
          codes[k] = static_cast<std::uint8_t>(k % 2 == 0 ? bytes[k / 2] & 15 : bytes[k / 2] >> 4);
        }
        return;
      case Packing::pairs_high_first:
        for (std::size_t k = 0; k < codes.size(); ++k) {
          codes[k] = static_cast<std::uint8_t>(k % 2 == 0 ? bytes[k / 2] >> 4 : bytes[k / 2] & 15);
        }
        return;
      case Packing::fours:
        for (std::size_t k = 0; k < codes.size(); ++k) {
          const std::uint8_t* const three = bytes + k / 4 * 3;
          const unsigned word = three[0] | unsigned{three[1]} << 8 | unsigned{three[2]} << 16;
          codes[k] = static_cast<std::uint8_t>(word >> k % 4 * 6 & 63);
        }
        return;
      case Packing::gguf_mxfp4:
        for (std::size_t k = 0; k < codes.size(); ++k) {
          const std::uint8_t pair = bytes[k / 32 * 17 + 1 + k % 16];
          codes[k] = static_cast<std::uint8_t>(k % 32 < 16 ? pair & 15 : pair >> 4);
        }
        return;
      case Packing::gguf_nvfp4:
        for (std::size_t k = 0; k < codes.size(); ++k) {
          const std::uint8_t pair = bytes[k / 64 * 36 + 4 + k % 64 / 16 * 8 + k % 8];
          codes[k] = static_cast<std::uint8_t>(k % 16 < 8 ? pair & 15 : pair >> 4);
        }
        return;
    }
  }

  /// The scales of a row that lie beside its codes.
  void scales_beside(std::span<const std::byte> packed, std::span<float> out) const {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(packed.data());
    for (std::size_t g = 0; g < out.size(); ++g) {
      const bool mx = layout().packing == Packing::gguf_mxfp4;
      out[g] = scale_values[mx ? bytes[g * 17] : bytes[g / 4 * 36 + g % 4]];
    }
  }

  /// The grid rows [first, first + count) of one expert's scales, as numbers.
  void grid_rows(std::uint64_t expert, std::uint64_t first, std::uint64_t count, std::span<float> out) const {
    const StoredTensor& scale = *weight->scale;
    const std::uint64_t columns = weight->grid_columns;
    const std::uint64_t size = bits_of_dtype(scale.dtype).value_or(8) / 8;
    if (weight->tile_order) {
      // Whole tiles: those of the rows asked for lie together.
      const std::uint64_t of_tiles = blocks_of(columns, 4) * 512;
      const std::uint64_t tiles_down = blocks_of(weight->rows, 128);
      for (std::uint64_t tile = first / 128; tile * 128 < first + count; ++tile) {
        std::vector<std::byte> bytes(static_cast<std::size_t>(of_tiles));
        checkpoint->read(scale, (expert * tiles_down + tile) * of_tiles, bytes);
        const std::uint64_t begin = std::max(first, tile * 128);
        const std::uint64_t end = std::min(first + count, tile * 128 + 128);
        for (std::uint64_t row = begin; row < end; ++row) {
          for (std::uint64_t column = 0; column < columns; ++column) {
            const std::size_t place =
                swizzled_place(static_cast<std::size_t>(row - tile * 128), static_cast<std::size_t>(column),
                               static_cast<std::size_t>(columns));
            out[static_cast<std::size_t>((row - first) * columns + column)] =
                scale_values[std::to_integer<std::uint8_t>(bytes[place])];
          }
        }
      }
      return;
    }
    std::vector<std::byte> bytes(static_cast<std::size_t>(count * columns * size));
    checkpoint->read(scale, (expert * weight->grid_rows + first) * columns * size, bytes);
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = layout().scale_type == ScaleType::number ? number_at(bytes, scale.dtype, i)
                                                        : scale_values[std::to_integer<std::uint8_t>(bytes[i])];
    }
  }

  /// Calls use(row, its scales) for rows [first, first + count), which are all of one expert.
  template <typename Use>
  void for_each_row(std::uint64_t expert, std::uint64_t first, std::uint64_t count, const Use& use) const {
    const std::uint64_t columns = weight->grid_columns;
    const std::uint64_t begin = first / block_rows;
    const std::uint64_t end = blocks_of(first + count, block_rows);
    std::vector<float> scales(static_cast<std::size_t>((end - begin) * columns));
    grid_rows(expert, begin, end - begin, scales);
    for (std::uint64_t row = first; row < first + count; ++row) {
      use(row, std::span<const float>(scales).subspan(static_cast<std::size_t>((row / block_rows - begin) * columns),
                                                      static_cast<std::size_t>(columns)));
    }
  }

  void values_of_row(std::span<const std::uint8_t> codes, std::span<const float> scales, float global,
                     std::span<float> out) const {
    for (std::size_t g = 0; g < scales.size(); ++g) {
      const float by = factor_of(rule.product, scales[g], global);
      const std::size_t begin = g * static_cast<std::size_t>(block_columns);
      const std::size_t end = std::min(codes.size(), begin + static_cast<std::size_t>(block_columns));
      for (std::size_t k = begin; k < end; ++k) out[k] = code_values[codes[k]] * by;
      if (rule.product == Product::codes_first && weight->global_scale != nullptr) {
        for (std::size_t k = begin; k < end; ++k) out[k] *= global;
      }
    }
  }

  void check_range(std::uint64_t first, std::uint64_t count, std::size_t size, std::uint64_t a_row) const {
    const std::uint64_t rows = weight->experts * weight->rows;
    if (first > rows || count > rows - first || size != count * a_row) {
      throw std::invalid_argument(printable(weight->name) + " has " + std::to_string(rows) + " rows, not " +
                                  std::to_string(count) + " from " + std::to_string(first) +
                                  " on; and an array of another size is given for them");
    }
  }

  /// Calls use(expert, first row of it, count, rows before it) for the parts of a range that are of one expert.
  template <typename Use>
  void for_each_expert(std::uint64_t first, std::uint64_t count, const Use& use) const {
    std::uint64_t done = 0;
    while (done < count) {
      const std::uint64_t expert = (first + done) / weight->rows;
      const std::uint64_t row = (first + done) % weight->rows;
      const std::uint64_t now = std::min(count - done, weight->rows - row);
      use(expert, row, now, done);
      done += now;
    }
  }
};

WeightReader::WeightReader(const Checkpoint& checkpoint, const Weight& weight, Loader loader)
    : content_(std::make_unique<Content>()) {
  const DefaultEnvironment environment;
  Content& c = *content_;
  c.checkpoint = &checkpoint;
  c.weight = &weight;
  c.rule = find_dequantization(*weight.layout, loader);
  const Layout& layout = *weight.layout;
  const std::string about = printable(weight.name);

  // 1. The bytes are there.
  check_bytes_of(checkpoint, weight);

  // 2. The blocks.
  c.block_rows = weight.block_rows;
  c.block_columns = weight.group;
  if (c.rule.block_from_shapes) {
    if (weight.rows % weight.grid_rows != 0 || weight.columns % weight.grid_columns != 0) {
      throw std::invalid_argument(
          std::string(name_of(loader)) + " refuses " + about + ": it makes the block size of the shapes, and " +
          std::to_string(weight.rows) + "x" + std::to_string(weight.columns) + " is no multiple of the grid of " +
          std::to_string(weight.grid_rows) + "x" + std::to_string(weight.grid_columns) + " scales");
    }
    c.block_rows = weight.rows / weight.grid_rows;
    c.block_columns = weight.columns / weight.grid_columns;
  } else if (!weight.grid_fits) {
    throw std::invalid_argument(about + " cannot be dequantized: " + weight.disagreements.back());
  }

  // 3. The values of codes and scales.
  c.code_values = values_of_codes(layout.format);
  switch (layout.scale_type) {
    case ScaleType::number: break;
    case ScaleType::e4m3: c.scale_values = values_of_codes(e4m3); break;
    case ScaleType::ue4m3: c.scale_values = values_of_ue4m3(); break;
    case ScaleType::e8m0:
      c.scale_values = values_of_exponents(weight.scale != nullptr && weight.scale->dtype == "F8_E8M0");
  }
  if (c.has_half_scales()) {
    // ggml has the codes doubled and half the scale: 2^-128 and 2^-127 of the bytes 0 and 1, 2^127 of 255. transformers
    // adds the exponent to that of the code, which is the same.
    for (unsigned code = 0; code < 16; ++code) c.code_values[code] = 2 * decode(e2m1, code);
    for (int b = 0; b < 256; ++b) c.scale_values[static_cast<std::size_t>(b)] = std::ldexp(1.0F, b - 128);
  }
  // A negative code times a scale of 0 is -0 all the same.
  if (c.rule.positive_zero) c.code_values[layout.format.sign_mask()] = 0;

  // 4. The global scales.
  c.globals.assign(static_cast<std::size_t>(weight.experts), 1.0F);
  if (weight.global_scale != nullptr) {
    const std::vector<std::byte> bytes = checkpoint.read_whole(*weight.global_scale);
    const std::uint64_t count = weight.global_scale->elements();
    for (std::size_t e = 0; e < c.globals.size(); ++e) {
      c.globals[e] = number_at(bytes, weight.global_scale->dtype, count == 1 ? 0 : e);
    }
    // A scale of no dimension takes part in type promotion as a number of Python does: the quotient stays bfloat16.
    if (c.rule.product == Product::divided && weight.global_scale->shape.empty())
      c.rule.product = Product::divided_rounded;
  } else if (c.rule.product == Product::multiplied) {
    c.rule.product = Product::scale;
  }
}

WeightReader::~WeightReader() = default;
WeightReader::WeightReader(WeightReader&&) noexcept = default;
WeightReader& WeightReader::operator=(WeightReader&&) noexcept = default;

const Weight& WeightReader::weight() const { return *content_->weight; }
const Dequantization& WeightReader::rule() const { return content_->rule; }
std::uint64_t WeightReader::rows() const { return content_->weight->experts * content_->weight->rows; }
std::uint64_t WeightReader::block_rows() const { return content_->block_rows; }
std::uint64_t WeightReader::block_columns() const { return content_->block_columns; }
std::uint64_t WeightReader::scale_columns() const { return content_->weight->grid_columns; }
float WeightReader::global_scale(std::uint64_t expert) const {
  return content_->globals.at(static_cast<std::size_t>(expert));
}

void WeightReader::codes(std::uint64_t first, std::uint64_t count, std::span<std::uint8_t> out) const {
  const Content& c = *content_;
  const auto columns = static_cast<std::size_t>(c.weight->columns);
  c.check_range(first, count, out.size(), columns);
  if (count == 0) return;
  const std::vector<std::byte> bytes = c.bytes_of_rows(first, count);
  const std::size_t a_row = bytes.size() / static_cast<std::size_t>(count);
  for (std::size_t r = 0; r < count; ++r) {
    c.unpack_row(std::span(bytes).subspan(r * a_row, a_row), out.subspan(r * columns, columns));
  }
}

void WeightReader::scales(std::uint64_t first, std::uint64_t count, std::span<float> out) const {
  const DefaultEnvironment environment;
  const Content& c = *content_;
  const auto columns = static_cast<std::size_t>(scale_columns());
  c.check_range(first, count, out.size(), columns);
  if (count == 0) return;
  if (c.weight->scale == nullptr) {
    const std::vector<std::byte> bytes = c.bytes_of_rows(first, count);
    const std::size_t a_row = bytes.size() / static_cast<std::size_t>(count);
    for (std::size_t r = 0; r < count; ++r) {
      const std::span<float> row = out.subspan(r * columns, columns);
      c.scales_beside(std::span(bytes).subspan(r * a_row, a_row), row);
    }
    if (c.has_half_scales()) std::ranges::for_each(out, [](float& s) { s *= 2; });
    return;
  }
  c.for_each_expert(
      first, count, [&](std::uint64_t expert, std::uint64_t row, std::uint64_t now, std::uint64_t before) {
        c.for_each_row(expert, row, now, [&](std::uint64_t at, std::span<const float> scales_of_row) {
          std::ranges::copy(scales_of_row, out.begin() + static_cast<std::ptrdiff_t>((before + at - row) * columns));
        });
      });
  if (c.has_half_scales()) std::ranges::for_each(out, [](float& s) { s *= 2; });
}

void WeightReader::values(std::uint64_t first, std::uint64_t count, std::span<float> out) const {
  const DefaultEnvironment environment;
  const Content& c = *content_;
  const auto columns = static_cast<std::size_t>(c.weight->columns);
  c.check_range(first, count, out.size(), columns);
  if (count == 0) return;
  const std::vector<std::byte> bytes = c.bytes_of_rows(first, count);
  const std::size_t a_row = bytes.size() / static_cast<std::size_t>(count);
  std::vector<std::uint8_t> codes_of_row(columns);
  std::vector<float> beside(static_cast<std::size_t>(scale_columns()));
  c.for_each_expert(first, count,
                    [&](std::uint64_t expert, std::uint64_t row, std::uint64_t now, std::uint64_t before) {
                      const float global = c.globals[static_cast<std::size_t>(expert)];
                      const auto one = [&](std::uint64_t at, std::span<const float> scales_of_row) {
                        const auto r = static_cast<std::size_t>(before + at - row);
                        const std::span<const std::byte> packed = std::span(bytes).subspan(r * a_row, a_row);
                        c.unpack_row(packed, codes_of_row);
                        if (c.weight->scale == nullptr) {
                          c.scales_beside(packed, beside);
                          scales_of_row = beside;
                        }
                        c.values_of_row(codes_of_row, scales_of_row, global, out.subspan(r * columns, columns));
                      };
                      if (c.weight->scale == nullptr) {
                        for (std::uint64_t at = row; at < row + now; ++at) one(at, {});
                      } else {
                        c.for_each_row(expert, row, now, one);
                      }
                    });
}

void WeightReader::bfloat16_words(std::uint64_t first, std::uint64_t count, std::span<std::uint16_t> out) const {
  const auto columns = static_cast<std::size_t>(content_->weight->columns);
  content_->check_range(first, count, out.size(), columns);
  // Some rows at a time: float32 takes twice the place.
  const std::uint64_t at_once =
      std::max<std::uint64_t>(1, (std::uint64_t{1} << 18) / std::max<std::uint64_t>(columns, 1));
  std::vector<float> some;
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t now = std::min(at_once, count - done);
    some.resize(static_cast<std::size_t>(now) * columns);
    values(first + done, now, some);
    encode(bfloat16, ieee_policy, std::span<const float>(some),
           out.subspan(static_cast<std::size_t>(done) * columns, static_cast<std::size_t>(now) * columns));
    done += now;
  }
}

}  // namespace fp8lab::experiments
