// SPDX-License-Identifier: Apache-2.0
// The ledger of a device: its results, as digests and counts that are small enough to be committed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/gpu/recorder/recorder.hpp"
#include "kit/json.hpp"

namespace fp8lab::experiments {

/// The version of a ledger's keys. It grows when a key is renamed, removed or gets another meaning.
inline constexpr int ledger_schema = 1;
/// The name of the generator that drew the operands; its version is gpu::generator_version.
inline constexpr std::string_view ledger_generator = "fp8lab recorder";
/// The number of differences that a ledger keeps of a record; more would tell nothing new.
inline constexpr std::size_t most_differences = 8;

/// Digests of a conversion instruction, of chunks of consecutive inputs.
struct CastRecord {
  std::string sweep;  ///< the name of a gpu::CastSweep
  std::uint64_t first = 0, inputs_per_chunk = 0;
  std::vector<std::uint64_t> digests;
};

/// Digests of a matrix instruction, of chunks of generated tiles.
struct DotRecord {
  std::string instruction;  ///< the name of a gpu::Instruction
  std::string model;        ///< what fp8lab took for its model
  std::string draw;
  std::uint64_t seed = 0, first = 0, tiles_per_chunk = 0;
  std::vector<std::uint64_t> digests;
};

/// The digest of a tensor of the FP8 primer.
struct PrimerRecord {
  std::string tensor;  ///< the name of a PrimerTensor
  std::string model;   ///< what fp8lab took for its model: a tensor core, "encode" or "decode"
  std::uint64_t seed = 0;
  int multiprocessors = 0;  ///< of the device whose random stream the weight is
  std::uint64_t rows = 0, in_features = 0, out_features = 0;
  std::uint64_t digest = 0;
};

/// How a library composed a product.
struct Composition {
  int promote_k = 0;
  std::size_t split_k = 0;  ///< elements of K in each range that is summed apart; 0: one range
  bool descending = false;  ///< the order in which the ranges are added

  [[nodiscard]] std::string told() const;
};
/// The digest of a product of a library, of operands that the generator drew.
struct ProductRecord {
  std::string library;  ///< and its version
  bool fast = false;    ///< fast accumulation
  std::string model;    ///< what fp8lab took for the model of its instructions
  std::uint64_t rows = 0, columns = 0, depth = 0, seed = 0;
  std::optional<Composition> composition = {};  ///< one that gives its every word, if any was found
  std::uint64_t digest = 0;
};

/// Digests of a function, of chunks of consecutive inputs from 0 on, or of pairs of words.
struct FunctionRecord {
  std::string variant, function;           ///< of a gpu::RecordedFunction
  std::optional<SpecialUnits> units = {};  ///< over which fp8lab computes it, if it does
  std::optional<std::uint64_t> seed = {};  ///< of pairs; nothing where all inputs are swept
  std::uint64_t chunk = 0;                 ///< inputs of each digest
  std::vector<std::uint64_t> digests = {};
};
/// A file beside the ledger that has the words of consecutive inputs of an instruction.
struct WordsRecord {
  std::string function, file;
  std::uint64_t first = 0, count = 0;
  std::uint64_t digest = 0;
};
/// A tensor that a library computed of operands that its name says.
struct CallRecord {
  std::string part, name, library;
  std::uint64_t count = 0;  ///< words
  std::uint64_t digest = 0;
};

/// The answer to a question.
struct Finding {
  std::string part, name, question, answer;
  std::optional<bool> agrees;      ///< with the models of fp8lab, where they say something
  std::vector<std::string> words;  ///< what the answer rests on: operands and results
};

/// A result that is not the model's.
struct Difference {
  std::string record;  ///< the instruction, and the draw of its operands
  std::uint64_t index = 0;
  std::string operands, got, expected;
};

/// How long something took.
struct Speed {
  std::string name, what;
  double amount = 0;        ///< bytes moved, or floating-point operations
  std::string unit;         ///< "B" or "FLOP"
  double milliseconds = 0;  ///< the median of repetitions
  double bound_milliseconds =
      0;  ///< of what it is measured beside, in the same run: a copy, or the library; 0: nothing
};

/// How a task of a part ended.
struct PartNote {
  std::string part, task;
  std::string status;  ///< done, skipped, left out, failed or timed out
  std::string note;    ///< why it was not done
  double seconds = 0;
};

struct Ledger {
  gpu::RecordedDevice device = {};
  std::string version = {}, commit = {}, date = {};  ///< of fp8lab, and of the run, in UTC
  int generator = gpu::generator_version;            ///< of the operands of `dots`
  std::vector<CastRecord> casts = {};
  std::vector<DotRecord> dots = {};
  std::vector<PrimerRecord> primer = {};
  std::vector<ProductRecord> products = {};
  std::vector<FunctionRecord> functions = {};
  std::vector<WordsRecord> words = {};
  std::vector<CallRecord> calls = {};
  std::vector<Finding> findings = {};
  std::vector<Difference> differences = {};
  std::vector<Speed> speeds = {};
  std::vector<PartNote> parts = {};

  /// Appends what another one found.
  void merge(Ledger other);
};

/// The outcome of the records of one instruction.
struct RecordedRow {
  std::string part = {}, name = {}, model = {};
  std::uint64_t words = 0;     ///< recorded
  std::uint64_t compared = 0;  ///< of them, with the model
  std::uint64_t wrong_chunks = 0;
};
/// The result of a task: a piece of the ledger, and the comparisons with the models.
struct TaskResult {
  Ledger ledger = {};
  std::vector<RecordedRow> rows = {};
};

/// The ledger as JSON, by the schema bindings/fp8lab/ledger.schema.json.
[[nodiscard]] Json json_of(const Ledger& ledger);

/// Reads what json_of() wrote. Throws std::invalid_argument that says what is wrong: JSON that is cut off or of another
/// form, another schema or generator, an unknown instruction, sweep, draw, model, function or units, functions of
/// another CUDA than fp8lab knows, or a digest that is none.
[[nodiscard]] Ledger parse_ledger(const std::string& text);
/// Reads such a file. Throws std::runtime_error: "cannot read FILE: reason".
[[nodiscard]] Ledger read_ledger(const std::filesystem::path& path);

}  // namespace fp8lab::experiments
