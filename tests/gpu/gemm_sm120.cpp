// SPDX-License-Identifier: Apache-2.0
// The block-scaled GEMM of RTX Blackwell on the host team, and its instructions' layouts.
#include "fp8lab/gpu/kernels/gemm_sm120.hpp"

#include <set>

#include "scaled_problem.hpp"

namespace fp8lab::tests::sm120 {
namespace {

using gpu::GemmKernel;
using gpu::MmaType;
constexpr auto rtx = gpu::HostChip::rtx_blackwell;
constexpr ScaledKernel mxf8{GemmKernel::blackwell_mxf8f6f4, rtx, MmaType::e4m3, MmaType::e5m2};
constexpr ScaledKernel mxf8_other{GemmKernel::blackwell_mxf8f6f4, rtx, MmaType::e5m2, MmaType::e4m3};
constexpr ScaledKernel mxf4{GemmKernel::blackwell_mxf4, rtx};
constexpr ScaledKernel nvf4{GemmKernel::blackwell_mxf4nvf4, rtx};

}  // namespace

TEST_CASE("the GEMM of sm_120 is gemm() of the model, with tails of rows, columns and K") {
  mxf8.check({1, 1, 32});
  mxf8.check({37, 150, 160});
  mxf4.check({130, 5, 96});
  mxf4.check({20, 131, 160});
  nvf4.check({3, 140, 32});
  nvf4.check({129, 9, 288});
}

TEST_CASE("the GEMM of sm_120 takes infinities, NaNs and extreme scales as gemm() does, and folds a tensor's scale") {
  mxf8_other.check({30, 40, 128}, Contents::specials, 1.7F);
  mxf4.check({30, 40, 128}, Contents::specials);
  nvf4.check({30, 40, 160}, Contents::specials, 3.1e-3F);
}

TEST_CASE("the GEMM of sm_120 gives the same in every order of threads") {
  for (const gpu::HostOrder& order : host_orders) nvf4.check({19, 13, 288}, Contents::numbers, 1, order);
}

TEST_CASE("mma.sync takes the scale of every row from a lane that loaded it") {
  // Lanes 4 * i and 4 * i + 1 hold rows i and i + 8 of A, lanes 4 * i those of B (PTX ISA 9.0, "Block Scaling for
  // mma.sync"; thread-id 0 names the first pair of a quad).
  std::set<unsigned> lanes;
  for (unsigned row = 0; row < 16; ++row) {
    const unsigned lane = gpu::mma_sync_scale_lane_a(row);
    CHECK(lane == (row < 8 ? 4 * row : 4 * (row - 8) + 1));
    CHECK(gpu::mma_sync_scale_row_a(lane) == row);
    lanes.insert(lane);
  }
  CHECK(lanes.size() == 16);
  for (unsigned row = 0; row < 8; ++row) {
    CHECK(gpu::mma_sync_scale_lane_b(row) == 4 * row);
    CHECK(gpu::mma_sync_scale_row_b(4 * row) == row);
  }
}

TEST_CASE("fragments of E2M1 in pairs lie where those of bytes do") {
  // PTX ISA 9.0, "Matrix Fragments for mma.m16n8k64": row and column of a_i, i < 32, and b_i, i < 16.
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned group = lane / 4;
    const unsigned in_group = lane % 4;
    for (unsigned i = 0; i < 32; ++i) {
      const gpu::Place byte = gpu::mma_sync_a(4, lane, i / 8, i % 8 / 2);
      CHECK(byte.row == (i < 8 || (i >= 16 && i < 24) ? group : group + 8));
      CHECK(byte.column * 2 + i % 2 == in_group * 8 + (i & 7U) + (i < 16 ? 0 : 32));
    }
    for (unsigned i = 0; i < 16; ++i) {
      const gpu::Place byte = gpu::mma_sync_b(4, lane, i / 8, i % 8 / 2);
      CHECK(byte.row == group);
      CHECK(byte.column * 2 + i % 2 == in_group * 8 + (i & 7U) + (i < 8 ? 0 : 32));
    }
  }
}

}  // namespace fp8lab::tests::sm120
