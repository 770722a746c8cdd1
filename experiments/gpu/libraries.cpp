// SPDX-License-Identifier: Apache-2.0
#include "gpu/libraries.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "files/tensor_file.hpp"
#include "fp8lab/doctor/diagnose_gemm.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/gpu/recorder/cublaslt.hpp"
#include "fp8lab/gpu/recorder/memory.hpp"
#include "fp8lab/gpu/recorder/tiles.hpp"
#include "fp8lab/reference/measure/random.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "gpu/call_script.hpp"
#include "gpu/torch_script.hpp"
#include "kit/output.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX declares it nowhere

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t asked_rows = 256;  // and columns

/// A folder that ends with this.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "fp8lab_gpu_XXXXXX").native();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp: " + std::string(std::strerror(errno)));
    path_ = name;
  }
  Scratch(Scratch&&) = delete;  // and so no copies either
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  [[nodiscard]] const fs::path& path() const { return path_; }
  void write(const char* name, std::span<const std::uint8_t> bytes) const {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen((path_ / name).c_str(), "wb"), &std::fclose);
    if (file == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size() ||
        std::fflush(file.get()) != 0) {
      throw std::runtime_error("cannot write " + (path_ / name).native());
    }
  }
  [[nodiscard]] std::string read(const char* name) const {
    std::ifstream file(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

 private:
  fs::path path_;
};

/// Runs the script; gives what it tells. Throws MissingError where it says that something is missing.
std::string run_script(const std::string& python, const Scratch& scratch, std::vector<std::string> arguments,
                       const char* script = torch_script) {
  arguments.insert(arguments.begin(), {python, "-c", script, scratch.path().native()});
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  const std::string told = (scratch.path() / "told").native();
  const std::string errors = (scratch.path() / "errors").native();
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, told.c_str(), O_WRONLY | O_CREAT, 0600);
  ::posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT, 0600);
  pid_t id = 0;
  const int error = ::posix_spawnp(&id, python.c_str(), &actions, nullptr, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw MissingError("there is no interpreter " + printable(python) + ": " + std::strerror(error));
  int status = 0;
  while (::waitpid(id, &status, 0) < 0 && errno == EINTR) continue;
  const std::string text = scratch.read("told");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 3) throw MissingError(text.substr(0, text.find('\n')));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::string reason = scratch.read("errors");
    while (reason.ends_with('\n')) reason.pop_back();
    throw std::runtime_error(python + ": " + reason.substr(reason.rfind('\n') + 1));
  }
  return text;
}

/// The float32 words that the script wrote.
std::vector<float> output_of(const Scratch& scratch, std::size_t count) {
  const std::string bytes = scratch.read("out");
  if (bytes.size() != count * sizeof(float)) {
    throw std::runtime_error(fmt::format("the script wrote {} bytes, not {}", bytes.size(), count * sizeof(float)));
  }
  std::vector<float> values(count);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<std::uint8_t> codes_of(bool is_b, std::size_t rows, std::size_t depth, std::uint64_t seed) {
  const gpu::TileSet set{.a = e4m3,
                         .b = e4m3,
                         .accumulator = binary32,
                         .rows = static_cast<unsigned>(rows),
                         .columns = static_cast<unsigned>(rows),
                         .depth = 32,
                         .draw = gpu::Draw::gaussian,
                         .seed = seed};
  std::vector<std::uint8_t> codes(rows * depth);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t k = i % depth;
    codes[i] = static_cast<std::uint8_t>(
        gpu::operand_word(set, is_b, k / 32, static_cast<unsigned>(i / depth), static_cast<unsigned>(k % 32)));
  }
  return codes;
}

std::vector<std::uint32_t> words_of(std::span<const float> values) {
  std::vector<std::uint32_t> words(values.size());
  std::ranges::transform(values, words.begin(), [](float value) { return std::bit_cast<std::uint32_t>(value); });
  return words;
}

/// The first rows of a product, composed so.
std::vector<float> composed(const MmaModel& model, const LibraryProduct& product, const Composition& composition,
                            std::size_t rows, int threads) {
  std::vector<float> out(rows * product.columns);
  gemm(recipe_of(model, composition),
       Operand::codes(std::span(product.a).first(rows * product.depth), e4m3, rows, product.depth),
       Operand::codes(product.b, e4m3, product.columns, product.depth), out, {.threads = threads});
  return out;
}

