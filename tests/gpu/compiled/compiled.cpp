// SPDX-License-Identifier: Apache-2.0
// What the compiler made of the kernels: reads its reports, which the build leaves beside the machine code.
#include "compiled.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <regex>
#include <set>
#include <stdexcept>

#include "catch.hpp"
#include "fp8lab/gpu/encode_kernel.hpp"
#include "fp8lab/gpu/kernels/cast.hpp"
#include "fp8lab/gpu/kernels/delayed.hpp"
#include "fp8lab/gpu/kernels/dequantize.hpp"
#include "fp8lab/gpu/kernels/fill.hpp"
#include "fp8lab/gpu/kernels/gemm_mma_sync.hpp"
#include "fp8lab/gpu/kernels/gemm_sm100.hpp"
#include "fp8lab/gpu/kernels/gemm_sm120.hpp"
#include "fp8lab/gpu/kernels/gemm_wgmma.hpp"
#include "fp8lab/gpu/kernels/instruction_tiles.hpp"
#include "fp8lab/gpu/kernels/quantize_rows.hpp"
#include "fp8lab/gpu/kernels/quantize_tile.hpp"
#include "fp8lab/gpu/kernels/swizzle.hpp"
#include "fp8lab/gpu/recorder/casts.hpp"
#include "fp8lab/gpu/recorder/fill_gaussian.hpp"
#include "fp8lab/gpu/recorder/tiles.hpp"

namespace fp8lab::tests {

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(symbol, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 ? name.get() : symbol;
}

namespace {

/// The kernel of `void fp8lab::gpu::run<KERNEL>(KERNEL)`, or the symbol itself.
std::string kernel_of(const std::string& symbol) {
  std::string name = demangled(symbol.c_str());
  const std::size_t first = name.find("run<");
  if (first == std::string::npos) return name;
  std::size_t last = name.rfind(">(");
  while (name[last - 1] == ' ') --last;
  return name.substr(first + 4, last - first - 4);
}

}  // namespace

std::vector<Compiled> read_report(const std::filesystem::path& file) {
  static const std::regex entry("Compiling entry function '(.*)' for '(.*)'");
  static const std::regex stack(R"((\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads)");
  static const std::regex used(R"(Used (\d+) registers(?:.* (\d+) bytes smem)?)");
  std::ifstream in(file);
  if (!in) throw std::runtime_error("no report " + file.string());
  std::vector<Compiled> all;
  bool is_serialized = false;
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (line.find("Potential Performance Loss") != std::string::npos) is_serialized = true;
    if (std::regex_search(line, match, entry)) {
      all.push_back({.kernel = kernel_of(match[1]), .architecture = match[2]});
    } else if (std::regex_search(line, match, stack) && !all.empty()) {
      for (std::size_t i = 1; i <= 3; ++i) all.back().local += std::stoul(match[i]);
    } else if (std::regex_search(line, match, used) && !all.empty()) {
      all.back().registers = static_cast<unsigned>(std::stoul(match[1]));
      all.back().shared = match[2].matched ? std::stoul(match[2]) : 0;
    }
  }
  for (Compiled& one : all) one.is_serialized = is_serialized;
  return all;
}

std::vector<std::string> read_warnings(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<std::string> warnings;
  for (std::string line; std::getline(in, line);) {
    if (line.find("warning") != std::string::npos) warnings.push_back(line);
  }
  return warnings;
}

std::vector<std::string> read_calls(const std::filesystem::path& file) {
  static const std::regex call("calling a constexpr __host__ function\\(\"([^\"]*)\"");
  std::ifstream in(file);
  std::vector<std::string> calls;
  for (std::string line; std::getline(in, line);) {
    if (std::smatch match; std::regex_search(line, match, call)) calls.push_back(match[1]);
  }
  return calls;
}

const Limit* find_limit(const std::vector<Limit>& limits, std::string_view kernel) {
  const auto find = [&](const auto& matches) {
    const auto found = std::find_if(limits.begin(), limits.end(), matches);
    return found == limits.end() ? nullptr : &*found;
  };
  const Limit* own = find([&](const Limit& one) { return one.kernel == kernel; });
  if (own != nullptr) return own;
  const auto name = [](std::string_view type) { return type.substr(0, type.find('<')); };
  return find([&](const Limit& one) { return name(one.kernel) == name(kernel); });
}

