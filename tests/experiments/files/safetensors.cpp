// SPDX-License-Identifier: Apache-2.0
// What a .safetensors file may hold, and what not.
#include "experiments/files/tensor_bytes.hpp"
#include "files/tensor_file.hpp"
#include "support.hpp"

namespace fp8lab::tests::tensor_bytes {

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
  CHECK(fault(file, "i") ==
        R"(tensor "i" has the dtype "I64"; F32, F64, F16, BF16, and codes (F8_E4M3, F8_E5M2, both with FNUZ, F8_E8M0, )"
        "F4 in rows of whole bytes, U8, I8) are read");
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
  CHECK(refusal(file(2)) == R"(one tensor must be named, or '*' for all: it holds 2 tensors: "w10", "w11")");
  CHECK(refusal(file(2), "v") == R"(it has no tensor "v"; it holds 2 tensors: "w10", "w11")");
  CHECK(refusal(file(1), "w") == R"(it has no tensor "w"; it holds 1 tensor: "w10")");
  CHECK(refusal(file(1), "__metadata__") == R"(it has no tensor "__metadata__"; it holds 1 tensor: "w10")");
  CHECK_THAT(refusal(file(10)), ContainsSubstring("it holds 10 tensors: ") && ContainsSubstring("\"w18\", \"w19\""));
  CHECK_THAT(refusal(file(11)), ContainsSubstring("it holds 11 tensors: ") && ContainsSubstring("\"w19\", ..."));
  CHECK(refusal(npy(dict("<f4", "()"), "1234"), "w") ==
        R"(the tensor of a .npy file has no name, so that "w" cannot be chosen)");
  // What a name may contain, a message may not: it stays one line, and short.
  const std::string hostile = safetensors(object(tensor(R"(\u001b[2J\n\u0085\u202e)", "F32", "[1]", 0, 4) + "," +
                                                 tensor(std::string(1000, 'x'), "F32", "[1]", 4, 8)),
                                          "12345678");
  CHECK(refusal(hostile, "a\r\xFF") ==
        R"(it has no tensor "a\r\ufffd"; it holds 2 tensors: "\u001b[2J\n\u0085\u202e", ")" + std::string(24, 'x') +
            "..." + std::string(53, 'x') + "\"");
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

}  // namespace fp8lab::tests::tensor_bytes
