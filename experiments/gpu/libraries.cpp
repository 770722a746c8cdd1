// SPDX-License-Identifier: Apache-2.0
#include "gpu/libraries.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "files/tensor_file.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/gpu/recorder/tiles.hpp"
#include "fp8lab/reference/measure/random.hpp"
#include "gpu/torch_script.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX declares it nowhere

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

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
std::string run_script(const std::string& python, const Scratch& scratch, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {python, "-c", torch_script, scratch.path().native()});
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

std::vector<Composition> compositions(std::size_t depth) {
  std::vector<Composition> list;
  for (const int promote_k : {0, 32, 64, 128, 256, 512, 1024}) {
    for (const std::size_t split_k : {1U, 2U, 3U, 4U, 5U, 6U, 8U, 10U, 12U, 16U}) {
      if (split_k * 128 > depth || std::cmp_greater(promote_k, depth)) continue;
      list.push_back({promote_k, split_k, false});
      if (split_k > 2) list.push_back({promote_k, split_k, true});
    }
  }
  return list;
}

}  // namespace

LibraryProduct library_product(std::size_t rows, std::size_t columns, std::size_t depth, std::uint64_t seed) {
  return {rows, columns, depth, codes_of(false, rows, depth, seed), codes_of(true, columns, depth, seed)};
}

std::string Composition::told() const {
  std::string text = promote_k == 0 ? "no promotion" : fmt::format("promotion every {}", promote_k);
  if (split_k > 1) text += fmt::format(", split-K {} added {}", split_k, descending ? "descending" : "ascending");
  return text;
}

GemmOptions options_of(const Composition& composition, std::size_t depth) {
  GemmOptions options{.promote_k = composition.promote_k};
  if (composition.split_k == 1) return options;
  const auto unit = static_cast<std::size_t>(std::max(composition.promote_k, 128));
  const std::size_t part = (depth / unit + composition.split_k - 1) / composition.split_k * unit;
  for (std::size_t first = 0; first < depth; first += part) options.split_k.push_back(std::min(part, depth - first));
  for (std::size_t i = 0; i < options.split_k.size(); ++i) {
    options.split_order.push_back(composition.descending ? options.split_k.size() - 1 - i : i);
  }
  return options;
}

Finding find_composition(const MmaModel& model, const LibraryProduct& product, std::span<const float> out,
                         std::size_t sample, int threads) {
  const std::size_t count = sample * product.columns;
  const Operand a = Operand::codes(std::span(product.a).first(sample * product.depth), e4m3, sample, product.depth);
  const Operand b = Operand::codes(product.b, e4m3, product.columns, product.depth);
  std::vector<float> own(count);
  std::vector<std::string> fitting;
  std::size_t most = 0;
  std::string best;
  for (const Composition& composition : compositions(product.depth)) {
    GemmOptions options = options_of(composition, product.depth);
    if (composition.split_k > 1 && options.split_k.size() != composition.split_k) continue;
    options.threads = threads;
    gemm(model, a, b, own, options);
    std::size_t equal = 0;
    for (std::size_t i = 0; i < count; ++i) {
      equal += std::bit_cast<std::uint32_t>(own[i]) == std::bit_cast<std::uint32_t>(out[i]) ? 1U : 0U;
    }
    if (equal == count) fitting.push_back(composition.told());
    if (equal <= most) continue;
    most = equal;
    best = composition.told();
  }
  Finding finding{.part = "products",
                  .name = {},
                  .question = "How is the product composed?",
                  .answer = {},
                  .agrees = {},
                  .words = {}};
  finding.answer = fitting.empty()
                       ? fmt::format("none that was tried; next comes {}, with {} of {} words", best, most, count)
                       : fmt::format("{} ({} words)", fmt::join(fitting, ", or "), count);
  return finding;
}

Finding ask_scaled_mm(const std::string& python, const MmaModel& model, std::size_t depth, bool fast,
                      std::uint64_t seed, int threads) {
  const LibraryProduct product = library_product(256, 256, depth, seed);
  const Scratch scratch;
  scratch.write("a", product.a);
  scratch.write("b", product.b);
  const std::string told = run_script(python, scratch,
                                      {"product", std::to_string(product.rows), std::to_string(product.columns),
                                       std::to_string(depth), fast ? "1" : "0"});
  const std::vector<float> out = output_of(scratch, product.rows * product.columns);
  Finding finding = find_composition(model, product, out, 32, threads);
  finding.name = fmt::format("torch._scaled_mm, K = {}, {}", depth, fast ? "fast accumulation" : "split accumulator");
  finding.words = {told.substr(0, told.find('\n')), std::string("model ") + std::string(model.name)};
  return finding;
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
