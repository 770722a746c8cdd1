// SPDX-License-Identifier: Apache-2.0
// The part of cuBLASLt's interface that fp8lab calls, written down so that no header of it is needed. tests/gpu
// compares it with NVIDIA's header where that is installed. Source: cuBLAS documentation 13.0, "Using the cuBLASLt
// API".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace fp8lab::gpu::cublaslt {

// 1. Enumerators. All enumerations are ints.

using Status = int;  ///< cublasStatus_t; 0 is success

inline constexpr int real_32f = 0, real_e4m3 = 28, real_e5m2 = 29;  ///< cudaDataType
inline constexpr int compute_32f = 68;                              ///< cublasComputeType_t
inline constexpr int transposed = 1;                                ///< cublasOperation_t

/// cublasLtMatmulDescAttributes_t
inline constexpr int desc_trans_a = 3, desc_fast_accum = 25;
/// cublasLtMatmulPreferenceAttributes_t
inline constexpr int pref_max_workspace_bytes = 1;
/// cublasLtMatmulAlgoConfigAttributes_t
inline constexpr int algo_id = 0, algo_tile = 1, algo_split_k = 2, algo_reduction = 3, algo_stages = 6;

// 2. Structures. Handles and descriptors are pointers to what the library alone knows.

struct Algorithm {
  std::array<std::uint64_t, 8> data;
};
/// cublasLtMatmulHeuristicResult_t
struct Heuristic {
  Algorithm algorithm;
  std::size_t workspace;
  Status state;
  float waves;
  std::array<int, 4> reserved;
};

// 3. Functions, by the names that the library exports.

struct Functions {
  Status (*cublasLtCreate)(void** handle);
  Status (*cublasLtDestroy)(void* handle);
  const char* (*cublasLtGetStatusName)(Status status);
  std::size_t (*cublasLtGetVersion)();
  Status (*cublasLtMatmulDescCreate)(void** desc, int compute_type, int scale_type);
  Status (*cublasLtMatmulDescDestroy)(void* desc);
  Status (*cublasLtMatmulDescSetAttribute)(void* desc, int attribute, const void* value, std::size_t bytes);
  Status (*cublasLtMatrixLayoutCreate)(void** layout, int type, std::uint64_t rows, std::uint64_t columns,
                                       std::int64_t stride);
  Status (*cublasLtMatrixLayoutDestroy)(void* layout);
  Status (*cublasLtMatmulPreferenceCreate)(void** preference);
  Status (*cublasLtMatmulPreferenceDestroy)(void* preference);
  Status (*cublasLtMatmulPreferenceSetAttribute)(void* preference, int attribute, const void* value, std::size_t bytes);
  Status (*cublasLtMatmulAlgoGetHeuristic)(void* handle, void* desc, void* a, void* b, void* c, void* d,
                                           void* preference, int wanted, Heuristic* results, int* found);
  Status (*cublasLtMatmulAlgoConfigGetAttribute)(const Algorithm* algorithm, int attribute, void* value,
                                                 std::size_t bytes, std::size_t* written);
  Status (*cublasLtMatmul)(void* handle, void* desc, const void* alpha, const void* a, void* layout_a, const void* b,
                           void* layout_b, const void* beta, const void* c, void* layout_c, void* d, void* layout_d,
                           const Algorithm* algorithm, void* workspace, std::size_t workspace_bytes, void* stream);
};

}  // namespace fp8lab::gpu::cublaslt
