// SPDX-License-Identifier: Apache-2.0
// From the arguments of a GEMM to its kernel, on device and host alike.
#pragma once

#include <array>
#include <type_traits>
#include <variant>

#include "fp8lab/gpu/gemm.hpp"
#include "fp8lab/gpu/kernels/gemm_mma_sync.hpp"
#include "fp8lab/gpu/kernels/gemm_wgmma.hpp"
#include "fp8lab/gpu/kernels/swizzle.hpp"

namespace fp8lab::gpu {

/// Starts a kernel of sm_90a, or of sm_89 and later, on the current device. The arguments must have been checked.
void start_wgmma_gemm(GemmKernel kernel, const GemmArguments& arguments, void* stream);
void start_mma_sync_gemm(GemmKernel kernel, const GemmArguments& arguments, void* stream);
/// Starts a kernel of sm_100a, or of sm_120a, on the current device, which has to be one of these. Scales must be
/// swizzled.
void start_tcgen05_gemm(MmaKind kind, const GemmArguments& arguments, void* stream);
void start_scaled_mma_sync_gemm(MmaKind kind, const GemmArguments& arguments, void* stream);
/// Runs Blackwell's kernel for the current device, or on the host team as that chip; swizzles scales that are compact.
/// The arguments must have been checked.
void start_blackwell_gemm(GemmKernel kernel, MmaKind kind, const GemmArguments& arguments, void* stream);
void run_blackwell_gemm(MmaKind kind, const GemmArguments& arguments, HostOrder order, HostChip chip);
void start_swizzle(const SwizzleScales& kernel, void* stream);

[[nodiscard]] inline GemmEpilogue epilogue_of(const GemmArguments& arguments) {
  const auto or_null = [](std::span<const float> values) { return values.empty() ? nullptr : values.data(); };
  return {.m = arguments.m,
          .n = arguments.n,
          .scale_a = or_null(arguments.scale_a),
          .scale_b = or_null(arguments.scale_b),
          .bias = or_null(arguments.bias),
          .out = std::visit([](auto out) -> void* { return out.data(); }, arguments.out),
          .output = static_cast<GemmOutput>(arguments.out.index()),
          .factor = 1 / (arguments.divisor_a * arguments.divisor_b)};
}

/// Calls body.template operator()<type of a, type of b>().
template <typename Body>
void with_types(const GemmArguments& arguments, const Body& body) {
  using enum MmaType;
  const bool wide_a = arguments.type_a == e5m2;
  const bool wide_b = arguments.type_b == e5m2;
  if (wide_a && wide_b) {
    body.template operator()<e5m2, e5m2>();
  } else if (wide_a) {
    body.template operator()<e5m2, e4m3>();
  } else if (wide_b) {
    body.template operator()<e4m3, e5m2>();
  } else {
    body.template operator()<e4m3, e4m3>();
  }
}

/// Calls launch(kernel) with the wgmma kernel; map(codes, rows, columns, rows of a box) describes a matrix to it.
template <typename Map, typename Launch>
void with_wgmma_kernel(GemmKernel kernel, const GemmArguments& arguments, const Map& map, const Launch& launch) {
  const auto with = [&](const auto& promotion) {
    using Promotion = std::remove_cvref_t<decltype(promotion)>;
    const auto [m, n, k] = std::array{arguments.m, arguments.n, arguments.k};
    const auto a = map(arguments.a.data(), m, k, 128);
    const auto b = map(arguments.b.data(), n, k, Promotion::tile_n);
    with_types(arguments, [&]<MmaType kA, MmaType kB> {
      using Kernel = WgmmaGemm<kA, kB, Promotion, std::remove_cvref_t<decltype(a)>>;
      launch(Kernel{.a = a, .b = b, .k = k, .promotion = promotion, .out = epilogue_of(arguments)});
    });
  };
  const float* const tiles_a = arguments.tile_scales_a.data();
  const float* const tiles_b = arguments.tile_scales_b.data();
  const std::size_t blocks = ceil_div(arguments.k, 128);
  switch (kernel) {
    case GemmKernel::wgmma_fast: return with(NoPromotion{});
    case GemmKernel::wgmma_promoted: return with(PlainPromotion{.interval = arguments.promote_k / 32});
    case GemmKernel::wgmma_scaled_1d2d: return with(ScaledPromotion<128>{tiles_a, tiles_b, blocks});
    case GemmKernel::wgmma_scaled_1d1d: return with(ScaledPromotion<1>{tiles_a, tiles_b, blocks});
    case GemmKernel::mma_sync:
    case GemmKernel::mma_sync_float16:
    case GemmKernel::blackwell_f8f6f4:
    case GemmKernel::blackwell_mxf8f6f4:
    case GemmKernel::blackwell_mxf4:
    case GemmKernel::blackwell_mxf4nvf4_ue8m0:
    case GemmKernel::blackwell_mxf4nvf4: return;
  }
}
/// Calls launch(kernel) with the mma.sync kernel.
template <typename Launch>
void with_mma_sync_kernel(GemmKernel kernel, const GemmArguments& arguments, const Launch& launch) {
  with_types(arguments, [&]<MmaType kA, MmaType kB> {
    const auto with = [&]<MmaAccumulator kAccumulator> {
      launch(MmaSyncGemm<kA, kB, kAccumulator>{
          .a = arguments.a.data(), .b = arguments.b.data(), .k = arguments.k, .out = epilogue_of(arguments)});
    };
    if (kernel == GemmKernel::mma_sync) {
      with.template operator()<MmaAccumulator::float32>();
    } else {
      with.template operator()<MmaAccumulator::float16>();
    }
  });
}

}  // namespace fp8lab::gpu
