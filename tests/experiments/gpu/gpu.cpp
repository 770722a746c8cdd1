// SPDX-License-Identifier: Apache-2.0
// The recorder as a command runs it: children that hang, the ledger, its replay, and the questions of probes.
#include "gpu/gpu.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

#include "fp8lab/gpu/device.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "gpu/child.hpp"
#include "gpu/libraries.hpp"
#include "gpu/probes.hpp"
#include "gpu/recording.hpp"
#include "gpu/replay.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using namespace fp8lab::experiments;
namespace fs = std::filesystem;

/// A ledger of the host team, small.
Ledger small_ledger(std::uint64_t seed = 1) {
  const GpuResult result =
      run_gpu({.parts = {"casts", "dots"}, .inputs = 1 << 12, .dots = 5000, .seed = seed, .host_team = true});
  REQUIRE(result.passed());
  return result.ledger;
}
const Ledger& own_ledger() {
  static const Ledger ledger = small_ledger();
  return ledger;
}

std::string text_of(const Ledger& ledger) { return json_of(ledger).text(); }

/// The text with one piece replaced, which must be there.
std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string refusal(const std::string& text) {
  try {
    (void)parse_ledger(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "not refused";
}

std::vector<fs::path> device_ledgers() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(FP8LAB_VECTORS "/device")) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
}

/// A recorder that passes every question on to the host's, of another chip or with other operands.
class Disguised final : public gpu::Recorder {
 public:
  Disguised(int capability, bool draws_wrongly)
      : host_(gpu::host_recorder(capability)), draws_wrongly_(draws_wrongly) {}

  gpu::RecordedDevice device() const override {
    gpu::RecordedDevice told = host_->device();
    told.capability = 90;
    return told;
  }
  std::vector<std::uint64_t> cast_digests(std::size_t sweep, std::uint64_t first, std::uint64_t count,
                                          std::uint64_t chunk) override {
    return host_->cast_digests(sweep, first, count, chunk);
  }
  std::vector<std::uint32_t> cast_words(std::size_t sweep, std::uint64_t first, std::uint64_t count) override {
    return host_->cast_words(sweep, first, count);
  }
  std::vector<std::uint64_t> function_digests(std::size_t i, std::uint64_t seed, std::uint64_t first,
                                              std::uint64_t count, std::uint64_t chunk) override {
    return host_->function_digests(i, seed + (draws_wrongly_ ? 1 : 0), first, count, chunk);
  }
  std::vector<std::uint32_t> function_words(std::size_t i, std::uint64_t seed, std::uint64_t first,
                                            std::uint64_t count) override {
    return host_->function_words(i, seed + (draws_wrongly_ ? 1 : 0), first, count);
  }
  std::vector<std::uint64_t> tile_digests(std::size_t i, const gpu::TileSet& set, std::uint64_t first,
                                          std::uint64_t chunks, std::uint64_t tiles) override {
    return host_->tile_digests(i, drawn(set), first, chunks, tiles);
  }
  gpu::TileWords tile_words(std::size_t i, const gpu::TileSet& set, std::uint64_t first, std::size_t tiles) override {
    return host_->tile_words(i, drawn(set), first, tiles);
  }
  std::vector<std::uint64_t> multiply(std::size_t i, std::span<const std::byte> a, std::span<const std::byte> b,
                                      std::span<const std::byte> c) override {
    return host_->multiply(i, a, b, c);
  }

 private:
  gpu::TileSet drawn(gpu::TileSet set) const {
    if (draws_wrongly_) ++set.seed;
    return set;
  }

  std::unique_ptr<gpu::Recorder> host_;
  bool draws_wrongly_;
};

std::size_t number_of(std::string_view instruction) {
  const auto& all = gpu::instructions();
  return static_cast<std::size_t>(std::ranges::find(all, instruction, &gpu::Instruction::name) - all.begin());
}

}  // namespace

