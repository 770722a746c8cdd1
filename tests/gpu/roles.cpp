// SPDX-License-Identifier: Apache-2.0
// Roles of the host team: what they see of one another, and that they cannot hang.
#include <stdexcept>
#include <string>
#include <vector>

#include "fp8lab/gpu/host_team.hpp"
#include "fp8lab/gpu/ptx/bulk_copy.hpp"
#include "fp8lab/gpu/ptx/tcgen05.hpp"
#include "fp8lab/gpu/ptx/wgmma.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

struct RoleMemory {
  alignas(1024) std::uint8_t box[1024];  // NOLINT(modernize-avoid-c-arrays): 8 rows
  gpu::Mbarrier full;
};

/// What a role reads of a box that another one has copied, with or without waiting for it.
std::uint8_t read_box(gpu::HostOrder::Kind kind, bool waits) {
  const gpu::HostOrder order{.kind = kind};
  const std::vector<std::uint8_t> matrix(1024, 7);
  const gpu::HostTensorMap map{.data = matrix.data(), .rows = 8, .columns = 128, .box_rows = 8};
  gpu::HostShared<RoleMemory> storage;
  RoleMemory& memory = storage.poisoned();
  gpu::init(memory.full, 1);
  const gpu::HostTeam team(256, order, gpu::HostChip::hopper, &memory);
  gpu::fence_init(team);
  std::uint8_t read = 0;
  team.roles<1>(
      [&](const auto& group, unsigned) {
        if (waits) gpu::wait(group, memory.full, 0);
        read = memory.box[1023];
      },
      [&](const auto& group) {
        gpu::arrive_expecting(group, memory.full, gpu::box_bytes(8));
        gpu::copy_box(group, map, memory.full, memory.box, 0, 0);
        gpu::wait(group, memory.full, 0);
      });
  return read;
}

/// What the roles of a team throw, or nothing.
template <typename... Bodies>
std::string failure_of(const gpu::HostTeam& team, const Bodies&... bodies) {
  try {
    team.roles<1>(bodies...);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a role that waits for a copy has it, and one that does not reads what was there") {
  using Kind = gpu::HostOrder::Kind;
  for (const Kind kind : {Kind::ascending, Kind::descending, Kind::shuffled}) CHECK(read_box(kind, true) == 7);
  CHECK(read_box(Kind::ascending, false) == 0xA5);
}

TEST_CASE("roles that wait forever, fail, or leave a copy behind are reported") {
  gpu::HostShared<RoleMemory> storage;
  RoleMemory& memory = storage.poisoned();
  gpu::init(memory.full, 1);
  const gpu::HostTeam team(256, {}, gpu::HostChip::hopper, &memory);
  const auto failure = [&](const auto& consume, const auto& produce) { return failure_of(team, consume, produce); };
  const auto waits = [&](const auto& group, unsigned) { gpu::wait(group, memory.full, 0); };
  const auto copies = [&](const auto& group) {
    gpu::copy_box(group, gpu::HostTensorMap{nullptr, 0, 0, 8}, memory.full, memory.box, 0, 0);
  };
  CHECK(failure([](const auto& /*group*/, unsigned) {}, copies) ==
        "barriers without fence.mbarrier_init behind their init");
  gpu::fence_init(team);
  CHECK(failure(waits, [](const auto& /*group*/) {}) == "every role of the team waits at a barrier: a hang");
  CHECK(failure(waits, [](const auto& group) {
          if (group.threads() == 128) throw std::runtime_error("of a role");
        }) == "of a role");
  CHECK(failure([](const auto& /*group*/, unsigned) {}, copies) == "a kernel ended before its bulk copies");
}

TEST_CASE("asynchronous instructions see what threads wrote behind a fence alone, and what bulk copies wrote at once") {
  gpu::HostShared<RoleMemory> storage;
  RoleMemory& memory = storage.poisoned();
  gpu::init(memory.full, 1);
  const gpu::HostTeam team(256, {}, gpu::HostChip::hopper, &memory, sizeof(memory));
  gpu::fence_init(team);
  const auto seen = [&](std::size_t i) { return static_cast<int>(team.async_shared()[i]); };
  team.for_each(1, [&](std::size_t i) { memory.box[i] = 7; });
  CHECK(seen(0) == 0xA5);
  gpu::fence_shared(team);
  CHECK(seen(0) == 7);
  const std::vector<std::uint8_t> bytes(32, 9);
  team.roles<1>([](const auto& /*group*/, unsigned) {},
                [&](const auto& group) {
                  gpu::arrive_expecting(group, memory.full, 32);
                  gpu::copy_bytes(group, bytes.data(), memory.full, &memory.box[64], 32);
                  gpu::wait(group, memory.full, 0);
                });
  CHECK(seen(64) == 9);
  CHECK(memory.box[95] == 9);
}

TEST_CASE("an instruction whose fence is missing is refused by name") {
  using Instruction = gpu::Wgmma<gpu::MmaType::e4m3, gpu::MmaType::e4m3, gpu::MmaAccumulator::float32, 64>;
  struct Values {
    float values[32];  // NOLINT(modernize-avoid-c-arrays)
  };
  const gpu::HostTeam team(128, {});
  std::uint32_t address = 0;
  gpu::TensorMemory memory(team, address, 32);
  const auto failure = [&](const auto& body) {
    return failure_of(team, [&](const auto& group, unsigned) { body(group); });
  };
  CHECK(failure([](const auto& group) {
          auto d = group.template each<Instruction::D>();
          gpu::wgmma_fence(group);
          group.for_each_thread([](std::size_t) {});
          gpu::wgmma<Instruction>(group, d, 0, 0, true);
        }) == "wgmma without wgmma.fence behind what threads did with registers");
  const auto load_and_store = [&](bool fences_before, bool fences_after) {
    return failure([&](const auto& group) {
      auto values = group.template each<Values>();
      memory.store(group, 0, values);
      if (fences_before) gpu::tcgen05_fence_before(group);
      group.sync();
      if (fences_after) gpu::tcgen05_fence_after(group);
      memory.load(group, 0, values);
      if (fences_before) gpu::tcgen05_fence_before(group);
    });
  };
  CHECK(load_and_store(true, true).empty());
  CHECK(load_and_store(false, true) == "a barrier without tcgen05.fence::before_thread_sync behind tensor memory");
  CHECK(load_and_store(true, false) == "tcgen05 without tcgen05.fence::after_thread_sync behind a barrier");
}

}  // namespace fp8lab::tests
