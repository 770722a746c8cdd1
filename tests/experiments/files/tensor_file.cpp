// SPDX-License-Identifier: Apache-2.0
#include "files/tensor_file.hpp"

#include <sys/stat.h>

#include <fstream>
#include <optional>

#include "scratch.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

namespace fs = std::filesystem;
using experiments::ElementType;
using experiments::TensorFile;
using Shape = std::vector<std::uint64_t>;

/// The `count` lowest bytes of `value`, lowest first.
std::string le(std::uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

std::string npy(const std::string& dict, const std::string& data = "", int major = 1, int minor = 0) {
  return "\x93NUMPY" + le(static_cast<unsigned>(major), 1) + le(static_cast<unsigned>(minor), 1) +
         le(dict.size(), major == 1 ? 2 : 4) + dict + data;
}
/// The header as NumPy writes it.
std::string dict(const std::string& descr, const std::string& shape, const std::string& fortran_order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran_order + ", 'shape': " + shape + ", }    \n";
}
std::string safetensors(const std::string& header, const std::string& data = "") {
  return le(header.size(), 8) + header + data;
}
std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape, int begin, int end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

/// A header of these tensors.
std::string object(const std::string& members) { return std::string("{").append(members).append("}"); }

TensorFile open(const std::string& bytes, std::string_view tensor = {}) {
  return {std::make_unique<std::istringstream>(bytes), "t", tensor};
}
template <typename Error>
std::string message(const std::string& bytes, std::string_view tensor) {
  try {
    open(bytes, tensor);
  } catch (const Error& error) {
    const std::string text = error.what();
    return text.starts_with("cannot read t: ") ? text.substr(15) : "no prefix: " + text;
  }
  return "no error";
}
/// Why a file is not read: its own fault, or that of what was asked.
std::string fault(const std::string& bytes, std::string_view tensor = {}) {
  return message<std::runtime_error>(bytes, tensor);
}
std::string refusal(const std::string& bytes, std::string_view tensor = {}) {
  return message<std::invalid_argument>(bytes, tensor);
}

std::uint64_t bits_of(float x) { return bits(x); }
std::uint64_t bits_of(double x) { return std::bit_cast<std::uint64_t>(x); }
std::uint64_t bits_of(Half x) { return x.bits; }
std::uint64_t bits_of(BFloat16 x) { return x.bits; }
std::uint64_t bits_of(std::uint8_t x) { return x; }

/// Requires that the file's elements are `expected`, in pieces of every size and from every place.
template <typename T>
void require_elements(TensorFile file, const std::vector<std::uint64_t>& expected) {
  REQUIRE(file.size() == expected.size());
  Mismatches mismatches;
  for (std::size_t first = 0; first <= expected.size(); ++first) {
    for (std::size_t count = 0; count <= expected.size() - first; ++count) {
      std::vector<T> piece(count);
      file.read(first, piece);
      for (std::size_t i = 0; i < count; ++i) mismatches.compare(first, i, bits_of(piece[i]), expected[first + i]);
    }
  }
  REQUIRE_NO(mismatches);
}

std::string data(const std::vector<std::uint64_t>& elements, int size) {
  std::string bytes;
  for (const std::uint64_t element : elements) bytes += le(element, size);
  return bytes;
}

// A NaN's payload, signalling too, -0, a subnormal, an infinity: what a conversion on the way would change.
const std::vector<std::uint64_t> floats{0x3F800000, 0x7FA12345, 0xFFC00001, 0x80000000,
                                        0x00000001, 0x7F800000, 0x42280000};
const std::vector<std::uint64_t> doubles{0x3FF0000000000000, 0x7FF0000000000001, 0xFFF8123456789ABC, 0x8000000000000000,
                                         1};
const std::vector<std::uint64_t> codes{0x00, 0x7F, 0x80, 0xFF};
const std::vector<std::uint64_t> halves{0x3C00, 0x7C01, 0xFE55, 0x8000, 0x0001, 0x7F81, 0xFF80};

}  // namespace

