// SPDX-License-Identifier: Apache-2.0
// Where the matrices of a transpose come from: draws, arrays and files; and what is refused.
#include <fstream>
#include <stdexcept>

#include "experiments/npy.hpp"
#include "experiments/transpose/transposing.hpp"
#include "fp8lab/formats/encode.hpp"
#include "scratch.hpp"
#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("transpose: draws have the outliers that were asked for") {
  TransposeArguments arguments = drawing(64, 96, 3, {"given_scale"});
  auto& draws = std::get<Draws>(arguments.source);
  draws.outlier_rows = {3, 32};
  draws.outlier_columns = {2, 0.5};
  const TransposeResult result = run_transpose(arguments);
  CHECK(result.source == "64 x 96 float32 values drawn with seed 3 from normal, 3 rows times 32, 2 columns times 0.5");
  std::vector<float> values(64 * 96);
  sample(find_distribution("normal"), 3, 0, values);
  for (const std::size_t row : {0, 21, 42}) {
    for (std::size_t j = 0; j < 96; ++j) values[row * 96 + j] *= 32;
  }
  for (const std::size_t column : {0, 48}) {
    for (std::size_t i = 0; i < 64; ++i) values[i * 96 + column] *= 0.5F;
  }
  CHECK(recipes_json(run_transpose(transposing(values, 64, {"given_scale"}))) == recipes_json(result));
}

TEST_CASE("transpose: arrays and files give the same, whatever the type that holds the values") {
  const Scratch scratch;
  const std::string path = scratch.path / "x.npy";
  const std::vector<std::string> names{"te_mxfp8", "ocp_mxfp4", "te_current_scaling"};
  std::vector<float> values;
  std::vector<Half> halves;
  std::vector<BFloat16> bfloats;
  for (std::size_t i = 0; i < 32 * 64; ++i) {  // 8 bits: each type holds them
    values.push_back(static_cast<float>(random_bits(5, i) % 256) - 100);
    halves.push_back({static_cast<std::uint16_t>(encode(binary16, CastPolicy{}, values.back()))});
    bfloats.push_back({static_cast<std::uint16_t>(encode(bfloat16, CastPolicy{}, values.back()))});
  }
  TransposeArguments arguments = transposing(values, 32, names);
  const nlohmann::json expected = recipes_json(run_transpose(arguments));
  const auto run_source = [&](const TensorSource& source) {
    arguments.source = source;
    return run_transpose(arguments);
  };
  SECTION("arrays") {
    const TransposeResult from_halves = run_source(HeldTensors{{MatrixView(std::span<const Half>(halves), 32, 64)}});
    CHECK(from_halves.source == "32 x 64 float16 values of an array");
    CHECK(recipes_json(from_halves) == expected);
    const std::vector<double> doubles(values.begin(), values.end());
    CHECK(recipes_json(run_source(HeldTensors{{MatrixView(std::span<const double>(doubles), 32, 64)}})) == expected);
    const TransposeResult from_bfloats =
        run_source(HeldTensors{{MatrixView(std::span<const BFloat16>(bfloats), 32, 64)}});
    CHECK(from_bfloats.tensors[0].type == ElementType::bfloat16);
    CHECK(recipes_json(from_bfloats) == expected);
  }
  SECTION(".npy, in either order of memory") {
    write_npy(path, "<f4", "(32, 64)", values);
    const TransposeResult result = run_source(StoredTensors{{path}});
    CHECK(result.source == "32 x 64 float32 values of " + printable(path));
    CHECK(recipes_json(result) == expected);
    std::vector<Half> columns_first;
    for (std::size_t k = 0; k < halves.size(); ++k) columns_first.push_back(halves[k % 32 * 64 + k / 32]);
    write_npy(path, "<f2", "(32, 64)", columns_first, true);
    CHECK(recipes_json(run_source(StoredTensors{{path}})) == expected);
  }
  SECTION(".safetensors") {
    const std::string header = R"({"w":{"dtype":"BF16","shape":[32,64],"data_offsets":[0,4096]}})";
    std::ofstream file(path, std::ios::binary);
    file.put(static_cast<char>(header.size())) << std::string(7, '\0') << header;
    file.write(reinterpret_cast<const char*>(bfloats.data()), 4096);
    file.close();
    const TransposeResult result = run_source(StoredTensors{{path}, {"w"}});
    CHECK(result.source == "32 x 64 bfloat16 values of " + printable(path) + ", tensor \"w\"");
    CHECK(recipes_json(result) == expected);
  }
  SECTION("what is refused") {
    write_npy(path, "<f4", "(2048,)", values);
    CHECK_THROWS_WITH(run_source(StoredTensors{{path}}),
                      ContainsSubstring("must have two dimensions or more, not shape (2048,)"));
    write_npy(path, "<f4", "(0, 64)", std::vector<float>{});
    CHECK_THROWS_WITH(run_source(StoredTensors{{path}}),
                      ContainsSubstring("from 1 to 2^27 elements, not 0 (shape (0, 64))"));
    CHECK_THROWS_WITH(run_source(HeldTensors{{MatrixView(std::span<const float>(values), 3, 3)}}),
                      ContainsSubstring("3 x 3"));
  }
}

