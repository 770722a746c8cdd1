// SPDX-License-Identifier: Apache-2.0
#include "gpu/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "files/stored_file.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "gpu/libraries.hpp"
#include "gpu/primer_record.hpp"

namespace fp8lab::experiments {
namespace {

enum class Kind : std::uint8_t { cast, dots, primer, product, function };

/// A chunk of a record that is to be computed; a tensor or product is one chunk.
struct Task {
  Kind kind;
  std::size_t record;
  std::uint64_t chunk;
};

const gpu::RecordedFunction& function_of(const FunctionRecord& record) {
  const auto variant = find_value<gpu::FunctionVariant>("variant", record.variant);
  return gpu::recorded_functions()[gpu::function_number(variant, record.function)];
}
/// What had no model when it was recorded is compared with one that was found since.
std::optional<SpecialUnits> units_of(const Ledger& ledger, const FunctionRecord& record) {
  if (record.units) return record.units;
  const gpu::RecordedDevice& device = ledger.device;
  return gpu::units_of_record(function_of(record), device.capability, device.runtime, device.is_host_team);
}

/// Some or all chunks of some or all records.
std::vector<Task> tasks_of(const Ledger& ledger, const ReplayOptions& options) {
  std::vector<Task> tasks;
  const auto add = [&](Kind kind, const auto& records, const auto& chunks_of) {
    if (records.empty()) return;
    if (options.all) {
      for (std::size_t i = 0; i < records.size(); ++i) {
        for (std::uint64_t chunk = 0; chunk < chunks_of(records[i]); ++chunk) tasks.push_back({kind, i, chunk});
      }
      return;
    }
    const auto wanted = std::min(records.size(), static_cast<std::size_t>(options.records));
    for (std::size_t i = 0; i < wanted; ++i) {
      const std::uint64_t random = gpu::random_word(options.seed + static_cast<std::uint64_t>(kind), i);
      const std::size_t record = (i * records.size() + random % records.size()) / wanted % records.size();
      const std::uint64_t chunks = chunks_of(records[record]);
      if (chunks > 0) tasks.push_back({kind, record, (random >> 32) % chunks});
    }
  };
  const auto digests = [](const auto& record) -> std::uint64_t { return record.digests.size(); };
  add(Kind::cast, ledger.casts, digests);
  add(Kind::dots, ledger.dots, digests);
  add(Kind::primer, ledger.primer, [](const PrimerRecord&) { return std::uint64_t{1}; });
  add(Kind::product, ledger.products,
      [](const ProductRecord& one) { return std::uint64_t{one.composition ? 1U : 0U}; });
  add(Kind::function, ledger.functions,
      [&](const FunctionRecord& one) { return units_of(ledger, one) ? std::uint64_t{one.digests.size()} : 0; });
  std::ranges::sort(tasks, {}, [&options](const Task& task) {
    return gpu::random_word(options.seed, (task.record * 8 + static_cast<std::uint64_t>(task.kind)) << 32 | task.chunk);
  });
  return tasks;
}

MmaModel model_named(const ReplayOptions& options, std::string_view name) {
  return options.model ? options.model(name) : find_model(name);
}

void compare(const CastRecord& record, std::uint64_t chunk, const ReplayOptions& options, Replay& result) {
  const gpu::CastSweep& sweep = *std::ranges::find(gpu::cast_sweeps(), record.sweep, &gpu::CastSweep::name);
  const std::uint64_t expected =
      gpu::model_cast_digests(sweep, record.first + chunk * record.inputs_per_chunk, record.inputs_per_chunk,
                              record.inputs_per_chunk, options.threads)[0];
  result.words += record.inputs_per_chunk;
  if (expected == record.digests[chunk]) return;
  result.mismatches.push_back({record.sweep, "encode", chunk, record.digests[chunk], expected});
}

void compare(const DotRecord& record, std::uint64_t chunk, const ReplayOptions& options, Replay& result) {
  const gpu::Instruction& instruction =
      *std::ranges::find(gpu::instructions(), record.instruction, &gpu::Instruction::name);
  const gpu::TileSet set = instruction.tiles(find_value<gpu::Draw>("draw", record.draw), record.seed);
  const std::uint64_t expected =
      gpu::model_tile_digests(model_named(options, record.model), set, record.first + chunk * record.tiles_per_chunk, 1,
                              record.tiles_per_chunk, options.threads)[0];
  result.words += record.tiles_per_chunk * set.dots();
  if (expected == record.digests[chunk]) return;
  result.mismatches.push_back(
      {record.instruction + " " + record.draw, record.model, chunk, record.digests[chunk], expected});
}

void compare(const PrimerRecord& record, std::uint64_t /*chunk*/, const ReplayOptions& options, Replay& result) {
  const bool is_cast = record.model == "encode" || record.model == "decode";
  const std::uint64_t expected = model_digest(record, is_cast ? hopper_wgmma_fp8 : model_named(options, record.model));
  result.words += record.rows * record.out_features;
  if (expected == record.digest) return;
  result.mismatches.push_back({"primer " + record.tensor, record.model, 0, record.digest, expected});
}

void compare(const ProductRecord& record, std::uint64_t /*chunk*/, const ReplayOptions& options, Replay& result) {
  const std::uint64_t expected = model_digest(record, model_named(options, record.model), options.threads);
  result.words += record.rows * record.columns;
  if (expected == record.digest) return;
  const std::string name = fmt::format("{}, K = {}, {}", record.library, record.depth, record.fast ? "fast" : "split");
  result.mismatches.push_back({name, record.model, 0, record.digest, expected});
}

void compare(const FunctionRecord& record, SpecialUnits units, std::uint64_t chunk, const ReplayOptions& options,
             Replay& result) {
  const std::uint64_t expected =
      gpu::model_function_digests(function_of(record), units, record.seed.value_or(0), chunk * record.chunk,
                                  record.chunk, record.chunk, options.threads)[0];
  result.words += record.chunk;
  if (expected == record.digests[chunk]) return;
  result.mismatches.push_back(
      {record.variant + " " + record.function, std::string(name_of(units)), chunk, record.digests[chunk], expected});
}

void compare(const Ledger& ledger, const Task& task, const ReplayOptions& options, Replay& result) {
  switch (task.kind) {
    case Kind::cast: return compare(ledger.casts[task.record], task.chunk, options, result);
    case Kind::dots: return compare(ledger.dots[task.record], task.chunk, options, result);
    case Kind::primer: return compare(ledger.primer[task.record], task.chunk, options, result);
    case Kind::product: return compare(ledger.products[task.record], task.chunk, options, result);
    case Kind::function: {
      const FunctionRecord& record = ledger.functions[task.record];
      // A record of no known units has no tasks.
      if (const auto units = units_of(ledger, record)) compare(record, *units, task.chunk, options, result);
      return;
    }
  }
}

}  // namespace

std::string ReplayMismatch::told() const {
  return fmt::format("{}, chunk {}: the device has {:016x}, {} gives {:016x}", record, chunk, got, model, expected);
}

Replay replay(const Ledger& ledger, const ReplayOptions& options) {
  Replay result;
  const std::vector<Task> tasks = tasks_of(ledger, options);
  const auto start = std::chrono::steady_clock::now();
  for (const Task& task : tasks) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > options.seconds) break;
    compare(ledger, task, options, result);
    ++result.chunks;
    if (options.progress) options.progress(static_cast<double>(result.chunks) / static_cast<double>(tasks.size()));
  }
  return result;
}

Ledger read_device_ledger(const std::filesystem::path& path) {
  Ledger ledger = read_ledger(path);
  if (ledger.device.is_host_team) {
    throw std::runtime_error(
        cannot_read(in_one_line(path.native()), "the host team made it, not a device, so that it is no evidence"));
  }
  return ledger;
}

}  // namespace fp8lab::experiments