TEST_CASE("the elements of a .npy file are read bit for bit, from any place, in pieces of any size") {
  require_elements<float>(open(npy(dict("<f4", "(7,)"), data(floats, 4))), floats);
  require_elements<double>(open(npy(dict("<f8", "(5,)"), data(doubles, 8))), doubles);
  require_elements<Half>(open(npy(dict("<f2", "(7,)"), data(halves, 2))), halves);
  require_elements<std::uint8_t>(open(npy(dict("|u1", "(2, 2)"), data(codes, 1))), codes);
}

TEST_CASE("the elements of a .safetensors file are read bit for bit, those of the tensor asked for") {
  const std::string file =
      safetensors("{\"__metadata__\":{\"format\":\"pt\"}," + tensor("h", "F16", "[7]", 68, 82) + "," +
                      tensor("f", "F32", "[7]", 0, 28) + "," + tensor("d", "F64", "[5,1]", 28, 68) + "," +
                      tensor("b", "BF16", "[1,7]", 82, 96) + "," + tensor("i", "I64", "[1]", 96, 104) + "}   ",
                  data(floats, 4) + data(doubles, 8) + data(halves, 2) + data(halves, 2) + le(7, 8));
  require_elements<float>(open(file, "f"), floats);
  require_elements<double>(open(file, "d"), doubles);
  require_elements<Half>(open(file, "h"), halves);
  require_elements<BFloat16>(open(file, "b"), halves);
  CHECK(open(file, "b").name() == "b");
  CHECK(open(file, "b").type() == ElementType::bfloat16);
  CHECK(open(file, "b").shape() == Shape{1, 7});
  CHECK(fault(file, "i") == R"(tensor "i" has the dtype "I64"; F32, F64, F16 and BF16 are read)");
}

TEST_CASE("versions, key orders, quotes and shapes of .npy headers") {
  const std::string two = data({1, 2}, 4);
  for (const int major : {1, 2, 3}) CHECK(open(npy(dict("<f4", "(2,)"), two, major)).shape() == Shape{2});
  CHECK(open(npy("{\"shape\":(1,2),\"descr\":\"<f4\",\"fortran_order\":True}", two)).shape() == Shape{1, 2});
  CHECK(open(npy(dict("<f4", "(1, 2)", "True"), two)).fortran_order());
  CHECK_FALSE(open(npy(dict("<f4", "(1, 2)"), two)).fortran_order());
  CHECK(open(npy(dict("<f4", "( 2 , 1 , )"), two)).shape() == Shape{2, 1});
  CHECK(open(npy(dict("<f4", "(2, 1)", "True"), two)).shape() == Shape{2, 1});
  CHECK(open(npy(dict("<f4", "(2,)"), two + "and more")).size() == 2);

  const TensorFile scalar = open(npy(dict("<f8", "()"), le(0, 8)));
  CHECK(scalar.shape().empty());
  CHECK(scalar.size() == 1);
  CHECK(scalar.type() == ElementType::float64);
  CHECK(scalar.name().empty());
  CHECK(open(npy(dict("<f4", "(3, 0)"))).size() == 0);
  CHECK(open(npy(dict("<f4", "(18446744073709551615, 18446744073709551615, 0)"))).size() == 0);
  std::string ones = "(";
  for (int i = 0; i < 64; ++i) ones += "1,";
  CHECK(open(npy(dict("<f4", ones + ")"), two)).shape() == Shape(64, 1));
  CHECK(fault(npy(dict("<f4", ones + "1)"), two)) ==
        R"(byte 179 of its header has "1" instead of a shape of at most 64 lengths)");
}