namespace {

/// Whether a report is of code that was changed since: an ordinary run compiles only some kernels for all chips.
bool is_stale(const std::filesystem::path& report) {
  std::filesystem::path list = report;
  list.replace_extension(".d");  // what make would read, for cubins
  std::ifstream in(list);
  const auto made = std::filesystem::last_write_time(report);
  std::string word;
  in >> word;  // the target
  while (in >> word) {
    std::error_code error;
    const auto changed = std::filesystem::last_write_time(word, error);  // an error for what is no file
    if (!error && changed > made) return true;
  }
  return false;
}

/// Every kernel with the registers that it may use.
std::vector<Limit> limits() {
  using namespace gpu;
  using Sync = MmaSync<MmaType::e4m3, MmaType::e4m3, MmaAccumulator::float32, 32>;
  return {
      limit<FillZero>(32),
      limit<FillGaussian>(48),
      limit<Amax<float>>(48),
      limit<Cast<float, AnyRecipe>>(64),
      limit<UpdateScales>(40),
      limit<SwizzleScales>(32),
      limit<Dequantize>(64),
      limit<QuantizeRows<float, TeMxRecipe>>(64),
      limit<QuantizeTile<float, AnyRecipe>>(128),  // and whatever is not below
      limit<QuantizeTile<Half, TeMxRecipe>>(80),
      limit<QuantizeTile<BFloat16, TeMxRecipe>>(80),
      limit<QuantizeTile<BFloat16, TeBlockRecipe>>(80),
      limit<QuantizeTile<BFloat16, GivenRecipe, true>>(80),
      limit<EncodeKernel>(64),
      limit<GemmSm100<Tcgen05Mma<MmaKind::mxf4nvf4>, DeviceTensorMap>>(64),
      limit<GemmSm120<MmaSyncScaled<MmaKind::mxf4nvf4>>>(136),
      limit<MmaSyncGemm<MmaType::e4m3, MmaType::e4m3, MmaAccumulator::float32>>(255),  // 168 on Ada; Hopper unpacks FP8
      limit<MmaSyncTiles<Sync>>(32),
      limit<MmaSyncTiles<MmaSync<MmaType::f64, MmaType::f64, MmaAccumulator::float64, 16>>>(48),
      limit<WgmmaGemm<MmaType::e4m3, MmaType::e4m3, NoPromotion, DeviceTensorMap>>(168),
      limit<WgmmaGemm<MmaType::e4m3, MmaType::e4m3, PlainPromotion, DeviceTensorMap>>(168),
      limit<SweepCasts<casts::E4m3FromF32>>(48),
      limit<GenerateTiles>(80),
      limit<DigestTiles>(48),
      // The recorder has a private header, so its kernels are named here.
      {"fp8lab::gpu::recorded::HopperTiles<>", 64, 128, (64 + 64) * 128},
      {"fp8lab::gpu::recorded::BlackwellTiles<>", 64, 128, (128 + 128) * 128 + 2048},
      {"fp8lab::gpu::recorded::RtxTiles<>", 48, 128, 0},
  };
}

const Multiprocessor& multiprocessor(std::string_view architecture) {
  const auto* const found = std::find_if(multiprocessors.begin(), multiprocessors.end(),
                                         [&](const Multiprocessor& sm) { return sm.architecture == architecture; });
  REQUIRE(found != multiprocessors.end());
  return *found;
}

/// Whether the tests know the chip: a library can be built for others, too.
bool is_known(std::string_view architecture) {
  return std::ranges::any_of(multiprocessors, [&](const auto& sm) { return sm.architecture == architecture; });
}

void check_kernel(const Compiled& kernel, const std::vector<Limit>& all) {
  const Limit* limit = find_limit(all, kernel.kernel);
  INFO(kernel.kernel << " for " << kernel.architecture);
  REQUIRE(limit != nullptr);  // write one for every new kernel
  CHECK_FALSE(kernel.is_serialized);
  CHECK(kernel.local == 0);
  CHECK(kernel.registers <= limit->registers);
  const Multiprocessor& sm = multiprocessor(kernel.architecture);
  const std::size_t shared = kernel.shared + limit->shared;
  const Occupancy held = occupancy(sm, limit->threads, kernel.registers, shared);
  CHECK(held.blocks > 0);
  std::cout << std::left << std::setw(8) << kernel.architecture << std::right << std::setw(5) << limit->threads
            << std::setw(11) << kernel.registers << std::setw(9) << shared << std::setw(8) << held.blocks
            << std::setw(10) << 100 * held.blocks * ((limit->threads + 31) / 32) / sm.warps << " %  by " << std::left
            << std::setw(14) << held.limited_by << kernel.kernel << "\n";
}

}  // namespace

