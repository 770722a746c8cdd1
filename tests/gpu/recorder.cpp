// SPDX-License-Identifier: Apache-2.0
// The recorder on the host team: what its kernels digest is what the models give, and operands are drawn as they say.
#include "fp8lab/gpu/recorder/recorder.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <memory>
#include <set>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using gpu::Draw;

const gpu::Instruction& instruction_named(std::string_view name) {
  return *std::ranges::find(gpu::instructions(), name, &gpu::Instruction::name);
}

}  // namespace

TEST_CASE("recorder: every instruction on the host team has the digests of its model, under each draw") {
  std::map<int, std::unique_ptr<gpu::Recorder>> recorders;
  for (const int capability : {90, 100, 120}) recorders.emplace(capability, gpu::host_recorder(capability));
  for (std::size_t i = 0; i < gpu::instructions().size(); ++i) {
    const gpu::Instruction& instruction = gpu::instructions()[i];
    const int capability = instruction.is_for(90) ? 90 : instruction.is_for(100) ? 100 : 120;
    const auto& recorder = recorders.at(capability);
    const MmaModel& model = gpu::model_of(instruction, capability);
    for (int draw = 0; draw < gpu::draws; ++draw) {
      if ((i + static_cast<std::size_t>(draw)) % 4 != 0 && !exhaustive()) continue;
      const gpu::TileSet set = instruction.tiles(static_cast<Draw>(draw), 5);
      INFO(instruction.name() << " " << name_of(set.draw));
      CHECK(recorder->tile_digests(i, set, 2, 2, 2) == gpu::model_tile_digests(model, set, 2, 2, 2, 2));
    }
  }
}

TEST_CASE("recorder: the digests of another model, seed, tile or draw differ") {
  const gpu::Instruction& instruction = instruction_named("mma.sync.m16n8k32.f32.e4m3.e4m3");
  const gpu::TileSet set = instruction.tiles(Draw::gaussian, 1);
  const MmaModel& model = gpu::model_of(instruction, 90);
  MmaModel wrong = model;
  wrong.fraction_bits = 12;
  std::set<std::uint64_t> digests;
  digests.insert(gpu::model_tile_digests(model, set, 0, 1, 4, 1)[0]);
  digests.insert(gpu::model_tile_digests(wrong, set, 0, 1, 4, 1)[0]);
  digests.insert(gpu::model_tile_digests(model, instruction.tiles(Draw::gaussian, 2), 0, 1, 4, 1)[0]);
  digests.insert(gpu::model_tile_digests(model, instruction.tiles(Draw::cancelling, 1), 0, 1, 4, 1)[0]);
  digests.insert(gpu::model_tile_digests(model, set, 4, 1, 4, 1)[0]);
  CHECK(digests.size() == 5);
}

