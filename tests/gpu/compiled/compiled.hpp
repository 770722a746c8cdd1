// SPDX-License-Identifier: Apache-2.0
// What ptxas reports of compiled kernels, and how many blocks of them a multiprocessor holds.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <vector>

namespace fp8lab::tests {

/// A kernel as it was compiled for an architecture.
struct Compiled {
  std::string kernel;  ///< its type, "fp8lab::gpu::EncodeKernel"
  std::string architecture;
  unsigned registers = 0;      ///< of a thread
  std::size_t shared = 0;      ///< bytes that the code itself declares
  std::size_t local = 0;       ///< bytes of the stack and of spilled registers
  bool is_serialized = false;  ///< ptxas could not let instructions of the tensor core overlap
};

/// Reads the report of `ptxas -v`. Throws std::runtime_error where there is none.
[[nodiscard]] std::vector<Compiled> read_report(const std::filesystem::path& file);

/// The warnings in a report.
[[nodiscard]] std::vector<std::string> read_warnings(const std::filesystem::path& file);

/// The constexpr functions of the host that device code calls, as warnings of a compilation without
/// --expt-relaxed-constexpr name them: a name, or all of the declaration.
[[nodiscard]] std::vector<std::string> read_calls(const std::filesystem::path& file);

/// The type's name as demangled symbols have it.
[[nodiscard]] std::string demangled(const char* symbol);

/// What a kernel may use, and what a launch of it gives it. One of a template stands for all: that with the most
/// memory.
struct Limit {
  std::string kernel;
  unsigned registers;
  unsigned threads;
  std::size_t shared;  ///< bytes that the launch asks for
};
template <typename Kernel>
[[nodiscard]] Limit limit(unsigned registers) {
  using Shared = typename Kernel::Shared;
  constexpr std::size_t shared = std::is_empty_v<Shared> ? 0 : sizeof(Shared);
  return {demangled(typeid(Kernel).name()), registers, Kernel::threads, shared};
}
/// The limit of that kernel: its own, or else its template's. Null: none.
[[nodiscard]] const Limit* find_limit(const std::vector<Limit>& limits, std::string_view kernel);

/// What a multiprocessor has. Source: CUDA Programming Guide 13.0, compute capabilities, technical specifications.
struct Multiprocessor {
  std::string_view architecture;
  unsigned warps;
  unsigned blocks;
  std::size_t shared;           ///< bytes
  std::size_t shared_of_block;  ///< bytes, at most
};
inline constexpr std::array multiprocessors{Multiprocessor{"sm_89", 48, 24, 100 * 1024, 99 * 1024},
                                            Multiprocessor{"sm_90a", 64, 32, 228 * 1024, 227 * 1024},
                                            Multiprocessor{"sm_100a", 64, 32, 228 * 1024, 227 * 1024},
                                            Multiprocessor{"sm_120a", 48, 24, 100 * 1024, 99 * 1024}};

/// Blocks that a multiprocessor holds at the same time, and what allows no more.
struct Occupancy {
  unsigned blocks;
  std::string_view limited_by;
};
/// As NVIDIA's occupancy calculator computes: registers are given to warps in units of 256, to four warps at a time;
/// shared memory in units of 128 bytes, and each block loses 1 KiB of it to the system.
[[nodiscard]] constexpr Occupancy occupancy(const Multiprocessor& sm, unsigned threads, unsigned registers,
                                            std::size_t shared) {
  const unsigned warps = (threads + 31) / 32;
  const unsigned registers_of_warp = (registers * 32 + 255) / 256 * 256;
  const unsigned by_registers = 65'536 / registers_of_warp / 4 * 4 / warps;
  const auto by_shared = static_cast<unsigned>(sm.shared / ((shared + 1024 + 127) / 128 * 128));
  const unsigned most = std::min({sm.blocks, sm.warps / warps, by_registers, by_shared});
  if (shared > sm.shared_of_block) return {0, "shared memory"};
  if (most == by_registers && most < sm.warps / warps) return {most, "registers"};
  if (most == by_shared && most < sm.warps / warps) return {most, "shared memory"};
  return {most, most == sm.warps / warps ? "warps" : "blocks"};
}

}  // namespace fp8lab::tests
