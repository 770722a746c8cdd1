// SPDX-License-Identifier: Apache-2.0
// The memory and the time that the command line takes for files that are made to cost much: what a small or sparse file
// can announce, unpack to or be. Every run has 4 GiB of address space at most, and its largest resident set is
// measured.
//
//   hostile_memory build/release/bin/fp8lab [long]
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "scratch.hpp"

extern char** environ;

namespace {

namespace fs = std::filesystem;

constexpr rlim_t address_space = rlim_t{4} << 30;

/// A run of the command line, and what it may cost. stderr must have one line that contains `message`, or none.
struct Run {
  std::vector<std::string> arguments;
  int status;
  std::string message;
  long most_mib;
  double most_seconds = 5;
  rlim_t space = address_space;
};

/// What a run gave.
struct Outcome {
  int status;
  std::string error;
  long mib;
  double seconds;
};

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Outcome outcome_of(const std::string& program, const Run& run, const fs::path& errors) {
  std::vector<std::string> words{program};
  words.insert(words.end(), run.arguments.begin(), run.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  const rlimit limit{run.space, before.rlim_max};
  setrlimit(RLIMIT_AS, &limit);
  pid_t child = 0;
  const auto start = std::chrono::steady_clock::now();
  const int error = posix_spawn(&child, program.c_str(), &actions, nullptr, argv.data(), environ);
  setrlimit(RLIMIT_AS, &before);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot run " + program + ": " + std::strerror(error));
  int status = 0;
  rusage usage{};
  for (;;) {
    if (wait4(child, &status, WNOHANG, &usage) == child) break;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (seconds > 2 * run.most_seconds + 10) kill(child, SIGKILL);
    usleep(2000);
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), content_of(errors), usage.ru_maxrss / 1024,
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
}

bool is_right(const Run& run, const Outcome& outcome) {
  const bool one_line = run.message.empty() ? outcome.error.empty()
                                            : outcome.error.starts_with("fp8lab: ") &&
                                                  outcome.error.find('\n') == outcome.error.size() - 1 &&
                                                  outcome.error.find(run.message) != std::string::npos;
  return outcome.status == run.status && one_line && outcome.mib <= run.most_mib && outcome.seconds <= run.most_seconds;
}

void sparse(const fs::path& path, const std::string& begin, std::uint64_t size) {
  std::ofstream(path, std::ios::binary) << begin;
  fs::resize_file(path, size);
}
/// A .npy or .safetensors file of zeros, which takes no room on the disk.
void sparse_npy(const fs::path& path, const std::string& descr, std::uint64_t rows, std::uint64_t columns,
                std::uint64_t bytes) {
  std::string dict = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", " +
                     std::to_string(columns) + "), }";
  dict.resize(117, ' ');
  dict += '\n';
  sparse(path, std::string("\x93NUMPY\x01\x00\x76\x00", 10) + dict, 128 + rows * columns * bytes);
}
void sparse_safetensors(const fs::path& path, const std::string& dtype, std::uint64_t rows, std::uint64_t columns,
                        std::uint64_t bytes) {
  std::string header = R"({"w":{"dtype":")" + dtype + R"(","shape":[)" + std::to_string(rows) + "," +
                       std::to_string(columns) + R"(],"data_offsets":[0,)" + std::to_string(rows * columns * bytes) +
                       "]}}";
  header.resize(120, ' ');
  sparse(path, std::string("\x78\0\0\0\0\0\0\0", 8) + header, 128 + rows * columns * bytes);
}
/// `begin`, then `repeated` until there are so many bytes, gzipped.
void gzipped(const fs::path& path, const std::string& begin, const std::string& repeated, std::size_t bytes) {
  gzFile file = gzopen(path.c_str(), "wb1");
  gzwrite(file, begin.data(), static_cast<unsigned>(begin.size()));
  std::string piece;
  while (piece.size() < 1 << 16) piece += repeated;
  for (std::size_t done = 0; done < bytes; done += piece.size()) {
    gzwrite(file, piece.data(), static_cast<unsigned>(piece.size()));
  }
  gzclose(file);
}
void trace_of_columns(const fs::path& path, int columns) {
  std::ofstream file(path);
  file << "step";
  for (int i = 0; i < columns; ++i) file << ",t" << i;
  for (int step = 1; step <= 2; ++step) {
    file << '\n' << step;
    for (int i = 0; i < columns; ++i) file << ",1";
  }
  file << '\n';
}

/// What never ends, or is no file at all, for every option that takes one.
void add_no_files(const fs::path& work, std::vector<Run>& runs) {
  mkfifo((work / "fifo").c_str(), 0600);
  const std::string folder = (work / "empty").string();
  fs::create_directory(folder);
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (work / "socket").c_str(), sizeof(address.sun_path) - 1);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    throw std::runtime_error("no socket");
  }
  const std::vector<std::vector<std::string>> readers{
      {"cast", "--file"},      {"dot", "--b", "38", "--file-a"},     {"scaling", "--files"},
      {"transpose", "--file"}, {"verify", "tensor-cores", "--rows"}, {"verify", "tensor-cores", "--vectors"},
      {"delayed", "--amax"}};
  for (const std::vector<std::string>& reader : readers) {
    for (const std::string& path : {(work / "fifo").string(), (work / "socket").string(), std::string("/dev/zero"),
                                    std::string("/dev/stdin"), folder}) {
      const bool takes_folders = reader.front() != "verify" && reader.front() != "delayed";
      const std::string of_folder = takes_folders ? "has no .npy and .safetensors files" : "it is a directory";
      Run run{reader, 2, path == folder ? of_folder : "it is not a regular file", 32, 2};
      run.arguments.push_back(path);
      runs.push_back(run);
    }
  }
}

