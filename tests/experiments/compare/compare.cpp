// SPDX-License-Identifier: Apache-2.0
// Files and folders that are compared: pairs, types, shapes, inputs; what cannot be compared.
#include "compare/compare.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "experiments/files/tensor_bytes.hpp"
#include "files/row_major.hpp"
#include "scratch.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

namespace fs = std::filesystem;
using experiments::CompareArguments;
using experiments::CompareResult;
using experiments::run_compare;
using tensor_bytes::dict;
using tensor_bytes::npy;
using tensor_bytes::object;
using tensor_bytes::safetensors;
using tensor_bytes::tensor;

fs::path written(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string refused(const CompareArguments& arguments) {
  try {
    static_cast<void>(run_compare(arguments));
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("compare: files of codes that differ in one element tell it, with the input") {
  const Scratch scratch;
  const std::string codes(12, '\x38');
  std::string other = codes;
  other[7] = '\x39';
  const CompareResult result = run_compare(
      {.a = written(scratch.path / "a.npy", npy(dict("|u1", "(3, 4)"), codes)),
       .b = written(scratch.path / "b.npy", npy(dict("|u1", "(3, 4)"), other)),
       .format = "e4m3",
       .input = written(
           scratch.path / "x.npy",
           npy(dict("<f4", "(12,)"),
               tensor_bytes::data(std::vector<std::uint64_t>{0, 0, 0, 0, 0, 0, 0, 0x3F880000, 0, 0, 0, 0}, 4)))});
  REQUIRE(result.tensors.size() == 1);
  const auto& one = result.tensors.front();
  CHECK_FALSE(result.equal());
  CHECK(one.type == "e4m3");
  CHECK(one.shape == std::vector<std::uint64_t>{3, 4});
  CHECK(one.comparison.first == std::vector<doctor::Mismatch>{{7, 0x38, 0x39}});
  CHECK(one.inputs == std::vector<double>{1.0625});
}

TEST_CASE("compare: tensors of .safetensors files and files of folders meet by their names") {
  const Scratch scratch;
  const std::string header = object(tensor("w", "F8_E4M3", "[2]", 0, 2) + "," + tensor("s", "F8_E8M0", "[1]", 2, 3) +
                                    "," + tensor("left", "BF16", "[1]", 3, 5));
  const std::string other = object(tensor("s", "F8_E8M0", "[1]", 0, 1) + "," + tensor("w", "F8_E4M3", "[2]", 1, 3));
  const fs::path a = written(scratch.path / "a" / "sub" / "m.safetensors", safetensors(header, "12345")).parent_path();
  const fs::path b = written(scratch.path / "b" / "sub" / "m.safetensors", safetensors(other, "312")).parent_path();
  for (const bool folders : {false, true}) {
    const CompareResult result = folders ? run_compare({.a = a.parent_path(), .b = b.parent_path()})
                                         : run_compare({.a = a / "m.safetensors", .b = b / "m.safetensors"});
    REQUIRE(result.tensors.size() == 2);
    CHECK(result.tensors[0].type == "e8m0");
    CHECK(result.tensors[1].comparison.equal());
    REQUIRE(result.unpaired.size() == 1);
    CHECK_THAT(result.unpaired.front(), ContainsSubstring("left") && ContainsSubstring("in a alone"));
    CHECK_FALSE(result.equal());
  }
  CHECK(run_compare({.a = a / "m.safetensors", .b = b / "m.safetensors", .names = {"w"}}).equal());
}

TEST_CASE("compare: a format is of the bytes alone whose file tells none") {
  const Scratch scratch;
  // FP4 codes, two in a byte, and their scales: 0x38 is 1 and 0x3A 1.25 in E4M3.
  const std::string header = object(tensor("codes", "U8", "[1,2]", 0, 2) + "," + tensor("f", "F32", "[1]", 2, 6) + "," +
                                    tensor("scales", "F8_E4M3", "[2]", 6, 8));
  const fs::path a = written(scratch.path / "a.safetensors", safetensors(header, "\x21\x43zzzz\x38\x38"));
  const fs::path b = written(scratch.path / "b.safetensors", safetensors(header, "\x21\x53zzzz\x38\x3A"));
  const CompareResult result = run_compare({.a = a, .b = b, .format = "e2m1", .pairs = true});
  REQUIRE(result.tensors.size() == 3);
  CHECK(result.tensors[0].type == "e2m1, pairs");
  CHECK(result.tensors[0].shape == std::vector<std::uint64_t>{1, 4});
  CHECK(result.tensors[0].comparison.first == std::vector<doctor::Mismatch>{{3, 4, 5}});
  CHECK(result.tensors[1].type == "float32");
  CHECK(result.tensors[2].type == "e4m3");
  CHECK(result.tensors[2].shape == std::vector<std::uint64_t>{2});
  CHECK(result.tensors[2].comparison.first == std::vector<doctor::Mismatch>{{1, 0x38, 0x3A}});
  CHECK(result.tensors[2].comparison.distances.largest == 2);
  // A format that contradicts the file of a single tensor is refused, and one that agrees is not.
  CompareArguments scales{.a = a, .b = b, .names = {"scales"}, .format = "e4m3"};
  CHECK(run_compare(scales).tensors.front().type == "e4m3");
  scales.format = "e2m1";
  CHECK_THAT(refused(scales), ContainsSubstring("\"scales\" is e4m3, as its file tells, and not e2m1"));
  CHECK_THAT(refused({.a = a, .b = b, .names = {"f"}, .format = "e5m2"}), ContainsSubstring("and not e5m2"));
  // One side tells it, the other does not.
  const fs::path bytes = written(scratch.path / "scales.npy", npy(dict("|u1", "(2,)"), "\x38\x38"));
  for (const bool is_first : {true, false}) {
    const CompareResult one = run_compare({.a = is_first ? bytes : a, .b = is_first ? a : bytes, .names = {"scales"}});
    CHECK(one.equal());
    CHECK(one.tensors.front().type == "e4m3");
  }
}

TEST_CASE("compare: words without a format are equal or not, and have no distance") {
  const Scratch scratch;
  // What would be zeros of both signs and two NaNs, were they float64.
  const std::string header =
      object(tensor("bool", "BOOL", "[2]", 0, 2) + "," + tensor("fp4", "F4", "[2,4]", 2, 6) + "," +
             tensor("i64", "I64", "[2,2]", 8, 40) + "," + tensor("new", "X3", "[3]", 6, 8) + "," +
             tensor("u16", "U16", "[2]", 40, 44) + "," + tensor("w", "BF16", "[1]", 44, 46));
  const auto file = [&](const std::string& name, const std::vector<std::uint64_t>& ids) {
    const std::string bytes = std::string("\x01\x01pairs!", 8) + tensor_bytes::data(ids, 8) + "1234ww";
    return written(scratch.path / name, safetensors(header, bytes));
  };
  const fs::path a = file("a.safetensors", {0, 7, 0x7FF8000000000001, 5});
  const fs::path b = file("b.safetensors", {0x8000000000000000, 7, 0x7FF8000000000002, 5});
  const CompareResult result = run_compare({.a = a, .b = b});
  REQUIRE(result.tensors.size() == 6);
  std::vector<std::string> types;
  for (const auto& one : result.tensors) types.push_back(one.type);
  CHECK(types == std::vector<std::string>{"BOOL", "e2m1, pairs", "I64", "\"X3\" as bytes", "U16", "bfloat16"});
  CHECK(result.tensors[1].shape == std::vector<std::uint64_t>{2, 4});
  CHECK(result.tensors[3].shape == std::vector<std::uint64_t>{2});
  const auto& ids = result.tensors[2];
  CHECK(ids.shape == std::vector<std::uint64_t>{2, 2});
  CHECK(ids.are_words);
  CHECK(ids.comparison.first ==
        std::vector<doctor::Mismatch>{{0, 0, 0x8000000000000000}, {2, 0x7FF8000000000001, 0x7FF8000000000002}});
  CHECK(ids.comparison.zero_signs + ids.comparison.nan_words + ids.comparison.numbers == 0);
  CHECK(doctor::findings(ids.comparison) == std::vector<std::string>{"All lie in column 0 of 2."});
  for (const std::size_t i : {0, 1, 3, 4, 5}) CHECK(result.tensors[i].comparison.equal());
  CHECK_THAT(refused({.a = a, .b = b, .names = {"i64"}, .format = "float64"}),
             ContainsSubstring("is I64, as its file"));
}

TEST_CASE("compare: a .safetensors file tells FNUZ formats, and pairs of FP4 codes") {
  const Scratch scratch;
  const std::string header =
      object(tensor("a", "F8_E4M3FNUZ", "[2]", 0, 2) + "," + tensor("b", "F8_E5M2FNUZ", "[1]", 2, 3) + "," +
             tensor("c", "F4", "[1,4]", 3, 5) + "," + tensor("d", "F4", "[1,3]", 5, 7));
  // 0x80 is NaN in the first of them, and 0x39 the neighbour of 0x38; codes of c are 1 2 3 4 and 1 2 3 5.
  const fs::path a = written(scratch.path / "a.safetensors", safetensors(header, "\x38\x38\x38\x21\x43__"));
  const fs::path b = written(scratch.path / "b.safetensors", safetensors(header, "\x80\x38\x39\x21\x53__"));
  const CompareResult result = run_compare({.a = a, .b = b});
  REQUIRE(result.tensors.size() == 4);
  CHECK(result.tensors[0].type == "e4m3fnuz");
  CHECK(result.tensors[0].comparison.nan_in_b == 1);
  CHECK(result.tensors[1].type == "e5m2fnuz");
  CHECK(result.tensors[1].comparison.distances.above[0] == 1);
  CHECK(result.tensors[2].type == "e2m1, pairs");
  CHECK(result.tensors[2].comparison.first == std::vector<doctor::Mismatch>{{3, 4, 5}});
  CHECK(result.tensors[3].type == "\"F4\" as bytes");  // a row has no whole number of bytes
  const fs::path bytes = written(scratch.path / "c.npy", npy(dict("|u1", "(1, 2)"), "\x21\x43"));
  CHECK(run_compare({.a = bytes, .b = a, .names = {"c"}, .format = "e2m1", .pairs = true}).equal());
  CHECK(run_compare({.a = bytes, .b = a, .names = {"c"}}).tensors.front().shape == std::vector<std::uint64_t>{1, 4});
  CHECK_THAT(refused({.a = bytes, .b = a, .names = {"c"}, .format = "e4m3"}),
             ContainsSubstring("\"c.npy\" is e2m1, pairs, as b tells, and not e4m3"));
  CHECK_THAT(refused({.a = bytes, .b = a, .names = {"d"}}),
             ContainsSubstring("uint8 of shape (1, 2) in a and \"F4\" as bytes of shape (1, 2) in b"));
}

TEST_CASE("compare: what NumPy writes of ml_dtypes' bfloat16 is words, or what the user says") {
  const Scratch scratch;
  const fs::path a = written(scratch.path / "a.npy", npy(dict("<V2", "(2,)"), tensor_bytes::data({0x3F80, 0}, 2)));
  const fs::path b = written(scratch.path / "b.npy", npy(dict("<V2", "(2,)"), tensor_bytes::data({0x3F81, 0}, 2)));
  const fs::path c = written(scratch.path / "c.safetensors",
                             safetensors(object(tensor("x", "BF16", "[2]", 0, 4)), tensor_bytes::data({0x3F80, 0}, 2)));
  CHECK(run_compare({.a = a, .b = b}).tensors.front().type == "V2");
  const CompareResult told = run_compare({.a = a, .b = b, .format = "bfloat16"});
  CHECK(told.tensors.front().type == "bfloat16");
  CHECK(told.tensors.front().comparison.distances.above[0] == 1);
  CHECK(run_compare({.a = a, .b = c, .format = "bfloat16"}).equal());
  CHECK_THAT(refused({.a = a, .b = b, .format = "float16"}), ContainsSubstring("is V2, as its file tells"));
}

TEST_CASE("compare: words of .npy files meet those of .safetensors files and of Fortran order") {
  const Scratch scratch;
  const std::string values = tensor_bytes::data({0, 1, 2, 3, 4, 0xFFFFFFFF}, 4);
  const std::string columns = tensor_bytes::data({0, 3, 1, 4, 2, 0xFFFFFFFF}, 4);
  const fs::path a = written(scratch.path / "a.npy", npy(dict("<i4", "(2, 3)"), values));
  const fs::path b = written(scratch.path / "b.npy", npy(dict("<i4", "(2, 3)", "True"), columns));
  const fs::path c =
      written(scratch.path / "c.safetensors", safetensors(object(tensor("ids", "I32", "[2,3]", 0, 24)), values));
  const fs::path d = written(scratch.path / "d.npy", npy(dict("<u4", "(2, 3)"), values));
  CHECK(run_compare({.a = a, .b = b}).equal());
  CHECK(run_compare({.a = b, .b = c}).tensors.front().type == "I32");
  CHECK_THAT(refused({.a = a, .b = d}), ContainsSubstring("I32 of shape (2, 3) in a and U32 of shape (2, 3) in b"));
}

TEST_CASE("compare: tensors of checkpoints meet by their names, whichever file has them") {
  const Scratch scratch;
  // A file of float32, each of which is four times the first letter of its tensor.
  const auto file = [&](const std::string& path, const std::vector<std::string>& names) {
    std::string members;
    std::string bytes;
    for (const std::string& name : names) {
      const int at = static_cast<int>(bytes.size());
      members += (at == 0 ? "" : ",") + tensor(name, "F32", "[1]", at, at + 4);
      bytes += std::string(4, name.front());
    }
    written(scratch.path / path, safetensors(object(members), bytes));
  };
  file("a/m-1.safetensors", {"x", "y"});
  file("a/m-2.safetensors", {"z"});
  file("b/m-1.safetensors", {"x"});
  file("b/m-2.safetensors", {"y", "z"});
  file("b/m-3.safetensors", {"w"});
  file("c.safetensors", {"x", "y", "z"});
  const auto index = [&](const std::string& name, const std::string& json) {
    return written(scratch.path / "a" / name, json);
  };
  const fs::path a = scratch.path / "a";
  const fs::path b = scratch.path / "b";
  const fs::path c = scratch.path / "c.safetensors";
  const fs::path all = index("model.safetensors.index.json",
                             R"({"weight_map":{"x":"m-1.safetensors","y":"m-1.safetensors","z":"m-2.safetensors"}})");
  const auto names = [](const CompareResult& result) {
    std::vector<std::string> found;
    for (const auto& one : result.tensors) found.push_back(one.name);
    return found;
  };
  // 1. Files with other boundaries.
  const CompareResult shards = run_compare({.a = a, .b = b});
  CHECK(names(shards) == std::vector<std::string>{R"("m-1.safetensors" "x")", R"("y")", R"("m-2.safetensors" "z")"});
  CHECK(shards.unpaired == std::vector<std::string>{R"("m-3.safetensors" "w" is in b alone.)"});
  for (const auto& one : shards.tensors) CHECK(one.comparison.equal());
  // 2. Several files and one, and the index of several.
  for (const fs::path& many : {a, all}) {
    for (const CompareResult& result : {run_compare({.a = many, .b = c}), run_compare({.a = c, .b = many})}) {
      CHECK(result.equal());
      CHECK(names(result) == std::vector<std::string>{R"("x")", R"("y")", R"("z")"});
    }
  }
  CHECK(run_compare({.a = all, .b = a}).equal());
  const CompareResult one = run_compare({.a = b, .b = c, .names = {"z", "z*"}});
  CHECK(one.equal());
  CHECK(one.tensors.size() == 1);
  CHECK_FALSE(run_compare({.a = b, .b = c, .names = {"z", "w"}}).equal());  // which one side alone has
  for (const auto& [left, right] : {std::pair(b, c), std::pair(c, b), std::pair(c, c), std::pair(all, a)}) {
    CHECK_THAT(refused({.a = left, .b = right, .names = {"z", "Z"}}), ContainsSubstring(R"(tensors names "Z", which)"));
    CHECK_THAT(refused({.a = left, .b = right, .names = {"v?", "*"}}), ContainsSubstring(R"("v?", which matches no)"));
  }
  CHECK_THAT(refused({.a = a, .b = c, .names = {"v"}}), ContainsSubstring("has no tensor \"v\""));
  // 3. Indices that are none.
  const auto broken = [&](const std::string& json) { return refused({.a = index("broken.index.json", json), .b = c}); };
  CHECK_THAT(broken("{"), ContainsSubstring("it is not JSON"));
  CHECK_THAT(broken("[1]"), ContainsSubstring("it has no weight_map"));
  CHECK_THAT(broken(R"({"weight_map":{"x":1}})"), ContainsSubstring("names no file for tensor \"x\""));
  CHECK_THAT(broken(R"({"weight_map":{"x":"../c.safetensors"}})"), ContainsSubstring("which is no file beside it"));
  CHECK_THAT(broken(R"({"weight_map":{"x":"m-2.safetensors"}})"),
             ContainsSubstring("it says that \"m-2.safetensors\" has tensor \"x\", which it has not"));
}

TEST_CASE("compare: a tensor of several files of one side meets that of the same path alone") {
  const Scratch scratch;
  const std::string header = object(tensor("w", "F32", "[1]", 0, 4));
  for (const std::string path : {"a/r0", "a/r1", "b/r1", "b/r2", "c/s0", "c/s1", "one"}) {
    written(scratch.path / (path + ".safetensors"), safetensors(header, "1234"));
  }
  const CompareResult result = run_compare({.a = scratch.path / "a", .b = scratch.path / "b"});
  REQUIRE(result.tensors.size() == 1);
  CHECK(result.tensors.front().name == R"("r1.safetensors" "w")");
  const std::string why = ", by its path: several files have a tensor of its name.";
  CHECK(result.unpaired == std::vector<std::string>{R"("r0.safetensors" "w" is in a alone)" + why,
                                                    R"("r2.safetensors" "w" is in b alone)" + why});
  for (const char* const other : {"c", "one.safetensors"}) {
    CHECK_THAT(refused({.a = scratch.path / "a", .b = scratch.path / other}), ContainsSubstring("several files"));
  }
}

TEST_CASE("compare: files without a header have the format and the shape that the user says") {
  const Scratch scratch;
  const fs::path a = written(scratch.path / "a.bin", std::string("\x21\x43", 2));
  const fs::path b = written(scratch.path / "b.bin", std::string("\x21\x53", 2));
  const CompareResult result =
      run_compare({.a = a, .b = b, .format = "e2m1", .pairs = true, .shape = {2, 2}, .raw = true});
  CHECK(result.tensors.front().comparison.first == std::vector<doctor::Mismatch>{{3, 4, 5}});
  CHECK(run_compare({.a = a, .b = a, .format = "bfloat16", .raw = true}).equal());
}

TEST_CASE("compare: more than a piece of a file is compared") {
  const Scratch scratch;
  const std::size_t size = (std::size_t{1} << 18) * 2 + 77;
  std::string bytes(size, '\x11');
  const fs::path a = written(scratch.path / "a.bin", bytes);
  for (const std::size_t at : {std::size_t{1} << 18, size - 1}) bytes[at] = '\x12';
  const CompareResult result =
      run_compare({.a = a, .b = written(scratch.path / "b.bin", bytes), .format = "e5m2", .raw = true});
  CHECK(result.tensors.front().comparison.first ==
        std::vector<doctor::Mismatch>{{std::size_t{1} << 18, 0x11, 0x12}, {size - 1, 0x11, 0x12}});
}

TEST_CASE("compare: threads read a part of the files each, and change nothing") {
  const Scratch scratch;
  // Rows of which parts begin where the last row of a tile ends, and codes of 4 bits, two in a byte.
  const std::size_t rows = 1024;
  const std::size_t columns = 3100;
  std::string bytes(rows * columns, '\x11');
  const fs::path a = written(scratch.path / "a.bin", bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (random_bits(1, i) % 3 == 0) bytes[i] = static_cast<char>(random_bits(2, i));
  }
  const fs::path b = written(scratch.path / "b.bin", bytes);
  CompareArguments arguments{
      .a = a, .b = b, .format = "e2m1", .pairs = true, .shape = {rows, 2 * columns}, .raw = true, .most_shown = 50};
  const doctor::Comparison one = run_compare(arguments).tensors.front().comparison;
  CHECK(one.differing > rows * columns / 3);
  for (const int threads : {2, 3}) {
    arguments.threads = threads;
    double share = 0;
    const CompareResult result = run_compare(arguments, [&share](double now) { share = std::max(share, now); });
    const doctor::Comparison& found = result.tensors.front().comparison;
    CHECK(found.first == one.first);
    CHECK(found.differing == one.differing);
    CHECK(found.rows.counts == one.rows.counts);
    CHECK(found.columns.counts == one.columns.counts);
    CHECK(found.distances.above == one.distances.above);
    CHECK(found.tiles == one.tiles);
    CHECK(share > 0.3);
    CHECK_THROWS_AS(run_compare(arguments, [](double) { throw std::length_error("enough"); }), std::length_error);
  }
  arguments.threads = 0;
  CHECK(refused(arguments) == "threads must be from 1 to 1024, not 0");
}

TEST_CASE("compare: a file in Fortran order meets one in C order by its indices") {
  const Scratch scratch;
  // Element (i, j, k) of (3, 4, 5) has the number of these.
  std::string rows;
  std::string columns(60, '\0');
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 4; ++j) {
      for (std::size_t k = 0; k < 5; ++k) {
        const auto code = static_cast<char>(i * 20 + j * 5 + k);
        rows += code;
        columns[i + 3 * j + 12 * k] = code;
      }
    }
  }
  std::string other = columns;
  other[2 + 3 * 1 + 12 * 4] = '\x7B';
  const std::string header = "{'descr': '|u1', 'fortran_order': True, 'shape': (3, 4, 5), }";
  const fs::path a = written(scratch.path / "a.npy", npy(dict("|u1", "(3, 4, 5)"), rows));
  const fs::path b = written(scratch.path / "b.npy", npy(header, columns));
  const fs::path c = written(scratch.path / "c.npy", npy(header, other));
  CHECK(run_compare({.a = a, .b = b, .format = "e4m3"}).equal());
  const doctor::Mismatch wrong{2 * 20 + 1 * 5 + 4, 49, 0x7B};
  for (const fs::path& one : {a, b}) {
    const CompareResult result = run_compare({.a = one, .b = c, .format = "e4m3"});
    CHECK(result.tensors.front().comparison.first == std::vector<doctor::Mismatch>{wrong});
    CHECK(result.tensors.front().comparison.columns.length == 5);
  }
  // Bands of one row, of two, and all at once, read in pieces that end within them.
  for (const std::uint64_t band : {20, 45, 60}) {
    experiments::RowMajorReader reader(b, experiments::find_tensors(b).front(), band);
    std::string read(60, '\0');
    const auto bytes = std::as_writable_bytes(std::span(read));
    for (std::size_t at = 0; at < 60; at += 7) reader.read(bytes.subspan(at, std::min<std::size_t>(7, 60 - at)));
    CHECK(read == rows);
  }
  CHECK_THROWS_WITH(experiments::RowMajorReader(b, experiments::find_tensors(b).front(), 19),
                    ContainsSubstring("the elements with one first index have 20 bytes; up to 19"));
  for (std::size_t i = 0; i < 60; ++i) {
    const std::uint64_t place = experiments::stored_place(experiments::find_tensors(b).front(), i);
    CHECK(columns[place] == rows[i]);
  }
}

TEST_CASE("compare: one array meets the tensor of a file that is named, and the others are listed") {
  const Scratch scratch;
  const std::string header = object(tensor("w", "U8", "[2]", 0, 2) + "," + tensor("v", "U8", "[2]", 2, 4));
  const fs::path many = written(scratch.path / "many.safetensors", safetensors(header, "1234"));
  const fs::path one = written(scratch.path / "one.npy", npy(dict("|u1", "(2,)"), "34"));
  CHECK_THAT(
      refused({.a = one, .b = many, .format = "e4m3"}),
      ContainsSubstring("a is one tensor, \"one.npy\"; b has 2: \"v\", \"w\". Choose one of these with tensors"));
  CHECK_THAT(refused({.a = many, .b = one, .format = "e4m3"}), ContainsSubstring("b is one tensor"));
  CHECK(run_compare({.a = one, .b = many, .names = {"v"}, .format = "e4m3"}).equal());
  CHECK_FALSE(run_compare({.a = many, .b = one, .names = {"w"}, .format = "e4m3"}).equal());
  CHECK_THAT(refused({.a = one, .b = one, .names = {"v"}, .format = "e4m3"}), ContainsSubstring("has no name"));
}

TEST_CASE("compare: what cannot be compared is refused in words") {
  const Scratch scratch;
  const fs::path codes = written(scratch.path / "codes.npy", npy(dict("|u1", "(4,)"), "1234"));
  const fs::path floats = written(scratch.path / "floats.npy", npy(dict("<f4", "(1,)"), "1234"));
  const fs::path folder = scratch.path / "folder";
  fs::create_directories(folder);
  CHECK_THAT(refused({.a = codes, .b = codes}), ContainsSubstring("of a format that its file does not tell"));
  CHECK_THAT(refused({.a = codes, .b = floats, .format = "e4m3"}),
             ContainsSubstring("uint8 of shape (4,) in a and float32 of shape (1,) in b"));
  CHECK_THAT(refused({.a = codes, .b = folder}), ContainsSubstring("one of a and b is a folder"));
  CHECK_THAT(refused({.a = folder, .b = folder}), ContainsSubstring("has no .npy and .safetensors files"));
  CHECK_THAT(refused({.a = codes, .b = codes, .format = "e9m9"}), ContainsSubstring("e9m9"));
  CHECK_THAT(refused({.a = codes, .b = codes, .format = "bfloat16"}), ContainsSubstring("bfloat16 has 16 bits"));
  CHECK_THAT(refused({.a = codes, .b = codes, .format = "e4m3", .pairs = true}),
             ContainsSubstring("formats of 4 bits"));
  CHECK_THAT(refused({.a = codes, .b = codes, .format = "e4m3", .shape = {2, 2}}), ContainsSubstring("say raw"));
  CHECK_THAT(refused({.a = codes, .b = codes, .format = "e4m3", .shape = {5}, .raw = true}),
             ContainsSubstring("the shape (5,) 5"));
  CHECK_THAT(refused({.a = codes, .b = codes, .raw = true}), ContainsSubstring("need a format"));
  CHECK_THAT(refused({.a = codes, .b = codes, .names = {"w"}, .format = "e4m3", .raw = true}),
             ContainsSubstring("raw files have no names"));
  CHECK_THAT(refused({.a = codes, .b = codes, .format = "e4m3", .shape = {std::uint64_t{1} << 63, 2, 4}, .raw = true}),
             ContainsSubstring("the shape (9223372036854775808, 2, 4) has more elements than a file can hold"));
  CHECK_THAT(refused({.a = codes, .b = codes, .format = "e4m3", .input = floats}),
             ContainsSubstring("the input has 1 element, \"codes.npy\" has 4"));
  const fs::path square = written(scratch.path / "square.npy", npy(dict("|u1", "(2, 2)"), "1234"));
  const fs::path column = written(scratch.path / "column.npy", npy(dict("<f4", "(4, 1)"), std::string(16, '\x3F')));
  CHECK_THAT(refused({.a = square, .b = square, .format = "e4m3", .input = column}),
             ContainsSubstring("the input has the shape (4, 1), \"square.npy\" (2, 2)"));
  CHECK(run_compare({.a = codes, .b = codes, .format = "e4m3", .input = column}).equal());  // a flat dump
  const fs::path complex = written(scratch.path / "complex.npy", npy(dict("<c16", "(1,)"), std::string(16, '1')));
  CHECK_THAT(refused({.a = complex, .b = complex}), ContainsSubstring(") and words (|b1, <i2,"));
  const fs::path none = scratch.path / "none.bin";
  const fs::path loop = scratch.path / "loop.npy";
  fs::create_symlink(loop, loop);
  CHECK(refused({.a = none, .b = none, .format = "e4m3", .raw = true}) ==
        "cannot read " + none.native() + ": there is no such file");
  CHECK(refused({.a = codes, .b = loop, .format = "e4m3"}) ==
        "cannot read " + loop.native() + ": it is a link that leads back to itself");
  CHECK_THAT(refused({.a = codes, .b = scratch.path / std::string(300, 'x'), .format = "e4m3"}),
             ContainsSubstring(": File name too long"));
  fs::create_symlink(codes, folder / "codes.npy");
  fs::create_symlink(loop, folder / "loop.npy");
  CHECK(run_compare({.a = folder, .b = folder, .format = "e4m3"}).tensors.front().name == "\"codes.npy\"");
  CHECK_THAT(refused({.a = scratch.path / "none.npy", .b = codes, .format = "e4m3"}), ContainsSubstring("none.npy"));
}

}  // namespace fp8lab::tests
