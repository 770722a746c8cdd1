// SPDX-License-Identifier: Apache-2.0
// Fragment layouts against what PTX states of them, element by element.
#include "fp8lab/gpu/fragments.hpp"

#include <set>
#include <utility>

#include "support.hpp"

namespace fp8lab::tests {
namespace {

using gpu::Place;

/// Whether the places are all of rows x columns, each once.
template <typename Places>
bool covers(unsigned rows, unsigned columns, const Places& places) {
  std::set<std::pair<unsigned, unsigned>> seen;
  unsigned count = 0;
  places([&](Place place) {
    ++count;
    if (place.row < rows && place.column < columns) seen.insert({place.row, place.column});
  });
  return count == rows * columns && seen.size() == count;
}

/// All places of a warp's registers.
template <typename PlaceOf>
auto registers(unsigned elements, unsigned count, PlaceOf place) {
  return [=](const auto& visit) {
    const unsigned of_lane = count * elements;
    for (unsigned i = 0; i < 32 * of_lane; ++i) {
      visit(place(elements, i / of_lane, i % of_lane / elements, i % elements));
    }
  };
}

}  // namespace

TEST_CASE("fragments of mma.sync hold every element once") {
  for (const unsigned elements : {4U, 2U, 1U}) {
    for (const unsigned halves : {2U, 1U}) {  // K is 32 or 16 bytes
      CHECK(covers(16, halves * 4 * elements, registers(elements, halves * 2, gpu::mma_sync_a)));
      CHECK(covers(8, halves * 4 * elements, registers(elements, halves, gpu::mma_sync_b)));
    }
  }
  CHECK(covers(8, 4, registers(1, 1, gpu::mma_sync_a)));  // f64
  CHECK(covers(16, 16, registers(1, 8, gpu::mma_sync_a)));
  CHECK(covers(8, 16, registers(1, 4, gpu::mma_sync_b)));
  CHECK(covers(16, 8, [](const auto& visit) {
    for (unsigned i = 0; i < 32 * 4; ++i) visit(gpu::mma_sync_d(i / 4, i % 4));
  }));
}

TEST_CASE("fragments of wgmma hold every element once, for every N") {
  for (unsigned n = 8; n <= 256; n += 8) {
    CHECK(covers(64, n, [n](const auto& visit) {
      for (unsigned i = 0; i < 64 * n; ++i) visit(gpu::wgmma_d(i / (n / 2), i % (n / 2)));
    }));
  }
}

// PTX ISA 9.0, "Matrix Fragments for mma": groupID = lane / 4, threadID_in_group = lane % 4; lane 13 is (3, 1).
// m16n8k32, 8-bit: a_i is in row groupID for i < 4 and 8 <= i < 12, else groupID + 8; in column threadID * 4 + i % 4,
// and 16 more for i >= 8. b_i is in k = threadID * 4 + i % 4, and 16 more for i >= 4; n is groupID.
static_assert(gpu::mma_sync_a(4, 13, 0, 2) == Place{3, 6});
static_assert(gpu::mma_sync_a(4, 13, 1, 2) == Place{11, 6});
static_assert(gpu::mma_sync_a(4, 13, 2, 3) == Place{3, 23});
static_assert(gpu::mma_sync_a(4, 13, 3, 0) == Place{11, 20});
static_assert(gpu::mma_sync_b(4, 13, 0, 3) == Place{3, 7});
static_assert(gpu::mma_sync_b(4, 13, 1, 0) == Place{3, 20});
// m16n8k16, f16: a_i is in row groupID for i < 2 and 4 <= i < 6, else groupID + 8; in column threadID * 2 + i % 2,
// and 8 more for i >= 4. b_i is in k = threadID * 2 + i % 2, and 8 more for i >= 2.
static_assert(gpu::mma_sync_a(2, 13, 1, 1) == Place{11, 3});
static_assert(gpu::mma_sync_a(2, 13, 2, 0) == Place{3, 10});
static_assert(gpu::mma_sync_b(2, 13, 1, 1) == Place{3, 11});
// m16n8k8, tf32: a0 and a2 are in row groupID, a1 and a3 in groupID + 8; a2 and a3 four columns further.
static_assert(gpu::mma_sync_a(1, 13, 1, 0) == Place{11, 1});
static_assert(gpu::mma_sync_a(1, 13, 2, 0) == Place{3, 5});
static_assert(gpu::mma_sync_b(1, 13, 1, 0) == Place{3, 5});
// m16n8k16, f64: a_i is in row groupID for even i, else groupID + 8; in column threadID + 4 * (i / 2). b_i is in
// k = threadID + 4 * i. These are the layouts of CUTLASS's SM90_16x8x16_F64F64F64F64_TN too: of A, thread
// (4, 8) : (16, 1) and value (2, 4) : (8, 64) in a column-major 16 x 16.
static_assert(gpu::mma_sync_a(1, 13, 5, 0) == Place{11, 9});
static_assert(gpu::mma_sync_a(1, 13, 6, 0) == Place{3, 13});
static_assert(gpu::mma_sync_b(1, 13, 3, 0) == Place{3, 13});
// C and D: c_i is in row groupID for i < 2, else groupID + 8; in column threadID * 2 + i % 2.
static_assert(gpu::mma_sync_d(13, 1) == Place{3, 3});
static_assert(gpu::mma_sync_d(13, 2) == Place{11, 2});

// PTX ISA 9.0, "Register Fragments" of wgmma, figure of D of m64nNk16: warp w has rows 16 w to 16 w + 15; d0 and d1 of
// its lane 0 are columns 0 and 1 of row 0, d2 and d3 those of row 8, d4 is column 8 of row 0.
static_assert(gpu::wgmma_d(0, 1) == Place{0, 1});
static_assert(gpu::wgmma_d(0, 2) == Place{8, 0});
static_assert(gpu::wgmma_d(0, 4) == Place{0, 8});
static_assert(gpu::wgmma_d(127, 127) == Place{63, 255});
static_assert(gpu::wgmma_d(2 * 32 + 13, 7) == Place{43, 11});

// The swizzle as CUTLASS names it: Swizzle<3, 4, 3>, which adds bits 7 to 9 of the byte's place to bits 4 to 6 (xor).
TEST_CASE("the 128-byte swizzle permutes pieces of 16 bytes within 1024") {
  std::set<std::uint32_t> seen;
  for (std::uint32_t place = 0; place < 2048; ++place) {
    const std::uint32_t to = gpu::swizzle_128b(place);
    seen.insert(to);
    CHECK(to / 128 == place / 128);
    CHECK(to % 16 == place % 16);
    CHECK(gpu::swizzle_128b(to) == place);
    CHECK((to / 16 % 8) == (place / 16 % 8 ^ place / 128 % 8));
  }
  CHECK(seen.size() == 2048);
  CHECK(gpu::swizzle_128b(0) == 0);
  CHECK(gpu::swizzle_128b(128) == 128 + 16);
  CHECK(gpu::swizzle_128b(7 * 128 + 112) == 7 * 128);
}

// PTX ISA 9.0, "Matrix Descriptor Format": bits 0-13 the address, 16-29 the leading, 32-45 the stride offset, each as
// (x & 0x3FFFF) >> 4; 49-51 the base offset, 0 for tiles that begin at 1024; 62-63 the swizzle, 1 for 128 bytes.
static_assert(gpu::wgmma_descriptor(0) == 0x4000004000010000U);
static_assert(gpu::wgmma_descriptor(0x8400 + 64) == 0x4000004000010844U);
static_assert(gpu::wgmma_descriptor(0x38000) == 0x4000004000013800U);
// Byte 5 of row 10 of 32 bytes of K that begin at column 64: in the second 1024, third 128, piece 4 ^ 2.
static_assert(gpu::wgmma_address(gpu::wgmma_descriptor(0x8400 + 64), 10, 5) == 0x8400 + 1024 + 2 * 128 + 6 * 16 + 5);

}  // namespace fp8lab::tests
