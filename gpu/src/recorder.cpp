// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/gpu/recorder/recorder.hpp"

#include <algorithm>

#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/gpu/ptx/host_mma.hpp"
#include "fp8lab/gpu/ptx/host_mma_scaled.hpp"
#include "recorded_kernels.hpp"

namespace fp8lab::gpu {
namespace {

/// The host team as a machine.
class HostMachine {
 public:
  template <typename T>
  class Array {
   public:
    explicit Array(std::size_t count) : values_(std::make_unique<T[]>(count)), count_(count) {}
    [[nodiscard]] T* get() const { return values_.get(); }
    [[nodiscard]] std::size_t size() const { return count_; }
    void copy_to(std::span<T> values) const { std::copy_n(get(), count_, values.begin()); }
    void copy_from(std::span<const T> values) const { std::copy_n(values.begin(), count_, get()); }

   private:
    std::unique_ptr<T[]> values_;  // NOLINT(modernize-avoid-c-arrays)
    std::size_t count_;
  };

  explicit HostMachine(HostChip chip) : chip_(chip) {}
  template <typename Kernel>
  void run(const Kernel& kernel) const {
    run_on_host(kernel, {}, chip_);
  }
  void sweep(FunctionVariant variant, const FunctionSweep& sweep) const {
    visit_variant(variant, [&](auto constant) { run(SweepFunctions<constant.value>{sweep}); });
  }

 private:
  HostChip chip_;
};

constexpr std::array named_draws{Named{"random_bits", Draw::random_bits}, Named{"gaussian", Draw::gaussian},
                                 Named{"cancelling", Draw::cancelling}, Named{"subnormal", Draw::subnormal},
                                 Named{"special", Draw::special}};
static_assert(is_in_order(named_draws) && named_draws.size() == draws);

std::string_view ptx_name(MmaType type) {
  static constexpr std::array<std::string_view, 6> names{"e4m3", "e5m2", "f16", "bf16", "tf32", "f64"};
  return names.at(static_cast<std::size_t>(type));
}

std::string_view ptx_name(MmaAccumulator accumulator) {
  static constexpr std::array<std::string_view, 3> names{"f32", "f16", "f64"};
  return names.at(static_cast<std::size_t>(accumulator));
}

Format format_of(MmaAccumulator accumulator) {
  static constexpr std::array formats{binary32, binary16, binary64};
  return formats.at(static_cast<std::size_t>(accumulator));
}

std::string_view ptx_name(MmaKind kind) {
  static constexpr std::array<std::string_view, 5> names{"f8f6f4", "mxf8f6f4", "mxf4", "mxf4nvf4.ue8m0", "mxf4nvf4"};
  return names.at(static_cast<std::size_t>(kind));
}

}  // namespace

std::string Instruction::name() const {
  static constexpr std::array<std::string_view, 4> families{"mma.sync", "wgmma", "mma.sync", "tcgen05.mma"};
  std::string name(families.at(static_cast<std::size_t>(family)));
  name += ".m" + std::to_string(m) + "n" + std::to_string(n) + "k" + std::to_string(k);
  if (has_kind()) name.append(".").append(ptx_name(kind));
  name.append(".").append(ptx_name(accumulator)).append(".");
  if (has_kind() && is_packed(kind)) return name + "e2m1.e2m1";
  return name.append(ptx_name(type_a)).append(".").append(ptx_name(type_b));
}

bool Instruction::is_for(int capability) const {
  switch (family) {
    case Family::wgmma: return capability == 90;
    case Family::scaled_mma_sync: return capability == 120;
    case Family::tcgen05: return capability == 100;
    case Family::mma_sync: break;
  }
  // DMMA.16x8xK is Hopper's; for later chips ptxas 13.0 makes the same of DMMA.8x8x4, which m8n8k4 is.
  if (type_a == MmaType::f64 && m == 16) return capability == 90;
  return capability >= (gpu::bytes_of(type_a) == 1 ? 89 : 80);
}

TileSet Instruction::tiles(Draw draw, std::uint64_t seed) const {
  const bool is_fp4 = has_kind() && is_packed(kind);
  const bool is_scaled = has_kind() && scales_of(kind) > 0;
  return {.a = is_fp4 ? e2m1 : format_of(type_a),
          .b = is_fp4 ? e2m1 : format_of(type_b),
          .accumulator = format_of(accumulator),
          .rows = m,
          .columns = n,
          .depth = k,
          .draw = draw,
          .seed = seed,
          .scales = kind == MmaKind::mxf4nvf4 ? ue4m3 : e8m0,
          .block = is_scaled ? block_of(kind) : 0};
}

const std::vector<Instruction>& instructions() {
  static const std::vector<Instruction> all = [] {
    std::vector<Instruction> list;
    for (std::size_t i = 0; i < std::tuple_size_v<recorded::All>; ++i) {
      recorded::visit_type<recorded::All>(
          i, [&](auto type) { list.push_back(recorded::FactsOf<typename decltype(type)::type>::value); });
    }
    return list;
  }();
  return all;
}

const std::vector<CastSweep>& cast_sweeps() {
  static const std::vector<CastSweep> all = [] {
    std::vector<CastSweep> list;
    for (std::size_t i = 0; i < std::tuple_size_v<casts::All>; ++i) {
      recorded::visit_type<casts::All>(i, [&](auto type) { list.push_back(decltype(type)::type::sweep); });
    }
    return list;
  }();
  return all;
}

std::span<const Named<Draw>> named_values(Draw /*any*/) { return named_draws; }

HostChip chip_of(int capability) {
  if (capability == 80 || capability == 86 || capability == 87) return HostChip::ampere;
  if (capability == 89) return HostChip::ada;
  if (capability == 90) return HostChip::hopper;
  if (capability == 100 || capability == 103) return HostChip::blackwell;
  if (capability == 120 || capability == 121) return HostChip::rtx_blackwell;
  refuse("fp8lab has no models of compute capability ", capability / 10, ".", capability % 10,
         "; known: 8.0, 8.6, 8.7, 8.9, 9.0, 10.0, 10.3, 12.0, 12.1");
}

const MmaModel& model_of(const Instruction& instruction, int capability) {
  const HostChip chip = chip_of(capability);
  if (!instruction.is_for(capability)) {
    refuse(instruction.name(), " is no instruction of compute capability ", capability / 10, ".", capability % 10);
  }
  if (instruction.has_kind()) return model_of(instruction.kind, instruction.accumulator);
  if (instruction.family == Instruction::Family::wgmma) return wgmma_model(instruction.type_a, instruction.accumulator);
  return mma_sync_model(chip, instruction.type_a, instruction.accumulator, instruction.k);
}

std::unique_ptr<Recorder> host_recorder(int capability) {
  return std::make_unique<recorded::RecorderOn<HostMachine>>(
      HostMachine(chip_of(capability)),
      RecordedDevice{
          .name = "host team", .capability = capability, .driver = "none", .runtime = "none", .is_host_team = true});
}

}  // namespace fp8lab::gpu
