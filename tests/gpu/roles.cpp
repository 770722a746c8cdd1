// SPDX-License-Identifier: Apache-2.0
// Roles of the host team: what they see of one another, and that they cannot hang.
#include <stdexcept>
#include <string>
#include <vector>

#include "fp8lab/gpu/host_team.hpp"
#include "fp8lab/gpu/ptx/bulk_copy.hpp"
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
  const auto failure = [&](const auto& consume, const auto& produce) -> std::string {
    try {
      team.roles<1>(consume, produce);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  const auto waits = [&](const auto& group, unsigned) { gpu::wait(group, memory.full, 0); };
  const auto copies = [&](const auto& group) {
    gpu::copy_box(group, gpu::HostTensorMap{nullptr, 0, 0, 8}, memory.full, memory.box, 0, 0);
  };
  CHECK(failure(waits, [](const auto& /*group*/) {}) == "every role of the team waits at a barrier: a hang");
  CHECK(failure(waits, [](const auto& group) {
          if (group.threads() == 128) throw std::runtime_error("of a role");
        }) == "of a role");
  CHECK(failure([](const auto& /*group*/, unsigned) {}, copies) == "a kernel ended before its bulk copies");
}

}  // namespace fp8lab::tests
