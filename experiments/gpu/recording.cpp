// SPDX-License-Identifier: Apache-2.0
#include "gpu/recording.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "fp8lab/reference/tensor_core/models.hpp"
#include "kit/output.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::uint64_t inputs_per_chunk = std::uint64_t{1} << 24;
constexpr std::uint64_t dots_per_chunk = std::uint64_t{1} << 18;
constexpr std::uint64_t pairs_per_chunk = std::uint64_t{1} << 20;

std::string hex_of(std::uint64_t word, int bits) { return fmt::format("{:0{}x}", word, (bits + 3) / 4); }

/// The words of a row of a tile, in hexadecimal.
std::string row_of(const Format& format, const std::vector<std::byte>& words, std::size_t row, unsigned depth) {
  std::string text;
  for (std::size_t k = 0; k < depth; ++k) {
    if (k > 0) text += ' ';
    text += hex_of(gpu::load_word(format, words.data(), row * depth + k), format.bits());
  }
  return text;
}

void add_differences(gpu::Recorder& recorder, std::size_t number, std::uint64_t first, std::uint64_t count,
                     Ledger& ledger) {
  const gpu::CastSweep& sweep = gpu::cast_sweeps()[number];
  const std::vector<std::uint32_t> words = recorder.cast_words(number, first, count);
  for (std::uint64_t i = 0; i < count && ledger.differences.size() < most_differences; ++i) {
    const std::uint32_t expected = gpu::casts::model_word(sweep, first + i);
    if (words[i] == expected) continue;
    ledger.differences.push_back({std::string(sweep.name), first + i,
                                  hex_of(static_cast<std::uint32_t>(first + i), sweep.from.bits()),
                                  hex_of(words[i], sweep.to.bits()), hex_of(expected, sweep.to.bits())});
  }
}

/// Adds the operands of tiles [first, first + count) that the device drew otherwise than the generator does: these make
/// a digest wrong where every result is right.
void add_operands(const gpu::TileSet& set, const gpu::TileWords& tiles, const DotRecord& record, std::uint64_t first,
                  std::uint64_t count, Ledger& ledger) {
  const std::size_t most = ledger.differences.size() + most_differences;
  const auto compare = [&](char name, const Format& format, const std::byte* words, std::uint64_t tile,
                           std::size_t rows, std::size_t columns, const auto& expected_at) {
    for (std::size_t i = 0; i < rows * columns && ledger.differences.size() < most; ++i) {
      const std::uint64_t got = gpu::load_word(format, words, i);
      const std::uint64_t expected =
          expected_at(static_cast<unsigned>(i / columns), static_cast<unsigned>(i % columns));
      if (got == expected) continue;
      ledger.differences.push_back({record.instruction + " " + record.draw, first + tile,
                                    fmt::format("{} itself, of this tile: row {}, {}", name, i / columns, i % columns),
                                    hex_of(got, format.bits()), hex_of(expected, format.bits())});
    }
  };
  for (std::uint64_t tile = 0; tile < count; ++tile) {
    const auto of_side = [&](bool is_b) {
      return [&set, is_b, at = first + tile](unsigned row, unsigned k) {
        return gpu::operand_word(set, is_b, at, row, k);
      };
    };
    compare('a', set.a, tiles.a.data() + tile * bytes_of_a(set), tile, set.rows, set.depth, of_side(false));
    compare('b', set.b, tiles.b.data() + tile * bytes_of_b(set), tile, set.columns, set.depth, of_side(true));
    compare('c', set.accumulator, tiles.c.data() + tile * set.dots() * gpu::bytes_of(set.accumulator), tile, set.rows,
            set.columns,
            [&](unsigned row, unsigned column) { return gpu::accumulator_word(set, first + tile, row, column); });
  }
}

