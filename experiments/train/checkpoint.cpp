// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>

#include "files/stored_file.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "kit/provenance.hpp"
#include "kit/staging.hpp"

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view checkpoint_begin = "fp8lab train checkpoint 1\n";  // 1: of this file format

/// FNV-1a.
std::uint64_t hash_of(std::string_view bytes) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3U;
  return hash;
}

// 1. A state as bytes, by the same function in both directions: every archive has number(x) and list(all, each).

/// Appends to a text.
class StateWriter {
 public:
  template <typename T>
    requires std::is_arithmetic_v<T>
  void number(const T& x) {
    std::array<char, sizeof(T)> bytes{};
    std::memcpy(bytes.data(), &x, sizeof(T));
    text_.append(bytes.data(), bytes.size());
  }
  template <typename T, typename Each>
  void list(const std::vector<T>& all, const Each& each) {
    number(std::uint64_t{all.size()});
    for (const T& one : all) each(one);
  }
  template <typename T>
  void list(const std::vector<T>& all) {
    number(std::uint64_t{all.size()});
    text_.append(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(T));  // NOLINT: bytes of numbers
  }
  [[nodiscard]] std::string& text() { return text_; }

 private:
  std::string text_;
};

/// Takes from a text. Throws std::length_error where it ends too soon.
class StateReader {
 public:
  explicit StateReader(std::string_view text) : rest_(text) {}

  template <typename T>
    requires std::is_arithmetic_v<T>
  void number(T& x) {
    copy(take(sizeof(T)), &x);
  }
  template <typename T, typename Each>
  void list(std::vector<T>& all, const Each& each) {
    all.clear();
    for (std::uint64_t left = count(1); left > 0; --left) each(all.emplace_back(T{}));
  }
  template <typename T>
  void list(std::vector<T>& all) {
    all.resize(count(sizeof(T)));
    if (!all.empty()) copy(take(all.size() * sizeof(T)), all.data());
  }
  [[nodiscard]] bool at_end() const { return rest_.empty(); }

 private:
  std::span<const char> take(std::size_t bytes) {
    if (bytes > rest_.size()) throw std::length_error("too short");
    const std::span<const char> taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return taken;
  }
  static void copy(std::span<const char> bytes, void* to) { std::memcpy(to, bytes.data(), bytes.size()); }
  /// How many elements follow, of so many bytes each at least.
  std::size_t count(std::size_t bytes) {
    std::uint64_t size = 0;
    number(size);
    if (size > rest_.size() / bytes) throw std::length_error("too short");
    return size;
  }

  std::span<const char> rest_;
};

template <typename Archive, typename Net>
void pass_network(Archive& archive, Net& network) {
  archive.list(network, [&](auto& layer) {
    archive.list(layer.w);
    archive.list(layer.b);
  });
}

template <typename Archive, typename History>
void pass_history(Archive& archive, History& history) {
  archive.list(history.amaxes);
  archive.number(history.scale);
  archive.number(history.scale_inv);
  archive.number(history.position);
}

template <typename Archive, typename Error>
void pass_error(Archive& archive, Error& error, auto& counts) {
  archive.number(error.step);
  archive.number(error.layer);
  archive.number(error.lost);
  auto& totals = error.totals;
  archive.number(totals.count);
  archive.number(totals.not_finite);
  for (auto* sum : {&totals.sum_error, &totals.sum_absolute_error, &totals.sum_squared_error,
                    &totals.sum_squared_reference, &totals.max_absolute_error, &totals.max_relative_error}) {
    archive.number(*sum);
  }
  auto& histogram = error.histogram;
  archive.list(counts);
  for (auto* count : {&histogram.zeros, &histogram.infinities, &histogram.nans, &histogram.below, &histogram.above}) {
    archive.number(*count);
  }
}

template <typename Archive, typename State, typename Log, typename Errors>
void pass_run(Archive& archive, State& state, Log& log, const Errors& errors) {
  archive.number(state.steps);
  pass_network(archive, state.network);
  pass_network(archive, state.optimizer.first);
  pass_network(archive, state.optimizer.second);
  archive.number(state.optimizer.first_power);
  archive.number(state.optimizer.second_power);
  archive.list(state.histories, [&](auto& layer) {
    for (auto* history : {&layer.x, &layer.w, &layer.dy}) pass_history(archive, *history);
  });
  archive.list(log.losses);
  archive.list(log.tensors);
  errors();
}

void write_run(StateWriter& writer, const Run& run) {
  pass_run(writer, run.state, run.log, [&] {
    writer.list(run.log.errors,
                [&](const GradientError& error) { pass_error(writer, error, error.histogram.counts()); });
  });
}

void read_run(StateReader& reader, Run& run) {
  pass_run(reader, run.state, run.log, [&] {
    std::uint64_t left = 0;
    run.log.errors.clear();
    for (reader.number(left); left > 0; --left) {
      GradientError error{.histogram = error_histogram()};
      std::vector<std::uint64_t> counts;
      pass_error(reader, error, counts);
      error.histogram.set_counts(counts);
      run.log.errors.push_back(std::move(error));
    }
  });
}