TEST_CASE("transpose: wrong arguments are refused with the rule") {
  TransposeArguments arguments = drawing(64, 64, 1, {"te_mxfp8"});
  auto& draws = std::get<Draws>(arguments.source);
  CHECK_THROWS_WITH(choose_recipe("mxfp8"), ContainsSubstring("unknown recipe 'mxfp8'; known: te_mxfp8, "));
  SECTION("sizes") {
    draws.columns = 48;
    CHECK_THROWS_WITH(run_transpose(arguments), ContainsSubstring("te_mxfp8: columns must be a multiple of 32") &&
                                                    ContainsSubstring("not 48 (nearest: 32 or 64)"));
    std::swap(draws.rows, draws.columns);
    CHECK_THROWS_WITH(run_transpose(arguments), ContainsSubstring("te_mxfp8: rows must be a multiple of 32"));
    draws.rows = 0;
    CHECK_THROWS_WITH(run_transpose(arguments), ContainsSubstring("rows and columns must be 1 or more, not 0 and 64"));
    draws.rows = 1LL << 40;
    CHECK_THROWS_WITH(run_transpose(arguments),
                      ContainsSubstring("rows * columns must be at most 2^27, not 1099511627776 * 64"));
  }
  SECTION("outliers") {
    draws.outlier_rows = {65, 2};
    CHECK_THROWS_WITH(run_transpose(arguments),
                      ContainsSubstring("the count of outlier_rows must be from 0 to 64, not 65"));
    draws.outlier_rows = {-1, 2};
    CHECK_THROWS_WITH(run_transpose(arguments), ContainsSubstring("not -1"));
    draws.outlier_rows = {};
    for (const double factor : {0.0, -1.0, 1e39, static_cast<double>(nan)}) {
      draws.outlier_columns = {1, factor};
      CHECK_THROWS_WITH(run_transpose(arguments), ContainsSubstring("the factor of outlier_columns must be positive"));
    }
  }
  SECTION("recipes") {
    arguments.recipes.push_back(arguments.recipes.front());
    CHECK_THROWS_WITH(run_transpose(arguments),
                      ContainsSubstring("recipes must have each entry once, and has te_mxfp8 twice"));
    arguments.recipes.clear();
    CHECK_THROWS_WITH(run_transpose(arguments), ContainsSubstring("recipes must have at least one entry"));
    arguments.recipes = {choose_recipe("te_nvfp4_rht")};
    CHECK_THROWS_WITH(run_transpose(arguments),
                      ContainsSubstring("te_nvfp4_rht transforms only the columnwise values"));
    arguments.recipes = {{"sr", NvFp4{.stochastic_rounding = true}}};
    CHECK_THROWS_WITH(run_transpose(arguments), ContainsSubstring("sr needs random bits"));
    arguments.recipes = {{"half", GivenScale{.format = binary16}}};
    CHECK_THROWS_WITH(run_transpose(arguments), ContainsSubstring("at most 8 bits"));
  }
  SECTION("a run can be stopped") {
    CHECK_THROWS_WITH(run_transpose(arguments, [](double) { throw std::runtime_error("stop"); }), "stop");
  }
}

}  // namespace fp8lab::tests
