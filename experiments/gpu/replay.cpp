// SPDX-License-Identifier: Apache-2.0
#include "gpu/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "files/stored_file.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace fp8lab::experiments {
namespace {

/// A chunk of a record that is to be computed.
struct Task {
  bool is_cast;
  std::size_t record;
  std::uint64_t chunk;
};

/// Some or all chunks of some or all records.
std::vector<Task> tasks_of(const Ledger& ledger, const ReplayOptions& options) {
  std::vector<Task> tasks;
  const auto add = [&](bool is_cast, const auto& records) {
    if (records.empty()) return;
    if (options.all) {
      for (std::size_t i = 0; i < records.size(); ++i) {
        for (std::uint64_t chunk = 0; chunk < records[i].digests.size(); ++chunk) tasks.push_back({is_cast, i, chunk});
      }
      return;
    }
    const auto wanted = std::min(records.size(), static_cast<std::size_t>(options.records));
    for (std::size_t i = 0; i < wanted; ++i) {
      const std::uint64_t random = gpu::random_word(options.seed + (is_cast ? 0 : 1), i);
      const std::size_t record = (i * records.size() + random % records.size()) / wanted % records.size();
      const std::uint64_t chunks = records[record].digests.size();
      if (chunks > 0) tasks.push_back({is_cast, record, (random >> 32) % chunks});
    }
  };
  add(true, ledger.casts);
  add(false, ledger.dots);
  std::ranges::sort(tasks, {}, [&options](const Task& task) {
    return gpu::random_word(options.seed, (task.record * 2 + (task.is_cast ? 1 : 0)) << 32 | task.chunk);
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
  const gpu::TileSet set = instruction.tiles(gpu::find_draw(record.draw), record.seed);
  const std::uint64_t expected =
      gpu::model_tile_digests(model_named(options, record.model), set, record.first + chunk * record.tiles_per_chunk, 1,
                              record.tiles_per_chunk, options.threads)[0];
  result.words += record.tiles_per_chunk * set.dots();
  if (expected == record.digests[chunk]) return;
  result.mismatches.push_back(
      {record.instruction + " " + record.draw, record.model, chunk, record.digests[chunk], expected});
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
    if (task.is_cast) {
      compare(ledger.casts[task.record], task.chunk, options, result);
    } else {
      compare(ledger.dots[task.record], task.chunk, options, result);
    }
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
