// SPDX-License-Identifier: Apache-2.0
#include "gemm/factors.hpp"

#include <array>
#include <bit>
#include <iterator>
#include <stdexcept>
#include <string>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/interruption.hpp"

namespace fp8lab {
namespace {

constexpr CastPolicy tf32_policy{.rounding = Rounding::nearest_away,
                                 .overflow = Overflow::to_special,
                                 .infinity = Overflow::to_special,
                                 .nan = NanCode::sign_and_payload};

std::size_t element_count(const Operands& operands) {
  return std::visit([](const auto& span) { return span.size(); }, operands.elements);
}

std::size_t bytes_of(const Format& format) {
  if (format.bits() > 16) return 4;
  return format.bits() > 8 ? 2 : 1;
}

/// What the elements are to the model: the format of codes, binary32 or tf32 for floats.
Format format_for(const MmaModel& model, const Operands& operands) {
  const bool floats = std::holds_alternative<std::span<const float>>(operands.elements);
  if (!floats) return operands.format;
  return std::ranges::find(model.operands, tf32) == model.operands.end() ? binary32 : tf32;
}

void check_format_of(const MmaModel& model, const Operands& operands, const std::string& name) {
  const Format format = format_for(model, operands);
  if (std::ranges::find(model.operands, format) == model.operands.end()) {
    std::string taken;
    for (const Format& known : model.operands) taken += (taken.empty() ? "" : ", ") + format_name(known);
    throw std::invalid_argument(name + " is " + format_name(format) + "; " + std::string(model.name) + " takes " +
                                taken);
  }
  constexpr std::array<std::size_t, 3> sizes{1, 2, 4};  // by alternative of the variant
  const std::size_t given = sizes[operands.elements.index()];
  if (given != bytes_of(format)) {
    throw std::invalid_argument(name + " has elements of " + std::to_string(given) + " bytes; those of " +
                                format_name(format) + " have " + std::to_string(bytes_of(format)));
  }
}

void check_counts(const MmaModel& model, const Operands& operands, const std::string& name) {
  const std::string of_model = std::string(model.name);
  const auto shape = [](std::size_t rows, std::size_t columns) {
    return std::to_string(rows) + " * " + std::to_string(columns);
  };
  if (element_count(operands) != operands.rows * operands.depth) {
    throw std::invalid_argument(name + " has " + std::to_string(element_count(operands)) + " elements, not " +
                                shape(operands.rows, operands.depth));
  }
  if (!model.scales) {
    if (operands.scales.empty()) return;
    throw std::invalid_argument("scale_" + name + " has " + std::to_string(operands.scales.size()) + " codes; " +
                                of_model + " has no block scales");
  }
  const auto block = static_cast<std::size_t>(model.scales->block);
  if (operands.depth % block != 0) {
    throw std::invalid_argument("K must be a multiple of " + std::to_string(block) + ", a block of " + of_model +
                                ", not " + std::to_string(operands.depth));
  }
  if (operands.scales.size() != operands.rows * operands.depth / block) {
    throw std::invalid_argument("scale_" + name + " must have " + shape(operands.rows, operands.depth / block) +
                                " codes, one for every " + std::to_string(block) + " of K, not " +
                                std::to_string(operands.scales.size()));
  }
}

}  // namespace

FactorReader::FactorReader(const MmaModel& model, const Operands& operands, ZeroRule zero_rule, const std::string& name)
    : model_(model), operands_(operands), format_(format_for(model, operands)), zero_rule_(zero_rule) {
  check_format_of(model, operands, name);
  check_counts(model, operands, name);
  if (const auto* codes = std::get_if<std::span<const std::uint8_t>>(&operands.elements)) {
    check_codes(operands.format, *codes, name);
  }
  if (format_.bits() > 8) return;
  for (std::uint32_t code = 0; code < of_byte_.size(); ++code) of_byte_[code] = converted(code);
}

Factor FactorReader::converted(std::uint32_t code) const {
  switch (model_.lowering) {
    case Lowering::native: break;
    case Lowering::fp16_add: {
      // FP8 that FP16 instructions multiply has FP16's exponents: E4M3's subnormals are normal numbers there.
      constexpr CastPolicy exactly{.overflow = Overflow::to_special, .infinity = Overflow::to_special};
      return factor(binary16, encode(binary16, exactly, decode(format_, code)), zero_rule_);
    }
  }
  return factor(format_, code, zero_rule_);
}

Factor FactorReader::of_wide(std::size_t i) const {
  if (const auto* words = std::get_if<std::span<const std::uint16_t>>(&operands_.elements))
    return converted((*words)[i]);
  const float x = std::get<std::span<const float>>(operands_.elements)[i];
  return converted(format_ == tf32 ? encode(tf32, tf32_policy, x) : std::bit_cast<std::uint32_t>(x));
}

Factor FactorReader::scale(std::size_t row, std::size_t block) const {
  const std::size_t blocks = operands_.depth / this->block();
  const std::uint8_t code =
      operands_.scales[operands_.transposed ? block * operands_.rows + row : row * blocks + block];
  return factor(model_.scales ? model_.scales->format : e8m0, code);
}

Factors FactorReader::rows(std::size_t first, std::size_t count) const {
  const std::size_t depth = operands_.depth;
  Factors result{{}, {}, depth, 0};
  result.elements.reserve(count * depth);
  for (std::size_t row = first; row < first + count; ++row) {
    for_row(row, 0, depth, [&](std::size_t k, const Factor& x) {
      checkpoint(k + 1);
      result.elements.push_back(x);
    });
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
