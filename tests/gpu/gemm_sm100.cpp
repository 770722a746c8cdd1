// SPDX-License-Identifier: Apache-2.0
// The GEMM of Blackwell on the host team, and what its instructions are told.
#include "fp8lab/gpu/kernels/gemm_sm100.hpp"

#include "scaled_problem.hpp"

namespace fp8lab::tests::sm100 {
namespace {

using gpu::MmaKind;
using gpu::MmaType;
using gpu::Tcgen05Mma;

using gpu::GemmKernel;
constexpr auto blackwell = gpu::HostChip::blackwell;
constexpr ScaledKernel fp8{GemmKernel::blackwell_f8f6f4, blackwell, MmaType::e5m2, MmaType::e4m3};
constexpr ScaledKernel mxf8{GemmKernel::blackwell_mxf8f6f4, blackwell, MmaType::e4m3, MmaType::e5m2};
constexpr ScaledKernel mxf4{GemmKernel::blackwell_mxf4};
constexpr ScaledKernel mxf4_block16{GemmKernel::blackwell_mxf4nvf4_ue8m0};
constexpr ScaledKernel nvf4{GemmKernel::blackwell_mxf4nvf4};

}  // namespace

TEST_CASE("the GEMM of sm_100 is gemm() of the model, with tails of rows, columns and K") {
  fp8.check({37, 20, 208});
  mxf8.check({9, 131, 160});
  mxf4.check({130, 5, 96});
  mxf4_block16.check({20, 11, 288});
  nvf4.check({3, 20, 544});
}

TEST_CASE("the GEMM of sm_100 takes infinities, NaNs and extreme scales as gemm() does, and folds a tensor's scale") {
  fp8.check({30, 40, 128}, Contents::specials);
  mxf8.check({30, 40, 128}, Contents::specials, 1.7F);
  nvf4.check({30, 40, 160}, Contents::specials, 3.1e-3F);
}

TEST_CASE("the GEMM of sm_100 gives the same in every order of roles, copies and instructions") {
  // More stages than there are buffers, so that every buffer is used again.
  for (const gpu::HostOrder& order : host_orders) mxf8.check({5, 6, 704}, Contents::numbers, 1, order);
}

TEST_CASE("descriptors of tcgen05 have the bits that PTX gives them") {
  using Mxf8 = Tcgen05Mma<MmaKind::mxf8f6f4, MmaType::e4m3, MmaType::e5m2>;
  // PTX ISA 9.0, "Shared memory descriptor": address and offsets in 16 bytes, 0b001 from bit 46 on, the swizzle
  // from 61.
  CHECK(gpu::tcgen05_descriptor(0x12400) == 0x4000'4040'0001'1240);
  CHECK(gpu::tcgen05_scale_descriptor(0x20) == 0x0000'4008'0000'0002);
  // "Instruction descriptor": 4-5 float32 or the number of b's scale, 7-9 and 10-12 formats, 17-22 N / 8, 23 whether
  // scales are UE8M0, 24-28 M / 16 (27-28 M / 128), 29-30 the number of a's scale. These are CUTLASS's words for
  // M = N = 128 too.
  CHECK(gpu::tcgen05_instruction<Tcgen05Mma<MmaKind::f8f6f4>>() == 0x0820'0010);
  CHECK(gpu::tcgen05_instruction<Tcgen05Mma<MmaKind::f8f6f4, MmaType::e5m2, MmaType::e4m3>>() == 0x0820'0090);
  CHECK(gpu::tcgen05_instruction<
            Tcgen05Mma<MmaKind::f8f6f4, MmaType::e5m2, MmaType::e4m3, gpu::MmaAccumulator::float16>>() == 0x0820'0080);
  CHECK(gpu::tcgen05_instruction<Mxf8>(0) == 0x08A0'0400);
  CHECK(gpu::tcgen05_instruction<Mxf8>(3) == 0x68A0'0430);
  CHECK(gpu::tcgen05_instruction<Tcgen05Mma<MmaKind::mxf4>>(2) == 0x48A0'04A0);
  CHECK(gpu::tcgen05_instruction<Tcgen05Mma<MmaKind::mxf4nvf4>>() == 0x0820'0480);
}

}  // namespace fp8lab::tests::sm100
