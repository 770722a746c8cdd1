// SPDX-License-Identifier: Apache-2.0
// Small runs of everything in which the n-th allocation fails: for all n where FP8LAB_EXHAUSTIVE is set, otherwise for
// the first hundred and some of the others. A run must throw std::bad_alloc, or std::system_error where no thread could
// start, or end with the result that it always has: never abort, hang, leak or give less.
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "accumulate/accumulate.hpp"
#include "cast/cast.hpp"
#include "delayed/delayed.hpp"
#include "dot/dot.hpp"
#include "double_rounding/double_rounding.hpp"
#include "exhaustive.hpp"
#include "files/amax_trace.hpp"
#include "files/recorded.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "kit/render.hpp"
#include "primer/primer.hpp"
#include "scaling/scaling.hpp"
#include "scratch.hpp"
#include "transpose/transpose.hpp"
#include "verify/tensor_cores.hpp"

namespace {

std::atomic<long long> allowed = -1;  // allocations until one fails; negative: all succeed
std::atomic<long long> made = 0;
std::atomic<long long> live = 0;

bool fails() {
  ++made;
  return allowed >= 0 && allowed-- == 0;
}

}  // namespace

// In the sanitized build, which has its own malloc and tells leaks at the end, operator new fails; elsewhere malloc
// does, and so what libraries in C and the system ask for.
#if defined(__SANITIZE_ADDRESS__) || !defined(__GLIBC__)
namespace {

void* allocated_or_null(std::size_t size, std::size_t alignment) {
  void* memory = fails() ? nullptr : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory != nullptr) ++live;
  return memory;
}
void* allocated(std::size_t size, std::size_t alignment) {
  void* memory = allocated_or_null(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void freed(void* memory) {
  if (memory != nullptr) --live;
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) { return allocated(size, alignof(std::max_align_t)); }
void* operator new[](std::size_t size) { return allocated(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocated(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocated(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return allocated_or_null(size, alignof(std::max_align_t));
}
void* operator new[](std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return allocated_or_null(size, alignof(std::max_align_t));
}
void operator delete(void* memory) noexcept { freed(memory); }
void operator delete[](void* memory) noexcept { freed(memory); }
void operator delete(void* memory, std::size_t) noexcept { freed(memory); }
void operator delete[](void* memory, std::size_t) noexcept { freed(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { freed(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { freed(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { freed(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { freed(memory); }
#else
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void* malloc(std::size_t size) noexcept {
  if (!fails()) return __libc_malloc(size);
  errno = ENOMEM;
  return nullptr;
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  if (!fails()) return __libc_calloc(count, size);
  errno = ENOMEM;
  return nullptr;
}
void* realloc(void* memory, std::size_t size) noexcept {
  if (!fails()) return __libc_realloc(memory, size);
  errno = ENOMEM;
  return nullptr;
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  if (!fails()) return __libc_memalign(alignment, size);
  errno = ENOMEM;
  return nullptr;
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) noexcept {
  *memory = fails() ? nullptr : __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
}
#endif

namespace {

using namespace fp8lab;
using namespace fp8lab::experiments;
namespace fs = std::filesystem;

struct Scenario {
  std::string name;
  std::function<std::string()> run;  // gives all that comes out
};

template <typename Values>
std::string bytes_of(const Values& values) {
  return {reinterpret_cast<const char*>(std::data(values)), std::size(values) * sizeof(*std::data(values))};
}

/// A result as JSON, CSV and report, without the time, which is another every second.
template <typename Result>
std::string all_of(const Result& result) {
  const Document document = document_of(result);
  std::string text = text_of(document);
  for (const auto& [name, content] : files_of(document)) text += name + content;
  constexpr std::string_view date = "\"date\": \"2026-11-22T00:00:00Z\"";
  for (std::size_t at = text.find("\"date\""); at != std::string::npos; at = text.find("\"date\"", at)) {
    text.erase(at, date.size());
  }
  return text;
}

std::vector<float> values(std::size_t size) {
  std::vector<float> x(size);
  sample(find_distribution("normal"), 1, 0, x);
  return x;
}

std::string quantized(const Recipe& recipe) {
  const std::vector<float> x = values(128 * 128);
  Quantized rowwise;
  Quantized columnwise;
  quantize_both({x, 128, 128}, recipe, rowwise, columnwise, {.threads = 2});
  std::vector<float> back(x.size());
  dequantize(columnwise, back, 2);
  return bytes_of(rowwise.codes) + bytes_of(columnwise.codes) + bytes_of(back);
}

std::string product(const MmaModel& model) {
  std::vector<std::uint8_t> codes(32 * 96);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i * 37 % 120);
  const Operand operands{.elements = std::span<const std::uint8_t>(codes), .format = e4m3, .rows = 32, .depth = 96};
  std::vector<float> out(32 * 32);
  gemm({.model = model, .promote_k = 0}, operands, operands, out, {.threads = 2});
  return bytes_of(out);
}

void add_library(std::vector<Scenario>& scenarios) {
  scenarios.push_back({"encode", [] {
                         const std::vector<float> x = values(5000);
                         std::vector<std::uint8_t> codes(x.size());
                         encode(e4m3, CastPolicy{}, std::span<const float>(x), std::span(codes), 2);
                         return bytes_of(codes);
                       }});
  for (const char* name : {"te_current_scaling", "te_mxfp8", "te_block_128x128", "te_nvfp4"}) {
    scenarios.push_back({std::string("quantize by ") + name, [name] { return quantized(find_recipe(name).recipe); }});
  }
  scenarios.push_back({"gemm of a tensor core", [] { return product(hopper_wgmma_fp8); }});
  scenarios.push_back({"exact gemm", [] { return product(exact); }});
}

void add_experiments(const fs::path& work, std::vector<Scenario>& scenarios) {
  scenarios.push_back({"cast", [] {
                         CastArguments arguments;
                         arguments.source = Draws{.columns = 100};
                         arguments.formats = {choose_format("e2m1")};
                         return all_of(run_cast(arguments));
                       }});
  scenarios.push_back({"scaling", [] {
                         ScalingArguments arguments;
                         arguments.source = Draws{.rows = 16, .columns = 128, .steps = 3};
                         arguments.threads = 2;
                         return all_of(run_scaling(arguments));
                       }});
  scenarios.push_back({"delayed", [work] {
                         DelayedArguments arguments;
                         arguments.trace = read_amax_trace(work / "trace.csv");
                         return all_of(run_delayed(arguments));
                       }});
  scenarios.push_back({"transpose", [work] {
                         TransposeArguments arguments;
                         arguments.source = StoredTensors{{work / "x.npy"}};
                         arguments.recipes = {choose_recipe("te_mxfp8"), choose_recipe("te_nvfp4")};
                         arguments.threads = 2;
                         return all_of(run_transpose(arguments));
                       }});
  scenarios.push_back({"dot", [work] {
                         const DotOperand operand = operand_of_tensor(e4m3, StoredTensors{{work / "x.npy"}}, 3);
                         return all_of(run_dot({.model = hopper_wgmma_fp8, .a = operand, .b = operand}));
                       }});
  scenarios.push_back({"accumulate", [] {
                         AccumulateArguments arguments;
                         arguments.ks = {32, 64};
                         arguments.rows = arguments.columns = 4;
                         arguments.threads = 2;
                         return all_of(run_accumulate(arguments));
                       }});
  scenarios.push_back({"double rounding",
                       [] { return all_of(run_double_rounding({.uniform = {-1, 1}, .size = 1000, .threads = 2})); }});
  scenarios.push_back({"primer", [] {
                         PrimerArguments arguments;
                         arguments.in_features = arguments.out_features = arguments.rows = 16;
                         arguments.threads = 2;
                         return all_of(run_primer(arguments));
                       }});
  scenarios.push_back({"recorded rows", [work] {
                         std::string text;
                         for (const RecordedDots& set : read_gpu_rows(work / "rows.json").sets) {
                           text += set.name + bytes_of(set.dots.a) + bytes_of(set.d);
                         }
                         return text;
                       }});
}

void write_inputs(const fs::path& work) {
  std::ofstream(work / "trace.csv") << "step,a,b\n1,2,3\n2,3,4\n";
  std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (32, 32), }\n";
  std::ofstream(work / "x.npy", std::ios::binary)
      << "\x93NUMPY\x01" << '\0' << static_cast<char>(dict.size()) << '\0' << dict << bytes_of(values(32 * 32));
  const std::string codes = "\"" + std::string(64, '3') + "\"";
  std::ofstream(work / "rows.json") << R"({"source":"x","groups":[{"gpu":"g","fmt":"e4m3","cd":"f32",)"
                                    << R"("model":"sm89.mma.k32","cases":[[)" << codes << ',' << codes
                                    << R"(,"0","42000000"]]}]})";
}

/// What a run in which the n-th allocation fails does that it must not; empty where that is nothing.
std::string defect(const Scenario& scenario, long long n, const std::string& expected) {
  const long long before = live;
  std::string found;
  try {
    allowed = n;
    const std::string result = scenario.run();
    allowed = -1;
    if (result != expected) found = "another result";
  } catch (const std::bad_alloc&) {
    allowed = -1;
  } catch (const std::system_error&) {
    allowed = -1;  // no thread could start
  } catch (const std::exception& error) {
    allowed = -1;
    found = error.what();
  }
  if (found.empty() && live != before) found = std::to_string(live - before) + " leaked";
  return found;
}

/// Runs it until no allocation fails any more; gives the number of defects.
int check(const Scenario& scenario, bool all) {
  const std::string expected = scenario.run();  // what is made once is made here
  made = 0;
  const auto start = std::chrono::steady_clock::now();
  if (scenario.run() != expected) std::printf("%s: the result changes by itself\n", scenario.name.c_str());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const long long total = made;
  const auto affordable = static_cast<long long>(0.05 / seconds) + 1;
  const long long stride = all ? 1 : std::max<long long>(1, total / affordable);
  int defects = 0;
  long long runs = 0;
  for (long long n = 0; n < total; n += n < 100 && stride < 50 ? 1 : stride) {
    std::printf("%s, allocation %lld of %lld\r", scenario.name.c_str(), n, total);  // should it abort
    std::fflush(stdout);
    const std::string found = defect(scenario, n, expected);
    ++runs;
    if (found.empty()) continue;
    ++defects;
    std::printf("%s, allocation %lld of %lld: %s\n", scenario.name.c_str(), n, total, found.c_str());
  }
  std::printf("%-40s %6lld of %6lld allocations failed, %d defects\n", scenario.name.c_str(), runs, total, defects);
  return defects;
}

}  // namespace

int main() {
  const fp8lab::tests::Scratch scratch;
  write_inputs(scratch.path);
  std::vector<Scenario> scenarios;
  add_library(scenarios);
  add_experiments(scratch.path, scenarios);
  const bool all = fp8lab::tests::exhaustive();
  int defects = 0;
  for (const Scenario& scenario : scenarios) defects += check(scenario, all);
  return defects == 0 ? 0 : 1;
}