// 2. The file.

std::string header_of(const TrainArguments& arguments) {
  return fmt::format("{}version={}\n{}\n", checkpoint_begin, version(), configuration_of(arguments));
}

/// The first line in which the header differs from what is wanted.
[[noreturn]] void refuse_other(const fs::path& file, std::string_view found, std::string_view wanted) {
  while (true) {
    const std::string_view line = found.substr(0, found.find('\n'));
    const std::string_view other = wanted.substr(0, wanted.find('\n'));
    if (line != other || line.empty()) {
      const std::size_t name = std::min(other.find('='), other.size());
      refuse("resume: ", in_one_line(file.native()), " is of another ", other.substr(0, name), ": ",
             line.substr(std::min(name + 1, line.size())), ", not ", other.substr(std::min(name + 1, other.size())));
    }
    found.remove_prefix(line.size() + 1);
    wanted.remove_prefix(other.size() + 1);
  }
}

void write_whole(const Descriptor& opened, std::string_view content, const fs::path& file) {
  while (!content.empty()) {
    const ssize_t written = ::write(opened.get(), content.data(), content.size());
    if (written < 0 && errno != EINTR) cannot_write(file, std::strerror(errno));
    if (written > 0) content.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(opened.get()) != 0 && errno != EINVAL) cannot_write(file, std::strerror(errno));
}

std::string read_whole(const StoredFile& file) {
  std::string text(file.size(), '\0');
  text.resize(file.read(0, text));
  return text;
}

}  // namespace

std::string configuration_of(const TrainArguments& arguments) {
  const TrainArguments& a = arguments;
  std::string text = fmt::format(
      "sizes={}\nbatch={}\nloss={}\noptimizer={}\nlearning_rate={}\nmomentum={}\nclip={}\ngradient_scale={}\nhead={}\n",
      fmt::join(a.sizes, ","), a.batch, static_cast<int>(a.loss), static_cast<int>(a.optimizer), a.learning_rate,
      a.momentum, a.clip, a.gradient_scale, static_cast<int>(a.head));
  text += fmt::format("amax_history_len={}\namax_compute_algo={}\nmargin={}\ndelayed_version={}\n", a.amax_history_len,
                      name_of(a.amax_compute_algo), a.margin, a.version.name);
  text += fmt::format("jump_step={}\njump_factor={}\njump_of={}\njump_length={}\n", a.jump.step.value_or(0),
                      a.jump.factor, static_cast<int>(a.jump.of), a.jump.length);
  text += fmt::format("error_steps={}\nseed={}\nrecipes={}\n", fmt::join(a.error_steps, ","), a.seed, a.recipes.size());
  for (const ChosenLinearRecipe& one : a.recipes)
    text += fmt::format("recipe={}: {}\n", one.name, describe(one.recipe));
  return text;
}

void save_checkpoint(const fs::path& file, const TrainArguments& arguments, const std::vector<Run>& runs) {
  StateWriter writer;
  writer.text() = header_of(arguments);
  for (const Run& run : runs) write_run(writer, run);
  writer.number(hash_of(writer.text()));
  const SignalsHeld held;
  fs::path beside = file;
  beside += ".fp8lab-writing";
  {
    const Descriptor opened(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!opened) cannot_write(file, std::strerror(errno));
    write_whole(opened, writer.text(), file);
  }
  if (std::rename(beside.c_str(), file.c_str()) != 0) cannot_write(file, std::strerror(errno));
}

void load_checkpoint(const fs::path& file, const TrainArguments& arguments, std::vector<Run>& runs) {
  const StoredFile stored(file);
  const std::string text = read_whole(stored);
  if (!text.starts_with(checkpoint_begin.substr(0, checkpoint_begin.size() - 2))) {
    stored.fail("it is no checkpoint of fp8lab train");
  }
  const std::size_t hash_at = text.size() < 8 ? 0 : text.size() - 8;
  std::uint64_t hash = 0;
  std::memcpy(&hash, text.data() + hash_at, std::min<std::size_t>(8, text.size()));
  const std::string_view content(text.data(), hash_at);
  if (hash != hash_of(content)) stored.fail("it is cut or damaged");
  const std::string header = header_of(arguments);
  if (!content.starts_with(header)) refuse_other(file, content, header);
  StateReader reader(content.substr(header.size()));
  try {
    for (Run& run : runs) read_run(reader, run);
  } catch (const std::length_error&) {
    stored.fail("it is cut or damaged");
  }
  if (!reader.at_end()) stored.fail("it is damaged");
  for (const Run& run : runs) {
    if (std::cmp_greater(run.state.steps, arguments.steps)) {
      refuse("steps must be at least ", run.state.steps, ", which ", in_one_line(file.native()), " has, not ",
             arguments.steps);
    }
  }
}

}  // namespace fp8lab::experiments
