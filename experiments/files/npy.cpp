// SPDX-License-Identifier: Apache-2.0
// The header of a .npy file: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "files/tensor_header.hpp"

namespace fp8lab::experiments {
namespace {

std::string allowed(OtherDtypes others) {
  if (others == OtherDtypes::refused) return "<f4, <f8, <f2, <V2 (bfloat16), and codes (|u1, |i1, <f1, <V1) are read";
  return "<f4, <f8, <f2, codes (|u1, |i1, <f1, <V1) and words (|b1, <i2, <u2, <i4, <u4, <i8, <u8, <c8, <V2) are read";
}

/// Reads the few words of Python that NumPy writes into a header: a dict of texts, booleans and tuples of whole
/// numbers.
class Literal {
 public:
  Literal(const Bytes& bytes, std::string_view text) : bytes_(&bytes), text_(text) {}

  bool take(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) fail(printable(word));
  }
  /// A text in either of Python's quotes; none where something else stands there.
  std::optional<std::string_view> text() {
    for (const std::string_view quote : {"'", "\""}) {
      if (!take(quote)) continue;
      const std::size_t begin = at_;
      at_ = std::min(text_.find_first_of(std::string(quote) + "\\\n", at_), text_.size());
      if (text_.substr(at_, 1) != quote) fail("the end of a text without escapes");
      return text_.substr(begin, at_++ - begin);
    }
    return std::nullopt;
  }
  bool boolean() {
    if (take("True")) return true;
    if (!take("False")) fail("True or False");
    return false;
  }
  std::vector<std::uint64_t> shape() {
    std::vector<std::uint64_t> shape;
    expect("(");
    while (!take(")")) {
      if (shape.size() == most_dimensions) fail("a shape of at most " + std::to_string(most_dimensions) + " lengths");
      shape.push_back(whole_number());
      // Python's (3) is the number 3: a tuple of one has a comma behind it.
      if (!take(",") && (shape.size() == 1 || text_.substr(at_, 1) != ")")) fail(printable(","));
    }
    return shape;
  }
  void end() {
    skip_space();
    if (at_ != text_.size()) fail("the end of the header");
  }
  [[noreturn]] void fail(std::string_view expected) const {
    bytes_->fail("byte " + std::to_string(at_) + " of its header has " + printable(text_.substr(at_, 1)) +
                 " instead of " + std::string(expected));
  }

 private:
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \n", at_), text_.size()); }
  std::uint64_t whole_number() {
    skip_space();
    std::uint64_t number = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), number);
    if (error != std::errc()) fail("a length from 0 to 2^64 - 1");
    at_ += static_cast<std::size_t>(end - begin);
    return number;
  }

  const Bytes* bytes_;
  std::string_view text_;
  std::size_t at_ = 0;
};

ElementType type_of(const Bytes& bytes, std::optional<std::string_view> descr, OtherDtypes others) {
  if (!descr) bytes.fail("its dtype is structured; " + allowed(others));
  if (*descr == "<f4") return ElementType::float32;
  if (*descr == "<f8") return ElementType::float64;
  if (*descr == "<f2") return ElementType::float16;
  for (const std::string_view codes : {"|u1", "|i1", "<f1", "|f1", "<V1", "|V1"}) {
    if (*descr == codes) return ElementType::uint8;
  }
  // NumPy stores an array of ml_dtypes' bfloat16 so: two bytes without a meaning, which no other array of numbers has.
  if (*descr == "<V2" || *descr == "|V2") return ElementType::bfloat16;
  bytes.fail("its dtype is " + printable(*descr) + "; " + allowed(others));
}

