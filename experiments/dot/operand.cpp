// SPDX-License-Identifier: Apache-2.0
// Reads one side of a dot product as users give it: codes, numbers, or rows of a file.
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

std::uint64_t parse_code(const Format& format, std::string_view text) {
  std::string_view hex = text;
  if (hex.starts_with("0x")) hex.remove_prefix(2);
  std::uint64_t code = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
  if (error != std::errc() || end != hex.data() + hex.size() || (format.bits() < 64 && code >> format.bits() != 0)) {
    refuse(printable(text), " is not a hexadecimal code of ", format_name(format), ", which has ", format.bits(),
           " bits");
  }
  return code;
}

/// The code of one number, and whether it is that number.
template <typename T>
std::pair<std::uint64_t, bool> rounded(const Format& format, T x) {
  double given = 0;
  if constexpr (std::is_floating_point_v<T>) {
    given = x;
  } else {
    given = decode(std::is_same_v<T, Half> ? binary16 : bfloat16, x.bits);
  }
  if (format == binary64) return {std::bit_cast<std::uint64_t>(given), true};
  CastPolicy policy = find_profile("cuda_satfinite").policy;
  if (format == binary32) policy = {.overflow = Overflow::to_special, .infinity = Overflow::to_special};
  const std::uint32_t code = encode(format, policy, x);
  const double back = decode(format, code);
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

/// Row `row` of the codes in a file, which has that row.
DotOperand operand_of_codes(const Format& format, TensorFile& file, std::uint64_t row, const std::string& what) {
  if (format.bits() > 8) {
    refuse(what, " holds uint8 codes, and a code of ", format_name(format), " has ", format.bits(), " bits");
  }
  const std::uint64_t rows = file.shape()[0];
  std::vector<std::uint8_t> codes(file.shape()[1]);
  if (file.fortran_order()) {
    for (std::uint64_t k = 0; k < codes.size(); ++k) file.read(k * rows + row, std::span(codes).subspan(k, 1));
  } else {
    file.read(row * codes.size(), codes);
  }
  return {format, Codes(codes.begin(), codes.end()), {}, what + ": " + std::to_string(codes.size()) + " codes"};
}

/// Throws where a matrix of that shape has no such row, or one that is too long.
void check_row(const std::string& name, const std::vector<std::uint64_t>& shape, std::uint64_t row) {
  if (shape.size() != 2) refuse(name, " must hold a matrix, not ", shape.size(), " dimensions");
  if (row >= shape[0]) refuse(name, " has rows 0 to ", shape[0] - 1, ", and no row ", row);
  if (shape[1] <= most_depth) return;
  refuse(name, " has rows of ", shape[1], " elements; a dot product may have at most ", most_depth);
}

}  // namespace

Format operand_format(std::string_view name) {
  if (name == "float32") return binary32;
  if (name == "float64") return binary64;
  const auto* const found = std::ranges::find(named_formats, name, &NamedFormat::name);
  if (found != named_formats.end()) return found->format;
  std::vector<std::string_view> known;
  known.reserve(named_formats.size() + 2);
  for (const NamedFormat& named : named_formats) known.push_back(named.name);
  known.emplace_back("float32");
  known.emplace_back("float64");
  refuse_name("format", name, known);
}

Codes parse_codes(const Format& format, std::string_view text) {
  Codes codes;
  const std::size_t digits = digits_of(format);
  if (text.find(',') == std::string_view::npos && text.size() > digits) {
    if (text.size() % digits != 0) {
      refuse("codes of ", format_name(format), " have ", digits,
             " hexadecimal digits each where no commas separate them; ", text.size(),
             " digits are not a multiple of that");
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

DotOperand operand_of_tensor(const Format& format, const TensorSource& source, std::uint64_t row) {
  const DefaultEnvironment environment;
  // 1. Codes, which only files have.
  const std::string row_text = "row " + std::to_string(row) + " of ";
  if (const auto* stored = std::get_if<StoredTensors>(&source); stored != nullptr && stored->paths.size() == 1) {
    const std::vector<FoundTensor> all = find_stored_tensors(stored->paths, stored->names).found;
    const bool is_one = all.size() == 1 && all.front().header.dtype.empty();
    if (is_one && all.front().header.type == ElementType::uint8) {
      const std::string name = printable(all.front().path.native());
      check_row(name, all.front().header.shape, row);
      TensorFile file(all.front().path, all.front().header);
      return operand_of_codes(format, file, row, row_text + name);
    }
  }
  // 2. Numbers.
  const TensorStream stream(source, {.takes_empty = true});
  const SourceTensor& facts = stream.facts(0);
  const std::string name = facts.name.empty() ? stream.description() : facts.name;
  if (stream.count() > 1) refuse("one tensor is needed, not ", stream.count(), ": ", stream.description());
  const bool is_made = std::holds_alternative<Draws>(source) || std::holds_alternative<Grid>(source);
  check_row(name, is_made ? std::vector<std::uint64_t>{facts.rows, facts.columns} : facts.shape, row);
  Tensor values;
  stream.load_row(0, row, values);
  std::string what = row_text + name + ": " + std::to_string(values.size()) + " numbers of ";
  what += name_of(facts.type);
  if (is_made && facts.rows == 1) what = name;  // it tells their number and type
  return values.view().visit([&](auto elements) { return rounded_operand(format, elements, what); });
}

}  // namespace fp8lab::experiments
