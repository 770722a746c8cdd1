// SPDX-License-Identifier: Apache-2.0
// The same source means the same values, whatever reads them: in blocks, in rows or as a whole, in either order of
// memory, and in every experiment.
#include "kit/tensor_source.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

#include "cast/cast.hpp"
#include "experiments/npy.hpp"
#include "fp8lab/formats/encode.hpp"
#include "scaling/scaling.hpp"
#include "scratch.hpp"
#include "support.hpp"
#include "transpose/transpose.hpp"

namespace fp8lab::tests {
namespace {

using namespace fp8lab::experiments;
namespace fs = std::filesystem;

/// Tensors of two bytes an element, all of the same shape and data.
template <typename T>
void write_safetensors(const fs::path& path, const std::vector<std::string>& names, const std::string& dtype,
                       const std::string& shape, const std::vector<T>& values) {
  std::string header = "{";
  const std::size_t bytes = sizeof(T) * values.size();
  for (std::size_t i = 0; i < names.size(); ++i) {
    header += (i == 0 ? "\"" : ",\"") + names[i] + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape +
              ",\"data_offsets\":[" + std::to_string(i * bytes) + "," + std::to_string((i + 1) * bytes) + "]}";
  }
  header += "}";
  std::ofstream file(path, std::ios::binary);
  for (int i = 0; i < 8; ++i) file.put(static_cast<char>(header.size() >> (8 * i)));
  file << header;
  for (std::size_t i = 0; i < names.size(); ++i) {
    file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(bytes));
  }
}

std::vector<float> in_float32(const Tensor& tensor) {
  Buffer<float> room;
  const std::span<const float> values = tensor.floats(0, tensor.size(), room);
  return {values.begin(), values.end()};
}

/// Requires that a stream's tensor is `expected`, however it is read.
void require_values(const TensorSource& source, const std::vector<float>& expected, ElementType type, int threads = 1) {
  const TensorStream stream(source, {.threads = threads});
  REQUIRE(stream.facts(0).size() == expected.size());
  CHECK(stream.facts(0).type == type);
  Tensor tensor;
  stream.load(0, tensor);
  CHECK(tensor.type() == type);
  CHECK((in_float32(tensor) == expected));
  std::vector<float> in_blocks;
  stream.for_each_block(0, [&](auto values) {
    for (const auto x : values) in_blocks.push_back(as_float32(x));
  });
  CHECK((in_blocks == expected));
  const std::size_t columns = stream.facts(0).columns;
  for (const std::size_t row : {std::size_t{0}, stream.facts(0).rows / 2, stream.facts(0).rows - 1}) {
    stream.load_row(0, row, tensor);
    const auto begin = expected.begin() + static_cast<std::ptrdiff_t>(row * columns);
    CHECK((in_float32(tensor) == std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(columns))));
  }
}

/// The elements of `values`, of that shape and in the order of C, in Fortran's order.
template <typename T>
std::vector<T> in_fortran_order(const std::vector<T>& values, const std::vector<std::size_t>& shape) {
  std::vector<T> out(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::size_t rest = i;
    std::vector<std::size_t> index(shape.size());
    for (std::size_t k = shape.size(); k-- > 0; rest /= shape[k]) index[k] = rest % shape[k];
    std::size_t at = 0;
    for (std::size_t k = shape.size(); k-- > 0;) at = at * shape[k] + index[k];
    out[at] = values[i];
  }
  return out;
}

template <typename T>
std::vector<T> words_of(const Format& format, const std::vector<float>& values) {
  std::vector<T> words;
  for (const float x : values) words.push_back({static_cast<std::uint16_t>(encode(format, CastPolicy{}, x))});
  return words;
}

/// Seeded values of 8 bits, which every element type holds.
std::vector<float> some_values(std::size_t count) {
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(random_bits(3, i) % 256) - 100);
  return values;
}

