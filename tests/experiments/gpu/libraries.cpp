// SPDX-License-Identifier: Apache-2.0
// The primer by kernels, and products of a library, as the recorder asks for them: on the host, where a shared library
// of the tests stands for cuBLASLt.
#include "gpu/libraries.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "fp8lab/gpu/recorder/cublaslt.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "gpu/primer_record.hpp"
#include "gpu/replay.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using namespace fp8lab::experiments;

const std::filesystem::path fake_library = FP8LAB_FAKE_CUBLASLT;

PrimerArguments small_primer() { return {.in_features = 80, .out_features = 48, .rows = 144}; }

/// What parse_ledger() says of a ledger with that in place of a record's.
std::string refusal_of(const Ledger& ledger) {
  try {
    (void)parse_ledger(json_of(ledger).text());
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "not refused";
}

TaskResult product_of_fake(std::size_t depth, bool fast) {
  return ask_cublaslt(fake_library, false, {.model = hopper_wgmma_fp8, .depth = depth, .fast = fast, .seed = 3});
}

}  // namespace

TEST_CASE("gpu: the primer by kernels has every word of the models, on every chip with FP8") {
  for (const int capability : {89, 90, 100, 120}) {
    const auto recorder = gpu::host_recorder(capability);
    const TaskResult result = record_primer(*recorder, small_primer());
    REQUIRE(result.rows.size() == 7);
    for (const RecordedRow& row : result.rows) {
      INFO(capability << " " << row.name);
      CHECK((row.wrong_chunks == 0 && row.compared == row.words));
    }
    CHECK(result.rows[0].words == 144 * 80);
    CHECK(result.rows[4].words == 144 * 48);
    CHECK(result.ledger.findings.size() == 4);
    for (const Finding& finding : result.ledger.findings) CHECK(finding.agrees == true);
    const Ledger read = parse_ledger(json_of(result.ledger).text());
    const Replay again = replay(read, {.all = true});
    CHECK((again.chunks == 7 && again.mismatches.empty()));
  }
}

TEST_CASE("gpu: a word of the primer that is not the model's is told, and so is a digest of another model") {
  // The words of a device whose accumulator keeps a bit less.
  MmaModel wrong = hopper_wgmma_fp8;
  wrong.fraction_bits = 12;
  PrimerArguments arguments = small_primer();
  const auto right_ones = primer_by_models(arguments, hopper_tf32);
  arguments.mma = wrong;
  const auto wrong_ones = primer_by_models(arguments, hopper_tf32);
  CHECK(wrong_ones[0].words == right_ones[0].words);
  CHECK(wrong_ones[4].words != right_ones[4].words);

  Ledger ledger = record_primer(*gpu::host_recorder(), small_primer()).ledger;
  const auto planted = [&](std::string_view name) { return name == wrong.name ? wrong : find_model(name); };
  Replay found = replay(ledger, {.all = true, .model = planted});
  REQUIRE(found.mismatches.size() == 1);
  CHECK(found.mismatches[0].told().starts_with("primer out_fp8, chunk 0: the device has "));
  ledger.primer[2].digest ^= 1;
  found = replay(ledger, {.all = true});
  REQUIRE(found.mismatches.size() == 1);
  CHECK(found.mismatches[0].record == "primer x_representable");
}

TEST_CASE("gpu: cuBLASLt is asked by itself, and how it composes its products is found") {
  for (const bool fast : {true, false}) {
    for (const std::size_t depth : {768U, 4096U}) {
      if (depth != 768 && (fast || sanitized) && !exhaustive()) continue;
      const TaskResult result = product_of_fake(depth, fast);
      const Finding& finding = result.ledger.findings.at(0);
      INFO(finding.name << ": " << finding.answer);
      const ProductRecord& record = result.ledger.products.at(0);
      CHECK(record.library == "cuBLASLt 13.1.2");
      CHECK(finding.words == std::vector<std::string>{"cuBLASLt 13.1.2", "model hopper_wgmma_fp8", "algorithm 66"});
      REQUIRE(record.composition);
      CHECK(record.composition->promote_k == (fast ? 0 : 128));
      CHECK(record.composition->split_k == (fast || depth == 768 ? 0 : 2048));
      CHECK(result.rows.at(0).compared == 256 * 256);
      Ledger read = parse_ledger(json_of(result.ledger).text());
      CHECK(replay(read, {.all = true}).mismatches.empty());
      read.products[0].composition->promote_k = 256;
      CHECK(replay(read, {.all = true}).mismatches.size() == 1);
      read.products[0].composition.reset();
      CHECK(replay(read, {.all = true}).chunks == 0);
    }
  }
}

