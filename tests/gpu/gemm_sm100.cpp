// SPDX-License-Identifier: Apache-2.0
// The GEMM of Blackwell on the host team, and what its instructions are told.
#include "fp8lab/gpu/kernels/gemm_sm100.hpp"

#include "scaled_problem.hpp"

namespace fp8lab::tests::sm100 {
namespace {

using gpu::MmaKind;
using gpu::MmaType;
using gpu::Tcgen05Mma;

template <typename Mma>
std::vector<float> run(const ScaledProblem& problem, const gpu::HostOrder& order) {
  using Kernel = gpu::GemmSm100<Mma, gpu::HostTensorMap>;
  std::vector<float> d(problem.expected.size(), -77);
  const std::size_t bytes = problem.k / (gpu::is_packed(Mma::kind) ? 2 : 1);
  gpu::run_on_host(Kernel{.a = {problem.a.codes.data(), problem.a.rows, bytes, Kernel::tile},
                          .b = {problem.b.codes.data(), problem.b.rows, bytes, Kernel::tile},
                          .scales_a = problem.a.swizzled.data(),
                          .scales_b = problem.b.swizzled.data(),
                          .k = problem.k,
                          .out = problem.epilogue(d)},
                   order, gpu::HostChip::blackwell);
  return d;
}

template <typename Mma>
void check(std::array<std::size_t, 3> shape, Contents contents = Contents::numbers, float alpha = 1,
           const gpu::HostOrder& order = {}) {
  const bool packed = gpu::is_packed(Mma::kind);
  const std::array formats{packed ? e2m1 : gpu::format_of(Mma::type_a), packed ? e2m1 : gpu::format_of(Mma::type_b)};
  const ScaledProblem problem(gpu::model_of(Mma::kind), formats, shape, contents, alpha);
  CHECK(problem.numbers() > problem.expected.size() / 3);
  const Mismatches wrong = problem.compare(run<Mma>(problem, order));
  REQUIRE_NO(wrong);
}

using Fp8 = Tcgen05Mma<MmaKind::f8f6f4, MmaType::e5m2, MmaType::e4m3>;
using Mxf8 = Tcgen05Mma<MmaKind::mxf8f6f4, MmaType::e4m3, MmaType::e5m2>;
using Mxf4 = Tcgen05Mma<MmaKind::mxf4>;
using Mxf4Block16 = Tcgen05Mma<MmaKind::mxf4nvf4_ue8m0>;
using Nvf4 = Tcgen05Mma<MmaKind::mxf4nvf4>;

}  // namespace

TEST_CASE("the GEMM of sm_100 is gemm() of the model, with tails of rows, columns and K") {
  check<Fp8>({37, 20, 208});
  check<Mxf8>({9, 131, 160});
  check<Mxf4>({130, 5, 96});
  check<Mxf4Block16>({20, 11, 288});
  check<Nvf4>({3, 20, 544});
}

TEST_CASE("the GEMM of sm_100 takes infinities, NaNs and extreme scales as gemm() does, and folds a tensor's scale") {
  check<Fp8>({30, 40, 128}, Contents::specials);
  check<Mxf8>({30, 40, 128}, Contents::specials, 1.7F);
  check<Nvf4>({30, 40, 160}, Contents::specials, 3.1e-3F);
}

TEST_CASE("the GEMM of sm_100 gives the same in every order of roles, copies and instructions") {
  // More stages than there are buffers, so that every buffer is used again.
  for (const gpu::HostOrder& order : host_orders) check<Mxf8>({5, 6, 704}, Contents::numbers, 1, order);
}

TEST_CASE("descriptors of tcgen05 have the bits that PTX gives them") {
  // PTX ISA 9.0, "Shared memory descriptor": address and offsets in 16 bytes, 0b001 from bit 46 on, the swizzle
  // from 61.
  CHECK(gpu::tcgen05_descriptor(0x12400) == 0x4000'4040'0001'1240);
  CHECK(gpu::tcgen05_scale_descriptor(0x20) == 0x0000'4008'0000'0002);
  // "Instruction descriptor": 4-5 float32 or the number of b's scale, 7-9 and 10-12 formats, 17-22 N / 8, 23 whether
  // scales are UE8M0, 24-28 M / 16 (27-28 M / 128), 29-30 the number of a's scale. These are CUTLASS's words for
  // M = N = 128 too.
  CHECK(gpu::tcgen05_instruction<Tcgen05Mma<MmaKind::f8f6f4>>() == 0x0820'0010);
  CHECK(gpu::tcgen05_instruction<Fp8>() == 0x0820'0090);
  CHECK(gpu::tcgen05_instruction<Mxf8>(0) == 0x08A0'0400);
  CHECK(gpu::tcgen05_instruction<Mxf8>(3) == 0x68A0'0430);
  CHECK(gpu::tcgen05_instruction<Mxf4>(2) == 0x48A0'04A0);
  CHECK(gpu::tcgen05_instruction<Nvf4>() == 0x0820'0480);
}

}  // namespace fp8lab::tests::sm100
