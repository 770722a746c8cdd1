// SPDX-License-Identifier: Apache-2.0
// The kernels of the recorder as a list, and a Recorder that runs them on a machine: the device, or the host team.
#pragma once

#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "fp8lab/gpu/kernels/instruction_tiles.hpp"
#include "fp8lab/gpu/kernels/scaled_tiles.hpp"
#include "fp8lab/gpu/recorder/recorder.hpp"
#include "function_kernels.hpp"

namespace fp8lab::gpu::recorded {

template <MmaType kA, MmaType kB, MmaAccumulator kAccumulator, unsigned kK>
using Sync = MmaSyncTiles<MmaSync<kA, kB, kAccumulator, kK>>;

template <MmaAccumulator kAccumulator, unsigned kK>
using SyncFp8 = std::tuple<
    Sync<MmaType::e4m3, MmaType::e4m3, kAccumulator, kK>, Sync<MmaType::e4m3, MmaType::e5m2, kAccumulator, kK>,
    Sync<MmaType::e5m2, MmaType::e4m3, kAccumulator, kK>, Sync<MmaType::e5m2, MmaType::e5m2, kAccumulator, kK>>;
using SyncWide = std::tuple<Sync<MmaType::f16, MmaType::f16, MmaAccumulator::float32, 16>,
                            Sync<MmaType::f16, MmaType::f16, MmaAccumulator::float16, 16>,
                            Sync<MmaType::bf16, MmaType::bf16, MmaAccumulator::float32, 16>,
                            Sync<MmaType::tf32, MmaType::tf32, MmaAccumulator::float32, 8>,
                            Sync<MmaType::f16, MmaType::f16, MmaAccumulator::float32, 8>,
                            Sync<MmaType::f16, MmaType::f16, MmaAccumulator::float16, 8>,
                            Sync<MmaType::bf16, MmaType::bf16, MmaAccumulator::float32, 8>,
                            Sync<MmaType::tf32, MmaType::tf32, MmaAccumulator::float32, 4>>;
template <unsigned kK, unsigned kM>
using Mma64 = MmaSync<MmaType::f64, MmaType::f64, MmaAccumulator::float64, kK, kM>;
using Sync64 = std::tuple<MmaSyncTiles<Mma64<4, 8>>, MmaSyncTiles<Mma64<4, 16>>, MmaSyncTiles<Mma64<8, 16>>,
                          MmaSyncTiles<Mma64<16, 16>>>;

/// Whether this pass of the compiler knows the instructions of sm_90a, sm_100a or sm_120a: each chip's code has those
/// of its own.
template <int kCapability>
[[nodiscard]] FP8LAB_HD constexpr bool has_instructions() {
#ifdef __CUDA_ARCH__
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if (kCapability == 90) return true;
#endif
#ifdef __CUDA_ARCH_FEAT_SM100_ALL
  if (kCapability == 100) return true;
#endif
#ifdef __CUDA_ARCH_FEAT_SM120_ALL
  if (kCapability == 120) return true;
#endif
  return false;
#else
  return true;
#endif
}
/// A kernel that ends at once in code for other chips than its own.
template <typename Kernel, int kCapability>
struct ForChip : Kernel {
  template <typename Team>
  FP8LAB_HD void operator()([[maybe_unused]] const Team& team, [[maybe_unused]] std::size_t block,
                            [[maybe_unused]] Kernel::Shared& shared) const {
    if constexpr (has_instructions<kCapability>()) {
      Kernel::operator()(team, block, shared);
    } else {
#ifdef __CUDA_ARCH__
      __trap();
#endif
    }
  }
};
template <typename Mma>
struct HopperTiles : ForChip<WgmmaTiles<Mma>, 90> {};
template <typename Mma>
struct BlackwellTiles : ForChip<Tcgen05Tiles<Mma>, 100> {};
template <typename Mma>
struct RtxTiles : ForChip<MmaSyncScaledTiles<Mma>, 120> {};

template <template <typename> typename Tiles, template <MmaKind, MmaType, MmaType> typename Mma, MmaKind kKind>
using OfBytes =
    std::tuple<Tiles<Mma<kKind, MmaType::e4m3, MmaType::e4m3>>, Tiles<Mma<kKind, MmaType::e4m3, MmaType::e5m2>>,
               Tiles<Mma<kKind, MmaType::e5m2, MmaType::e4m3>>, Tiles<Mma<kKind, MmaType::e5m2, MmaType::e5m2>>>;
template <MmaKind kKind, MmaType kA = MmaType::e4m3, MmaType kB = MmaType::e4m3>
using Tcgen05 = Tcgen05Mma<kKind, kA, kB>;
template <MmaKind kKind, MmaType kA, MmaType kB>
using Tcgen05Half = Tcgen05Mma<kKind, kA, kB, MmaAccumulator::float16>;
using Blackwell = decltype(std::tuple_cat(
    std::declval<OfBytes<BlackwellTiles, Tcgen05, MmaKind::f8f6f4>>(),
    std::declval<OfBytes<BlackwellTiles, Tcgen05Half, MmaKind::f8f6f4>>(),
    std::declval<OfBytes<BlackwellTiles, Tcgen05, MmaKind::mxf8f6f4>>(),
    std::declval<std::tuple<BlackwellTiles<Tcgen05<MmaKind::mxf4>>, BlackwellTiles<Tcgen05<MmaKind::mxf4nvf4_ue8m0>>,
                            BlackwellTiles<Tcgen05<MmaKind::mxf4nvf4>>>>(),
    std::declval<OfBytes<RtxTiles, MmaSyncScaled, MmaKind::mxf8f6f4>>(),
    std::declval<std::tuple<RtxTiles<MmaSyncScaled<MmaKind::mxf4>>, RtxTiles<MmaSyncScaled<MmaKind::mxf4nvf4>>>>()));

template <MmaType kA, MmaType kB, MmaAccumulator kAccumulator>
using Async = HopperTiles<Wgmma<kA, kB, kAccumulator, 64>>;
template <MmaAccumulator kAccumulator>
using AsyncFp8 =
    std::tuple<Async<MmaType::e4m3, MmaType::e4m3, kAccumulator>, Async<MmaType::e4m3, MmaType::e5m2, kAccumulator>,
               Async<MmaType::e5m2, MmaType::e4m3, kAccumulator>, Async<MmaType::e5m2, MmaType::e5m2, kAccumulator>>;
using AsyncWide = std::tuple<Async<MmaType::f16, MmaType::f16, MmaAccumulator::float32>,
                             Async<MmaType::f16, MmaType::f16, MmaAccumulator::float16>,
                             Async<MmaType::bf16, MmaType::bf16, MmaAccumulator::float32>,
                             Async<MmaType::tf32, MmaType::tf32, MmaAccumulator::float32>>;

/// Every kernel of single instructions.
using All = decltype(std::tuple_cat(
    std::declval<AsyncFp8<MmaAccumulator::float32>>(), std::declval<AsyncFp8<MmaAccumulator::float16>>(),
    std::declval<AsyncWide>(), std::declval<SyncFp8<MmaAccumulator::float32, 32>>(),
    std::declval<SyncFp8<MmaAccumulator::float16, 32>>(), std::declval<SyncFp8<MmaAccumulator::float32, 16>>(),
    std::declval<SyncFp8<MmaAccumulator::float16, 16>>(), std::declval<SyncWide>(), std::declval<Sync64>(),
    std::declval<Blackwell>()));

/// The instruction that a kernel of tiles runs.
template <typename Kernel>
struct FactsOf;
template <typename Mma>
struct FactsOf<MmaSyncTiles<Mma>> {
  static constexpr Instruction value{
      Instruction::Family::mma_sync, Mma::type_a, Mma::type_b, Mma::accumulator, Mma::m, Mma::n, Mma::k};
};
template <typename Mma>
struct FactsOf<HopperTiles<Mma>> {
  static constexpr Instruction value{
      Instruction::Family::wgmma, Mma::type_a, Mma::type_b, Mma::accumulator, Mma::m, Mma::n, Mma::k};
};

template <typename Mma>
struct FactsOf<BlackwellTiles<Mma>> {
  static constexpr Instruction value{
      Instruction::Family::tcgen05, Mma::type_a, Mma::type_b, Mma::accumulator, Mma::m, Mma::n, Mma::k, Mma::kind};
};
template <typename Mma>
struct FactsOf<RtxTiles<Mma>> {
  static constexpr Instruction value{Instruction::Family::scaled_mma_sync,
                                     Mma::type_a,
                                     Mma::type_b,
                                     MmaAccumulator::float32,
                                     Mma::m,
                                     Mma::n,
                                     Mma::k,
                                     Mma::kind};
};

/// A type, as a value.
template <typename T>
struct Type {
  using type = T;
};

/// visit(Type<T>{}) for the number-th type of a tuple.
template <typename Tuple, typename Visit, std::size_t... kNumbers>
void visit_type(std::size_t number, const Visit& visit, std::index_sequence<kNumbers...> /*numbers*/) {
  const bool found =
      ((number == kNumbers ? (visit(Type<std::tuple_element_t<kNumbers, Tuple>>{}), true) : false) || ...);
  if (!found) throw std::invalid_argument("the recorder has no entry " + std::to_string(number));
}
template <typename Tuple, typename Visit>
void visit_type(std::size_t number, const Visit& visit) {
  visit_type<Tuple>(number, visit, std::make_index_sequence<std::tuple_size_v<Tuple>>());
}

/// A Recorder of a machine, which has
///   template <typename T> class Array;  // of memory for kernels: Array(count), get(), copy_to(span), copy_from(span)
///   template <typename Kernel> void run(const Kernel&);
///   void sweep(FunctionVariant, FunctionSweep);
template <typename Machine>
class RecorderOn final : public Recorder {
 public:
  explicit RecorderOn(Machine machine, RecordedDevice device)
      : machine_(std::move(machine)), device_(std::move(device)) {}

