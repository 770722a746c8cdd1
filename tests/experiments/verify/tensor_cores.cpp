// SPDX-License-Identifier: Apache-2.0
#include "verify/tensor_cores.hpp"

#include <zlib.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "catch.hpp"
#include "experiments/documents.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "kit/dots.hpp"
#include "scratch.hpp"

namespace fp8lab::experiments {
namespace {

const std::string vectors_path = FP8LAB_VECTORS "/mma_sim.json";

/// gemm() with the model that `change` makes of the one asked for.
template <typename Change>
NamedGemm gemm_with(const char* name, Change change) {
  return {name, [change](GemmRecipe recipe, const Operand& a, const Operand& b, const GemmCall& call) {
            change(recipe.model);
            return gemm_words(recipe, a, b, call);
          }};
}

/// The recorded words of one model.
RecordedDots first_set_of(std::string_view model) {
  for (RecordedDots& set : read_vectors(vectors_path).sets) {
    if (set.model.name == model) return std::move(set);
  }
  throw std::invalid_argument(std::string(model));
}

void write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

void write_gzipped(const std::filesystem::path& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
}

/// A file of rows measured on a GPU, as small as it gets: 32 * (1 * 1) + c.
nlohmann::json gpu_rows() {
  std::string ones;
  for (int k = 0; k < 32; ++k) ones += "38";
  nlohmann::json group{{"gpu", "Ada"}, {"fmt", "e4m3"}, {"cd", "f32"}, {"model", "sm89.mma.k32"}};
  group["cases"] = {{ones, ones, "3f800000", "42040000"}, {ones, ones, "00000000", "42000000"}};
  return {{"source", "these tests"}, {"groups", {group}}};
}

}  // namespace

TEST_CASE("verify tensor-cores finds nothing wrong, on any target, nor in what MMA-Sim recorded") {
#ifdef __SANITIZE_ADDRESS__
  const VerifyTensorCoresArguments arguments{
      .models = {"hopper_wgmma_fp8", "blackwell_nvf4"}, .dots = 1, .vectors = vectors_path};
#else
  const VerifyTensorCoresArguments arguments{.dots = 300, .seed = 20261121, .vectors = vectors_path, .threads = 2};
#endif
  double last = 0;
  std::size_t done = 0;
  const VerifyTensorCoresResult result = verify_tensor_cores(
      arguments, [&](double share) { last = share; }, [&](const VerifyTensorCoresRow& /*row*/) { ++done; });
  INFO(text_of(document_of(result)));
  CHECK(result.passed());
  CHECK(done == result.rows.size());
  CHECK((last > 0 && last <= 1));
  CHECK(result.sources.size() == 1);
  if (!arguments.models.empty()) return;
  const Document document = document_of(result);
  CHECK(tests::column_of<Texts>(document, "kinds", "kind") == Texts{"targets", "vectors", "chains"});
  const auto count = static_cast<std::int64_t>(models.size());
  CHECK(tests::column_of<Integers>(document, "kinds", "models") == Integers{count, 16, 3});
  const Integers compared = tests::column_of<Integers>(document, "kinds", "compared");
  CHECK((compared[1] == 5282 && compared[2] == 540));
  CHECK(tests::column_of<Integers>(document, "kinds", "mismatches") == Integers{0, 0, 0});
  const std::string summary = text_of(document);
  CHECK_THAT(summary, ContainsSubstring("verified"));
}

TEST_CASE("verify tensor-cores catches planted defects, by name and place") {
  const NamedGemm right = gemm_with("right", [](MmaModel&) {});
  const std::vector others{right, gemm_with("a bit less", [](MmaModel& m) { --m.fraction_bits; }),
                           gemm_with("a wide result", [](MmaModel& m) { m.output = binary32; }),
                           gemm_with("two steps", [](MmaModel& m) { m.products_per_step /= 2, m.steps *= 2; })};
  const VerifyTensorCoresRow row = verify_gemms(hopper_wgmma_fp8, right, others, 3000, 1, 2);
  REQUIRE(row.checks.size() == others.size());
  for (std::size_t i = 0; i < others.size(); ++i) {
    INFO(row.checks[i].name);
    CHECK(row.checks[i].name == others[i].name);
    CHECK(row.checks[i].compared >= 3000);
    CHECK((row.checks[i].mismatches > 0) == (i > 0));
    CHECK(row.checks[i].first.has_value() == (i > 0));
  }
  VerifyTensorCoresResult result;
  result.rows = {row};
  CHECK_FALSE(result.passed());
  CHECK_THAT(text_of(document_of(result)), ContainsSubstring("a bit less: ") && ContainsSubstring("NOT verified"));
}

TEST_CASE("verify tensor-cores catches a wrong model, and a wrong word, of what is recorded") {
  for (const char* name : {"hopper_wgmma_fp8", "ada_mma_fp8_f16", "hopper_mma_sync_fp8", "blackwell_nvf4"}) {
    RecordedDots set = first_set_of(name);
    INFO(name);
    CHECK(verify_recorded(set, ZeroRule::count_zero_factors).mismatches == 0);
    --set.model.fraction_bits;
    CHECK(verify_recorded(set, ZeroRule::count_zero_factors).mismatches > 0);
  }
  RecordedDots set = first_set_of("hopper_wgmma_fp8");
  set.d[7] ^= 0x400;
  const ProductCheck check = verify_recorded(set, ZeroRule::count_zero_factors);
  CHECK(check.mismatches == 1);
  REQUIRE(check.first);
  CHECK((check.first->index == 7 && check.first->expected == set.d[7] && check.first->got == (set.d[7] ^ 0x400)));

  RecordedChains chains = read_vectors(vectors_path).chains.front();
  CHECK(verify_chains(chains).mismatches == 0);
  chains.chains[3].promoted ^= 1;
  CHECK(verify_chains(chains).first->index == 7);  // two dot products a chain
}

TEST_CASE("verify tensor-cores reads rows measured on GPUs, gzipped or not") {
  const tests::Scratch scratch;
  const std::string path = scratch.path / "rows.json.gz";
  nlohmann::json rows = gpu_rows();
  const auto verified = [&] {
    return verify_tensor_cores({.models = {"ada_mma_fp8", "ada_mma_fp8_f16"}, .dots = 1, .rows = path});
  };
  write(path, rows.dump());
  CHECK(verified().passed());
  rows["groups"][0]["cases"][1][3] = "42000400";
  write_gzipped(path, rows.dump());
  const VerifyTensorCoresResult wrong = verified();
  CHECK(wrong.mismatches() == 1);
  CHECK_THAT(text_of(document_of(wrong)),
             ContainsSubstring("Ada e4m3: 1 wrong; first dot product 1 gives 42000000, expected 42000400"));
  const Document document = document_of(wrong);
  CHECK(document.passed == false);
  CHECK(tests::column_of<Texts>(document, "rows", "kind")[1] == "GPU rows");
  const Texts got = tests::column_of<Texts>(document, "checks", "first_got");
  CHECK(std::ranges::count(got, std::optional<std::string>("42000000")) == 1);
  rows["groups"][0]["cd"] = "f16";  // words of a half accumulator, with leading zeros or without
  rows["groups"][0]["cases"][0][2] = "00003c00";
  rows["groups"][0]["cases"][0][3] = "5020";
  rows["groups"][0]["cases"].erase(1);
  write(path, rows.dump());
  CHECK(verified().passed());
}

TEST_CASE("files of recorded words that are cut off, foreign or wrong are one clear error") {
  const tests::Scratch scratch;
  const std::string path = scratch.path / "rows.json";
  const auto fault = [&](const std::string& text) {
    write(path, text);
    try {
      (void)read_gpu_rows(path);
    } catch (const std::runtime_error& error) {
      const std::string line = error.what();
      const std::string start = "cannot read " + path + ": ";
      CHECK(line.starts_with(start));
      CHECK(line.find('\n') == std::string::npos);
      return line.substr(std::min(start.size(), line.size()));
    }
    return std::string("nothing");
  };
  const auto with = [](const auto& change) {
    nlohmann::json rows = gpu_rows();
    change(rows["groups"][0]);
    return rows.dump();
  };
  const std::string form = "its JSON does not have the form of rows measured on GPUs";
  CHECK(fault("") == "it is not JSON, or a part of it is missing");
  CHECK(fault(gpu_rows().dump().substr(0, 300)) == "it is not JSON, or a part of it is missing");
  CHECK(fault("{}") == form);
  CHECK(fault("[1, 2]") == form);
  CHECK(fault(R"({"source": "x", "groups": []})") == "it has no rows");
  CHECK(fault(R"({"source": "x", "groups": 3})") == form);
  CHECK(fault(with([](auto& g) { g["cases"][0][0] = 3; })) == form);
  CHECK(fault(with([](auto& g) { g["cases"][0].push_back("0"); })) == "a row has 5 fields, not 4");
  CHECK(fault(with([](auto& g) { g["cases"][0][1] = "3838"; })) == "\"3838\" has 4 digits, not 64");
  CHECK(fault(with([](auto& g) { g["cases"][0][1] = std::string(64, 'x'); })) ==
        "\"xx\" is not a hexadecimal word of 8 bits");
  CHECK(fault(with([](auto& g) { g["cases"][0][3] = ""; })) == "\"\" is not a hexadecimal word of 32 bits");
  CHECK(fault(with([](auto& g) { g["cases"][0][3] = "1ffffffff"; })) ==
        "\"1ffffffff\" is not a hexadecimal word of 32 bits");
  CHECK(fault(with([](auto& g) { g["cd"] = "f16"; })) == "\"3f800000\" is not a hexadecimal word of 16 bits");
  CHECK(fault(with([](auto& g) { g["cd"] = "f64"; })) == "unknown cd 'f64'; known: f32, f16");
  CHECK(fault(with([](auto& g) { g["fmt"] = "e2m1"; })) == "ada_mma_fp8 does not take e2m1");
  CHECK_THAT(fault(with([](auto& g) { g["model"] = "sm70"; })),
             ContainsSubstring("unknown path of an instruction 'sm70'; known: sm89.mma.k32"));

  write_gzipped(path, gpu_rows().dump());
  std::ostringstream packed;
  packed << std::ifstream(path, std::ios::binary).rdbuf();
  CHECK(fault(packed.str().substr(0, packed.str().size() / 2)) == "it ends too early");
  std::string damaged = packed.str();
  damaged[damaged.size() - 6] = static_cast<char>(damaged[damaged.size() - 6] ^ 1);  // of the checksum
  CHECK_THAT(fault(damaged), ContainsSubstring("it is not a complete gzip file"));
  CHECK_THROWS_WITH(read_vectors(scratch.path / "none"), ContainsSubstring("/none: there is no such file"));
  CHECK_THROWS_WITH(read_vectors(scratch.path), ContainsSubstring(": it is a directory"));
  write(path, gpu_rows().dump());
  CHECK_THROWS_WITH(read_vectors(path), ContainsSubstring("does not have the form of recorded vectors"));
}

TEST_CASE("verify tensor-cores names wrong arguments, and stops where it is told to") {
  CHECK_THROWS_WITH(verify_tensor_cores({.models = {"h100"}}), ContainsSubstring("unknown model 'h100'; known: "));
  CHECK_THROWS_WITH(verify_tensor_cores({.models = {"exact", "exact"}}),
                    "models must have each entry once, and has exact twice");
  CHECK_THROWS_WITH(verify_tensor_cores({.dots = 0}), "dots must be from 1 to 2^40, not 0");
  CHECK_THROWS_WITH(verify_tensor_cores({.threads = 0}), "threads must be from 1 to 1024, not 0");
  CHECK_THROWS_WITH(verify_tensor_cores({}, [](double) { throw std::runtime_error("stopped"); }), "stopped");
}

}  // namespace fp8lab::experiments