template <typename Work>
std::string refusal_of(const Work& work) {
  try {
    work();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}
std::string refusal(const TensorSource& source, const StreamOptions& options = {}) {
  try {
    const TensorStream stream(source, options);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("tensors: a file is read right in either order of memory, in blocks, rows and as a whole") {
  const Scratch scratch;
  const fs::path path = scratch.path / "x.npy";
  struct Case {
    std::vector<std::size_t> shape;
    std::string text;
  };
  for (const auto& [shape, text] :
       {Case{{5, 7}, "(5, 7)"}, Case{{3, 4, 5}, "(3, 4, 5)"}, Case{{2, 3, 1}, "(2, 3, 1)"}, Case{{1, 6}, "(1, 6)"},
        Case{{2, 1, 3, 2}, "(2, 1, 3, 2)"}, Case{{1500, 1101}, "(1500, 1101)"}}) {
    INFO(text);
    const std::vector<float> values = some_values(std::accumulate(shape.begin(), shape.end(), std::size_t{1},
                                                                  [](std::size_t a, std::size_t b) { return a * b; }));
    write_npy(path, "<f4", text, values);
    require_values(StoredTensors{{path}}, values, ElementType::float32);
    write_npy(path, "<f4", text, in_fortran_order(values, shape), true);
    require_values(StoredTensors{{path}}, values, ElementType::float32);
    const std::vector<double> doubles(values.begin(), values.end());
    write_npy(path, "<f8", text, in_fortran_order(doubles, shape), true);
    require_values(StoredTensors{{path}}, values, ElementType::float64);
    write_npy(path, "<f2", text, in_fortran_order(words_of<Half>(binary16, values), shape), true);
    require_values(StoredTensors{{path}}, values, ElementType::float16);
    require_values(HeldTensors{{MatrixView(doubles, values.size() / shape.back(), shape.back())}}, values,
                   ElementType::float64);
  }
  const std::vector<float> values = some_values(64);
  write_safetensors(path, {"w"}, "BF16", "[4,16]", words_of<BFloat16>(bfloat16, values));
  require_values(StoredTensors{{path}}, values, ElementType::bfloat16);
}

TEST_CASE("tensors: what a recipe quantizes is float32 or bfloat16") {
  const std::vector<double> doubles{1 + 0x1p-30, 1e-300, 1e300};
  const TensorSource source = HeldTensors{{MatrixView(doubles, 1, 3)}};
  const Scratch scratch;
  write_npy(scratch.path / "x.npy", "<f8", "(3,)", doubles, true);
  for (const TensorSource& one : {source, TensorSource(StoredTensors{{scratch.path / "x.npy"}})}) {
    Tensor tensor;
    TensorStream(one, {.loads = Loads::quantizable}).load(0, tensor);
    CHECK(tensor.type() == ElementType::float32);
    CHECK((in_float32(tensor) == std::vector<float>{1, 0, inf}));
  }
  const std::vector<BFloat16> words(3, BFloat16{0x3F80});
  for (const Loads loads : {Loads::quantizable, Loads::float32}) {
    Tensor tensor;
    TensorStream(HeldTensors{{MatrixView(words, 3, 1)}}, {.loads = loads}).load(0, tensor);
    CHECK(tensor.type() == (loads == Loads::float32 ? ElementType::float32 : ElementType::bfloat16));
    CHECK((in_float32(tensor) == std::vector<float>{1, 1, 1}));
  }
}

TEST_CASE("tensors: draws are those of sample(), with the outliers of their rows, columns and steps") {
  Draws draws{.seed = 9, .rows = 1300, .columns = 900, .steps = 9, .kind = StreamKind::outliers};
  draws.outlier_rows = {3, 64};
  draws.outlier_columns = {7, 0.1};
  const TensorStream stream(draws, {.threads = 2});
  CHECK(stream.description() ==
        "9 tensors of 1300 x 900 float32 values drawn with seed 9 from normal, 3 rows times 64, 7 columns times 0.1; "
        "outliers: in steps 4, 12, 20, ... one element of 4096 is multiplied by 256");
  Tensor tensor;
  for (const std::size_t step : {0, 4}) {
    std::vector<float> expected(1300 * 900);
    sample(draws.distribution, 9, step * expected.size(), expected);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (step == 4 && i % 4096 == 0) expected[i] *= 256;
      const std::size_t row = i / 900;
      if (row == 0 || row == 433 || row == 866) expected[i] *= 64;
      const std::size_t column = i % 900;
      for (std::size_t k = 0; k < 7; ++k) expected[i] *= column == k * 900 / 7 ? 0.1F : 1;
    }
    stream.load(step, tensor);
    CHECK((in_float32(tensor) == expected));
    std::vector<float> in_blocks;
    stream.for_each_block(step, [&](auto values) {
      for (const auto x : values) in_blocks.push_back(as_float32(x));
    });
    CHECK((in_blocks == expected));
    stream.load_row(step, 433, tensor);
    CHECK(std::ranges::equal(in_float32(tensor), std::span(expected).subspan(433 * 900, 900)));
  }
}

TEST_CASE("tensors: names and patterns choose tensors of files, in their order") {
  const Scratch scratch;
  const std::vector<BFloat16> words = words_of<BFloat16>(bfloat16, some_values(64));
  const auto file = [&](const char* name, const std::vector<std::string>& tensors) {
    write_safetensors(scratch.path / name, tensors, "BF16", "[2,32]", words);
    return scratch.path / name;
  };
  const fs::path first = file("1", {"layers.10.w", "layers.2.w", "layers.2.b", "head", "layers.1.w"});
  const fs::path second = file("2", {"layers.11.w", "norm"});
  const auto names_of = [&](const std::vector<fs::path>& paths, const std::vector<std::string>& names) {
    std::vector<std::string> found;
    const TensorStream stream(StoredTensors{paths, names});
    for (const SourceTensor& facts : stream.all_facts()) {
      const std::string called = facts.name.substr(0, facts.name.size() - 1);
      found.push_back(called.substr(called.rfind('"') + 1));
    }
    return found;
  };
  using Names = std::vector<std::string>;
  CHECK(names_of({first}, {"layers.*.w"}) == Names{"layers.1.w", "layers.2.w", "layers.10.w"});
  CHECK(names_of({first}, {"head", "layers.?.w", "*.1*"}) == Names{"head", "layers.1.w", "layers.2.w", "layers.10.w"});
  CHECK(names_of({first, second}, {"*.w", "norm"}) ==
        Names{"layers.1.w", "layers.2.w", "layers.10.w", "layers.11.w", "norm"});
  CHECK(refusal(StoredTensors{{first}, {"w"}})
            .ends_with("it has no tensor \"w\"; it holds 5 tensors: \"head\", \"layers.1.w\", \"layers.10.w\", "
                       "\"layers.2.b\", \"layers.2.w\""));
  CHECK(refusal(StoredTensors{{first, second}, {"head"}}).find("2: it has no tensor \"head\"") != std::string::npos);
  CHECK(refusal(StoredTensors{{first, second}, {"*.w", "tail*"}}) == "none of the 2 files has a tensor \"tail*\"");
  CHECK(refusal(StoredTensors{{first}}).find("one tensor must be named, or '*' for all: it holds 5 tensors") !=
        std::string::npos);
  struct Match {
    const char* pattern;
    const char* name;
    bool matches;
  };
  for (const auto& [pattern, name, matches] : {Match{"a*b*c", "aXbYbc", true},
                                               Match{"a*b*c", "aXbYcZ", false},
                                               Match{"*", "", true},
                                               Match{"?", "", false},
                                               Match{"**a", "ba", true},
                                               Match{"a?", "ab", true},
                                               Match{"a?", "a", false},
                                               Match{"a*", "b", false},
                                               Match{"[a]*", "[a]*", true},
                                               Match{"", "", true},
                                               Match{"", "a", false},
                                               Match{"w[12]", "w2", true},
                                               Match{"w[12]", "w3", false},
                                               Match{"w[a-c]x", "wbx", true},
                                               Match{"w[!a-c]x", "wbx", false},
                                               Match{"w[!a-c]x", "wdx", true},
                                               Match{"*[12]*z", "a1b2z", true},
                                               Match{"*.{q,k}_proj.*", "a.k_proj.w", true},
                                               Match{"*.{q,k}_proj.*", "a.v_proj.w", false},
                                               Match{"{a,b{c,d}}x", "bdx", true},
                                               Match{"{a,b{c,d}}x", "bx", false},
                                               Match{"w{,.bias}", "w", true},
                                               Match{"{a", "{a", true},
                                               Match{"a[*", "a[b", true},
                                               Match{"a[]]", "a]", true},
                                               Match{"?{1,2}", "{1", true}}) {
    INFO(pattern << " " << name);
    CHECK(names_tensor(pattern, name) == matches);
  }
}

TEST_CASE("tensors: a folder and an index are read as one, and what cannot be used is left out with its reason") {
  const Scratch scratch;
  const std::vector<BFloat16> words = words_of<BFloat16>(bfloat16, some_values(64));
  const auto file = [&](const char* name, const std::vector<std::string>& tensors, const char* dtype = "BF16",
                        const char* shape = "[2,32]") {
    write_safetensors(scratch.path / name, tensors, dtype, shape, words);
  };
  const auto index = [&](const std::string& map) {
    std::ofstream(scratch.path / "m.safetensors.index.json") << R"({"weight_map":{)" << map << "}}";
    return scratch.path / "m.safetensors.index.json";
  };
  const auto names_of = [&](const fs::path& path, const std::vector<std::string>& names = {}) {
    std::string found;
    const TensorStream stream(StoredTensors{{path}, names}, {.unfit = [](const SourceTensor& facts) {
                                return facts.rows == 64 ? "too many rows" : "";
                              }});
    for (const SourceTensor& facts : stream.all_facts()) {
      found += facts.name.substr(facts.name.rfind(' ') + 1) + shape_text(facts.shape);
    }
    for (const LeftOutTensor& one : stream.left_out()) {
      found += "|" + one.name.substr(one.name.rfind(' ') + 1) + ": " + one.reason;
    }
    return found;
  };
  file("a.safetensors", {"l.10.w", "l.2.w"});
  file("b.safetensors", {"ids"}, "I64", "[16]");
  file("c.safetensors", {"l.1.w", "tall"});
  write_safetensors(scratch.path / "c.safetensors", {"tall"}, "BF16", "[64,1]", words);
  // 1. A folder: all of it, in the order of names.
  CHECK(names_of(scratch.path) ==
        "\"l.2.w\"(2, 32)\"l.10.w\"(2, 32)|\"ids\": its dtype is I64|\"tall\": too many rows");
  CHECK(names_of(scratch.path, {"l.{10,2}.w"}) == "\"l.2.w\"(2, 32)\"l.10.w\"(2, 32)");
  // 2. An index: what it promises and its files lack; what was asked for by its name is no longer left out.
  const fs::path path =
      index(R"("l.10.w":"a.safetensors","l.2.w":"a.safetensors","l.3.w":"a.safetensors","far":"no.safetensors")");
  const std::string all = names_of(path);
  CHECK(all.starts_with("\"l.2.w\"(2, 32)\"l.10.w\"(2, 32)|"));
  CHECK(all.find("|\"l.3.w\": the index says that \"a.safetensors\" has it, and it has not") != std::string::npos);
  CHECK(all.find("|\"far\": cannot read ") != std::string::npos);
  CHECK(names_of(scratch.path) == all);  // whose index is found
  CHECK(refusal(StoredTensors{{path}, {"far"}}).find("no.safetensors: ") != std::string::npos);
  CHECK(refusal(StoredTensors{{path}, {"l.9*"}}).ends_with("has no tensor \"l.9*\""));
  CHECK(refusal(StoredTensors{{scratch.path / "b.safetensors"}, {"ids"}}).find("has the dtype \"I64\"") !=
        std::string::npos);
  CHECK(refusal(StoredTensors{{scratch.path / "b.safetensors"}, {"i*"}}).find("\"ids\": its dtype is I64") !=
        std::string::npos);
}

TEST_CASE("tensors: shapes of convolutions, stacks of experts, codes and NumPy's bfloat16 are what they are") {
  const Scratch scratch;
  const fs::path path = scratch.path / "x";
  const auto stream_of = [&](const char* name, const char* dtype, const char* shape, const auto& values) {
    write_safetensors(path, {name}, dtype, shape, values);
    return TensorStream(StoredTensors{{path}}, {.splits_experts = true});
  };
  const auto values_of = [](const TensorStream& stream, std::size_t i) {
    Tensor tensor;
    stream.load(i, tensor);
    std::vector<float> blocks;
    stream.for_each_block(i, [&](auto values) {
      for (const auto x : values) blocks.push_back(as_float32(x));
    });
    CHECK((blocks == in_float32(tensor)));
    return blocks;
  };
  const std::vector<float> values = some_values(24);
  // 1. A kernel of a convolution: a row for each output.
  const TensorStream kernel = stream_of("w", "F32", "[4,1,6,1]", values);
  CHECK(kernel.facts(0).rows == 4);
  CHECK(kernel.facts(0).columns == 6);
  write_npy(path, "<f4", "(4, 2, 3, 1)", in_fortran_order(values, {4, 2, 3, 1}), true);
  CHECK((values_of(TensorStream(StoredTensors{{path}}), 0) == values));
  // 2. Experts are matrices of their own; other tensors of three dimensions are one.
  const TensorStream experts = stream_of("mlp.experts.up", "F32", "[2,3,4]", values);
  REQUIRE(experts.count() == 2);
  CHECK(experts.facts(1).name.ends_with("\"mlp.experts.up\", expert 1"));
  CHECK((values_of(experts, 1) == std::vector<float>(values.begin() + 12, values.end())));
  CHECK(stream_of("x", "F32", "[2,3,4]", values).facts(0).rows == 6);
  // 3. Codes, decoded: the values are those of the tables of the OCP specifications.
  const std::vector<std::uint8_t> codes{0x38, 0x40, 0xB8, 0x7E, 0x01, 0x00};
  CHECK((values_of(stream_of("w", "F8_E4M3", "[2,3]", codes), 0) == std::vector<float>{1, 2, -1, 448, 0x1p-9F, 0}));
  const std::vector<std::uint8_t> pairs{0x21, 0x7F, 0x98};
  const TensorStream fours = stream_of("w", "F4", "[1,6]", pairs);
  CHECK(fours.facts(0).columns == 6);
  CHECK((values_of(fours, 0) == std::vector<float>{0.5, 1, -6, 6, -0.0F, -0.5}));
  const std::vector<std::uint8_t> exponents{127, 130, 0};
  CHECK((values_of(stream_of("w", "F8_E8M0", "[3]", exponents), 0) == std::vector<float>{1, 8, 0x1p-127F}));
  // 4. bfloat16 as ml_dtypes' arrays are stored by NumPy.
  write_npy(path, "<V2", "(24,)", words_of<BFloat16>(bfloat16, values));
  const TensorStream bfloats(StoredTensors{{path}});
  CHECK(bfloats.facts(0).type == ElementType::bfloat16);
  CHECK((values_of(bfloats, 0) == values));
}

TEST_CASE("tensors: every tensor of several is measured as it is alone") {
  const Scratch scratch;
  std::vector<fs::path> paths;
  for (const float factor : {1.0F, 3.0F}) {
    std::vector<float> values = some_values(64 * 64);
    for (float& x : values) x *= factor;
    paths.push_back(scratch.path / (std::to_string(paths.size()) + ".npy"));
    write_npy(paths.back(), "<f4", "(64, 64)", values);
  }
  CastArguments cast;
  TransposeArguments transpose;
  transpose.recipes.resize(2);
  cast.source = transpose.source = StoredTensors{paths};
  const CastResult casts = run_cast(cast);
  const TransposeResult recipes = run_transpose(transpose);
  REQUIRE(casts.casts.size() == 4);
  REQUIRE(recipes.recipes.size() == 4);
  for (std::size_t i = 0; i < 2; ++i) {
    cast.source = transpose.source = StoredTensors{{paths[i]}};
    const CastResult alone = run_cast(cast);
    const TransposeResult alone_too = run_transpose(transpose);
    for (std::size_t j = 0; j < 2; ++j) {
      CHECK(casts.casts[2 * i + j].tensor == i);
      CHECK(casts.casts[2 * i + j].totals == alone.casts[j].totals);
      CHECK(recipes.recipes[2 * i + j].tensor == i);
      CHECK(recipes.recipes[2 * i + j].requantized == alone_too.recipes[j].requantized);
    }
  }
}

TEST_CASE("tensors: cast, scaling and transpose tell the same SQNR of a tensor, a format and a scale") {
  // Seeded values whose amax is 7, so that the scale of current scaling, 64, has an inverse, and one, 448 / 7.3, that
  // has none. Sums may be added up in other orders: their relative error is at most 2000 * 2^-53 here, and that of 10
  // log10 less than 1e-12 dB. float64 is cast in float64, and by a recipe in float32: each value that comes back is off
  // by up to 2^-23 of itself, which changes a noise of 2^-5 of it by less than 2^-17 in all, and the SQNR by 4e-5 dB.
  for (const float amax : {7.0F, 7.3F}) {
    std::vector<float> values(2000);
    sample_uniform(-5, 5, 3, 0, values);
    values[17] = amax;
    const std::vector<double> doubles(values.begin(), values.end());
    const std::vector<Half> halves = words_of<Half>(binary16, values);
    const std::vector<BFloat16> words = words_of<BFloat16>(bfloat16, values);
    for (const MatrixView& view : {MatrixView(values, 40, 50), MatrixView(doubles, 40, 50), MatrixView(halves, 40, 50),
                                   MatrixView(words, 40, 50)}) {
      const TensorSource source = HeldTensors{{view}};
      const double tolerance = Tensor(view).type() == ElementType::float64 ? 4e-5 : 1e-12;
      TransposeArguments transpose{.source = source, .recipes = {choose_recipe("te_current_scaling")}};
      const double transposed = run_transpose(transpose).recipes[0].rowwise.sqnr_db();
      std::vector<double> of_dtype;
      for (const OutDtype out_dtype : {OutDtype::float32, OutDtype::source}) {
        ScalingArguments scaling{.source = source, .recipes = {choose_recipe("te_current_scaling")}, .delayed = {}};
        CastArguments cast;
        cast.source = source;
        cast.formats = {choose_format("e4m3")};
        scaling.out_dtype = cast.out_dtype = out_dtype;
        const ScalingResult scaled = run_scaling(scaling);
        cast.scales = {scaled.measured[0].steps[0].scale};
        const CastResult result = run_cast(cast);
        INFO(result.source << ", " << name_of(out_dtype));
        CHECK(scaled.measured[0].steps[0].scale == static_cast<double>(static_cast<float>(448 / scaled.amaxes[0])));
        CHECK(std::abs(result.casts[0].totals.sqnr_db() - scaled.measured[0].totals.sqnr_db()) < tolerance);
        of_dtype.push_back(result.casts[0].totals.sqnr_db());
      }
      CHECK(std::abs(of_dtype[0] - transposed) < tolerance);
      // That is what the two types are apart for: only halves have a coarser type than what comes back.
      const bool is_half = Tensor(view).type() == ElementType::float16 || Tensor(view).type() == ElementType::bfloat16;
      CHECK((of_dtype[0] != of_dtype[1]) == (is_half && amax != 7.0F));
    }
  }
}

TEST_CASE("tensors: sizes and types that make no sense are refused by name") {
  const std::vector<float> values(6);
  CHECK(refusal(Draws{.steps = 0}) == "steps must be from 1 to 65536, not 0");
  CHECK(refusal(Draws{.rows = 0}) == "rows and columns must be 1 or more, not 0 and 1048576");
  CHECK(refusal(Draws{.rows = 1LL << 31, .columns = 1LL << 31}) ==
        "rows * columns must be at most 2^40, not 2147483648 * 2147483648");
  CHECK(refusal(Draws{.columns = 1LL << 40, .steps = 2}) ==
        "steps * rows * columns must be at most 2^40, not 2 * 1 * 1099511627776");
  CHECK(refusal(Draws{.rows = 4, .outlier_rows = {5, 2}}) == "the count of outlier_rows must be from 0 to 4, not 5");
  CHECK(refusal(Draws{.outlier_columns = {1, 0}}) ==
        "the factor of outlier_columns must be positive and finite in float32, not 0");
  CHECK(refusal(Grid{1, (1LL << 26) + 1}) == "rows * columns must be at most 2^26, not 1 * 67108865");
  CHECK(refusal(StoredTensors{}) == "a stream needs at least one file");
  CHECK(refusal(HeldTensors{}) == "a stream needs at least one tensor");
  CHECK(refusal(HeldTensors{{.values = MatrixView(values, 2, 3), .name = "w"}}, {.log2_most_elements = 2}) ==
        "\"w\" must have from 1 to 2^2 elements, not 6 (shape (2, 3))");
  CHECK(refusal(HeldTensors{{MatrixView(std::span<const float>(), 0, 3)}}) ==
        "x must have from 1 to 2^40 elements, not 0 (shape (0, 3))");
  CHECK(refusal(HeldTensors{{MatrixView(std::span<const float>(), 0, 3)}}, {.takes_empty = true}).empty());
  CHECK(refusal_of([] {
          (void)find_value<OutDtype>("out_dtype", "float16");
        }).starts_with("unknown out_dtype 'float16'; known: float32, source"));
}

}  // namespace fp8lab::tests
