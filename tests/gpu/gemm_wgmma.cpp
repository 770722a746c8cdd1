// SPDX-License-Identifier: Apache-2.0
// Hopper's GEMM kernels on the host team: equal gemm() bit for bit, in every order of what runs at the same time.
#include "fp8lab/gpu/kernels/gemm_wgmma.hpp"

#include "fp8lab/reference/tensor_core/models.hpp"
#include "gemm.hpp"

namespace fp8lab::tests {
namespace {

using gpu::HostOrder;
using gpu::MmaType;

template <MmaType kA, MmaType kB, typename Promotion>
void run(GemmCase& work, const Promotion& promotion, HostOrder order) {
  using Kernel = gpu::WgmmaGemm<kA, kB, Promotion, gpu::HostTensorMap>;
  const auto [m, n, k, codes] = work.problem;
  gpu::run_on_host(Kernel{.a = {work.a.data(), m, k, Kernel::tile_m},
                          .b = {work.b.data(), n, k, Kernel::tile_n},
                          .k = k,
                          .promotion = promotion,
                          .out = work.epilogue()},
                   order);
}

template <MmaType kA, MmaType kB>
void check_fast(const Problem& problem, HostOrder order) {
  GemmCase work(problem, kA, kB);
  run<kA, kB>(work, gpu::NoPromotion{}, order);
  const Mismatches wrong = work.compare(hopper_wgmma_fp8, {});
  REQUIRE_NO(wrong);
}
template <MmaType kA, MmaType kB>
void check_promoted(const Problem& problem, std::size_t interval, HostOrder order) {
  GemmCase work(problem, kA, kB);
  run<kA, kB>(work, gpu::PlainPromotion{interval}, order);
  const Mismatches wrong = work.compare(hopper_wgmma_fp8, {.promote_k = static_cast<int>(128 * interval)});
  REQUIRE_NO(wrong);
}
template <unsigned kRowsB>
void check_scaled(const Problem& problem, HostOrder order) {
  using enum MmaType;
  GemmCase work(problem, e4m3, e4m3);
  const std::size_t blocks = gpu::ceil_div(problem.k, 128);
  work.tile_scales_a = random_scales(31, problem.m * blocks);
  work.tile_scales_b = random_scales(32, gpu::ceil_div(problem.n, kRowsB) * blocks);
  run<e4m3, e4m3>(work, gpu::ScaledPromotion<kRowsB>{work.tile_scales_a.data(), work.tile_scales_b.data(), blocks},
                  order);
  const Mismatches wrong = work.compare(hopper_wgmma_fp8, {}, kRowsB);
  REQUIRE_NO(wrong);
}

}  // namespace

TEST_CASE("wgmma with fast accumulation on the host team equals gemm") {
  using enum MmaType;
  check_fast<e4m3, e4m3>({129, 263, 784}, ascending);
  check_fast<e4m3, e5m2>({63, 40, 1024, Codes::any}, descending);
  check_fast<e5m2, e4m3>({130, 17, 144, Codes::small}, shuffled);
  check_fast<e5m2, e5m2>({1, 1, 16}, shuffled);
}
TEST_CASE("wgmma with promotion on the host team equals gemm") {
  using enum MmaType;
  check_promoted<e4m3, e4m3>({129, 131, 1024}, 1, descending);
  check_promoted<e5m2, e4m3>({70, 120, 656, Codes::any}, 2, ascending);
  check_promoted<e4m3, e5m2>({5, 3, 400, Codes::small}, 2, shuffled);
}
TEST_CASE("wgmma with DeepGEMM's scaled promotion on the host team equals gemm") {
  check_scaled<128>({66, 257, 640}, ascending);
  check_scaled<1>({131, 66, 656, Codes::any}, descending);
  check_scaled<128>({3, 130, 1024}, shuffled);
}

}  // namespace fp8lab::tests
