// SPDX-License-Identifier: Apache-2.0
// Asks a device, or the host team in its place, for results: digests of swept instructions, and single words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/gpu/block_scaled.hpp"
#include "fp8lab/gpu/fragments.hpp"
#include "fp8lab/gpu/host_team.hpp"
#include "fp8lab/gpu/recorder/casts.hpp"
#include "fp8lab/gpu/recorder/functions.hpp"
#include "fp8lab/gpu/recorder/tiles.hpp"
#include "fp8lab/reference/tensor_core/mma_model.hpp"

namespace fp8lab::gpu {

/// A matrix instruction that is recorded.
struct Instruction {
  enum class Family : std::uint8_t { mma_sync, wgmma, scaled_mma_sync, tcgen05 };
  Family family;
  MmaType type_a, type_b;  ///< without meaning where the kind's factors are E2M1
  MmaAccumulator accumulator;
  unsigned m, n, k;
  MmaKind kind = MmaKind::f8f6f4;  ///< of the last two families

  /// PTX's name without what is always the same: "mma.sync.m16n8k32.f32.e4m3.e5m2".
  [[nodiscard]] std::string name() const;
  /// Whether it is one of Blackwell's kinds, which are for one chip alone, as wgmma is.
  [[nodiscard]] bool has_kind() const { return family == Family::scaled_mma_sync || family == Family::tcgen05; }
  /// Whether a chip of this compute capability (90 is 9.0) has it.
  [[nodiscard]] bool is_for(int capability) const;
  /// The tiles of it that a draw and a seed make.
  [[nodiscard]] TileSet tiles(Draw draw, std::uint64_t seed) const;
};

/// All instructions and sweeps that are recorded, in a fixed order: their numbers are the arguments below.
[[nodiscard]] const std::vector<Instruction>& instructions();
[[nodiscard]] const std::vector<CastSweep>& cast_sweeps();

/// The draws with their names (see named.hpp).
[[nodiscard]] std::span<const Named<Draw>> named_values(Draw of_type);

/// The chip of a compute capability. Throws std::invalid_argument where fp8lab has no models of that chip.
[[nodiscard]] HostChip chip_of(int capability);
/// The model of an instruction. Throws std::invalid_argument as above, or where the chip does not have it.
[[nodiscard]] const MmaModel& model_of(const Instruction& instruction, int capability);

/// Where the words of a recording come from.
struct RecordedDevice {
  std::string name;          ///< as NVIDIA names it, or "host team"
  int capability = 0;        ///< 90 is compute capability 9.0; of the host team, that of the chip it stands for
  int multiprocessors = 0;   ///< 0 on the host team
  std::string driver = {};   ///< the newest CUDA version that the driver supports; "none" on the host team
  std::string runtime;       ///< the CUDA version that fp8lab was built with; "none" on the host team
  std::uint64_t memory = 0;  ///< bytes
  bool is_host_team = false;
};

/// A sample of an instruction's tiles, all words of them.
struct TileWords {
  std::vector<std::byte> a, b, c;     ///< operands, as TileSet has them, tile after tile
  std::vector<std::uint64_t> result;  ///< one for each dot product
};

/// Runs instructions and gives back what they gave. Every function throws CudaError where CUDA fails.
class Recorder {
 public:
  Recorder() = default;
  Recorder(Recorder&&) = delete;  // and so no copies either
  virtual ~Recorder() = default;

  [[nodiscard]] virtual RecordedDevice device() const = 0;
  /// The digests of inputs [first, first + count) of a sweep, one for each chunk of inputs_per_chunk. All are
  /// multiples of the chunk, and the chunk one of SweepCasts::inputs_per_block or the whole sweep.
  [[nodiscard]] virtual std::vector<std::uint64_t> cast_digests(std::size_t sweep, std::uint64_t first,
                                                                std::uint64_t count,
                                                                std::uint64_t inputs_per_chunk) = 0;
  /// The outputs of inputs [first, first + count), both multiples of four.
  [[nodiscard]] virtual std::vector<std::uint32_t> cast_words(std::size_t sweep, std::uint64_t first,
                                                              std::uint64_t count) = 0;
  /// The digests of inputs [first, first + count) of a function of recorded_functions(), one for each chunk, which is a
  /// multiple of SweepFunctions::inputs_per_block or all; and their words. `seed` is that of pairs. Over units that
  /// have no model, the host team has the stand-in `correctly_rounded`.
  [[nodiscard]] virtual std::vector<std::uint64_t> function_digests(std::size_t function, std::uint64_t seed,
                                                                    std::uint64_t first, std::uint64_t count,
                                                                    std::uint64_t inputs_per_chunk) = 0;
  [[nodiscard]] virtual std::vector<std::uint32_t> function_words(std::size_t function, std::uint64_t seed,
                                                                  std::uint64_t first, std::uint64_t count) = 0;
  /// The digests of chunks of tiles_per_chunk tiles, from the tile `first` on, which begins a chunk.
  [[nodiscard]] virtual std::vector<std::uint64_t> tile_digests(std::size_t instruction, const TileSet& set,
                                                                std::uint64_t first, std::uint64_t chunks,
                                                                std::uint64_t tiles_per_chunk) = 0;
  /// The results of generated tiles [first, first + tiles), with their operands.
  [[nodiscard]] virtual TileWords tile_words(std::size_t instruction, const TileSet& set, std::uint64_t first,
                                             std::size_t tiles) = 0;
  /// The results of given operands: a, b and c of whole tiles, as TileSet has them.
  [[nodiscard]] virtual std::vector<std::uint64_t> multiply(std::size_t instruction, std::span<const std::byte> a,
                                                            std::span<const std::byte> b,
                                                            std::span<const std::byte> c) = 0;
};

/// The kernels on the host team, whose instructions are the models of a chip.
[[nodiscard]] std::unique_ptr<Recorder> host_recorder(int capability = 90);
/// The kernels on the current device. Throws NoDeviceError where there is none.
[[nodiscard]] std::unique_ptr<Recorder> device_recorder();

// The functions below compute the digests that the words should have, without a kernel: by bulk encode() and gemm().

[[nodiscard]] std::vector<std::uint64_t> model_cast_digests(const CastSweep& sweep, std::uint64_t first,
                                                            std::uint64_t count, std::uint64_t inputs_per_chunk,
                                                            int threads);
[[nodiscard]] std::vector<std::uint64_t> model_tile_digests(const MmaModel& model, const TileSet& set,
                                                            std::uint64_t first, std::uint64_t chunks,
                                                            std::uint64_t tiles_per_chunk, int threads);
/// The results of given tiles.
[[nodiscard]] std::vector<std::uint64_t> model_words(const MmaModel& model, const TileSet& set,
                                                     std::span<const std::byte> a, std::span<const std::byte> b,
                                                     std::span<const std::byte> c,
                                                     ZeroRule zero_rule = ZeroRule::floor);

}  // namespace fp8lab::gpu