TEST_CASE("gpu: children give results in order, and one that hangs, throws or dies takes no other with it") {
  const std::vector<std::function<std::string()>> tasks{
      [] { return std::string("first"); },
      [] {
        std::this_thread::sleep_for(std::chrono::seconds(30));
        return std::string("never");
      },
      []() -> std::string { throw std::runtime_error("its own reason"); },
      []() -> std::string {
        std::raise(SIGKILL);
        return "never";
      },
      []() -> std::string { ::_exit(0); },
      [] { return std::string(300'000, 'x'); }};
  std::vector<TaskEnd> ends(tasks.size());
  std::vector<std::size_t> order;
  const auto start = std::chrono::steady_clock::now();
  run_in_children(tasks, {.seconds = 0.5}, [&](std::size_t i, const TaskEnd& end) {
    order.push_back(i);
    ends[i] = end;
  });
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
  CHECK(order == std::vector<std::size_t>{0, 1, 2, 3, 4, 5});
  CHECK((ends[0].status == TaskEnd::Status::done && ends[0].text == "first"));
  CHECK((ends[1].status == TaskEnd::Status::timed_out && ends[1].text == "it was killed after 0.5 s"));
  CHECK((ends[2].status == TaskEnd::Status::failed && ends[2].text == "its own reason"));
  CHECK((ends[3].status == TaskEnd::Status::failed && ends[3].text == "signal 9 ended it"));
  CHECK((ends[4].status == TaskEnd::Status::failed && ends[4].text == "its process ended without a result"));
  CHECK((ends[5].status == TaskEnd::Status::done && ends[5].text.size() == 300'000));
}

TEST_CASE("gpu: a budget that is spent ends the task that runs, and names all that it leaves out") {
  const auto sleep = [](int milliseconds) {
    return [milliseconds] {
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      return std::string("done");
    };
  };
  std::vector<TaskEnd> ends(4);
  const auto start = std::chrono::steady_clock::now();
  run_in_children({sleep(0), sleep(60'000), sleep(0), sleep(0)}, {.seconds = 30, .budget = 0.5},
                  [&](std::size_t i, const TaskEnd& end) { ends[i] = end; });
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
  CHECK(ends[0].status == TaskEnd::Status::done);
  for (std::size_t i = 1; i < ends.size(); ++i) {
    CHECK(ends[i].status == TaskEnd::Status::left_out);
    CHECK(ends[i].text == "the budget of 0.5 s for all tasks was spent");
  }
  const GpuResult result =
      run_gpu({.parts = {"dots"}, .dots = 100'000'000'000, .budget = 0.4, .host_team = true, .capability = 100});
  CHECK(result.passed());
  const auto count = [&](std::string_view status) {
    return std::ranges::count(result.ledger.parts, status, &PartNote::status);
  };
  CHECK(count("left out") ==
        std::ranges::count_if(gpu::instructions(), [](const gpu::Instruction& one) { return one.is_for(100); }));
  CHECK(count("left out") + count("skipped") == static_cast<long>(gpu::instructions().size()));
}

TEST_CASE("gpu: the ledger of the host team is read again as it was written, and the models agree with all of it") {
  const Ledger& ledger = own_ledger();
  CHECK(std::cmp_equal(ledger.casts.size(), std::ranges::count_if(gpu::cast_sweeps(), [](const gpu::CastSweep& sweep) {
                         return sweep.is_for(90);
                       })));
  const auto asked =
      std::ranges::count_if(gpu::instructions(), [](const gpu::Instruction& one) { return one.is_for(90); });
  CHECK(std::cmp_equal(ledger.dots.size(), asked * gpu::draws));
  const Ledger read = parse_ledger(text_of(ledger));
  CHECK(text_of(read) == text_of(ledger));
  const Replay result = replay(read, {.all = true});
  CHECK(result.mismatches.empty());
  CHECK(result.chunks >= ledger.casts.size() + ledger.dots.size());
  CHECK(replay(read, {.records = 3}).chunks == 6);
}

TEST_CASE("gpu: a flipped digest, another seed and a wrong model are found, and named") {
  Ledger flipped = own_ledger();
  flipped.dots[7].digests.back() ^= 1;
  flipped.casts[1].digests[0] ^= std::uint64_t{1} << 63;
  const Replay found = replay(flipped, {.all = true});
  REQUIRE(found.mismatches.size() == 2);
  std::vector<std::string> told{found.mismatches[0].told(), found.mismatches[1].told()};
  std::ranges::sort(told);
  CHECK(told[0].starts_with("cvt.rn.satfinite.e5m2x2.f32, chunk 0: the device has "));
  CHECK(told[1].starts_with(flipped.dots[7].instruction + " " + flipped.dots[7].draw + ", chunk "));
  CHECK(told[1].find("hopper_wgmma_fp8 gives ") != std::string::npos);

  Ledger reseeded = own_ledger();
  for (DotRecord& record : reseeded.dots) record.seed = 2;
  // But where a small sample's results are all zero.
  CHECK(replay(reseeded, {.all = true}).mismatches.size() >= reseeded.dots.size() - 3);

  const auto wrong = [](std::string_view name) {
    MmaModel model = find_model(name);
    if (name == "hopper_wgmma_fp8") model.fraction_bits = 12;
    return model;
  };
  const Replay planted = replay(own_ledger(), {.all = true, .model = wrong});
  CHECK(planted.mismatches.size() >= 8);
  for (const ReplayMismatch& mismatch : planted.mismatches) CHECK(mismatch.model == "hopper_wgmma_fp8");
}

TEST_CASE("gpu: ledgers that are cut off, of another generator or of unknown things are refused with the reason") {
  const std::string text = text_of(own_ledger());
  CHECK(refusal(text.substr(0, text.size() / 2)) == "it is not JSON, or a part of it is missing");
  CHECK(refusal("{}") ==
        "its JSON does not have the form of a ledger: a key is missing in it, or a value has another type");
  CHECK(refusal("[1, 2]").starts_with("its JSON does not have the form of a ledger: "));
  CHECK(refusal(replaced(text, "\"ledger\": 1", "\"ledger\": 9")) ==
        "it is a ledger of schema 9, and this fp8lab reads 1");
  CHECK(refusal(replaced(text, "fp8lab recorder", "another one")) ==
        "its operands were drawn by \"another one\" 2, and this fp8lab has fp8lab recorder 2");
  CHECK(refusal(replaced(text, "\"version\": 2", "\"version\": 3")) ==
        "its operands were drawn by \"fp8lab recorder\" 3, and this fp8lab has fp8lab recorder 2");
  CHECK(refusal(replaced(text, "cvt.rna.tf32.f32", "cvt.rna.tf33.f32")) == "unknown sweep \"cvt.rna.tf33.f32\"");
  CHECK(refusal(replaced(text, "mma.sync.m16n8k4.f32.tf32.tf32", "mma.sync.m16n8k5")) ==
        "unknown instruction \"mma.sync.m16n8k5\"");
  CHECK(refusal(replaced(text, "\"gaussian\"", "\"uniform\"")).starts_with("unknown draw 'uniform'"));
  CHECK(refusal(replaced(text, "\"hopper_tf32\"", "\"volta_tf32\"")).starts_with("unknown model 'volta_tf32'"));
  CHECK(refusal(replaced(text, "\"inputs_per_chunk\": 4096", "\"inputs_per_chunk\": 0")) ==
        "inputs_per_chunk must not be 0");
  CHECK(refusal(replaced(text, "\"inputs_per_chunk\": 4096", "\"inputs_per_chunk\": 5000"))
            .find("has not so many chunks of 5000 inputs") != std::string::npos);
  Ledger one = own_ledger();
  one.dots[0].digests = {0x0123456789abcdef};
  CHECK(refusal(replaced(text_of(one), "0123456789abcdef", "0123456789abcdeg")).starts_with("a digest has 16 hexa"));
  CHECK(refusal(replaced(text, "\"seed\": 1", "\"seed\": -1")) == "seed must be a whole number from 0, not \"-1\"");
}

TEST_CASE("gpu: a ledger of the host team is no ledger of a device") {
  const fs::path path = fs::temp_directory_path() / ("fp8lab_ledger_" + std::to_string(::getpid()) + ".json");
  std::ofstream(path) << text_of(own_ledger());
  CHECK(read_ledger(path).device.name == "host team");
  try {
    (void)read_device_ledger(path);
    FAIL("not refused");
  } catch (const std::runtime_error& error) {
    CHECK(std::string(error.what()).find("the host team made it, not a device") != std::string::npos);
  }
  fs::remove(path);
  CHECK_THROWS_AS(read_ledger(path), std::runtime_error);
}

TEST_CASE("gpu: what differs from the model is told with its operands") {
  Disguised disguised(89, false);  // Ada's models under Hopper's name
  const std::size_t number = number_of("mma.sync.m16n8k32.f32.e4m3.e4m3");
  const Recording recording = record_dots(disguised, number, {.dots = 5000});
  CHECK(recording.compared.mismatches.size() >= 3);
  REQUIRE_FALSE(recording.ledger.differences.empty());
  const Difference& difference = recording.ledger.differences.front();
  CHECK(difference.record.starts_with("mma.sync.m16n8k32.f32.e4m3.e4m3 "));
  CHECK(difference.got != difference.expected);
  CHECK(difference.operands.starts_with("a "));

  // 13 fraction bits, asked whether they are 23 to 27.
  for (const Probe& probe : probes(90)) {
    if (probe.instruction != number || !probe.name.ends_with(": steps")) continue;
    const Finding finding = ask(disguised, probe);
    CHECK(finding.answer == "none of the answers that were thought of");
    CHECK(finding.agrees == false);
    CHECK_FALSE(finding.words.empty());
  }
}

TEST_CASE("gpu: operands that a device draws wrongly are told, where every result of them is right") {
  Disguised disguised(90, true);
  const Recording recording = record_dots(disguised, number_of("mma.sync.m16n8k32.f32.e4m3.e4m3"), {.dots = 5000});
  CHECK(recording.compared.mismatches.size() >= 4);
  REQUIRE_FALSE(recording.ledger.differences.empty());
  const Difference& first = recording.ledger.differences.front();
  CHECK(first.record == "mma.sync.m16n8k32.f32.e4m3.e4m3 random_bits");
  CHECK(first.operands.starts_with("a itself, of this tile: row 0, "));
  CHECK((first.index == 0 && first.got != first.expected));
}

TEST_CASE("gpu: probes tell apart what they are about, and the host team answers as its model does") {
  const auto recorder = gpu::host_recorder();
  const std::map<std::string, std::string> answers{
      {"wgmma.m64n64k32.f32.e4m3.e4m3: fraction bits", "13 fraction bits"},
      {"wgmma.m64n64k32.f32.e4m3.e4m3: steps", "32 products a step, ascending"},
      {"wgmma.m64n64k32.f16.e5m2.e5m2: underflow", "+0"},
      {"wgmma.m64n64k8.f32.tf32.tf32: operands", "cut toward zero"},
      {"wgmma.m64n64k32.f32.e5m2.e5m2: NaN and infinities", "yes"},
      {"mma.sync.m16n8k32.f16.e4m3.e4m3: steps", "16 products a step, pairs, c added last"},
      {"mma.sync.m16n8k16.f16.f16.f16: zeros", "a floor of -21"},
      {"mma.sync.m16n8k16.f32.bf16.bf16: zeros", "a floor of -133"},
      {"mma.sync.m8n8k4.f64.f64.f64: order", "fused multiply-adds, ascending k"},
      {"mma.sync.m16n8k16.f64.f64.f64: order", "fused multiply-adds, ascending k"},
      {"mma.sync.m16n8k8.f64.f64.f64: NaN and infinities", "yes"}};
  std::size_t asked = 0;
  for (const Probe& probe : probes(90)) {
    const auto expected = answers.find(probe.name);
    if (expected == answers.end()) continue;
    const Finding finding = ask(*recorder, probe);
    INFO(finding.name);
    CHECK(finding.answer == expected->second);
    CHECK(finding.agrees == true);
    ++asked;
  }
  CHECK(asked == answers.size());
}

TEST_CASE("gpu: Blackwell's instructions are recorded and replayed, and its probes answer as its models do") {
  const std::map<std::string, std::string> answers{
      {"tcgen05.mma.m128n128k32.f8f6f4.f32.e4m3.e4m3: fraction bits", "25 fraction bits"},
      {"tcgen05.mma.m128n128k32.f8f6f4.f16.e5m2.e5m2: fraction bits", "25 fraction bits"},
      {"tcgen05.mma.m128n128k32.mxf8f6f4.f32.e4m3.e4m3: zeros", "a floor of -133"},
      {"tcgen05.mma.m128n128k64.mxf4.f32.e2m1.e2m1: groups", "groups of 16"},
      {"tcgen05.mma.m128n128k64.mxf4nvf4.f32.e2m1.e2m1: zeros",
       "18 answers fit, from a floor of -147 to no floor, groups of zeros do not count"},
      {"tcgen05.mma.m128n128k64.mxf4nvf4.f32.e2m1.e2m1: fraction bits", "35 fraction bits"},
      {"tcgen05.mma.m128n128k64.mxf4nvf4.f32.e2m1.e2m1: groups", "groups of 16"},
      {"mma.sync.m16n8k64.mxf4nvf4.f32.e2m1.e2m1: zeros",
       "18 answers fit, from a floor of -147 to no floor, groups of zeros do not count"},
      {"mma.sync.m16n8k64.mxf4nvf4.f32.e2m1.e2m1: NaN and infinities", "yes"},
      {"mma.sync.m16n8k32.mxf8f6f4.f32.e5m2.e5m2: fraction bits", "25 fraction bits"}};
  std::size_t asked = 0;
  for (const int capability : {100, 120}) {
    const auto recorder = gpu::host_recorder(capability);
    Ledger ledger{.device = recorder->device()};
    for (std::size_t i = 0; i < gpu::instructions().size(); ++i) {
      if (!gpu::instructions()[i].has_kind() || !gpu::instructions()[i].is_for(capability)) continue;
      if (gpu::instructions()[i].type_a != gpu::instructions()[i].type_b) continue;
      ledger.merge(record_dots(*recorder, i, {.dots = 2000}).ledger);
      if (gpu::instructions()[i].accumulator != gpu::MmaAccumulator::float32) continue;
      CHECK(ask_zero_products(*recorder, i, 300).answer == "yes, all 300");
    }
    const Ledger read = parse_ledger(text_of(ledger));
    CHECK(replay(read, {.all = true}).mismatches.empty());
    const auto planted = [](std::string_view name) {
      MmaModel model = find_model(name);
      if (name == "blackwell_nvf4") model.fraction_bits = 33;
      return model;
    };
    CHECK_FALSE(replay(read, {.all = true, .model = planted}).mismatches.empty());
    for (const Probe& probe : probes(capability)) {
      const auto expected = answers.find(probe.name);
      if (expected == answers.end()) continue;
      const Finding finding = ask(*recorder, probe);
      INFO(finding.name);
      CHECK(finding.answer == expected->second);
      CHECK(finding.agrees == true);
      ++asked;
    }
  }
  CHECK(asked == answers.size());
}

TEST_CASE("gpu: how a library composed a product is found from its output alone") {
  const LibraryProduct product = library_product(32, 32, 768, 3);
  const auto found = [&](GemmRecipe recipe) {
    std::vector<float> out(32 * 32);
    recipe.model = hopper_wgmma_fp8;
    gemm(recipe, Operand::codes(product.a, e4m3, 32, 768), Operand::codes(product.b, e4m3, 32, 768), out);
    const FoundComposition one = find_composition(hopper_wgmma_fp8, product, out, 1);
    INFO(one.told);
    REQUIRE(one.composition);
    std::vector<float> again(out.size());
    gemm(recipe_of(hopper_wgmma_fp8, *one.composition), Operand::codes(product.a, e4m3, 32, 768),
         Operand::codes(product.b, e4m3, 32, 768), again);
    CHECK(again == out);
    return *one.composition;
  };
  CHECK(found({}).promote_k == 0);
  CHECK(found({}).split_k == 0);
  CHECK(found({.promote_k = 128}).promote_k == 128);
  CHECK(found({.split_k = {256, 256, 256}}).promote_k == 256);  // which is the same sum
  const Composition both = found({.promote_k = 64, .split_k = {256, 256, 256}});
  CHECK((both.promote_k == 64 && both.split_k == 256));
}

TEST_CASE("gpu: an interpreter that is missing, has no PyTorch or fails is told apart") {
  CHECK_THROWS_AS(ask_stream("/no/such/python", false, 1), MissingError);
  const fs::path script = fs::temp_directory_path() / ("fp8lab_python_" + std::to_string(::getpid()));
  const auto says = [&](const std::string& text) {
    std::ofstream(script) << "#!/bin/sh\n" << text << "\n";
    fs::permissions(script, fs::perms::owner_all);
    try {
      return ask_stream(script.native(), false, 1).answer;
    } catch (const MissingError& error) {
      return std::string("missing: ") + error.what();
    } catch (const std::runtime_error& error) {
      return std::string("error: ") + error.what();
    }
  };
  CHECK(says("echo this Python has no PyTorch; exit 3") == "missing: this Python has no PyTorch");
  CHECK(says("echo traceback >&2; echo its last line >&2; exit 1") == "error: " + script.native() + ": its last line");
  CHECK(says("echo short > $3/out") == "error: the script wrote 6 bytes, not 4194316");
  CHECK(says("echo PyTorch; echo 114 2048; head -c 4194316 /dev/zero > $3/out").find("of 1048579 equal") !=
        std::string::npos);
  fs::remove(script);
}

TEST_CASE("gpu: what PyTorch's script times becomes speeds, and a line of another form is told") {
  const fs::path script = fs::temp_directory_path() / ("fp8lab_speeds_" + std::to_string(::getpid()));
  const auto ask = [&](const std::string& text) {
    std::ofstream(script) << "#!/bin/sh\n" << text << "\n";
    fs::permissions(script, fs::perms::owner_all);
    return ask_torch_speed(script.native(), TorchSpeed::te, "cuda", 64).ledger.speeds;
  };
  const auto speeds = ask("echo PyTorch 3; echo 'a cast|64 x 64|12288|B|0.5|0.25'; echo 'mm|64^3|524288|FLOP|2e-2|0'");
  REQUIRE(speeds.size() == 2);
  CHECK((speeds[0].name == "a cast" && speeds[0].what == "64 x 64; PyTorch 3" && speeds[0].amount == 12288));
  CHECK((speeds[0].milliseconds == 0.5 && speeds[0].bound_milliseconds == 0.25 && speeds[1].unit == "FLOP"));
  CHECK_THROWS_WITH(ask("echo PyTorch 3; echo 'a cast|64 x 64|12288|B|0.5'"),
                    "the script wrote: a cast|64 x 64|12288|B|0.5");
  CHECK_THROWS_AS(ask("echo this Python has no PyTorch; exit 3"), MissingError);
  fs::remove(script);
}

TEST_CASE("gpu: functions of the host team are in a ledger, which is read again, and the models agree with all of it") {
  const fs::path folder = fs::temp_directory_path() / ("fp8lab_words_" + std::to_string(::getpid()));
  const GpuResult result = run_gpu(
      {.parts = {"units", "functions"}, .inputs = 256, .dots = 300, .seed = 5, .host_team = true, .words = folder});
  CHECK(result.passed());
  const Ledger& ledger = result.ledger;
  CHECK(ledger.functions.size() == gpu::recorded_functions().size());
  CHECK(ledger.words.size() == gpu::word_ranges().size());
  CHECK(std::distance(fs::directory_iterator(folder), fs::directory_iterator()) ==
        static_cast<std::ptrdiff_t>(ledger.words.size()));
  fs::remove_all(folder);
  const Ledger read = parse_ledger(text_of(ledger));
  CHECK(text_of(read) == text_of(ledger));
  const Replay same = replay(read, {.all = true});
  CHECK((same.mismatches.empty() && same.chunks == ledger.functions.size()));

  Ledger wrong = read;
  const auto divided = std::ranges::find_if(
      wrong.functions, [](const FunctionRecord& one) { return one.variant == "fast" && one.function == "x / y"; });
  REQUIRE(divided != wrong.functions.end());
  CHECK((divided->seed == 5 && divided->chunk == 300 && divided->units == SpecialUnits::hopper));
  divided->units = SpecialUnits::correctly_rounded;
  wrong.functions[3].digests[0] ^= 1;
  const Replay found = replay(wrong, {.all = true});
  REQUIRE(found.mismatches.size() == 2);
  const bool is_first = found.mismatches[0].record == "units lg2.approx.f32";
  CHECK(found.mismatches[is_first ? 0 : 1].told().starts_with("units lg2.approx.f32, chunk 0: the device has"));
  CHECK(found.mismatches[is_first ? 1 : 0].record == "fast x / y");
  CHECK(found.mismatches[is_first ? 1 : 0].model == "correctly_rounded");
}

TEST_CASE("gpu: pairs that a device draws otherwise are found, with its words") {
  Disguised device(90, true);
  const std::size_t number = gpu::function_number(gpu::FunctionVariant::plain, "x / y");
  const Recording recording = record_function(device, number, {.dots = 200});
  CHECK(recording.compared.mismatches.size() == 1);
  REQUIRE(recording.ledger.differences.size() == most_differences);
  CHECK(recording.ledger.differences[0].record == "default x / y");
  CHECK(recording.ledger.differences[0].operands.size() == 16);
}

TEST_CASE("gpu: a function that had no model when it was recorded is compared with one found since") {
  const std::size_t number = gpu::function_number(gpu::FunctionVariant::units, "tanh.approx.bf16");
  Ledger ledger{.device = {.name = "some GPU", .capability = 90, .runtime = "13.0"},
                .functions = record_function(*gpu::host_recorder(90), number, {.dots = 200}).ledger.functions};
  REQUIRE(ledger.functions.size() == 1);
  ledger.functions[0].units.reset();
  ledger.functions[0].digests[0] ^= 1;
  const Replay found = replay(parse_ledger(text_of(ledger)), {.all = true});
  REQUIRE(found.mismatches.size() == 1);
  CHECK((found.mismatches[0].record == "units tanh.approx.bf16" && found.mismatches[0].model == "hopper"));
  ledger.device.capability = 80;
  CHECK(replay(parse_ledger(text_of(ledger)), {.all = true}).chunks == 0);
}

TEST_CASE("gpu: functions that a ledger cannot have are refused by name") {
  FunctionRecord record{
      .variant = "fast", .function = "expf(x)", .units = SpecialUnits::hopper, .chunk = 256, .digests = {1, 2}};
  Ledger ledger{.device = {.name = "some GPU", .capability = 90, .runtime = "13.0"}, .functions = {record}};
  const auto refused = [&](const auto& change) {
    Ledger other = ledger;
    change(other.device, other.functions[0]);
    return refusal(text_of(other));
  };
  CHECK(refusal(text_of(ledger)) == "not refused");
  CHECK(refused([](auto& device, auto&) { device.runtime = "12.8"; }) ==
        "functions of CUDA \"12.8\" are not known; known: 13.0");
  CHECK(refused([](auto& device, auto&) { device.capability = 100; }) ==
        "units are hopper, which are not those of compute capability 10.0");
  CHECK(refused([](auto&, auto& one) { one.variant = "slow"; }).starts_with("unknown variant 'slow'; known: units"));
  CHECK(refused([](auto&, auto& one) { one.function = "acosf(x)"; }).starts_with("unknown function acosf(x) of fast"));
  CHECK(refused([](auto&, auto& one) { one.seed = 1; }) == "expf(x) has no pairs, and so no seed");
  CHECK(refused([](auto&, auto& one) { one.function = "x / y"; }) == "x / y needs the seed of its pairs");
  CHECK(refused([](auto&, auto& one) { one.chunk = std::uint64_t{1} << 32; }) ==
        "expf(x) has not so many chunks of 4294967296 inputs");
  CHECK(refused([](auto&, auto& one) { one.chunk = 0; }) == "chunk must not be 0");
  CHECK(refusal(replaced(text_of(ledger), "\"hopper\"", "\"ada\"")) ==
        "unknown units 'ada'; known: hopper, correctly_rounded");
}

TEST_CASE("gpu: what PyTorch's script tells of its tensors becomes records, and a line of another form is told") {
  const fs::path script = fs::temp_directory_path() / ("fp8lab_calls_" + std::to_string(::getpid()));
  const fs::path folder = script.native() + "_words";
  const auto ask = [&](const std::string& text) {
    std::ofstream(script) << "#!/bin/sh\necho words > $3/out.npz\necho PyTorch 3\n" << text << "\n";
    fs::permissions(script, fs::perms::owner_all);
    return ask_calls({.python = script.native(), .device = "cuda", .folder = folder}, "calls", "libraries_triton")
        .ledger;
  };
  const Ledger ledger = ask("echo triton_dot/64/32/0 4096 0123456789abcdef; echo '-triton_dot/64/32/1 not so wide'");
  REQUIRE((ledger.calls.size() == 1 && ledger.findings.size() == 1));
  CHECK((ledger.calls[0].name == "triton_dot/64/32/0" && ledger.calls[0].count == 4096));
  CHECK((ledger.calls[0].digest == 0x0123456789abcdefU && ledger.calls[0].library == "PyTorch 3"));
  CHECK((ledger.findings[0].name == "triton_dot/64/32/1" && ledger.findings[0].answer == "not so wide"));
  CHECK(fs::file_size(folder / "libraries_triton.npz") == 6);
  Ledger written = ledger;
  written.device.name = "some GPU";
  CHECK(text_of(parse_ledger(text_of(written))) == text_of(written));
  CHECK_THROWS_WITH(ask("echo triton_dot/64/32/0 many"), "the script wrote: triton_dot/64/32/0 many");
  CHECK_THROWS_AS(ask("echo this Python has no Triton; exit 3"), MissingError);
  fs::remove(script);
  fs::remove_all(folder);
}

TEST_CASE("gpu: arguments that make no sense are refused") {
  const auto refused = [](const GpuArguments& arguments) {
    try {
      (void)run_gpu(arguments);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused({.parts = {"cast"}}).starts_with("unknown part 'cast'; known: kernels, casts"));
  CHECK(refused({.parts = {"dots", "dots"}}).find("twice") != std::string::npos);
  CHECK(refused({.inputs = 1}) == "inputs must be from 4 to 2^32, not 1");
  CHECK(refused({.dots = 0}) == "dots must be from 1 to 10^12, not 0");
  CHECK(refused({.budget = 0}) == "budget must be above 0 and at most 86400, not 0");
  CHECK(refused({.capability = 100}) == "capability goes with host_team: a device has its own");
  CHECK(refused({.host_team = true, .capability = 75}).starts_with("fp8lab has no models of compute capability 7.5"));
  CHECK(refused({.seconds = -1}) == "seconds must be above 0 and at most 86400, not -1");
}

TEST_CASE("gpu: without a device, that is what is said") {
  if (gpu::device_count() > 0) return;
  CHECK_THROWS_AS(run_gpu({}), gpu::NoDeviceError);
}

TEST_CASE("gpu: the models compute what the ledgers of devices say") {
  const std::vector<fs::path> paths = device_ledgers();
  if (paths.empty()) std::cout << "Skipped: no ledger in tests/vectors/device\n";
  const bool all = tests::exhaustive();
  const auto seed = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  for (const fs::path& path : paths) {
    const Ledger ledger = read_device_ledger(path);
    for (const DotRecord& record : ledger.dots) {
      INFO(path << " " << record.model);
      CHECK(find_model(record.model).evidence == Evidence::measured);
    }
    const Replay result = replay(ledger, {.all = all, .records = 1, .seed = seed, .threads = all ? 2 : 1});
    std::string told;
    for (const ReplayMismatch& mismatch : result.mismatches) told += mismatch.told() + "\n";
    INFO(path << ", seed " << seed << "\n" << told);
    CHECK(result.mismatches.empty());
  }
}

}  // namespace fp8lab::tests
