// SPDX-License-Identifier: Apache-2.0
#include "tensor_core/factors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "tensor_core/misfit.hpp"

namespace fp8lab {
namespace {

constexpr CastPolicy tf32_policy{
    .overflow = Overflow::to_special, .infinity = Overflow::to_special, .nan = NanCode::sign_and_payload};

std::size_t element_count(const Operand& operand) {
  return std::visit([](const auto& span) { return span.size(); }, operand.elements);
}

std::size_t bytes_of(const Format& format) {
  if (format.bits() > 16) return format == binary64 ? 8 : 4;
  return format.bits() > 8 ? 2 : 1;
}

void check_format_of(const MmaModel& model, const Operand& operand, const std::string& name) {
  if (const std::string wrong = misfit_of_format(model, operand); !wrong.empty()) {
    throw std::invalid_argument(name + " " + wrong + models_that_take(operand));
  }
  constexpr std::array<std::size_t, 4> sizes{1, 2, 4, 8};  // indexed by the variant's alternative
  const Format format = format_for(model, operand);
  const std::size_t given = sizes[operand.elements.index()];
  if (given != bytes_of(format)) {
    throw std::invalid_argument(name + " has elements of " + std::to_string(given) + " bytes; those of " +
                                format_name(format) + " have " + std::to_string(bytes_of(format)));
  }
}

std::string shape_text(std::size_t rows, std::size_t columns) {
  return std::to_string(rows) + " * " + std::to_string(columns);
}

void check_elements(const Operand& operand, const std::string& name) {
  if (operand.packed && (operand.format.bits() != 4 || operand.elements.index() != 0)) {
    throw std::invalid_argument(name + " is " + format_name(operand.format) + "; codes of 4 bits alone are packed");
  }
  const std::size_t bytes = operand.packed ? (operand.rows * operand.depth + 1) / 2 : operand.rows * operand.depth;
  if (element_count(operand) == bytes) return;
  throw std::invalid_argument(name + " has " + std::to_string(element_count(operand)) + " elements, not " +
                              shape_text(operand.rows, operand.depth) + (operand.packed ? " / 2, two a byte" : ""));
}

/// Requires as many codes of block scales as the operand has blocks.
void check_scale_codes(const MmaModel& model, const BlockScales& scales, const Operand& operand,
                       const std::string& name) {
  const auto block = static_cast<std::size_t>(scales.block);
  if (operand.depth % block != 0) {
    throw std::invalid_argument("K must be a multiple of " + std::to_string(block) + ", a block of " +
                                std::string(model.name) + ", not " + std::to_string(operand.depth) +
                                " (nearest: " + nearest_multiples(operand.depth, block) + ")");
  }
  if (operand.scales.codes.empty() && !operand.tile_scales.values.empty()) return;
  const std::size_t blocks = operand.depth / block;
  const bool swizzled = operand.scales.layout == ScaleLayout::swizzled;
  const std::size_t wanted = swizzled ? swizzled_size(operand.rows, blocks) : operand.rows * blocks;
  if (operand.scales.codes.size() == wanted) return;
  throw std::invalid_argument("scale_" + name + " must have " + shape_text(operand.rows, blocks) +
                              " codes, one for every " + std::to_string(block) + " of K" +
                              (swizzled ? ", swizzled to " + std::to_string(wanted) : "") + ", not " +
                              std::to_string(operand.scales.codes.size()) +
                              (operand.scales.codes.empty() ? models_without_scales(operand) : ""));
}

void check_scales(const MmaModel& model, const Operand& operand, const std::string& name) {
  if (operand.scales.codes.empty() && operand.tile_scales.values.empty()) {
    if (model.scales) check_scale_codes(model, *model.scales, operand, name);
    return;
  }
  if (const std::string wrong = misfit_of_scales(model, operand); !wrong.empty()) {
    throw std::invalid_argument("scale_" + name + " " + wrong + models_that_take(operand));
  }
  if (model.scales) check_scale_codes(model, *model.scales, operand, name);
}

/// By what a code becomes a factor.
struct Conversion {
  Format format;
  Lowering lowering;
  ZeroRule zero_rule;