TEST_CASE("gpu: a product of which one word is wrong has no composition, and stays a digest") {
  const LibraryProduct product = library_product(16, 16, 768, 3);
  std::vector<float> out(16 * 16);
  gemm({.model = hopper_wgmma_fp8}, Operand::codes(product.a, e4m3, 16, 768), Operand::codes(product.b, e4m3, 16, 768),
       out);
  out[15 * 16] += 1;
  const FoundComposition found = find_composition(hopper_wgmma_fp8, product, out, 1);
  CHECK_FALSE(found.composition);
  INFO(found.told);
  CHECK(found.told.ends_with(" By hopper_wgmma_fp8 it gives 255 of 256 words."));
}

TEST_CASE("gpu: a cuBLASLt that is missing, or is none, is told as such") {
  const auto told = [](const std::filesystem::path& library) {
    try {
      (void)ask_cublaslt(library, false, {.model = hopper_wgmma_fp8, .depth = 768, .fast = true});
    } catch (const MissingError& error) {
      return std::string(error.what());
    }
    return std::string("asked");
  };
  CHECK(told("/no/such/libcublasLt.so.13").starts_with("cuBLASLt cannot be loaded: /no/such/libcublasLt.so.13: "));
  CHECK(told("libm.so.6") == "this cuBLASLt has no function cublasLtCreate");
  const gpu::CublasLt library(fake_library);
  CHECK_THROWS_AS(library.plan({.m = 16, .n = 16, .k = 24}), std::runtime_error);
  CHECK_THROWS_AS(library.plan({.m = 16, .n = 16, .k = 32, .type_a = gpu::MmaType::f16}), std::invalid_argument);
}

TEST_CASE("gpu: libcublasLt is found in CUDA's folders and among Python's packages, the newer one first") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("fp8lab_cublaslt_" + std::to_string(::getpid()));
  const std::array folders{folder / "cuda", folder / "site-packages"};
  const auto place = [&](const fs::path& path) {
    fs::create_directories((folder / path).parent_path());
    std::ofstream(folder / path) << "no library";
    return folder / path;
  };
  CHECK(gpu::find_cublaslt(folders).empty());
  const fs::path old = place("cuda/lib64/libcublasLt.so.12");
  CHECK(gpu::find_cublaslt(folders) == old);
  const fs::path of_package = place("site-packages/nvidia/cu13/lib/libcublasLt.so.13");
  CHECK(gpu::find_cublaslt(folders) == of_package);
  const fs::path of_cuda = place("cuda/lib64/libcublasLt.so.13");
  CHECK(gpu::find_cublaslt(folders) == of_cuda);
  fs::remove_all(folder);
}

TEST_CASE("gpu: ledgers with records of primers and products that cannot be are refused with the reason") {
  Ledger primer = record_primer(*gpu::host_recorder(), small_primer()).ledger;
  const auto with_primer = [&](const auto& change) {
    Ledger other = primer;
    change(other.primer[4]);
    return refusal_of(other);
  };
  CHECK(with_primer([](PrimerRecord&) {}) == "not refused");
  CHECK(with_primer([](PrimerRecord& x) { x.tensor = "y"; }) == "unknown tensor of the primer \"y\"");
  CHECK(with_primer([](PrimerRecord& x) { x.rows = 17; }).starts_with("rows must be a multiple of 16"));
  CHECK(with_primer([](PrimerRecord& x) { x.multiprocessors = 0; }).starts_with("sms must be at least 1"));
  CHECK(with_primer([](PrimerRecord& x) { x.model = "hopper_tf32"; }).starts_with("unknown model"));
  CHECK(with_primer([](PrimerRecord& x) { x.model = "encode"; }).starts_with("the model of out_fp8 is "));
  const Ledger product = product_of_fake(768, true).ledger;
  const auto with_product = [&](const auto& change) {
    Ledger other = product;
    change(other.products[0]);
    return refusal_of(other);
  };
  CHECK(with_product([](ProductRecord&) {}) == "not refused");
  CHECK(with_product([](ProductRecord& x) { x.rows = 0; }).starts_with("a product of 0 * 256"));
  CHECK(with_product([](ProductRecord& x) { x.model = "volta"; }).starts_with("unknown model 'volta'"));
  CHECK(
      with_product([](ProductRecord& x) { x.composition->promote_k = -1; }).starts_with("promote_k -1 and split_k 0"));
}

}  // namespace fp8lab::tests