TEST_CASE("scalars, empty tensors and odd names of .safetensors files") {
  CHECK(open(safetensors(object(tensor("a", "F32", "[]", 0, 4)), "1234")).size() == 1);
  CHECK(open(safetensors(object(tensor("a", "F32", "[0,18446744073709551615,2]", 0, 0)))).size() == 0);
  // Empty tensors share no bytes, wherever they lie.
  const std::string json = object(tensor("a", "F32", "[2]", 0, 8) + "," + tensor("e", "F32", "[0]", 4, 4) + "," +
                                  tensor("z", "F32", "[0]", 8, 8));
  CHECK(open(safetensors(json, "12345678"), "a").size() == 2);
  CHECK(open(safetensors(json, "12345678"), "e").size() == 0);
  // One tensor needs no name, may have any, and is found by it.
  const std::string odd = safetensors(object(tensor(R"(\u0000\n\u00e9)", "F32", "[1]", 0, 4)), "1234");
  const std::string name{'\0', '\n', '\xC3', '\xA9'};
  CHECK(open(odd).name() == name);
  CHECK(open(odd, name).name() == name);
  CHECK(open(safetensors(object(tensor("", "F32", "[1]", 0, 4)), "1234")).name().empty());
}

TEST_CASE("a tensor that is not named, or not there, is told by the names that are") {
  const auto file = [](int count) {
    std::string json;
    for (int i = 0; i < count; ++i) {
      json += i == 0 ? '{' : ',';
      json += tensor(std::string("w").append(std::to_string(10 + i)), "F32", "[1]", 4 * i, 4 * i + 4);
    }
    return safetensors(json + "}", std::string(static_cast<std::size_t>(4 * count), 'x'));
  };
  CHECK(refusal(file(2)) == R"(which tensor? it holds 2 tensors: "w10", "w11")");
  CHECK(refusal(file(2), "v") == R"(it has no tensor "v"; it holds 2 tensors: "w10", "w11")");
  CHECK(refusal(file(1), "w") == R"(it has no tensor "w"; it holds 1 tensor: "w10")");
  CHECK(refusal(file(1), "__metadata__") == R"(it has no tensor "__metadata__"; it holds 1 tensor: "w10")");
  CHECK_THAT(refusal(file(20)), ContainsSubstring("it holds 20 tensors: ") && ContainsSubstring("\"w28\", \"w29\""));
  CHECK_THAT(refusal(file(21)), ContainsSubstring("it holds 21 tensors: ") && ContainsSubstring("\"w29\", ..."));
  CHECK(refusal(npy(dict("<f4", "()"), "1234"), "w") ==
        R"(a .npy file's one tensor has no name, so "w" is none of it)");
  // What a name may contain, a message may not: it stays one line, and short.
  const std::string hostile = safetensors(object(tensor(R"(\u001b[2J\n\u0085\u202e)", "F32", "[1]", 0, 4) + "," +
                                                 tensor(std::string(1000, 'x'), "F32", "[1]", 4, 8)),
                                          "12345678");
  CHECK(refusal(hostile, "a\r\xFF") ==
        R"(it has no tensor "a\r\ufffd"; it holds 2 tensors: "\u001b[2J\n\u0085\u202e", ")" + std::string(24, 'x') +
            "..." + std::string(53, 'x') + "\"");
}

TEST_CASE("reads of another type or beyond the end are refused") {
  TensorFile file = open(npy(dict("<f4", "(7,)"), data(floats, 4)));
  std::vector<float> eight(8);
  std::vector<double> other(1);
  CHECK_THROWS_WITH(file.read(0, other), "cannot read t: its elements are float32, not float64");
  CHECK_THROWS_WITH(file.read(0, eight), "cannot read t: it has 7 elements, not 8 from 0 on");
  CHECK_THROWS_WITH(file.read(~std::uint64_t{0}, eight),
                    "cannot read t: it has 7 elements, not 8 from 18446744073709551615 on");
  CHECK_THROWS_AS(file.read(0, std::span<Half>{}), std::invalid_argument);
  CHECK_THROWS_AS(file.read(0, std::span<BFloat16>{}), std::invalid_argument);
  file.read(7, std::span<float>{});
  CHECK_THROWS_AS(file.read(8, std::span<float>{}), std::invalid_argument);
}