  friend bool operator==(const Conversion&, const Conversion&) = default;
};

Factor converted(const Conversion& by, std::uint32_t code) {
  switch (by.lowering) {
    case Lowering::native:
      // Formats that are constants are inlined.
      if (by.format == bfloat16) return factor(bfloat16, code, by.zero_rule);
      if (by.format == binary16) return factor(binary16, code, by.zero_rule);
      if (by.format == tf32) return factor(tf32, code, by.zero_rule);
      break;
    case Lowering::fp16_add: {
      // FP8 that FP16 instructions multiply has FP16's exponents: E4M3's subnormals are normal numbers there.
      return factor(binary16, encode(binary16, cuda_nosat_policy, decode(by.format, code)), by.zero_rule);
    }
  }
  return factor(by.format, code, by.zero_rule);
}

/// A GEMM reads a few formats, and asks anew for each slice of K: the last tables are kept.
std::shared_ptr<const FactorsOfBytes> factors_of_bytes(const Conversion& by) {
  using Known = std::pair<Conversion, std::shared_ptr<const FactorsOfBytes>>;
  constexpr std::size_t most = 16;
  thread_local std::vector<Known> known;
  const auto found = std::ranges::find(known, by, &Known::first);
  if (found != known.end()) return found->second;
  FactorsOfBytes table;
  for (std::uint32_t code = 0; code < table.size(); ++code) table[code] = converted(by, code);
  if (known.size() == most) known.erase(known.begin());
  return known.emplace_back(by, std::make_shared<const FactorsOfBytes>(table)).second;
}

}  // namespace

FactorReader::FactorReader(const MmaModel& model, const Operand& operand, ZeroRule zero_rule, const std::string& name,
                           Rounding tf32_rounding)
    : model_(model),
      operand_(operand),
      format_(format_for(model, operand)),
      tf32_rounding_(operand.tf32_rounding.value_or(tf32_rounding)),
      zero_rule_(zero_rule) {
  if (tf32_rounding_ != Rounding::toward_zero && tf32_rounding_ != Rounding::nearest_away &&
      tf32_rounding_ != Rounding::nearest_even) {
    throw std::invalid_argument(
        "tf32_rounding must be toward_zero, as instructions cut float32 to TF32, nearest_away, as cvt.rna rounds it, "
        "or "
        "nearest_even, as cuBLASLt does, not " +
        std::string(name_of(tf32_rounding_)));
  }
  check_format_of(model, operand, name);
  check_elements(operand, name);
  check_scales(model, operand, name);
  const auto* codes = std::get_if<std::span<const std::uint8_t>>(&operand.elements);
  if (codes != nullptr && !operand.packed) check_codes(operand.format, *codes, name);
  if (format_.bits() > 8) return;
  of_bytes_ = factors_of_bytes({format_, model_.lowering, zero_rule_});
}

Factor FactorReader::of_wide(std::size_t i) const {
  const Conversion conversion{format_, model_.lowering, zero_rule_};
  if (const auto* words = std::get_if<std::span<const std::uint16_t>>(&operand_.elements))
    return converted(conversion, (*words)[i]);
  if (const auto* doubles = std::get_if<std::span<const double>>(&operand_.elements)) return factor((*doubles)[i]);
  const float x = std::get<std::span<const float>>(operand_.elements)[i];
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (format_ != tf32) return converted(conversion, bits);
  // An instruction drops the low bits, whatever they are: a NaN that has no others becomes an infinity.
  if (tf32_rounding_ == Rounding::toward_zero) return converted(conversion, bits >> 13);
  CastPolicy policy = tf32_policy;
  policy.rounding = tf32_rounding_;
  return converted(conversion, encode(tf32, policy, x));
}

void FactorReader::read_values(std::size_t row, std::size_t k, std::span<float> values) const {
  read(place(row, k), operand_.transposed ? operand_.rows : 1, values);
}

void FactorReader::read_rows(std::size_t row, std::size_t k, std::span<float> values) const {
  read(place(row, k), operand_.transposed ? 1 : operand_.depth, values);
}

namespace {

float bfloat16_value(std::uint16_t x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16); }

/// The values of bfloat16s, eight at a time, whatever the compiler optimises.
void widen(const std::uint16_t* words, std::span<float> values) {
  constexpr std::size_t lanes = 8;
  using Words __attribute__((vector_size(2 * lanes))) = std::uint16_t;
  using Bits __attribute__((vector_size(4 * lanes))) = std::uint32_t;
  std::size_t i = 0;
  for (; i + lanes <= values.size(); i += lanes) {
    Words own;
    std::memcpy(&own, words + i, sizeof(own));
    const Bits bits = __builtin_convertvector(own, Bits) << 16;
    std::memcpy(&values[i], &bits, sizeof(bits));
  }
  for (; i < values.size(); ++i) values[i] = bfloat16_value(words[i]);
}

}  // namespace

