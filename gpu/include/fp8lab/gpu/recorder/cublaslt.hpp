// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/gpu/fragments.hpp"

namespace fp8lab::gpu {

/// An FP8 product for a library: d = a * b^T with a (M, K) and b (N, K), row-major.
struct LibraryGemm {
  std::size_t m, n, k;                                     ///< multiples of 16
  MmaType type_a = MmaType::e4m3, type_b = MmaType::e4m3;  ///< or e5m2, but not of both
  bool fast = true;                                        ///< fast accumulation; else the accumulators are promoted
};

/// NVIDIA's cuBLASLt, loaded while the program runs: it is needed neither to build fp8lab nor to start it.
class CublasLt {
 public:
  /// Loads the library, and leaves it loaded until the process ends. Throws std::runtime_error that tells why it could
  /// not be loaded, or what it lacks; the same for all functions below where the library returns an error.
  explicit CublasLt(const std::filesystem::path& library);

  /// Such as "13.1.0"; the library numbers it 130100.
  [[nodiscard]] std::string version() const;

  /// A product and the algorithm that the library's heuristic chose for it on the current device.
  class Plan {
   public:
    /// The facts that the library reports of the algorithm: its number, and the numbers of tile, split-K, reduction and
    /// stages.
    [[nodiscard]] const std::string& algorithm() const { return algorithm_; }
    [[nodiscard]] std::size_t workspace_bytes() const { return workspace_bytes_; }
    /// Starts the product on the default stream. All arrays are on the device; `workspace` has workspace_bytes().
    void run(const std::uint8_t* a, const std::uint8_t* b, float* d, std::byte* workspace) const;

   private:
    friend class CublasLt;
    struct State;
    std::shared_ptr<const State> state_;
    std::string algorithm_;
    std::size_t workspace_bytes_ = 0;
  };
  [[nodiscard]] Plan plan(const LibraryGemm& product) const;

 private:
  struct Library;
  std::shared_ptr<const Library> library_;
};

/// The first libcublasLt.so.13, or .12, in those folders, in their lib and lib64, and in the nvidia/*/lib of a Python's
/// site-packages; empty where there is none.
[[nodiscard]] std::filesystem::path find_cublaslt(std::span<const std::filesystem::path> folders);

}  // namespace fp8lab::gpu
