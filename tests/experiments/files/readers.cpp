// SPDX-License-Identifier: Apache-2.0
// What all readers of files have in common.
#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <functional>

#include "dot/dot.hpp"
#include "files/amax_trace.hpp"
#include "files/recorded.hpp"
#include "files/tensor_file.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "scratch.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using namespace fp8lab::experiments;
namespace fs = std::filesystem;

std::string error_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("no reader waits for a pipe or reads a device or a directory") {
  const Scratch scratch;
  REQUIRE(::mkfifo((scratch.path / "pipe").c_str(), 0600) == 0);
  const std::vector<std::function<void(const fs::path&)>> readers{
      [](const fs::path& path) { const TensorFile file(path); },
      [](const fs::path& path) { (void)operand_of_tensor(e4m3, StoredTensors{{path}}, 0); },
      [](const fs::path& path) { (void)read_amax_trace(path); }, [](const fs::path& path) { (void)read_vectors(path); },
      [](const fs::path& path) { (void)read_gpu_rows(path); }};
  for (const auto& read : readers) {
    for (const std::string& path : {(scratch.path / "pipe").string(), std::string("/dev/zero")}) {
      CHECK(error_of([&] { read(path); }) ==
            "cannot read " + path + ": it is not a regular file; pipes, devices and sockets are not read");
    }
    // What reads tensors takes a folder, and says that none of them is in this one.
    const std::string of_folder = error_of([&] { read(scratch.path); });
    const bool takes_folders = of_folder == printable(scratch.path.string()) + " has no .npy and .safetensors files";
    CHECK((takes_folders || of_folder == "cannot read " + scratch.path.string() + ": it is a directory"));
    CHECK(error_of([&] { read(scratch.path / "none"); }).ends_with("/none: there is no such file"));
    // The system would open the part of this name that stands in front of the zero.
    std::ofstream(scratch.path / "a") << "x";
    CHECK(error_of([&] { read((scratch.path / "a").string() + '\0' + "b"); }).ends_with("its name has a zero byte"));
  }
}

TEST_CASE("a reader leaves no file open, whatever it finds") {
  const Scratch scratch;
  std::ofstream(scratch.path / "text") << "neither";
  const int before = ::open("/dev/null", O_RDONLY | O_CLOEXEC);  // the lowest number that is free
  REQUIRE(before >= 0);
  for (const fs::path& path : {scratch.path, scratch.path / "text", fs::path("/dev/zero")}) {
    (void)error_of([&] { (void)read_amax_trace(path); });
    (void)error_of([&] { (void)read_vectors(path); });
    (void)error_of([&] { const TensorFile file(path); });
  }
  const int after = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  CHECK(after == before + 1);
  ::close(before);
  ::close(after);
}

TEST_CASE("a trace may have 2^16 columns, and its time grows with their number") {
  const auto parsed = [](int columns, const char* suffix) {
    std::string header = "step";
    std::string line = "1";
    for (int i = 0; i < columns; ++i) {
      header += ",t";
      header += std::to_string(i) + suffix;
      line += ",2";
    }
    std::istringstream text(header + "\n" + line + "\n");
    return parse_amax_trace(text, "t");
  };
  CHECK(parsed(1 << 16, "").tensors.size() == 1 << 16);
  CHECK(parsed(1 << 16, "@7").tensors.back().ranks == std::vector<int>{7});
  CHECK_THROWS_WITH(parsed((1 << 16) + 1, ""), "t, line 1: it has more than 65536 columns of amaxes, the most allowed");
  std::string ranks = "step";
  for (int i = 0; i < 1 << 16; ++i) ranks += ",t@" + std::to_string(i);
  std::istringstream text(ranks + "\n");
  CHECK_THROWS_WITH(parse_amax_trace(text, "t"), "t, line 1: there is no step after the header");
}

TEST_CASE("a line of a trace may have 2^24 bytes") {
  std::istringstream longest("step,x\n1," + std::string((1 << 24) - 3, ' ') + "2\n");
  CHECK(parse_amax_trace(longest, "t").tensors[0].amaxes[0][0] == 2);
  std::istringstream longer("step,x\n1,2\n\n" + std::string((1 << 24) + 1, ' '));
  CHECK_THROWS_WITH(parse_amax_trace(longer, "t"),
                    ContainsSubstring("it has more than 16777216 bytes, the most that a line may have"));
}

TEST_CASE("a dot product of a file has at most 2^18 elements") {
  const Scratch scratch;
  const fs::path path = scratch.path / "wide.npy";
  const auto write = [&](std::uint64_t columns) {
    std::string dict = "{'descr': '|u1', 'fortran_order': False, 'shape': (1, " + std::to_string(columns) + "), }\n";
    std::ofstream(path, std::ios::binary) << "\x93NUMPY\x01" << '\0' << static_cast<char>(dict.size()) << '\0' << dict;
    fs::resize_file(path, 10 + dict.size() + columns);
  };
  write(most_depth);
  CHECK(operand_of_tensor(e4m3, StoredTensors{{path}}, 0).codes.size() == most_depth);
  write(std::uint64_t{1} << 32);
  CHECK_THROWS_WITH(
      operand_of_tensor(e4m3, StoredTensors{{path}}, 0),
      ContainsSubstring("wide.npy\" has rows of 4294967296 elements; a dot product may have at most 262144"));
  const DotOperand long_one{.format = e4m3, .codes = Codes(most_depth + 1)};
  CHECK_THROWS_WITH(run_dot({hopper_wgmma_fp8, long_one, long_one}),
                    "an operand may have at most 262144 elements, not 262145");
}

}  // namespace fp8lab::tests