void FactorReader::read(std::size_t start, std::size_t stride, std::span<float> values) const {
  const auto read = [&](const auto* elements, const auto& value_of) {
    elements += start;
    if (stride == 1) {  // which the compiler makes vector code of, from -O3 on
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(elements[i]);
      return;
    }
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(elements[i * stride]);
  };
  if (const auto* floats = std::get_if<std::span<const float>>(&operand_.elements)) {
    if (format_ == tf32) return read(floats->data(), [&](float x) { return tf32_value(x, tf32_rounding_); });
    return read(floats->data(), [](float x) { return x; });
  }
  const std::uint16_t* const words = std::get<std::span<const std::uint16_t>>(operand_.elements).data();
  if (format_ == bfloat16) {
    if (stride == 1) return widen(words + start, values);
    return read(words, bfloat16_value);
  }
  if (format_ == binary16) return read(words, half_value);
  read(words, [&](std::uint16_t x) { return decode(format_, x); });
}

std::uint8_t FactorReader::scale_code(std::size_t row, std::size_t block) const {
  const std::span<const std::uint8_t> codes = operand_.scales.codes;
  if (codes.empty()) return e8m0_of(tile_scale(operand_, row, block * this->block()));
  const std::size_t blocks = operand_.depth / this->block();
  switch (operand_.scales.layout) {
    case ScaleLayout::compact: break;
    case ScaleLayout::swizzled: return codes[swizzled_place(row, block, blocks)];
  }
  return codes[operand_.transposed ? block * operand_.rows + row : row * blocks + block];
}

Factor FactorReader::scale(std::size_t row, std::size_t block) const {
  // A scale that is zero has no exponent of its own, whatever zeros among the factors have.
  return factor(model_.scales ? model_.scales->format : e8m0, scale_code(row, block), ZeroRule::floor);
}

Factors FactorReader::rows(std::size_t first, std::size_t count) const {
  const std::size_t depth = operand_.depth;
  Factors result{{}, {}, depth, 0};
  result.elements.reserve(count * depth);
  constexpr std::size_t at_once = 4096;  // all of gigabytes cannot be interrupted
  for (std::size_t row = first; row < first + count; ++row) {
    for (std::size_t k = 0; k < depth; k += at_once) {
      checkpoint();
      const std::size_t end = std::min(depth, k + at_once);
      result.elements.resize(result.elements.size() + end - k);
      Factor* const to = result.elements.data() + (row - first) * depth;
      for_row(row, k, end, [&](std::size_t at, const Factor& x) { to[at] = x; });
    }
  }
  if (block() != 0) {
    result.block = block();
    for (std::size_t row = first; row < first + count; ++row) {
      for (std::size_t block = 0; block < depth / result.block; ++block) result.scales.push_back(scale(row, block));
    }
  }
  return result;
}

}  // namespace fp8lab
