// SPDX-License-Identifier: Apache-2.0
#include "files/tensor_file.hpp"

#include <sys/stat.h>

#include <fstream>
#include <optional>

#include "experiments/files/tensor_bytes.hpp"
#include "scratch.hpp"
#include "support.hpp"

namespace fp8lab::tests::tensor_bytes {
namespace {

namespace fs = std::filesystem;

}  // namespace

TEST_CASE("the elements of a .npy file are read bit for bit, from any place, in pieces of any size") {
  require_elements<float>(open(npy(dict("<f4", "(7,)"), data(floats, 4))), floats);
  require_elements<double>(open(npy(dict("<f8", "(5,)"), data(doubles, 8))), doubles);
  require_elements<Half>(open(npy(dict("<f2", "(7,)"), data(halves, 2))), halves);
  require_elements<std::uint8_t>(open(npy(dict("|u1", "(2, 2)"), data(codes, 1))), codes);
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
  CHECK(header(dict(">f4", "(2,)")) ==
        R"(its dtype is ">f4"; <f4, <f8, <f2, <V2 (bfloat16), and codes (|u1, |i1, <f1, <V1) are read)");
  CHECK(header(dict("<i4", "(2,)")) ==
        R"(its dtype is "<i4"; <f4, <f8, <f2, <V2 (bfloat16), and codes (|u1, |i1, <f1, <V1) are read)");
  CHECK(header(dict("|O", "(2,)")) ==
        R"(its dtype is "|O"; <f4, <f8, <f2, <V2 (bfloat16), and codes (|u1, |i1, <f1, <V1) are read)");
  CHECK(header(dict("\x1B\xFF", "(2,)")) ==
        R"(its dtype is "\u001b\ufffd"; <f4, <f8, <f2, <V2 (bfloat16), and codes (|u1, |i1, <f1, <V1) are read)");
  CHECK(header(dict("<V4", "(2,)")) ==
        R"(its dtype is "<V4"; <f4, <f8, <f2, <V2 (bfloat16), and codes (|u1, |i1, <f1, <V1) are read)");
  CHECK(header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}") ==
        "its dtype is structured; <f4, <f8, <f2, <V2 (bfloat16), and codes (|u1, |i1, <f1, <V1) are read");
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
  CHECK_THROWS_WITH(file.read(0, piece), ContainsSubstring("/numpy.bin: it ends at byte ") &&
                                             ContainsSubstring("its header describes more"));
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
                    "cannot read pipe: its size is not known");
}

TEST_CASE("element types have names") {
  CHECK(name_of(ElementType::float32) == "float32");
  CHECK(name_of(ElementType::float64) == "float64");
  CHECK(name_of(ElementType::float16) == "float16");
  CHECK(name_of(ElementType::bfloat16) == "bfloat16");
  CHECK(name_of(ElementType::uint8) == "uint8");
}

}  // namespace fp8lab::tests::tensor_bytes