/// Adds the dot products of tiles [first, first + count) that are not the model's; where there are none, operands.
void add_differences(gpu::Recorder& recorder, std::size_t number, const DotRecord& record, std::uint64_t first,
                     std::uint64_t count, Ledger& ledger) {
  const gpu::TileSet set = gpu::instructions()[number].tiles(find_value<gpu::Draw>("draw", record.draw), record.seed);
  const gpu::TileWords tiles = recorder.tile_words(number, set, first, count);
  const std::vector<std::uint64_t> expected =
      gpu::model_words(find_model(record.model), set, tiles.a, tiles.b, tiles.c);
  const std::size_t before = ledger.differences.size();
  const int bits = set.accumulator.bits();
  for (std::size_t i = 0; i < expected.size() && ledger.differences.size() < before + most_differences; ++i) {
    if (tiles.result[i] == expected[i]) continue;
    const std::size_t tile = i / set.dots();
    const std::size_t row = i % set.dots() / set.columns;
    const std::size_t column = i % set.columns;
    const std::string c = hex_of(gpu::load_word(set.accumulator, tiles.c.data(), i), bits);
    ledger.differences.push_back(
        {record.instruction + " " + record.draw, first * set.dots() + i,
         fmt::format("a {}; b {}; c {}", row_of(set.a, tiles.a, tile * set.rows + row, set.depth),
                     row_of(set.b, tiles.b, tile * set.columns + column, set.depth), c),
         hex_of(tiles.result[i], bits), hex_of(expected[i], bits)});
  }
  if (ledger.differences.size() == before) add_operands(set, tiles, record, first, count, ledger);
}

void add_differences(gpu::Recorder& recorder, std::size_t number, const FunctionRecord& record, std::uint64_t first,
                     Ledger& ledger) {
  if (!record.units) return;  // nothing was compared
  const std::uint64_t seed = record.seed.value_or(0);
  const auto got = recorder.function_words(number, seed, first, record.chunk);
  std::vector<std::uint32_t> expected(got.size());
  gpu::model_function_words(gpu::recorded_functions()[number], *record.units, seed, first, expected);
  for (std::size_t i = 0; i < got.size() && ledger.differences.size() < most_differences; ++i) {
    if (got[i] == expected[i]) continue;
    const std::uint64_t input = record.seed ? gpu::random_word(seed, first + i) : first + i;
    ledger.differences.push_back({record.variant + " " + record.function, first + i,
                                  hex_of(input, record.seed ? 64 : 32), hex_of(got[i], 32), hex_of(expected[i], 32)});
  }
}

ReplayOptions replay_options(const RecordingLimits& limits) {
  return {.all = true, .seconds = limits.compare_seconds, .seed = limits.seed, .threads = limits.threads};
}

}  // namespace

Recording record_casts(gpu::Recorder& recorder, std::size_t sweep, const RecordingLimits& limits) {
  const gpu::CastSweep& facts = gpu::cast_sweeps().at(sweep);
  const std::uint64_t chunk = std::min({inputs_per_chunk, facts.inputs(), std::bit_floor(limits.inputs)});
  const std::uint64_t count = std::min(facts.inputs(), limits.inputs) / chunk * chunk;
  Recording recording;
  recording.ledger.device = recorder.device();
  recording.ledger.casts.push_back({std::string(facts.name), 0, chunk, recorder.cast_digests(sweep, 0, count, chunk)});
  recording.compared = replay(recording.ledger, replay_options(limits));
  if (!recording.compared.mismatches.empty()) {
    add_differences(recorder, sweep, recording.compared.mismatches.front().chunk * chunk, chunk, recording.ledger);
  }
  return recording;
}

Recording record_dots(gpu::Recorder& recorder, std::size_t instruction, const RecordingLimits& limits) {
  const gpu::Instruction& facts = gpu::instructions().at(instruction);
  const std::string_view model = gpu::model_of(facts, recorder.device().capability).name;
  Recording recording;
  recording.ledger.device = recorder.device();
  const std::uint64_t of_draw = gpu::ceil_div(limits.dots, gpu::draws);
  for (int draw = 0; draw < gpu::draws; ++draw) {
    const gpu::TileSet set = facts.tiles(static_cast<gpu::Draw>(draw), limits.seed);
    const std::uint64_t tiles = gpu::ceil_div(std::min(of_draw, dots_per_chunk), set.dots());
    const std::uint64_t chunks = gpu::ceil_div(of_draw, tiles * set.dots());
    recording.ledger.dots.push_back({facts.name(), std::string(model), std::string(name_of(set.draw)), limits.seed, 0,
                                     tiles, recorder.tile_digests(instruction, set, 0, chunks, tiles)});
  }
  recording.compared = replay(recording.ledger, replay_options(limits));
  for (const DotRecord& record : recording.ledger.dots) {
    const auto wrong = std::ranges::find(recording.compared.mismatches, record.instruction + " " + record.draw,
                                         &ReplayMismatch::record);
    if (wrong == recording.compared.mismatches.end()) continue;
    const std::uint64_t first = wrong->chunk * record.tiles_per_chunk;
    add_differences(recorder, instruction, record, first, record.tiles_per_chunk, recording.ledger);
  }
  return recording;
}