TEST_CASE("what a .npy header may not be") {
  const auto header = [](const std::string& text) { return fault(npy(text, std::string(64, 'x'))); };
  CHECK(header(dict(">f4", "(2,)")) == R"(its dtype is ">f4"; <f4, <f8, <f2 and |u1 are read)");
  CHECK(header(dict("<i4", "(2,)")) == R"(its dtype is "<i4"; <f4, <f8, <f2 and |u1 are read)");
  CHECK(header(dict("|O", "(2,)")) == R"(its dtype is "|O"; <f4, <f8, <f2 and |u1 are read)");
  CHECK(header(dict("\x1B\xFF", "(2,)")) == R"(its dtype is "\u001b\ufffd"; <f4, <f8, <f2 and |u1 are read)");
  CHECK(header(dict("<V2", "(2,)")) ==
        R"(its dtype is "<V2"; <f4, <f8, <f2 and |u1 are read; bfloat16 is read from .safetensors)");
  CHECK(header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}") ==
        "its dtype is structured; <f4, <f8, <f2 and |u1 are read");
  CHECK(header(dict("<f4", "(-1,)")) == R"(byte 51 of its header has "-" instead of a length from 0 to 2^64 - 1)");
  CHECK(header(dict("<f4", "(2.0,)")) == R"(byte 52 of its header has "." instead of ",")");
  CHECK(header(dict("<f4", "(2, 2.0)")) == R"(byte 55 of its header has "." instead of ",")");
  CHECK(header(dict("<f4", "(18446744073709551616,)")) ==
        R"(byte 51 of its header has "1" instead of a length from 0 to 2^64 - 1)");
  CHECK(header(dict("<f4", "(2)")) == R"x(byte 52 of its header has ")" instead of ",")x");
  CHECK(header(dict("<f4", "(,)")) == R"(byte 51 of its header has "," instead of a length from 0 to 2^64 - 1)");
  CHECK(header(dict("<f4", "[2]")) == R"(byte 50 of its header has "[" instead of "(")");
  CHECK(header(dict("<f4", "(2,)", "None")) == R"(byte 34 of its header has "N" instead of True or False)");
  CHECK(header("{'descr': '<f4', 'shape': (2,)}") == "its header lacks one of descr, fortran_order and shape");
  CHECK(header("{}") == "its header lacks one of descr, fortran_order and shape");
  for (const std::string entry : {"'descr': '<f4'", "'fortran_order': True", "'shape': (2,)"}) {
    const std::string key = entry.substr(1, entry.find(':') - 2);
    CHECK(header(object(entry + ", " + entry)) ==
          "its header has the key \"" + key + "\"; it has descr, fortran_order and shape, once each");
  }
  CHECK(header("{'more\n': 1}") == R"(byte 6 of its header has "\n" instead of the end of a text without escapes)");
  CHECK(header("{'more': 1}") == R"(its header has the key "more"; it has descr, fortran_order and shape, once each)");
  CHECK(header("{shape: (2,)}") == R"(byte 1 of its header has "s" instead of a key)");
  CHECK(header("{'shape' (2,)}") == R"(byte 9 of its header has "(" instead of ":")");
  CHECK(header("{'shape': (2,) 'descr'") == R"(byte 15 of its header has "'" instead of "}")");
  CHECK(header("{'descr': '<f4") == R"(byte 14 of its header has "" instead of the end of a text without escapes)");
  CHECK(header("{'descr': '\\x3cf4'}") ==
        R"(byte 11 of its header has "\\" instead of the end of a text without escapes)");
  CHECK(header(dict("<f4", "(2,)") + "!") == R"(byte 62 of its header has "!" instead of the end of the header)");
  CHECK(header("") == R"(byte 0 of its header has "" instead of "{")");
}

TEST_CASE("what the lengths of a .npy file may not be") {
  const std::string whole = npy(dict("<f4", "(2,)"), "12345678");
  const std::size_t begin = whole.size() - 8;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO(size);
    const std::string length = std::to_string(size);
    const std::string reason = fault(whole.substr(0, size));
    if (size < 6) {
      CHECK_THAT(reason, ContainsSubstring("it is neither .npy (begins with"));
    } else if (size < begin) {
      CHECK(reason == "it ends at byte " + length + ", within its header");
    } else {
      CHECK(reason == "it has " + std::to_string(size - begin) + " bytes of data; its shape and dtype need 8");
    }
  }
  for (const char* const shape : {"(4611686018427387904,)", "(9223372036854775808,)", "(2147483648, 2147483648)"}) {
    CHECK(fault(npy(dict("<f4", shape), "1234")) == "its shape has more elements than a file can hold");
  }
  CHECK(fault(npy(dict("<f4", "(4611686018427387903,)"), "1234")) ==
        "it has 4 bytes of data; its shape and dtype need 18446744073709551612");
  CHECK(fault("\x93NUMPY" + le(2, 2) + le(0xFFFFFFFF, 4) + "{") ==
        "its header has 4294967295 bytes; at most 65535 are read");
  CHECK(fault("\x93NUMPY" + le(3, 2) + le(65535, 4) + "{") == "it ends at byte 13, within its header");
  CHECK(fault(npy("{}", "", 4)) == "its .npy version is 4.0; 1.0, 2.0 and 3.0 are read");
  CHECK(fault(npy("{}", "", 1, 255)) == "its .npy version is 1.255; 1.0, 2.0 and 3.0 are read");
  CHECK(fault(npy("{}", "", 0)) == "its .npy version is 0.0; 1.0, 2.0 and 3.0 are read");
}

TEST_CASE("what a .safetensors header may not be") {
  const auto header = [](const std::string& json) { return fault(safetensors(json, std::string(64, 'x'))); };
  const auto with = [&](const std::string& value) { return header("{\"a\":" + value + "}"); };
  const auto field = [&](const std::string& member) { return header("{\"a\":{" + member + "}}"); };
  const std::string shape = "tensor \"a\": its shape is not an array of at most 64 whole numbers below 2^64";
  const std::string offsets = "tensor \"a\": its data_offsets are not an array of two whole numbers below 2^64";

  for (const char* const value : {"1", "-1", "1.5", "null", "true", "\"x\"", "[]"}) {
    CHECK(with(value) == "tensor \"a\" is not an object");
    CHECK(header(std::string("{\"__metadata__\":") + value + "}") == "\"__metadata__\" is not an object");
  }
  for (const char* const value : {"1", "-1", "1.5", "null", "true", "{}", "[]"}) {
    CHECK(field(std::string("\"dtype\":") + value) == "tensor \"a\": its dtype is not a text");
    CHECK(header(std::string("{\"__metadata__\":{\"x\":") + value + "}}") ==
          "\"__metadata__\" is not an object of texts");
  }
  for (const char* const value : {"1", "-1", "1.5", "null", "true", "{}", "\"x\"", "[-1]", "[-0]", "[2.0]", "[1e3]",
                                  "[[]]", "[{}]", "[\"1\"]", "[null]", "[18446744073709551616]"}) {
    INFO(value);
    CHECK(field(std::string("\"shape\":") + value) == shape);
    CHECK(field(std::string("\"data_offsets\":") + value) == offsets);
  }
  for (const char* const value : {"[]", "[0]", "[0,4,4]"})
    CHECK(field(std::string("\"data_offsets\":") + value) == offsets);
  std::string ones = "1";
  for (int i = 1; i < 64; ++i) ones += ",1";
  CHECK(field("\"shape\":[" + ones + ",1]") == shape);
  CHECK(field("\"shape\":[" + ones + "]") == "tensor \"a\" lacks one of dtype, shape and data_offsets");

  CHECK(header("{}") == "it holds no tensors");
  CHECK(header(R"({"__metadata__":{}})") == "it holds no tensors");
  CHECK(with("{}") == "tensor \"a\" lacks one of dtype, shape and data_offsets");
  for (const char* const member : {R"("dtype":"F32")", R"("shape":[])", R"("data_offsets":[0,4])"}) {
    CHECK(field(member) == "tensor \"a\" lacks one of dtype, shape and data_offsets");
    const std::string twice = std::string(member) + "," + member;
    CHECK_THAT(field(twice), ContainsSubstring("it has dtype, shape and data_offsets, once each"));
  }
  CHECK(field("\"more\":1") == R"(tensor "a" has the key "more"; it has dtype, shape and data_offsets, once each)");
  const std::string a = tensor("a", "F32", "[1]", 0, 4);
  CHECK(header(object(a + "," + tensor("a", "F32", "[1]", 4, 8))) == "tensor \"a\" comes twice");
  CHECK(header("{" + a + R"(,"__metadata__":{},"__metadata__":{}})") == "\"__metadata__\" comes twice");

  // Text that is not JSON: the parser's own business, but its complaint is ours.
  CHECK(header("{" + a) == "its header is not JSON at byte " + std::to_string(a.size() + 2));
  for (const std::string& text : std::vector<std::string>{
           "{" + a + "}x", "{" + a + ",}", "{'a':1}", std::string("{\"\xFF\":1}"), std::string("{\"\xED\xA0\x80\":1}"),
           std::string("{\"a\n\":1}"), std::string("{\"a\":1e999}"), object(a) + std::string(1, '\0')}) {
    INFO(text);
    CHECK_THAT(header(text), ContainsSubstring("its header is not JSON at byte "));
  }
  // A million brackets stop at the first that does not belong.
  for (const char* const bracket : {"{\"a\":", "{", "["}) {
    std::string deep = "{\"a\":";
    for (int i = 0; i < 1'000'000; ++i) deep += bracket;
    CHECK(header(deep).size() < 100);
  }
}

TEST_CASE("what the offsets and lengths of a .safetensors file may not be") {
  const auto offsets = [](const std::string& shape, int begin, int end) {
    const std::string json = object(tensor("a", "F32", shape, begin, end));
    return fault(safetensors(json, "12345678"));
  };
  CHECK(offsets("[1]", 4, 0) == "tensor \"a\" has data_offsets [4, 0]; the file has bytes 0 to 8 of data");
  CHECK(offsets("[1]", 8, 12) == "tensor \"a\" has data_offsets [8, 12]; the file has bytes 0 to 8 of data");
  CHECK(offsets("[0]", 9, 9) == "tensor \"a\" has data_offsets [9, 9]; the file has bytes 0 to 8 of data");
  CHECK(offsets("[1]", 0, 8) == "tensor \"a\" has 8 bytes; its shape and dtype need 4");
  CHECK(offsets("[3]", 0, 8) == "tensor \"a\" has 8 bytes; its shape and dtype need 12");
  CHECK(offsets("[0]", 0, 4) == "tensor \"a\" has 4 bytes; its shape and dtype need 0");
  for (const char* const shape : {"[4611686018427387904]", "[2147483648,2147483648]", "[18446744073709551615]"}) {
    CHECK(offsets(shape, 0, 0) == "tensor \"a\" has a shape of more elements than a file can hold");
  }
  CHECK(fault(safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,0]}})")) ==
        "tensor \"a\" has data_offsets [18446744073709551612, 0]; the file has bytes 0 to 0 of data");

  // Overlaps, whichever comes first, of tensors of any type.
  const auto both = [](int begin, int end) {
    const std::string shape = std::string("[").append(std::to_string(end - begin)).append("]");
    const std::string json = object(tensor("a", "F32", "[2]", 4, 12) + "," + tensor("i", "I8", shape, begin, end));
    return fault(safetensors(json, std::string(16, 'x')), "a");
  };
  CHECK(both(0, 4) == "no error");
  CHECK(both(12, 16) == "no error");
  CHECK(both(0, 5) == "tensors \"i\" and \"a\" overlap");
  CHECK(both(11, 16) == "tensors \"a\" and \"i\" overlap");
  CHECK(both(6, 8) == "tensors \"a\" and \"i\" overlap");
  CHECK(both(0, 16) == "tensors \"i\" and \"a\" overlap");
  CHECK_THAT(both(4, 12), ContainsSubstring(" overlap"));

  for (const std::uint64_t length : {std::uint64_t{100'000'001}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    CHECK(fault(le(length, 8) + "{}") ==
          "its header has " + std::to_string(length) + " bytes; at most 100000000 are read");
  }
  CHECK(fault(le(100'000'000, 8) + "{}") == "it ends at byte 10, within its header");
  CHECK(fault(le(0, 8) + "{}") == "its header is not JSON at byte 1");
  const std::string whole = safetensors(object(tensor("a", "F32", "[2]", 0, 8)), "12345678");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO(size);
    CHECK_THAT(fault(whole.substr(0, size)), ContainsSubstring(size < 9                  ? "it is neither"
                                                               : size < whole.size() - 8 ? "within its header"
                                                                                         : "data_offsets [0, 8]"));
  }
}

