// SPDX-License-Identifier: Apache-2.0
// What libraries of others compute on the device, through a Python that has PyTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/reference/gemm/gemm.hpp"
#include "gpu/ledger.hpp"

namespace fp8lab::experiments {

/// Something that a task needs is not there; the message says what.
class MissingError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A product of two matrices of codes, (rows, K) and (columns, K).
struct LibraryProduct {
  std::size_t rows, columns, depth;
  std::vector<std::uint8_t> a, b;
};
/// E4M3 codes of the recorder's generator.
[[nodiscard]] LibraryProduct library_product(std::size_t rows, std::size_t columns, std::size_t depth,
                                             std::uint64_t seed);

/// How a library may have composed a product.
struct Composition {
  int promote_k;
  std::size_t split_k;
  bool descending;  ///< the order in which the parts of K are added

  [[nodiscard]] std::string told() const;
};
/// The options of gemm() for that composition.
[[nodiscard]] GemmOptions options_of(const Composition& composition, std::size_t depth);

/// The compositions that give all of `sample` rows of the output, and else the one that gives most of it.
[[nodiscard]] Finding find_composition(const MmaModel& model, const LibraryProduct& product, std::span<const float> out,
                                       std::size_t sample, int threads);

/// Asks torch._scaled_mm, which is cuBLASLt: how is a product of this K composed? Throws MissingError where the
/// interpreter or what it needs is missing.
[[nodiscard]] Finding ask_scaled_mm(const std::string& python, const MmaModel& model, std::size_t depth, bool fast,
                                    std::uint64_t seed, int threads);

/// Asks PyTorch for uniform or normal random numbers: are they those of torch_cuda_uniform() or torch_cuda_normal()?
/// Throws as above.
[[nodiscard]] Finding ask_stream(const std::string& python, bool is_normal, std::uint64_t seed);

}  // namespace fp8lab::experiments
