// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "files/recorded.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "kit/document.hpp"
#include "kit/progress.hpp"

namespace fp8lab::experiments {

/// The models to verify, and how many dot products of each.
struct VerifyTensorCoresArguments {
  std::vector<std::string> models = {};  ///< names; all where empty. Recorded rows of other models are left out
  long long dots = 100000;  ///< dot products a model, of each target against the scalar code; rounded up to whole GEMMs
  std::uint64_t seed = 1;
  std::optional<std::filesystem::path> vectors = {};  ///< a file that read_vectors() reads
  std::optional<std::filesystem::path> rows = {};     ///< a file that read_gpu_rows() reads
  int threads = 1;
};

/// One dot product that is wrong.
struct ProductMismatch {
  std::uint64_t index;  ///< of the dot product in its set
  std::uint64_t got;    ///< words of the accumulator; of GEMMs, of float32 or float64
  std::uint64_t expected;
};

/// One set of dot products: of a vector target against the scalar code, or recorded under one name.
struct ProductCheck {
  std::string name;
  std::uint64_t compared = 0;
  std::uint64_t mismatches = 0;
  std::optional<ProductMismatch> first = {};
};

/// One model and everything of one kind that it was held against.
struct VerifyTensorCoresRow {
  std::string model;
  std::string kind;  ///< "targets", "vectors", "chains" or "GPU rows"
  std::vector<ProductCheck> checks;

  [[nodiscard]] std::uint64_t compared() const;
  [[nodiscard]] std::uint64_t mismatches() const;
};

struct VerifyTensorCoresResult {
  VerifyTensorCoresArguments arguments;
  std::vector<std::string> sources;  ///< of what is recorded, as the files name them
  std::vector<VerifyTensorCoresRow> rows;
  [[nodiscard]] std::uint64_t compared() const;
  [[nodiscard]] std::uint64_t mismatches() const;
  [[nodiscard]] bool passed() const { return mismatches() == 0; }
};

/// Something that multiplies as gemm_words() does, by the name it is reported under.
struct NamedGemm {
  std::string name;
  std::function<Codes(const GemmRecipe&, const Operand&, const Operand&, const GemmCall&)> run;
};

/// Holds every one of `others` against what `expected` gives, in GEMMs of seeded hard operands: all formats, K of one
/// instruction and of several, the last not whole, with promotion and without; columns of one kind together, so that
/// vector code has its part.
[[nodiscard]] VerifyTensorCoresRow verify_gemms(const MmaModel& model, const NamedGemm& expected,
                                                const std::vector<NamedGemm>& others, long long dots,
                                                std::uint64_t seed, int threads, const Progress& progress = {});

/// Holds mma() against recorded words.
[[nodiscard]] ProductCheck verify_recorded(const RecordedDots& set, ZeroRule zero_rule);
/// Holds gemm() against a set of recorded chains, fast and promoted: two dot products each.
[[nodiscard]] ProductCheck verify_chains(const RecordedChains& set);

/// Called with each row when it is done.
using VerifyProductsRowDone = std::function<void(const VerifyTensorCoresRow&)>;

/// Verifies every model on every vector target of this machine against the scalar code, and against what is recorded,
/// vectors under MMA-Sim's zero rule. Makes use of force_target(), so nothing else may run meanwhile.
///
/// Throws std::invalid_argument for unknown models, dots that are not from 1 to 2^40 and threads below 1,
/// std::runtime_error where a file cannot be read.
[[nodiscard]] VerifyTensorCoresResult verify_tensor_cores(const VerifyTensorCoresArguments& arguments,
                                                          const Progress& progress = {},
                                                          const VerifyProductsRowDone& row_done = {});

/// Tables `rows` with a row for each model and kind, `checks` with one for each set of dot products, and `kinds`.
[[nodiscard]] Document document_of(const VerifyTensorCoresResult& result);

}  // namespace fp8lab::experiments
