// SPDX-License-Identifier: Apache-2.0
// From the arguments of a GEMM to Blackwell's kernel, on device and host alike. Scales are swizzled.
#pragma once

#include "fp8lab/gpu/kernels/gemm_sm100.hpp"
#include "fp8lab/gpu/kernels/gemm_sm120.hpp"
#include "gemm_kernels.hpp"

namespace fp8lab::gpu {

/// Calls launch(kernel) with the tcgen05 kernel; map(codes, rows, bytes of a row, rows of a box) describes a matrix.
template <typename Map, typename Launch>
void with_tcgen05_kernel(MmaKind kind, const GemmArguments& arguments, const Map& map, const Launch& launch) {
  const std::size_t bytes = is_packed(kind) ? arguments.k / 2 : arguments.k;
  const auto with = [&]<MmaKind kKind, MmaType kA, MmaType kB> {
    const auto a = map(arguments.a.data(), arguments.m, bytes, 128);
    const auto b = map(arguments.b.data(), arguments.n, bytes, 128);
    launch(GemmSm100<Tcgen05Mma<kKind, kA, kB>, std::remove_cvref_t<decltype(a)>>{
        .a = a,
        .b = b,
        .scales_a = arguments.block_scales_a.codes.data(),
        .scales_b = arguments.block_scales_b.codes.data(),
        .k = arguments.k,
        .out = epilogue_of(arguments)});
  };
  const auto with_bytes = [&]<MmaKind kKind> {
    with_types(arguments, [&]<MmaType kA, MmaType kB> { with.template operator()<kKind, kA, kB>(); });
  };
  using enum MmaKind;
  switch (kind) {
    case f8f6f4: return with_bytes.template operator()<f8f6f4>();
    case mxf8f6f4: return with_bytes.template operator()<mxf8f6f4>();
    case mxf4: return with.template operator()<mxf4, MmaType::e4m3, MmaType::e4m3>();
    case mxf4nvf4_ue8m0: return with.template operator()<mxf4nvf4_ue8m0, MmaType::e4m3, MmaType::e4m3>();
    case mxf4nvf4: return with.template operator()<mxf4nvf4, MmaType::e4m3, MmaType::e4m3>();
  }
}

/// Calls launch(kernel) with the kernel of mma.sync with block scales, which there is for three kinds.
template <typename Launch>
void with_scaled_mma_sync_kernel(MmaKind kind, const GemmArguments& arguments, const Launch& launch) {
  const auto with = [&]<typename Mma>(const Mma& /*instruction*/) {
    launch(GemmSm120<Mma>{.a = {arguments.a.data(), arguments.block_scales_a.codes.data(), arguments.m},
                          .b = {arguments.b.data(), arguments.block_scales_b.codes.data(), arguments.n},
                          .k = arguments.k,
                          .out = epilogue_of(arguments)});
  };
  using enum MmaKind;
  switch (kind) {
    case mxf8f6f4:
      return with_types(arguments, [&]<MmaType kA, MmaType kB> { with(MmaSyncScaled<mxf8f6f4, kA, kB>{}); });
    case mxf4: return with(MmaSyncScaled<mxf4>{});
    case mxf4nvf4: return with(MmaSyncScaled<mxf4nvf4>{});
    case f8f6f4:
    case mxf4nvf4_ue8m0: return;
  }
}

}  // namespace fp8lab::gpu