Recording record_function(gpu::Recorder& recorder, std::size_t function, const RecordingLimits& limits) {
  const gpu::RecordedFunction& facts = gpu::recorded_functions().at(function);
  const gpu::RecordedDevice device = recorder.device();
  const bool has_pairs = facts.has_pairs();
  FunctionRecord record{.variant = std::string(name_of(facts.variant)),
                        .function = facts.name(),
                        .units = gpu::units_of_record(facts, device.capability, device.runtime, device.is_host_team)};
  std::uint64_t count = 0;
  if (has_pairs) {
    record.seed = limits.seed;
    record.chunk = std::min(limits.dots, pairs_per_chunk);
    count = gpu::ceil_div(limits.dots, record.chunk) * record.chunk;
  } else {
    record.chunk = std::min({inputs_per_chunk, facts.inputs(), std::bit_floor(limits.inputs)});
    count = std::min(facts.inputs(), limits.inputs) / record.chunk * record.chunk;
  }
  const std::uint64_t seed = record.seed.value_or(0);
  record.digests =
      has_pairs ? std::vector<std::uint64_t>() : recorder.function_digests(function, seed, 0, count, record.chunk);
  // A chunk of pairs need not be a number of the kernel's blocks, which a sweep of several chunks must be.
  for (std::uint64_t first = 0; has_pairs && first < count; first += record.chunk) {
    record.digests.push_back(recorder.function_digests(function, seed, first, record.chunk, record.chunk)[0]);
  }
  Recording recording;
  recording.ledger.device = device;
  recording.ledger.functions.push_back(record);
  recording.compared = replay(recording.ledger, replay_options(limits));
  if (!recording.compared.mismatches.empty()) {
    const std::uint64_t first = recording.compared.mismatches.front().chunk * record.chunk;
    add_differences(recorder, function, record, first, recording.ledger);
  }
  return recording;
}

std::string packed_words(std::span<const std::uint32_t> words) {
  const std::size_t count = words.size();
  std::vector<std::uint8_t> planes(4 * count);
  std::uint32_t before = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t step = words[i] - before;
    before = words[i];
    for (std::size_t plane = 0; plane < 4; ++plane) {
      planes[plane * count + i] = static_cast<std::uint8_t>(step >> (8 * plane));
    }
  }
  uLongf size = ::compressBound(planes.size());
  std::string packed(size, '\0');
  if (::compress2(reinterpret_cast<Bytef*>(packed.data()), &size, planes.data(), planes.size(), 6) != Z_OK) {
    throw std::runtime_error("zlib does not compress the words");
  }
  packed.resize(size);
  return packed;
}

Ledger record_words(gpu::Recorder& recorder, std::size_t function, const RecordingLimits& limits,
                    const std::filesystem::path& folder) {
  const gpu::RecordedFunction& facts = gpu::recorded_functions().at(function);
  Ledger ledger{.device = recorder.device()};
  Files files;
  for (const gpu::WordRange& range : gpu::word_ranges()) {
    if (static_cast<std::size_t>(range.instruction) != facts.number) continue;
    const std::uint64_t count = std::min(range.count, limits.inputs);
    const std::vector<std::uint32_t> words = recorder.function_words(function, 0, range.first, count);
    WordsRecord record{.function = facts.name(),
                       .file = fmt::format("{}.{:08x}.{}.z", facts.name(), range.first, count),
                       .first = range.first,
                       .count = count};
    for (std::size_t i = 0; i < words.size(); ++i) record.digest += gpu::digest_term(range.first + i, words[i]);
    files.emplace_back(record.file, packed_words(words));
    ledger.words.push_back(std::move(record));
  }
  write_files(folder, files);
  return ledger;
}

}  // namespace fp8lab::experiments