/// Finds out how a library's output was composed, and records it.
TaskResult product_result(const std::string& name, const std::string& library, const std::string& algorithm,
                          const ProductQuestion& question, const LibraryProduct& product, std::span<const float> out) {
  const FoundComposition found = find_composition(question.model, product, out, question.threads);
  const std::string called =
      fmt::format("{}, K = {}, {}", name, question.depth, question.fast ? "fast accumulation" : "split accumulator");
  ProductRecord record{.library = library,
                       .fast = question.fast,
                       .model = std::string(question.model.name),
                       .rows = product.rows,
                       .columns = product.columns,
                       .depth = product.depth,
                       .seed = question.seed,
                       .digest = gpu::digest_of(words_of(out))};
  const std::uint64_t words = out.size();
  const std::uint64_t compared = found.composition ? words : 0;
  record.composition = found.composition;
  Finding finding{.part = "products",
                  .name = called,
                  .question = "How is the product composed?",
                  .answer = found.told,
                  .agrees = {},
                  .words = {library, "model " + record.model}};
  if (!algorithm.empty()) finding.words.push_back(algorithm);
  RecordedRow row{"products", called, record.model, words, compared, 0};
  return {.ledger = {.products = {std::move(record)}, .findings = {std::move(finding)}}, .rows = {std::move(row)}};
}

/// The composition that the doctor found; nothing where a record has no such one, or the model is another one.
std::optional<Composition> composition_of(const doctor::GemmExplanation& explanation, const MmaModel& model) {
  const GemmRecipe& found = explanation.recipe;
  const bool is_of_model = std::ranges::find(explanation.models, model.name) != explanation.models.end();
  const Composition composition{found.promote_k, found.range_k, found.order == PartialOrder::descending};
  GemmRecipe recipe = recipe_of(model, composition);
  recipe.model = found.model;
  if (!is_of_model || !explanation.departures.empty() || recipe != found) return {};
  return composition;
}

}  // namespace

LibraryProduct library_product(std::size_t rows, std::size_t columns, std::size_t depth, std::uint64_t seed) {
  return {rows, columns, depth, codes_of(false, rows, depth, seed), codes_of(true, columns, depth, seed)};
}

GemmRecipe recipe_of(const MmaModel& model, const Composition& composition) {
  const bool descends = composition.descending && composition.split_k != 0;
  return {.model = model,
          .promote_k = composition.promote_k,
          .range_k = composition.split_k,
          .order = descends ? PartialOrder::descending : PartialOrder::ascending};
}

FoundComposition find_composition(const MmaModel& model, const LibraryProduct& product, std::span<const float> out,
                                  int threads) {
  const auto operand = [&](std::span<const std::uint8_t> codes, std::size_t rows) {
    return Operand::codes(codes, e4m3, rows, product.depth);
  };
  const doctor::GemmDiagnosis diagnosis =
      doctor::diagnose_gemm(operand(product.a, product.rows), operand(product.b, product.columns),
                            {.words = std::as_bytes(out)}, {.most_products = std::size_t{1} << 24});
  FoundComposition found{.told = diagnosis.verdict, .composition = {}};
  for (const doctor::GemmExplanation& explanation : diagnosis.explanations) {
    const auto composition = composition_of(explanation, model);
    if (!composition || explanation.unexplained > diagnosis.explanations.front().unexplained) continue;
    // The doctor checks as many words as a budget allows; a record is of all.
    const std::vector<float> own = composed(model, product, *composition, product.rows, threads);
    std::size_t equal = 0;
    for (std::size_t i = 0; i < own.size(); ++i) {
      equal += std::bit_cast<std::uint32_t>(own[i]) == std::bit_cast<std::uint32_t>(out[i]) ? 1U : 0U;
    }
    found.told += fmt::format(" By {} it gives {} of {} words.", model.name, equal, own.size());
    if (equal == own.size()) found.composition = composition;
    break;
  }
  return found;
}

