// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/gpu/host_header.hpp"

#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

namespace fp8lab::gpu {
namespace {

template <__nv_fp8_interpretation_t kFormat, __nv_saturation_t kSaturation>
void to_fp8(std::span<const float> in, std::span<std::uint8_t> out) {
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = __nv_cvt_float_to_fp8(in[i], kSaturation, kFormat);
}
template <__nv_saturation_t kSaturation, cudaRoundMode kRounding>
void to_e8m0(std::span<const float> in, std::span<std::uint8_t> out) {
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = __nv_cvt_float_to_e8m0(in[i], kSaturation, kRounding);
}
template <__nv_fp6_interpretation_t kFormat>
void to_fp6(std::span<const float> in, std::span<std::uint8_t> out) {
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = __nv_cvt_float_to_fp6(in[i], kFormat, cudaRoundNearest);
}
void to_fp4(std::span<const float> in, std::span<std::uint8_t> out) {
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = __nv_cvt_float_to_fp4(in[i], __NV_E2M1, cudaRoundNearest);
}

struct Known {
  Format format;
  std::string_view profile;
  HostConversion conversion;
};
const Known known[] = {{e4m3, "cuda_satfinite", to_fp8<__NV_E4M3, __NV_SATFINITE>},
                       {e4m3, "cuda_nosat", to_fp8<__NV_E4M3, __NV_NOSAT>},
                       {e5m2, "cuda_satfinite", to_fp8<__NV_E5M2, __NV_SATFINITE>},
                       {e5m2, "cuda_nosat", to_fp8<__NV_E5M2, __NV_NOSAT>},
                       {e8m0, "e8m0_cuda_up", to_e8m0<__NV_SATFINITE, cudaRoundPosInf>},
                       {e8m0, "e8m0_cuda_up_nosat", to_e8m0<__NV_NOSAT, cudaRoundPosInf>},
                       {e8m0, "e8m0_cuda_zero", to_e8m0<__NV_SATFINITE, cudaRoundZero>},
                       {e8m0, "e8m0_cuda_zero_nosat", to_e8m0<__NV_NOSAT, cudaRoundZero>},
                       {e2m3, "cuda_satfinite", to_fp6<__NV_E2M3>},
                       {e3m2, "cuda_satfinite", to_fp6<__NV_E3M2>},
                       {e2m1, "cuda_satfinite", to_fp4}};

}  // namespace

std::optional<HostConversion> host_conversion(const Format& format, const CastPolicy& policy) {
  for (const Known& entry : known) {
    if (entry.format == format && find_profile(entry.profile).policy == policy) return entry.conversion;
  }
  return std::nullopt;
}

}  // namespace fp8lab::gpu