TEST_CASE("no kernel uses local memory, or more registers than its limit") {
  std::cout << "        threads registers  shared  blocks  occupancy\n";
  std::set<std::filesystem::path> reports;
  for (const auto& file : std::filesystem::directory_iterator(FP8LAB_CUBINS)) {
    if (file.path().extension() != ".txt") continue;
    if (is_stale(file.path())) {
      std::cout << "Not read, since its sources changed: " << file.path().filename().native() << "\n";
    } else {
      reports.insert(file.path());
    }
  }
  REQUIRE_FALSE(reports.empty());
  std::set<std::string> checked;  // architectures
  const std::vector<Limit> all = limits();
  for (const auto& report : reports) {
    INFO(report);
    for (const std::string& warning : read_warnings(report)) FAIL_CHECK(warning);
    const std::vector<Compiled> kernels = read_report(report);
    CHECK_FALSE(kernels.empty());
    for (const Compiled& kernel : kernels) {
      if (!is_known(kernel.architecture)) continue;
      check_kernel(kernel, all);
      checked.insert(kernel.architecture);
    }
  }
  CHECK(checked.size() >= 2);
}

namespace {

/// Whether the compiler is known to make of a function for devices what it is for the host. The standard library's
/// functions that count bits are not: they call builtins that devices do not have, and nvcc does not say so.
bool is_right_on_devices(const std::string& function) {
  static const std::regex known("(^|::)(bit_cast|array|operator\\[\\]|infinity|quiet_NaN|max|min|clamp)(?!\\w)");
  return std::regex_search(function, known);
}

}  // namespace

TEST_CASE("device code calls no function of the standard library but those that are right on devices") {
  std::size_t read = 0;
  for (const auto& file : std::filesystem::directory_iterator(FP8LAB_CUBINS "/called")) {
    if (file.path().extension() != ".txt") continue;
    if (is_stale(file.path())) continue;
    INFO(file.path());
    const std::vector<std::string> calls = read_calls(file.path());
    for (const std::string& call : calls) {
      if (!is_right_on_devices(call)) FAIL_CHECK(call);
    }
    read += calls.size();
  }
  CHECK(read > 0);
}

TEST_CASE("a function that counts bits otherwise on devices is found") {
  const auto calls = read_calls(std::filesystem::path(FP8LAB_CUBINS) / "called/planted/leading_zeros.ptx.txt");
  REQUIRE_FALSE(calls.empty());
  CHECK_FALSE(std::ranges::all_of(calls, is_right_on_devices));
}

TEST_CASE("an array in local memory is found") {
  const auto all = read_report(std::filesystem::path(FP8LAB_CUBINS) / "planted/local_memory.sm_90a.cubin.txt");
  REQUIRE(all.size() == 1);
  CHECK(all[0].kernel == "LocalMemoryKernel");
  CHECK(all[0].local >= 32 * sizeof(unsigned));
}

TEST_CASE("a warning of the compiler is found") {
  const auto report = std::filesystem::path(FP8LAB_CUBINS) / "planted/local_memory.sm_90a.cubin.txt";
  const std::vector<std::string> warnings = read_warnings(report);
  REQUIRE_FALSE(warnings.empty());
  CHECK(warnings[0].find("\"never_used\" was declared but never referenced") != std::string::npos);
}

TEST_CASE("occupancy is what NVIDIA's calculator says") {
  // 256 threads of 32 registers fill a multiprocessor; one register more is rounded up to 40; 1 KiB of a block's shared
  // memory goes to the system.
  const Multiprocessor& hopper = multiprocessors[1];
  const Multiprocessor& ada = multiprocessors[0];
  CHECK(occupancy(hopper, 256, 32, 0).blocks == 8);
  CHECK(occupancy(hopper, 256, 33, 0).blocks == 6);
  CHECK(occupancy(hopper, 256, 33, 0).limited_by == "registers");
  CHECK(occupancy(hopper, 384, 168, 227 * 1024).blocks == 1);
  CHECK(occupancy(hopper, 384, 168, 227 * 1024 + 1).blocks == 0);
  CHECK(occupancy(hopper, 128, 32, 113 * 1024).blocks == 2);
  CHECK(occupancy(hopper, 128, 32, 113 * 1024 + 1).blocks == 1);
  CHECK(occupancy(ada, 256, 32, 0).blocks == 6);
  CHECK(occupancy(ada, 32, 32, 0).limited_by == "blocks");
}

}  // namespace fp8lab::tests