/// A dtype that is no ElementType, as .safetensors calls it, and a type of as many bytes. V2 is what NumPy makes of an
/// array of ml_dtypes' bfloat16: two bytes without a meaning.
struct OtherDtype {
  std::string_view descr, name;
  ElementType type;
};
constexpr std::array other_dtypes{
    OtherDtype{"|b1", "BOOL", ElementType::uint8},  OtherDtype{"<i2", "I16", ElementType::float16},
    OtherDtype{"<u2", "U16", ElementType::float16}, OtherDtype{"<i4", "I32", ElementType::float32},
    OtherDtype{"<u4", "U32", ElementType::float32}, OtherDtype{"<i8", "I64", ElementType::float64},
    OtherDtype{"<u8", "U64", ElementType::float64}, OtherDtype{"<c8", "C64", ElementType::float64},
    OtherDtype{"<V2", "V2", ElementType::float16},
};

std::optional<OtherDtype> other_dtype(std::optional<std::string_view> descr, OtherDtypes others) {
  const auto* const found = std::ranges::find(other_dtypes, descr.value_or(""), &OtherDtype::descr);
  if (others == OtherDtypes::refused || found == other_dtypes.end()) return std::nullopt;
  return *found;
}

/// The dict's three entries, in any order; where one of them is missing the number of entries is not three.
TensorHeader parse(const Bytes& bytes, Literal dict, OtherDtypes others) {
  std::optional<ElementType> type;
  std::string_view format;
  std::string_view dtype;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::uint64_t>> shape;
  dict.expect("{");
  while (!dict.take("}")) {
    const std::optional<std::string_view> key = dict.text();
    if (!key) dict.fail("a key");
    dict.expect(":");
    if (key == "descr" && !type) {
      const std::optional<std::string_view> descr = dict.text();
      const std::optional<OtherDtype> other = other_dtype(descr, others);
      type = other ? other->type : type_of(bytes, descr, others);
      if (other) dtype = other->name;
      if (descr.value_or("").ends_with("f1")) format = "e5m2";  // the only FP8 that ml_dtypes gives this letter
    } else if (key == "fortran_order" && !fortran_order) {
      fortran_order = dict.boolean();
    } else if (key == "shape" && !shape) {
      shape = dict.shape();
    } else {
      bytes.fail("its header has the key " + printable(*key) + "; it has descr, fortran_order and shape, once each");
    }
    if (!dict.take(",")) {
      dict.expect("}");
      break;
    }
  }
  dict.end();
  if (!type || !fortran_order || !shape) bytes.fail("its header lacks one of descr, fortran_order and shape");
  const std::optional<std::uint64_t> size = elements_of(*shape, *type);
  if (!size) bytes.fail("its shape has more elements than a file can hold");
  return {.name = "",
          .type = *type,
          .shape = std::move(*shape),
          .size = *size,
          .offset = 0,
          .fortran_order = *fortran_order,
          .format = format,
          .dtype = std::string(dtype)};
}

}  // namespace

TensorHeader read_npy_header(Bytes& bytes, OtherDtypes others) {
  // 1. Six bytes of magic, then the version, which says how long the length is.
  const std::uint64_t major = bytes.number(6, 1);
  const std::uint64_t minor = bytes.number(7, 1);
  if (major < 1 || major > 3 || minor != 0) {
    bytes.fail("its .npy version is " + std::to_string(major) + "." + std::to_string(minor) +
               "; 1.0, 2.0 and 3.0 are read");
  }
  const std::uint64_t begin = major == 1 ? 10 : 12;
  const std::uint64_t length = bytes.number(8, begin - 8);

  // 2. The header: a Python dict. Version 2.0 came for the dtypes of wide tables; ours fit what 1.0 can hold.
  constexpr std::uint64_t longest = 65535;
  if (length > longest) {
    bytes.fail("its header has " + std::to_string(length) + " bytes; at most " + std::to_string(longest) + " are read");
  }
  const std::string text = bytes.text(begin, length);
  TensorHeader header = parse(bytes, Literal(bytes, text), others);
  header.offset = begin + length;

  // 3. The elements.
  const std::uint64_t wanted = header.size * bytes_of(header.type);
  if (bytes.size() - header.offset < wanted) {
    bytes.fail("it has " + std::to_string(bytes.size() - header.offset) + " bytes of data; its shape and dtype need " +
               std::to_string(wanted));
  }
  return header;
}

}  // namespace fp8lab::experiments