TEST_CASE("files: the content tells what they are, and a message which file it is about") {
  const Scratch scratch;
  const auto write = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(scratch.path / name, std::ios::binary) << bytes;
    return scratch.path / name;
  };
  const auto reason = [&](const fs::path& path) -> std::string {
    try {
      const TensorFile file(path);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string cannot = "cannot read " + scratch.path.string();

  TensorFile file(write("numpy.bin", npy(dict("<f4", "(7,)"), data(floats, 4))));
  CHECK(file.size() == 7);
  CHECK(TensorFile(write("st.npy", safetensors(object(tensor("a", "F32", "[1]", 0, 4)), "1234")), "a").size() == 1);
  CHECK(reason(write("zip", "PK\x03\x04 and so on")) ==
        cannot +
            R"(/zip: it is neither .npy (begins with "\x93NUMPY") nor .safetensors (has a "{" as its ninth byte))");
  CHECK_THAT(reason(write("empty.npy", "")), ContainsSubstring("it is neither"));
  CHECK(reason(scratch.path / "none") == cannot + "/none: there is no such file");
  CHECK(reason(scratch.path / "zip" / "x") == cannot + "/zip/x: there is no such file");
  CHECK(reason(scratch.path) == cannot + ": it is a directory");
  REQUIRE(::mkfifo((scratch.path / "pipe").c_str(), 0600) == 0);
  CHECK(reason(scratch.path / "pipe") ==
        cannot + "/pipe: it is not a regular file; pipes, devices and sockets are not read");
  CHECK(reason("/dev/zero") ==
        "cannot read /dev/zero: it is not a regular file; pipes, devices and sockets are not read");
  CHECK(reason(scratch.path / std::string(300, 'x')).ends_with(": File name too long"));
  CHECK(reason(scratch.path / "a\nb\xC3\xA9") == cannot + "/a\\nb\xC3\xA9: there is no such file");

  // A file that changes while it is read.
  fs::resize_file(scratch.path / "numpy.bin", fs::file_size(scratch.path / "numpy.bin") - 1);
  std::vector<float> piece(7);
  CHECK_THROWS_WITH(file.read(0, piece),
                    ContainsSubstring("/numpy.bin: it ends at byte ") && ContainsSubstring("its header announces"));
  file.read(0, std::span(piece).first(6));
  CHECK(bits(piece[5]) == floats[5]);
}

TEST_CASE("a file that may not be read says so") {
  const Scratch scratch;
  const fs::path path = scratch.path / "secret.npy";
  std::ofstream(path, std::ios::binary) << npy(dict("<f4", "()"), "1234");
  fs::permissions(path, fs::perms::none);
  const uid_t before = ::geteuid();
  if (before == 0) REQUIRE(::seteuid(65534) == 0);  // the superuser may read everything
  std::optional<TensorFile> file;
  CHECK_THROWS_WITH(file.emplace(path), "cannot read " + path.string() + ": Permission denied");
  if (before == 0) REQUIRE(::seteuid(0) == 0);
}

TEST_CASE("a stream that cannot seek is no file") {
  struct Pipe : std::streambuf {};
  Pipe pipe;
  CHECK_THROWS_WITH(TensorFile(std::make_unique<std::istream>(&pipe), "pipe"),
                    "cannot read pipe: its size cannot be found out");
}

TEST_CASE("element types have names") {
  CHECK(name_of(ElementType::float32) == "float32");
  CHECK(name_of(ElementType::float64) == "float64");
  CHECK(name_of(ElementType::float16) == "float16");
  CHECK(name_of(ElementType::bfloat16) == "bfloat16");
  CHECK(name_of(ElementType::uint8) == "uint8");
}

}  // namespace fp8lab::tests