TaskResult ask_scaled_mm(const std::string& python, const ProductQuestion& question) {
  const LibraryProduct product = library_product(asked_rows, asked_rows, question.depth, question.seed);
  const Scratch scratch;
  scratch.write("a", product.a);
  scratch.write("b", product.b);
  const std::string told = run_script(python, scratch,
                                      {"product", std::to_string(product.rows), std::to_string(product.columns),
                                       std::to_string(question.depth), question.fast ? "1" : "0"});
  const std::vector<float> out = output_of(scratch, product.rows * product.columns);
  return product_result("torch._scaled_mm", told.substr(0, told.find('\n')), "", question, product, out);
}

TaskResult ask_cublaslt(const fs::path& library, bool on_device, const ProductQuestion& question) {
  const LibraryProduct product = library_product(asked_rows, asked_rows, question.depth, question.seed);
  const gpu::CublasLt cublaslt = [&] {
    try {
      return gpu::CublasLt(library);
    } catch (const std::runtime_error& error) {
      throw MissingError(error.what());
    }
  }();
  const gpu::CublasLt::Plan plan =
      cublaslt.plan({.m = product.rows, .n = product.columns, .k = product.depth, .fast = question.fast});
  gpu::KernelMemory memory(on_device);
  const std::span<float> out = memory.out<float>(product.rows * product.columns);
  plan.run(memory.put(product.a).data(), memory.put(product.b).data(), out.data(),
           memory.out<std::byte>(plan.workspace_bytes()).data());
  return product_result("cuBLASLt", "cuBLASLt " + cublaslt.version(), plan.algorithm(), question, product,
                        memory.read(out));
}

namespace {

/// Where an interpreter looks for packages; none where there is no interpreter.
std::vector<fs::path> package_folders(const std::string& python) {
  try {
    std::vector<fs::path> folders;
    TextReader paths(run_script(python, Scratch(), {}, "import sys\nprint(' '.join(sys.path))"));
    for (std::string path; paths >> path;) folders.emplace_back(path);
    return folders;
  } catch (const std::runtime_error&) {
    return {};
  }
}

}  // namespace

