// SPDX-License-Identifier: Apache-2.0
// Single matrix instructions on the host team: fragments are gathered and scattered as the layouts say.
#include "fp8lab/gpu/kernels/instruction_tiles.hpp"

#include <vector>

#include "fp8lab/gpu/host_team.hpp"
#include "fp8lab/reference/tensor_core/mma.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using gpu::HostChip;
using gpu::MmaAccumulator;
using gpu::MmaType;

std::vector<std::uint64_t> random_words(std::uint64_t stream, std::size_t count) {
  std::vector<std::uint64_t> words(count);
  for (std::size_t i = 0; i < count; ++i) words[i] = random_bits(stream, i);
  return words;
}

/// d of tiles by mma(), dot product by dot product, row by row of the operands in memory.
template <typename Element, typename Value, typename Kernel, typename Instruction>
Mismatches compare_with_mma(const Kernel& kernel, const MmaModel& model, Instruction /*instruction*/, Format format_a,
                            Format format_b) {
  using Word = Kernel::Word;
  constexpr std::size_t k = Instruction::k;
  Mismatches wrong;
  for (std::size_t tile = 0; tile < kernel.tiles; ++tile) {
    const auto* const a = static_cast<const Element*>(kernel.a) + tile * Instruction::m * k;
    const auto* const b = static_cast<const Element*>(kernel.b) + tile * Instruction::n * k;
    for (std::size_t m = 0; m < Instruction::m; ++m) {
      for (std::size_t n = 0; n < Instruction::n; ++n) {
        const std::size_t i = (tile * Instruction::m + m) * Instruction::n + n;
        const auto c = std::bit_cast<Value>(kernel.c[i]);
        Value d{};
        mma(model, {.elements = std::span(a + m * k, k), .format = format_a, .rows = 1, .depth = k},
            {.elements = std::span(b + n * k, k), .format = format_b, .rows = 1, .depth = k}, std::span(&c, 1),
            std::span(&d, 1));
        wrong.compare(i, kernel.c[i], kernel.d[i], std::bit_cast<Word>(d));
      }
    }
  }
  return wrong;
}

template <typename Instruction, template <typename> typename Tiles>
void check_tiles(HostChip chip, const MmaModel& model, std::size_t tiles) {
  constexpr unsigned bytes = gpu::bytes_of(Instruction::type_a);
  using Element =
      std::conditional_t<bytes == 1, std::uint8_t,
                         std::conditional_t<bytes == 2, std::uint16_t, std::conditional_t<bytes == 4, float, double>>>;
  using Kernel = Tiles<Instruction>;
  using Word = Kernel::Word;
  const auto a = random_words(1, tiles * Kernel::bytes_a / 8);
  const auto b = random_words(2, tiles * Kernel::bytes_b / 8);
  std::vector<Word> c(tiles * Kernel::words_d);
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = static_cast<Word>(random_bits(3, i));
  for (const gpu::HostOrder order : {gpu::HostOrder{}, gpu::HostOrder{.kind = gpu::HostOrder::Kind::shuffled}}) {
    std::vector<Word> d(c.size(), Word(0xAAAA));
    const Kernel kernel{a.data(), b.data(), c.data(), d.data(), tiles};
    gpu::run_on_host(kernel, order, chip);
    using Value = Instruction::D::Value;
    const Mismatches wrong = compare_with_mma<Element, Value>(
        kernel, model, Instruction{}, gpu::format_of(Instruction::type_a), gpu::format_of(Instruction::type_b));
    REQUIRE_NO(wrong);
  }
}

template <typename Instruction>
void check_mma_sync(HostChip chip, const MmaModel& model) {
  check_tiles<Instruction, gpu::MmaSyncTiles>(chip, model, 5);
}
template <MmaType kA, MmaType kB, MmaAccumulator kAccumulator, unsigned kN = 64>
void check_wgmma(const MmaModel& model) {
  check_tiles<gpu::Wgmma<kA, kB, kAccumulator, kN>, gpu::WgmmaTiles>(HostChip::hopper, model, 1);
}