  [[nodiscard]] RecordedDevice device() const override { return device_; }

  [[nodiscard]] std::vector<std::uint64_t> cast_digests(std::size_t sweep, std::uint64_t first, std::uint64_t count,
                                                        std::uint64_t inputs_per_chunk) override {
    const auto digests = zeros(ceil_div(count, inputs_per_chunk));
    visit_type<casts::All>(sweep, [&](auto type) {
      machine_.run(SweepCasts<typename decltype(type)::type>{first, count, inputs_per_chunk, digests.get(), nullptr});
    });
    return copy_of(digests);
  }
  [[nodiscard]] std::vector<std::uint32_t> cast_words(std::size_t sweep, std::uint64_t first,
                                                      std::uint64_t count) override {
    const Array<std::uint32_t> words(count);
    words.copy_from(std::vector<std::uint32_t>(count, 0xA5A5'A5A5U));
    visit_type<casts::All>(sweep, [&](auto type) {
      machine_.run(
          SweepCasts<typename decltype(type)::type>{first, count, std::uint64_t{1} << 40, nullptr, words.get()});
    });
    return copy_of(words);
  }
  [[nodiscard]] std::vector<std::uint64_t> function_digests(std::size_t function, std::uint64_t seed,
                                                            std::uint64_t first, std::uint64_t count,
                                                            std::uint64_t inputs_per_chunk) override {
    const auto digests = zeros(ceil_div(count, inputs_per_chunk));
    run_sweep(function, {.number = 0,
                         .seed = seed,
                         .first = first,
                         .count = count,
                         .inputs_per_chunk = inputs_per_chunk,
                         .digests = digests.get(),
                         .words = nullptr,
                         .units = {}});
    return copy_of(digests);
  }
  [[nodiscard]] std::vector<std::uint32_t> function_words(std::size_t function, std::uint64_t seed, std::uint64_t first,
                                                          std::uint64_t count) override {
    const Array<std::uint32_t> words(count);
    words.copy_from(std::vector<std::uint32_t>(count, 0xA5A5'A5A5U));
    run_sweep(function, {.number = 0,
                         .seed = seed,
                         .first = first,
                         .count = count,
                         .inputs_per_chunk = std::uint64_t{1} << 40,
                         .digests = nullptr,
                         .words = words.get(),
                         .units = {}});
    return copy_of(words);
  }
  [[nodiscard]] std::vector<std::uint64_t> tile_digests(std::size_t instruction, const TileSet& set,
                                                        std::uint64_t first, std::uint64_t chunks,
                                                        std::uint64_t tiles_per_chunk) override {
    const auto digests = zeros(chunks);
    const Tiles tiles(set, tiles_per_chunk);
    for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::uint64_t begin = first + chunk * tiles_per_chunk;
      generate(set, begin, tiles);
      multiply(instruction, tiles);
      machine_.run(DigestTiles{set.accumulator, set.dots(), begin, tiles_per_chunk, tiles_per_chunk, tiles.d.get(),
                               digests.get() + chunk});
    }
    return copy_of(digests);
  }
  [[nodiscard]] TileWords tile_words(std::size_t instruction, const TileSet& set, std::uint64_t first,
                                     std::size_t count) override {
    const Tiles tiles(set, count);
    generate(set, first, tiles);
    multiply(instruction, tiles);
    return {copy_of(tiles.a), copy_of(tiles.b), copy_of(tiles.c), words_of(set, tiles)};
  }
  [[nodiscard]] std::vector<std::uint64_t> multiply(std::size_t instruction, std::span<const std::byte> a,
                                                    std::span<const std::byte> b,
                                                    std::span<const std::byte> c) override {
    const TileSet set = instructions().at(instruction).tiles(Draw::random_bits, 0);
    const Tiles tiles(set, c.size() / (set.dots() * bytes_of(set.accumulator)));
    if (a.size() != tiles.a.size() || b.size() != tiles.b.size() || c.size() != tiles.c.size()) {
      throw std::invalid_argument("a, b and c have to be those of whole tiles of " +
                                  instructions()[instruction].name());
    }
    tiles.a.copy_from(a);
    tiles.b.copy_from(b);
    tiles.c.copy_from(c);
    tiles.d.copy_from(std::vector<std::byte>(c.size(), std::byte{0xA5}));
    multiply(instruction, tiles);
    return words_of(set, tiles);
  }

 private:
  template <typename T>
  using Array = Machine::template Array<T>;

  /// Memory of tiles of a set.
  struct Tiles {
    Tiles(const TileSet& set, std::size_t tiles)
        : count(tiles),
          a(count * bytes_of_a(set)),
          b(count * bytes_of_b(set)),
          c(count * set.dots() * bytes_of(set.accumulator)),
          d(c.size()) {}
    std::size_t count;
    Array<std::byte> a, b, c, d;
  };

  void run_sweep(std::size_t function, FunctionSweep sweep) {
    const RecordedFunction& facts = recorded_functions().at(function);
    sweep.number = facts.number;
    sweep.units = units_of_record(facts, device_.capability, device_.runtime, device_.is_host_team)
                      .value_or(SpecialUnits::correctly_rounded);
    machine_.sweep(facts.variant, sweep);
  }
  void generate(const TileSet& set, std::uint64_t first, const Tiles& tiles) {
    machine_.run(GenerateTiles{set, first, tiles.count, tiles.a.get(), tiles.b.get(), tiles.c.get(), tiles.d.get()});
  }
  void multiply(std::size_t instruction, const Tiles& tiles) {
    visit_type<All>(instruction, [&](auto type) {
      using Kernel = decltype(type)::type;
      using Word = Kernel::Word;
      Kernel kernel{};
      kernel.a = tiles.a.get();
      kernel.b = tiles.b.get();
      kernel.c = reinterpret_cast<const Word*>(tiles.c.get());
      kernel.d = reinterpret_cast<Word*>(tiles.d.get());
      kernel.tiles = tiles.count;
      machine_.run(kernel);
    });
  }
  static Array<std::uint64_t> zeros(std::size_t count) {
    Array<std::uint64_t> array(count);
    array.copy_from(std::vector<std::uint64_t>(count));
    return array;
  }
  template <typename T>
  static std::vector<T> copy_of(const Array<T>& array) {
    std::vector<T> values(array.size());
    array.copy_to(values);
    return values;
  }
  static std::vector<std::uint64_t> words_of(const TileSet& set, const Tiles& tiles) {
    const auto bytes = copy_of(tiles.d);
    std::vector<std::uint64_t> words(tiles.count * set.dots());
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = load_word(set.accumulator, bytes.data(), i);
    return words;
  }

  Machine machine_;
  RecordedDevice device_;
};

}  // namespace fp8lab::gpu::recorded
