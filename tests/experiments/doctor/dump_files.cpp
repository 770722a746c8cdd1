// SPDX-License-Identifier: Apache-2.0
// How much is read of a dump.
#include "doctor/dump_files.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "experiments/files/tensor_bytes.hpp"
#include "scratch.hpp"
#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("doctor: a sample has as many elements as the user says, and else 2^24") {
  if (sanitized) return;  // it has 100 MB
  const Scratch scratch;
  constexpr std::uint64_t rows = std::uint64_t{1} << 22;
  constexpr std::uint64_t columns = 128;
  const auto sparse = [&](const std::string& name, const std::string& descr, std::uint64_t width) {
    const std::filesystem::path path = scratch.path / name;
    const std::string header =
        tensor_bytes::npy(tensor_bytes::dict(descr, "(" + std::to_string(rows) + ", " + std::to_string(columns) + ")"));
    std::ofstream(path, std::ios::binary) << header;
    std::filesystem::resize_file(path, header.size() + rows * columns * width);
    return path;
  };
  experiments::DoctorArguments arguments{.x = sparse("x.npy", "<f2", 2), .codes = sparse("codes.npy", "|u1", 1)};
  CHECK(experiments::read_dump(arguments).codes.size() == std::uint64_t{1} << 24);
  for (const std::uint64_t most : {std::uint64_t{1} << 20, std::uint64_t{1} << 25}) {
    arguments.most_elements = most;
    CHECK(experiments::read_dump(arguments).codes.size() == most);
  }
}

}  // namespace fp8lab::tests
