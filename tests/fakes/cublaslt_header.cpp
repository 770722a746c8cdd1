// SPDX-License-Identifier: Apache-2.0
// What cublaslt_api.hpp says of cuBLASLt, beside NVIDIA's header. It is compiled where there is one, and not run.
#include <cublasLt.h>

#include <type_traits>

#include "cublaslt_api.hpp"

namespace fp8lab::gpu::cublaslt {

static_assert(real_32f == CUDA_R_32F && real_e4m3 == CUDA_R_8F_E4M3 && real_e5m2 == CUDA_R_8F_E5M2);
static_assert(compute_32f == CUBLAS_COMPUTE_32F && transposed == CUBLAS_OP_T);
static_assert(desc_trans_a == CUBLASLT_MATMUL_DESC_TRANSA && desc_fast_accum == CUBLASLT_MATMUL_DESC_FAST_ACCUM);
static_assert(pref_max_workspace_bytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(algo_id == CUBLASLT_ALGO_CONFIG_ID && algo_tile == CUBLASLT_ALGO_CONFIG_TILE_ID);
static_assert(algo_split_k == CUBLASLT_ALGO_CONFIG_SPLITK_NUM && algo_stages == CUBLASLT_ALGO_CONFIG_STAGES_ID);
static_assert(algo_reduction == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(Heuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(Heuristic, workspace) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(Heuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

/// Whether arguments go in the same registers: pointers, or integers of the same size.
template <typename Own, typename Real>
inline constexpr bool same = std::is_pointer_v<Own> == std::is_pointer_v<Real> && sizeof(Own) == sizeof(Real) &&
                             std::is_floating_point_v<Own> == std::is_floating_point_v<Real>;
template <typename Own, typename Real>
struct SameCall : std::false_type {};
template <typename OwnResult, typename... Own, typename RealResult, typename... Real>
  requires(sizeof...(Own) == sizeof...(Real))
struct SameCall<OwnResult (*)(Own...), RealResult (*)(Real...)>
    : std::bool_constant<same<OwnResult, RealResult> && (same<Own, Real> && ...)> {};

template <auto kMember, typename Real>
inline constexpr bool is_right = false;
template <typename Own, Own Functions::* kMember, typename Real>
inline constexpr bool is_right<kMember, Real> = SameCall<Own, Real>::value;

static_assert(is_right<&Functions::cublasLtCreate, decltype(&::cublasLtCreate)>);
static_assert(is_right<&Functions::cublasLtDestroy, decltype(&::cublasLtDestroy)>);
static_assert(is_right<&Functions::cublasLtGetStatusName, decltype(&::cublasLtGetStatusName)>);
static_assert(is_right<&Functions::cublasLtGetVersion, decltype(&::cublasLtGetVersion)>);
static_assert(is_right<&Functions::cublasLtMatmulDescCreate, decltype(&::cublasLtMatmulDescCreate)>);
static_assert(is_right<&Functions::cublasLtMatmulDescDestroy, decltype(&::cublasLtMatmulDescDestroy)>);
static_assert(is_right<&Functions::cublasLtMatmulDescSetAttribute, decltype(&::cublasLtMatmulDescSetAttribute)>);
static_assert(is_right<&Functions::cublasLtMatrixLayoutCreate, decltype(&::cublasLtMatrixLayoutCreate)>);
static_assert(is_right<&Functions::cublasLtMatrixLayoutDestroy, decltype(&::cublasLtMatrixLayoutDestroy)>);
static_assert(is_right<&Functions::cublasLtMatmulPreferenceCreate, decltype(&::cublasLtMatmulPreferenceCreate)>);
static_assert(is_right<&Functions::cublasLtMatmulPreferenceDestroy, decltype(&::cublasLtMatmulPreferenceDestroy)>);
static_assert(
    is_right<&Functions::cublasLtMatmulPreferenceSetAttribute, decltype(&::cublasLtMatmulPreferenceSetAttribute)>);
static_assert(is_right<&Functions::cublasLtMatmulAlgoGetHeuristic, decltype(&::cublasLtMatmulAlgoGetHeuristic)>);
static_assert(
    is_right<&Functions::cublasLtMatmulAlgoConfigGetAttribute, decltype(&::cublasLtMatmulAlgoConfigGetAttribute)>);
static_assert(is_right<&Functions::cublasLtMatmul, decltype(&::cublasLtMatmul)>);

}  // namespace fp8lab::gpu::cublaslt
