// SPDX-License-Identifier: Apache-2.0
// What users give as one side of a dot product.
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <utility>

#include "dot/dot.hpp"
#include "files/tensor_file.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/text.hpp"
#include "kit/lists.hpp"

namespace fp8lab::experiments {
namespace {

std::size_t digits_of(const Format& format) {
  return format.bits() <= 8 ? 2 : static_cast<std::size_t>(format.bits()) / 4;
}

std::uint32_t parse_code(const Format& format, std::string_view text) {
  std::string_view hex = text;
  if (hex.starts_with("0x")) hex.remove_prefix(2);
  std::uint32_t code = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
  if (error != std::errc() || end != hex.data() + hex.size() || (std::uint64_t{code} >> format.bits()) != 0) {
    refuse(printable(text), " is no hexadecimal code of ", format_name(format), ", which has ", format.bits(), " bits");
  }
  return code;
}

/// The code of one number, and whether it is that number.
template <typename T>
std::pair<std::uint32_t, bool> rounded(const Format& format, T x) {
  CastPolicy policy = find_profile("cuda_satfinite").policy;
  if (format == binary32) policy = {.overflow = Overflow::to_special, .infinity = Overflow::to_special};
  const std::uint32_t code = encode(format, policy, x);
  const double back = decode(format, code);
  double given = 0;
  if constexpr (std::is_floating_point_v<T>) {
    given = x;
  } else {
    given = decode(std::is_same_v<T, Half> ? binary16 : bfloat16, x.bits);
  }
  return {code, back == given || (std::isnan(back) && std::isnan(given))};
}

template <typename T>
DotOperand rounded_operand(const Format& format, std::span<const T> values, const std::string& what) {
  DotOperand operand{.format = format};
  std::size_t changed = 0;
  for (const T x : values) {
    const auto [code, is_exact] = rounded(format, x);
    operand.codes.push_back(code);
    if (!is_exact) ++changed;
  }
  operand.source = what + ", " + std::to_string(changed) + " of them changed by rounding to " + format_name(format);
  return operand;
}

/// A row of a matrix in a file, of T.
template <typename T>
std::vector<T> row_of(TensorFile& file, std::uint64_t row) {
  const std::uint64_t rows = file.shape()[0];
  const std::uint64_t depth = file.shape()[1];
  std::vector<T> values(depth);
  if (!file.fortran_order()) {
    file.read(row * depth, values);
    return values;
  }
  for (std::uint64_t k = 0; k < depth; ++k) file.read(k * rows + row, std::span(values).subspan(k, 1));
  return values;
}

}  // namespace

Format operand_format(std::string_view name) {
  if (name == "float32") return binary32;
  const auto* const found = std::ranges::find(named_formats, name, &NamedFormat::name);
  if (found != named_formats.end()) return found->format;
  std::vector<std::string_view> known;
  known.reserve(named_formats.size() + 1);
  for (const NamedFormat& named : named_formats) known.push_back(named.name);
  known.emplace_back("float32");
  refuse_name("format", name, known);
}

Codes parse_codes(const Format& format, std::string_view text) {
  Codes codes;
  const std::size_t digits = digits_of(format);
  if (text.find(',') == std::string_view::npos && text.size() > digits) {
    if (text.size() % digits != 0) {
      refuse("codes of ", format_name(format), " have ", digits, " hexadecimal digits each without commas; ",
             text.size(), " digits are no whole number of them");
    }
    for (std::size_t i = 0; i < text.size(); i += digits) codes.push_back(parse_code(format, text.substr(i, digits)));
    return codes;
  }
  for (std::size_t first = 0, end = 0; end != std::string_view::npos; first = end + 1) {
    end = text.find(',', first);
    codes.push_back(parse_code(format, text.substr(first, end - first)));
  }
  return codes;
}

DotOperand operand_of_values(const Format& format, std::span<const double> values) {
  const DefaultEnvironment environment;
  return rounded_operand(format, values, std::to_string(values.size()) + " numbers");
}

DotOperand operand_of_file(const Format& format, const std::filesystem::path& path, std::uint64_t row) {
  const DefaultEnvironment environment;
  TensorFile file(path);
  const std::string name = printable(path.native());
  if (file.shape().size() != 2) refuse(name, " must hold a matrix, not ", file.shape().size(), " dimensions");
  if (row >= file.shape()[0]) refuse(name, " has ", file.shape()[0], " rows, from 0 on, and no row ", row);
  if (file.shape()[1] > most_depth) {
    refuse(name, " has rows of ", file.shape()[1], " elements; a dot product may have at most ", most_depth);
  }
  const std::string what = "row " + std::to_string(row) + " of " + name;
  const auto as = [&]<typename T>(T /*of*/) {
    const std::vector<T> values = row_of<T>(file, row);
    return rounded_operand(
        format, std::span<const T>(values),
        what + ": " + std::to_string(values.size()) + " numbers of " + std::string(name_of(file.type())));
  };
  switch (file.type()) {
    case ElementType::float32: return as(float{});
    case ElementType::float64: return as(double{});
    case ElementType::float16: return as(Half{});
    case ElementType::bfloat16: return as(BFloat16{});
    case ElementType::uint8: break;
  }
  if (format.bits() > 8)
    refuse(name, " holds uint8 codes; those of ", format_name(format), " have ", format.bits(), " bits");
  const std::vector<std::uint8_t> codes = row_of<std::uint8_t>(file, row);
  return {format, Codes(codes.begin(), codes.end()), {}, what + ": " + std::to_string(codes.size()) + " codes"};
}

}  // namespace fp8lab::experiments