void add_files(const fs::path& work, bool is_long, std::vector<Run>& runs) {
  const auto path = [&](const char* name) { return (work / name).string(); };
  // 1. A row of 4 GiB that lies nowhere.
  sparse_npy(path("wide.npy"), "|u1", 2, std::uint64_t{1} << 32, 1);
  runs.push_back({{"dot", "--file-a", path("wide.npy"), "--file-b", path("wide.npy")}, 2, "at most 262144", 32});
  // 2. A little that unpacks to much, and JSON that costs many times its length.
  const std::string group =
      R"({"source":"x","groups":[{"gpu":"","fmt":"e4m3","cd":"f32","model":"sm89.mma.k32","cases":[)";
  struct Unpacking {
    const char* name;
    std::string begin, repeated, message;
    long mib;
    bool is_long;
  };
  const std::vector<Unpacking> all{
      {"zeros.gz", R"({"source":"x","groups":[0)", ",0", "does not have the form", 32, false},
      {"deep.gz", R"({"source":"x","junk":[)", "[", "does not have the form", 32, false},
      {"rows.gz", group + R"(["","","",""])", R"(,["","","",""])", "more than 2^20 rows", 80, false},
      {"junk.gz", R"({"source":"x","junk":[0)", ",0", "more than 2^26 bytes", 32, true},
      {"text.gz", R"({"source":")", "x", "more than 2^26 bytes", 200, true}};
  for (const Unpacking& one : all) {
    if (one.is_long && !is_long) continue;
    gzipped(path(one.name), one.begin, one.repeated, std::size_t{1} << (is_long ? 28 : 24));
    runs.push_back({{"verify", "tensor-cores", "--dots", "1", "--rows", path(one.name)}, 2, one.message, one.mib});
  }
  // 3. A line that does not end, and many columns.
  sparse(path("line.csv"), "step,", 300'000'000);
  runs.push_back({{"delayed", "--amax", path("line.csv")}, 2, "more than 16777216 bytes", 64});
  trace_of_columns(path("100000.csv"), 100'000);
  runs.push_back({{"delayed", "--amax", path("100000.csv")}, 2, "more than 65536 columns", 64});
  trace_of_columns(path("60000.csv"), 60'000);
  runs.push_back({{"delayed", "--quiet", "--versions", "te_current", "--algorithms", "max", "--history", "16", "--amax",
                   path("60000.csv")},
                  0,
                  "",
                  128});
}

void add_tensors(const fs::path& work, bool is_long, std::vector<Run>& runs) {
  const auto path = [&](const char* name) { return (work / name).string(); };
  const std::uint64_t rows = is_long ? 32768 : 2048;
  const std::uint64_t columns = 4096;
  const double seconds = is_long ? 600 : 20;
  sparse_safetensors(path("b.safetensors"), "BF16", rows, columns, 2);
  sparse_npy(path("h.npy"), "<f2", rows, columns, 2);
  sparse_npy(path("f.npy"), "<f4", rows, columns, 4);
  sparse_npy(path("d.npy"), "<f8", rows, columns, 8);
  const auto add = [&](std::vector<std::string> arguments, const char* name, double bytes_an_element, long besides) {
    arguments.push_back(path(name));
    const double mib = bytes_an_element * static_cast<double>(rows * columns) / (1 << 20);
    runs.push_back({std::move(arguments), 0, "", static_cast<long>(mib) + besides, seconds});
  };
  // The bounds that transpose.hpp, scaling.hpp and cast.hpp give, and what the program takes besides.
  const std::vector<std::string> local{"transpose", "--quiet", "--recipes", "te_mxfp8,te_block_128x128", "--file"};
  const std::vector<std::string> whole{"transpose", "--quiet", "--recipes", "te_nvfp4,te_current_scaling", "--file"};
  const std::vector<std::string> scaling{"scaling",   "--quiet", "--recipes", "te_mxfp8,te_nvfp4",
                                         "--delayed", "max:8",   "--files"};
  add(local, "b.safetensors", 2, 50);
  add(whole, "b.safetensors", 9.3, 50);
  add(scaling, "b.safetensors", 6.5, 50);
  add({"cast", "--quiet", "--formats", "e4m3", "--file"}, "b.safetensors", 0, 60);
  if (!is_long) return;
  add(local, "h.npy", 2, 70);
  add(local, "f.npy", 4, 70);
  add(whole, "h.npy", 9.3, 70);
  add(whole, "f.npy", 11.3, 70);
  add(scaling, "d.npy", 6.5, 50);
  add({"cast", "--quiet", "--formats", "e4m3,e5m2", "--file"}, "d.npy", 0, 60);
}

/// Too little memory is one line, whoever needs it.
void add_too_little(std::vector<Run>& runs) {
  const rlim_t space = rlim_t{200} << 20;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"cast", "--grid", "--size", "67108864"},
        std::vector<std::string>{"transpose", "--rows", "8192", "--columns", "8192"},
        std::vector<std::string>{"scaling", "--rows", "8192", "--columns", "8192"}}) {
    runs.push_back({arguments, 2, "out of memory", 200, 5, space});
  }
}

}  // namespace

int main(int argc, char** argv) {
  const fp8lab::tests::Scratch scratch;
  std::vector<Run> runs;
  add_no_files(scratch.path, runs);
  const bool is_long = argc > 2;
  add_files(scratch.path, is_long, runs);
  add_tensors(scratch.path, is_long, runs);
  add_too_little(runs);
  int wrong = 0;
  for (const Run& run : runs) {
    const Outcome outcome = outcome_of(argv[1], run, scratch.path / "stderr");
    const bool right = is_right(run, outcome);
    if (!right) ++wrong;
    std::printf("%s %2d %5ld MiB (of %ld) %6.2f s ", right ? "    ok" : " WRONG", outcome.status, outcome.mib,
                run.most_mib, outcome.seconds);
    for (const std::string& argument : run.arguments) std::printf(" %s", argument.c_str());
    std::printf("\n%s", right ? "" : outcome.error.substr(0, 300).c_str());
    std::fflush(stdout);
  }
  std::printf("%zu runs, %d wrong\n", runs.size(), wrong);
  return wrong == 0 ? 0 : 1;
}
