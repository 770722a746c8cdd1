// SPDX-License-Identifier: Apache-2.0
// Runs other libraries on the device: cuBLASLt, and PyTorch through a Python that has it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
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

/// The recipe of gemm() for that composition.
[[nodiscard]] GemmRecipe recipe_of(const MmaModel& model, const Composition& composition);

/// How a library's output follows from its operands, as the GEMM doctor finds it.
struct FoundComposition {
  std::string told;                        ///< the doctor's verdict, and how many words the composition gives
  std::optional<Composition> composition;  ///< one that gives every word, if any does
};
[[nodiscard]] FoundComposition find_composition(const MmaModel& model, const LibraryProduct& product,
                                                std::span<const float> out, int threads);

/// The product that a library is asked for.
struct ProductQuestion {
  MmaModel model;  ///< of its instructions
  std::size_t depth;
  bool fast;  ///< fast accumulation
  std::uint64_t seed = 1;
  int threads = 1;
};
/// Asks torch._scaled_mm, which is cuBLASLt: how is a product of this K composed? Throws MissingError where the
/// interpreter or what it needs is missing.
[[nodiscard]] TaskResult ask_scaled_mm(const std::string& python, const ProductQuestion& question);
/// Asks cuBLASLt itself, on arrays of the current device; a library for tests computes on arrays of the host. Throws
/// MissingError where the library cannot be loaded.
[[nodiscard]] TaskResult ask_cublaslt(const std::filesystem::path& library, bool on_device,
                                      const ProductQuestion& question);

/// Where libcublasLt is: in $CUDA_HOME, /usr/local/cuda, $FP8LAB_THIRD_PARTY or /usr/lib/x86_64-linux-gnu, or among the
/// packages of the interpreter. Throws MissingError where it is in none of them.
[[nodiscard]] std::filesystem::path cublaslt_of(const std::string& python);

/// Throws std::invalid_argument where a record's model is unknown, or gemm() cannot be composed so.
void check_product_record(const ProductRecord& record);
/// The digest of the record's product, composed as it says, by a model, which may be another one than fp8lab's.
[[nodiscard]] std::uint64_t model_digest(const ProductRecord& record, const MmaModel& model, int threads);

/// The operations of PyTorch and Transformer Engine that are timed.
enum class TorchSpeed : std::uint8_t {
  cast,       ///< torch.compile's fused cast to E4M3 and amax
  scaled_mm,  ///< torch._scaled_mm
  te,         ///< Transformer Engine's quantizers
};
/// Times it on tensors of size x size on a device of PyTorch, "cuda" or for tests "cpu". Throws MissingError where the
/// interpreter or what it needs is missing.
[[nodiscard]] TaskResult ask_torch_speed(const std::string& python, TorchSpeed what, const std::string& device,
                                         std::size_t size);

/// What a Python with PyTorch is asked for: a part, and the script's name of a task. Each has a file of its words.
struct RecordedCall {
  std::string_view part, what;
};
inline constexpr std::array recorded_calls{
    RecordedCall{"reductions", "torch_reductions_float32"}, RecordedCall{"reductions", "torch_reductions_bfloat16"},
    RecordedCall{"calls", "libraries_scaled_mm_tensor"}, RecordedCall{"calls", "libraries_scaled_mm_row"},
    RecordedCall{"calls", "libraries_triton"}};

struct CallQuestion {
  std::string python, device;                        ///< an interpreter, and a device of PyTorch: "cuda" or "cpu"
  bool is_small = false;                             ///< a few sizes, to try it out
  double seconds = 60;                               ///< then no further tensor is asked for
  std::optional<std::filesystem::path> folder = {};  ///< for a file WHAT.npz of words
};
/// Asks for the tensors of a task: a CallRecord of each, and a Finding for what the library refuses. Throws
/// MissingError where the interpreter or what it needs is missing.
[[nodiscard]] TaskResult ask_calls(const CallQuestion& question, std::string_view part, std::string_view what);

/// Asks PyTorch for uniform or normal random numbers: are they those of torch_cuda_uniform() or torch_cuda_normal()?
/// Throws MissingError as above.
[[nodiscard]] Finding ask_stream(const std::string& python, bool is_normal, std::uint64_t seed);

}  // namespace fp8lab::experiments