fs::path cublaslt_of(const std::string& python) {
  std::vector<fs::path> folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH", "FP8LAB_THIRD_PARTY"}) {
    if (const char* folder = std::getenv(variable); folder != nullptr && *folder != 0) folders.emplace_back(folder);
  }
  folders.insert(folders.end(), {"/usr/local/cuda", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"});
  std::ranges::copy(package_folders(python), std::back_inserter(folders));
  fs::path found = gpu::find_cublaslt(folders);
  if (found.empty()) throw MissingError("there is no libcublasLt.so.13 or .12; --cublaslt names one");
  return found;
}

void check_product_record(const ProductRecord& record) {
  (void)find_model(record.model);
  constexpr std::uint64_t most = 1U << 20;
  if (record.rows == 0 || record.columns == 0 || record.depth == 0 || record.rows > most || record.columns > most ||
      record.depth > most || record.rows * record.columns > most) {
    refuse("a product of ", record.rows, " * ", record.columns, " of K = ", record.depth, " is none of the recorder's");
  }
  if (const auto& one = record.composition) {
    if (one->promote_k < 0 || one->promote_k > 1 << 20 || one->split_k > record.depth) {
      refuse("promote_k ", one->promote_k, " and split_k ", one->split_k, " do not go with K = ", record.depth);
    }
  }
}

std::uint64_t model_digest(const ProductRecord& record, const MmaModel& model, int threads) {
  if (!record.composition) refuse("no composition is known of this product");
  const LibraryProduct product = library_product(record.rows, record.columns, record.depth, record.seed);
  return gpu::digest_of(words_of(composed(model, product, *record.composition, product.rows, threads)));
}

TaskResult ask_torch_speed(const std::string& python, TorchSpeed what, const std::string& device, std::size_t size) {
  static constexpr std::array names{"cast", "scaled_mm", "te"};
  TextReader lines(run_script(
      python, Scratch(), {names.at(static_cast<std::size_t>(what)), device, std::to_string(size)}, torch_speed_script));
  std::string version;
  std::getline(lines, version);
  TaskResult result;
  for (std::string line; std::getline(lines, line);) {
    std::array<std::string, 6> fields;
    std::size_t count = 0;
    for (std::size_t first = 0; first <= line.size() && count < fields.size(); ++count) {
      const std::size_t end = std::min(line.find('|', first), line.size());
      fields[count] = line.substr(first, end - first);
      first = end + 1;
    }
    const auto number = [&](std::size_t i) {
      double value = 0;
      TextReader text(fields[i]);
      if (count != fields.size() || !(text >> value)) throw std::runtime_error("the script wrote: " + line);
      return value;
    };
    result.ledger.speeds.push_back({.name = fields[0],
                                    .what = fields[1] + "; " + version,
                                    .amount = number(2),
                                    .unit = fields[3],
                                    .milliseconds = number(4),
                                    .bound_milliseconds = number(5)});
  }
  return result;
}

TaskResult ask_calls(const CallQuestion& question, std::string_view part, std::string_view what) {
  const Scratch scratch;
  const std::string_view script = call_script;
  scratch.write("asked.py", {reinterpret_cast<const std::uint8_t*>(script.data()), script.size()});
  // A file, for Triton reads the sources of its kernels.
  const std::string told =
      run_script(question.python, scratch,
                 {std::string(what), question.device, question.is_small ? "1" : "0", std::to_string(question.seconds)},
                 "import runpy, sys\nrunpy.run_path(sys.argv[1] + '/asked.py', run_name='__main__')");
  const std::string npz = scratch.read("out.npz");
  if (question.folder) write_files(fs::absolute(*question.folder), {{std::string(what) + ".npz", npz}});
  TextReader lines(told);
  std::string library;
  std::getline(lines, library);
  TaskResult result;
  for (std::string line; std::getline(lines, line);) {
    CallRecord record{.part = std::string(part), .name = "", .library = library};
    TextReader fields(line);
    std::string digest;
    if (line.starts_with('-')) {
      const std::size_t end = std::min(line.find(' '), line.size() - 1);
      result.ledger.findings.push_back({.part = record.part,
                                        .name = line.substr(1, end - 1),
                                        .question = "Does the library compute it?",
                                        .answer = line.substr(end + 1),
                                        .agrees = {},
                                        .words = {library}});
    } else if (fields >> record.name >> record.count >> digest && digest.size() == 16) {
      record.digest = std::stoull(digest, nullptr, 16);
      result.ledger.calls.push_back(std::move(record));
    } else {
      throw std::runtime_error("the script wrote: " + line);
    }
  }
  return result;
}

Finding ask_stream(const std::string& python, bool is_normal, std::uint64_t seed) {
  constexpr std::size_t count = (std::size_t{1} << 20) + 3;
  const Scratch scratch;
  const std::string told =
      run_script(python, scratch, {"stream", std::to_string(count), std::to_string(seed), is_normal ? "1" : "0"});
  const std::vector<float> out = output_of(scratch, count);
  LaunchGeometry geometry;
  int threads = 0;
  TextReader facts(told.substr(told.find('\n') + 1));
  facts >> geometry.multiprocessors >> threads;
  geometry.blocks_per_multiprocessor = threads / 256;
  std::vector<float> own(count);
  if (is_normal) {
    torch_cuda_normal(seed, 0, geometry, 0, 1, own);
  } else {
    torch_cuda_uniform(seed, 0, geometry, own);
  }
  std::size_t equal = 0;
  double largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    equal += std::bit_cast<std::uint32_t>(own[i]) == std::bit_cast<std::uint32_t>(out[i]) ? 1U : 0U;
    const double unit = std::ldexp(1.0, std::ilogb(std::max(std::abs(own[i]), 0x1p-100F)) - 23);
    largest = std::max(largest, std::abs(static_cast<double>(own[i]) - static_cast<double>(out[i])) / unit);
  }
  Finding finding{.part = "streams",
                  .name = is_normal ? "torch.randn on CUDA" : "torch.rand on CUDA",
                  .question = "Are the numbers those of fp8lab?",
                  .answer = fmt::format("{} of {} equal; the largest difference is {:.3g} ulp", equal, count, largest),
                  .agrees = {},
                  .words = {told.substr(0, told.find('\n'))}};
  if (!is_normal) finding.agrees = equal == count;
  return finding;
}

}  // namespace fp8lab::experiments