template <MmaType kA, MmaType kB, MmaAccumulator kAccumulator, unsigned kK>
using Mma = gpu::MmaSync<kA, kB, kAccumulator, kK>;

}  // namespace

TEST_CASE("mma.sync of the host team is the chip's model, whatever lane an element lies in") {
  using enum MmaType;
  using enum MmaAccumulator;
  check_mma_sync<Mma<e4m3, e5m2, float32, 32>>(HostChip::ada, ada_mma_fp8);
  check_mma_sync<Mma<e5m2, e4m3, float32, 32>>(HostChip::hopper, hopper_mma_sync_fp8);
  check_mma_sync<Mma<e4m3, e4m3, float16, 32>>(HostChip::hopper, hopper_mma_sync_fp8_f16);
  check_mma_sync<Mma<e5m2, e5m2, float16, 16>>(HostChip::ada, ada_mma_fp8_k16_f16);
  check_mma_sync<Mma<e4m3, e5m2, float32, 16>>(HostChip::rtx_blackwell, rtx_blackwell_mma_fp8_k16);
  check_mma_sync<Mma<f16, f16, float32, 16>>(HostChip::ampere, ampere_fp16);
  check_mma_sync<Mma<f16, f16, float16, 8>>(HostChip::hopper, hopper_fp16_k8_f16);
  check_mma_sync<Mma<bf16, bf16, float32, 16>>(HostChip::hopper, hopper_bf16);
  check_mma_sync<Mma<bf16, bf16, float32, 8>>(HostChip::blackwell, blackwell_bf16_k8);
  check_mma_sync<Mma<tf32, tf32, float32, 8>>(HostChip::hopper, hopper_tf32);
  check_mma_sync<Mma<tf32, tf32, float32, 4>>(HostChip::ada, ada_tf32_k4);
  check_mma_sync<gpu::MmaSync<f64, f64, float64, 4, 8>>(HostChip::ampere, ampere_fp64);
  check_mma_sync<gpu::MmaSync<f64, f64, float64, 4, 8>>(HostChip::rtx_blackwell, blackwell_fp64);
  check_mma_sync<Mma<f64, f64, float64, 4>>(HostChip::hopper, hopper_fp64_k4);
  check_mma_sync<Mma<f64, f64, float64, 8>>(HostChip::hopper, hopper_fp64_k8);
  check_mma_sync<Mma<f64, f64, float64, 16>>(HostChip::hopper, hopper_fp64);
}

TEST_CASE("wgmma of the host team is Hopper's model, read through swizzled shared memory and descriptors") {
  using enum MmaType;
  using enum MmaAccumulator;
  check_wgmma<e4m3, e5m2, float32>(hopper_wgmma_fp8);
  check_wgmma<e5m2, e4m3, float32, 128>(hopper_wgmma_fp8);
  check_wgmma<e4m3, e4m3, float32, 256>(hopper_wgmma_fp8);
  check_wgmma<e5m2, e5m2, float16>(hopper_wgmma_fp8_f16);
  check_wgmma<f16, f16, float32>(hopper_fp16);
  check_wgmma<f16, f16, float16>(hopper_fp16_f16);
  check_wgmma<bf16, bf16, float32>(hopper_bf16);
  check_wgmma<tf32, tf32, float32>(hopper_tf32);
}

TEST_CASE("mma.sync is refused for a chip that has no FP8") {
  CHECK_THROWS_AS(gpu::mma_sync_model(HostChip::ampere, MmaType::e4m3, MmaAccumulator::float32, 32),
                  std::invalid_argument);
  CHECK_THROWS_AS(gpu::mma_sync_model(HostChip::ada, MmaType::f64, MmaAccumulator::float64, 16), std::invalid_argument);
}

}  // namespace fp8lab::tests