TEST_CASE("recorder: sweeps of casts on the host team have the digests and words of bulk encode") {
  const auto recorder = gpu::host_recorder();
  constexpr std::uint64_t chunk = 1U << 14;
  for (std::size_t i = 0; i < gpu::cast_sweeps().size(); ++i) {
    const gpu::CastSweep& sweep = gpu::cast_sweeps()[i];
    INFO(sweep.name);
    const std::uint64_t size = std::min(sweep.inputs(), chunk);
    for (const std::uint64_t first : {std::uint64_t{0}, sweep.inputs() - size, sweep.inputs() / 2}) {
      if (first % size != 0) continue;
      CHECK(recorder->cast_digests(i, first, size, size) == gpu::model_cast_digests(sweep, first, size, size, 1));
    }
    const std::uint64_t count = std::min<std::uint64_t>(sweep.inputs(), 64);
    const auto words = recorder->cast_words(i, 0, count);
    for (std::uint64_t j = 0; j < count; ++j) {
      CHECK(words[j] == gpu::casts::model_word(sweep, j));
    }
  }
  const auto two = recorder->cast_digests(0, 0x3F80'0000, 2 * chunk, chunk);
  CHECK(two == gpu::model_cast_digests(gpu::cast_sweeps()[0], 0x3F80'0000, 2 * chunk, chunk, 2));
}

TEST_CASE("recorder: sweeps of functions on the host team have the digests and words of the models") {
  const auto hopper = gpu::host_recorder(90);
  const auto blackwell = gpu::host_recorder(100);
  const std::size_t rcp = gpu::function_number(gpu::FunctionVariant::units, "rcp.approx.ftz.f32");
  const std::size_t divide = gpu::function_number(gpu::FunctionVariant::fast, "x / y");
  constexpr std::uint64_t one = 0x3F80'0000;
  std::vector<std::uint32_t> expected;
  std::vector<std::uint64_t> digest(2);
  for (std::uint64_t i = 0; i < 2U << 14; ++i) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(one + i));
    const auto word = std::bit_cast<std::uint32_t>(special_function(SpecialFunction::rcp, Subnormals::flushed, x));
    if (i < 64) expected.push_back(word);
    digest[i >> 14] += gpu::digest_term(one + i, word);
  }
  CHECK(hopper->function_words(rcp, 0, one, 64) == expected);
  CHECK(hopper->function_digests(rcp, 0, one, 2U << 14, 1U << 14) == digest);
  CHECK(blackwell->function_digests(rcp, 0, one, 2U << 14, 1U << 14) != digest);  // its unit's stand-in
  // The first pairs of the stream 1, whose quotients an H200 gave.
  CHECK(hopper->function_words(divide, 1, 0, 4) ==
        std::vector<std::uint32_t>{0x55750b26, 0x8b5673b6, 0x665945bc, 0x0baa0ef3});
  for (std::size_t i = 0; i < gpu::recorded_functions().size(); ++i) {
    const gpu::RecordedFunction& function = gpu::recorded_functions()[i];
    const auto units = gpu::units_of_record(function, 90, "none", true).value();
    INFO(name_of(function.variant) << " " << function.name());
    CHECK(hopper->function_digests(i, 3, 0, 200, 200) ==
          gpu::model_function_digests(function, units, 3, 0, 200, 200, 1));
  }
}

TEST_CASE("recorder: functions have a model where their units and CUDA are known") {
  using gpu::FunctionVariant;
  const auto units = [](FunctionVariant variant, const char* name, int capability, const char* cuda, bool is_host) {
    const auto& function = gpu::recorded_functions()[gpu::function_number(variant, name)];
    return gpu::units_of_record(function, capability, cuda, is_host);
  };
  CHECK(units(FunctionVariant::fast, "expf(x)", 90, "13.0", false) == SpecialUnits::hopper);
  CHECK(units(FunctionVariant::fast, "expf(x)", 90, "12.8", false) == std::nullopt);
  CHECK(units(FunctionVariant::fast, "tanhf(x)", 90, "none", true) == SpecialUnits::hopper);
  CHECK(units(FunctionVariant::units, "rcp.approx.f32", 90, "12.8", false) == SpecialUnits::hopper);
  CHECK(units(FunctionVariant::units, "rcp.approx.f32", 100, "13.0", false) == std::nullopt);
  CHECK(units(FunctionVariant::units, "rcp.approx.f32", 100, "none", true) == SpecialUnits::correctly_rounded);
  CHECK_THROWS_WITH(gpu::function_number(FunctionVariant::fast, "acosf(x)"), "unknown function acosf(x) of fast");
}

TEST_CASE("recorder: stand-ins of units without a model are near the exact functions, and 16 bits are packed") {
  const auto word = [](const char* name, std::uint64_t input) {
    const auto& all = gpu::recorded_functions();
    std::uint32_t out = 0;
    model_function_words(all[gpu::function_number(gpu::FunctionVariant::units, name)], SpecialUnits::correctly_rounded,
                         0, input, {&out, 1});
    return out;
  };
  CHECK(word("tanh.approx.f32", 0x3F80'0000) == 0x3F42F7D6);  // tanh(1)
  CHECK(word("sin.approx.ftz.f32", 0x0000'0001) == 0);        // flushed
  CHECK(word("cos.approx.f32", 0x7F80'0000) == 0x7FFFFFFF);   // of infinity
  CHECK(word("ex2.approx.f16", 0x3C00) == 0x4000);            // 2^1
  CHECK(word("ex2.approx.ftz.bf16", 0x3F80) == 0x4000);
  CHECK(word("tanh.approx.f16", 0x7E00) == 0x7FFF);
  CHECK(word("ex2.approx.f16x2", 0x5A5A) == (0x3C000000 | word("ex2.approx.f16", 0x5A5A)));  // the upper one is of 0
  CHECK(word("rcp.approx.ftz.f64", 0x4000'0000) == 0x3FE0'0000);                             // 1 / 2
  CHECK(word("rsqrt.approx.ftz.f64", 0x4010'0000) == 0x3FE0'0000);                           // 1 / sqrt(4)
  CHECK(word("rcp.approx.ftz.f64", 0x0000'0001) == 0x7FF0'0000);
}

TEST_CASE("recorder: the words of generator 2 are these") {
  // Made by tests/gpu/recorder_words.py, which draws them by Python's integers and fractions.
  const gpu::TileSet set = instruction_named("mma.sync.m16n8k32.f32.e4m3.e5m2").tiles(Draw::gaussian, 7);
  REQUIRE(gpu::generator_version == 2);
  CHECK(gpu::random_word(7, 0) == 0xb8b4c2977eabce45U);
  CHECK(gpu::digest_term(3, 5) == 0x87ac50134ea0d28aU);
  std::vector<std::uint64_t> words;
  for (unsigned k = 0; k < 8; ++k) words.push_back(gpu::operand_word(set, false, 3, 2, k));
  for (unsigned k = 0; k < 8; ++k) words.push_back(gpu::operand_word(set, true, 3, 2, k));
  for (unsigned n = 0; n < 4; ++n) words.push_back(gpu::accumulator_word(set, 3, 1, n));
  CHECK(words == std::vector<std::uint64_t>{0x3e, 0x3a, 0xb2,       0xb0,       0x27,       0x93,      0xb3,
                                            0x2b, 0xbb, 0xb7,       0x39,       0xb1,       0xac,      0xb7,
                                            0xb3, 0x3b, 0x4001f100, 0xc0014b00, 0x404b9600, 0x40546c00});
  const gpu::TileSet fp64 = instruction_named("mma.sync.m16n8k16.f64.f64.f64").tiles(Draw::gaussian, 7);
  words.clear();
  for (unsigned k = 0; k < 2; ++k) words.push_back(gpu::operand_word(fp64, false, 3, 2, k));
  for (unsigned n = 0; n < 2; ++n) words.push_back(gpu::accumulator_word(fp64, 3, 1, n));
  CHECK(words ==
        std::vector<std::uint64_t>{0x3ffbbf3cd336fb56, 0x3ff444e9f4ae3658, 0x40003e29f38db540, 0xc000297f537163f1});
}

TEST_CASE("recorder: every model of NVIDIA's instructions that no device has shown is asked") {
  std::set<std::string_view> asked;
  for (const int capability : {80, 89, 90, 100, 120}) {
    for (const gpu::Instruction& instruction : gpu::instructions()) {
      if (instruction.is_for(capability)) asked.insert(gpu::model_of(instruction, capability).name);
    }
  }
  for (const MmaModel& model : models) {
    const bool is_claim = model.evidence == Evidence::published || model.evidence == Evidence::inferred;
    if (!is_claim || model.chip.maker != "NVIDIA" || model.chip == chips::turing) continue;  // kernels: 8.0 and up
    INFO(model.name);
    CHECK(asked.contains(model.name));
  }
}

TEST_CASE("recorder: draws have the values that they are named for") {
  const gpu::Instruction& instruction = instruction_named("mma.sync.m16n8k32.f32.e5m2.e5m2");
  for (int draw = 0; draw < gpu::draws; ++draw) {
    const gpu::TileSet set = instruction.tiles(static_cast<Draw>(draw), 3);
    std::map<Kind, int> kinds;
    int subnormals = 0;
    int cancelled = 0;
    int zero_rows = 0;
    std::set<std::uint64_t> accumulators;
    for (std::uint64_t tile = 0; tile < 64; ++tile) {
      for (unsigned row = 0; row < 16; ++row) {
        double sum = 0;
        bool is_zero = true;
        for (unsigned k = 0; k < 32; ++k) {
          const std::uint64_t a = gpu::operand_word(set, false, tile, row, k);
          const std::uint64_t b = gpu::operand_word(set, true, tile, 0, k);
          ++kinds[unpack(e5m2, a).kind];
          subnormals += (a & 0x7C) == 0 && (a & 3) != 0 ? 1 : 0;
          is_zero = is_zero && (a & 0x7F) == 0;
          sum += decode(e5m2, static_cast<std::uint8_t>(a)) * decode(e5m2, static_cast<std::uint8_t>(b));
        }
        zero_rows += is_zero ? 1 : 0;
        cancelled += sum == 0 ? 1 : 0;
      }
      accumulators.insert(gpu::accumulator_word(set, tile, 0, 0));
      if (tile % 2 == 0) CHECK(gpu::accumulator_word(set, tile, 3, 3) == 0);
    }
    INFO(name_of(set.draw) << " nan " << kinds[Kind::nan] << " inf " << kinds[Kind::infinite] << " zero "
                           << kinds[Kind::zero] << " subnormal " << subnormals << " zero rows " << zero_rows
                           << " cancelled " << cancelled);
    const bool has_specials = set.draw == Draw::special || set.draw == Draw::random_bits;
    CHECK((kinds[Kind::nan] > 0 && kinds[Kind::infinite] > 0) == has_specials);
    CHECK((zero_rows > 100) == (set.draw == Draw::subnormal));
    CHECK((subnormals > 3000) == (set.draw == Draw::subnormal));
    CHECK((cancelled - zero_rows > 100) == (set.draw == Draw::cancelling));
    CHECK(accumulators.size() > 28);
  }
}

TEST_CASE("recorder: draws of block scales have the values that they are named for") {
  for (const char* name :
       {"mma.sync.m16n8k32.mxf8f6f4.f32.e4m3.e4m3", "tcgen05.mma.m128n128k64.mxf4nvf4.f32.e2m1.e2m1"}) {
    for (int draw = 0; draw < gpu::draws; ++draw) {
      const gpu::TileSet set = instruction_named(name).tiles(static_cast<Draw>(draw), 3);
      const bool is_e8m0 = set.scales == e8m0;
      std::set<std::uint32_t> codes;
      int nans = 0;
      int zero_groups = 0;  // of zeros with a large scale
      int equal_rows = 0;
      for (std::uint64_t tile = 0; tile < 128; ++tile) {
        for (unsigned row = 0; row < 16; ++row) {
          std::set<std::uint32_t> of_row;
          for (unsigned i = 0; i < set.blocks(); ++i) {
            const std::uint32_t code = gpu::scale_word(set, false, tile, row, i);
            of_row.insert(code);
            codes.insert(code);
            nans += code == (is_e8m0 ? 0xFFU : 0x7FU) ? 1 : 0;
            bool is_zero = true;
            for (unsigned k = i * set.block; k < (i + 1) * set.block; ++k) {
              is_zero = is_zero && (gpu::operand_word(set, false, tile, row, k) & set.a.magnitude_mask()) == 0;
            }
            zero_groups += is_zero && code > (is_e8m0 ? 0x90U : 0x70U) ? 1 : 0;
          }
          equal_rows += of_row.size() == 1 ? 1 : 0;
        }
      }
      INFO(name << " " << name_of(set.draw) << " codes " << codes.size() << " NaN " << nans << " zero groups "
                << zero_groups << " equal rows " << equal_rows);
      CHECK((nans > 0) == (set.draw == Draw::special));
      CHECK((zero_groups > 50) == (set.draw == Draw::subnormal));
      CHECK((equal_rows == 128 * 16) == (set.draw == Draw::cancelling || set.blocks() == 1));
      CHECK(codes.size() >= 8);
    }
  }
}

TEST_CASE("recorder: given operands are multiplied, and wrong sizes are refused") {
  const auto recorder = gpu::host_recorder(89);
  const auto& all = gpu::instructions();
  const auto number = static_cast<std::size_t>(
      std::ranges::find(all, std::string("mma.sync.m16n8k32.f16.e4m3.e5m2"), &gpu::Instruction::name) - all.begin());
  const gpu::TileSet set = all[number].tiles(Draw::special, 9);
  const gpu::TileWords words = recorder->tile_words(number, set, 1, 3);
  CHECK(recorder->multiply(number, words.a, words.b, words.c) == words.result);
  CHECK(gpu::model_words(ada_mma_fp8_f16, set, words.a, words.b, words.c) == words.result);
  CHECK_THROWS_AS(recorder->multiply(number, words.a, words.b, std::span(words.c).first(256)), std::invalid_argument);
}

TEST_CASE("recorder: chips without models and instructions that a chip lacks are refused") {
  CHECK_THROWS_AS(gpu::host_recorder(75), std::invalid_argument);
  CHECK_THROWS_AS(gpu::model_of(instruction_named("mma.sync.m16n8k32.f32.e4m3.e4m3"), 80), std::invalid_argument);
  CHECK_THROWS_AS(find_value<gpu::Draw>("draw", "uniform"), std::invalid_argument);
}

}  // namespace fp8lab::tests
