// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/ledger.hpp"
#include "gpu/replay.hpp"
#include "kit/document.hpp"
#include "kit/progress.hpp"

namespace fp8lab::experiments {

/// The parts of a run, in the order in which a device is asked them.
inline constexpr std::array<std::string_view, 12> gpu_parts{"kernels", "casts",     "dots",       "probes",
                                                            "primer",  "speeds",    "streams",    "products",
                                                            "units",   "functions", "reductions", "calls"};

struct GpuArguments {
  std::vector<std::string> parts = {};            ///< of gpu_parts; all where empty
  std::uint64_t inputs = std::uint64_t{1} << 32;  ///< of each conversion and function, at most
  std::uint64_t dots = 100'000'000;               ///< of each matrix instruction, and pairs of each division, at least
  std::uint64_t seed = 1;                         ///< of their operands
  double seconds = 60;                            ///< after which a task is killed
  double budget = 480;                            ///< seconds for all tasks; those that it leaves out are named
  bool host_team = false;                         ///< the host team in place of a device
  int capability = 90;                            ///< of the chip that the host team stands for: 90 is 9.0
  std::string python = "python3";                 ///< an interpreter, which may have PyTorch
  /// libcublasLt.so.13 or .12. Left out: it is looked for, and where --host-team is given, not asked.
  std::optional<std::filesystem::path> cublaslt = {};
  std::optional<std::filesystem::path> ledger = {};  ///< a file to write
  std::optional<std::filesystem::path> words = {};   ///< a folder to write words of units, reductions and calls to
  int threads = 1;                                   ///< of the models
};

struct GpuResult {
  GpuArguments arguments;
  Ledger ledger;
  std::vector<RecordedRow> rows;

  /// Whether every task ended well, and nothing differs from the models.
  [[nodiscard]] bool passed() const;
};

/// Asks the current device, each task in a child process that is killed where it takes too long. `note` gets a line for
/// each task that has ended.
///
/// Throws std::invalid_argument where an argument makes no sense, gpu::NoDeviceError where there is no device, and
/// std::runtime_error where the ledger cannot be written.
[[nodiscard]] GpuResult run_gpu(const GpuArguments& arguments, const Progress& progress = {},
                                const std::function<void(const std::string&)>& note = {});

[[nodiscard]] Document document_of(const GpuResult& result);

}  // namespace fp8lab::experiments
