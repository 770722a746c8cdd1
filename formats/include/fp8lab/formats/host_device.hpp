// SPDX-License-Identifier: Apache-2.0
// Defines the macros that mark functions for the host and, where nvcc compiles them, for the device.
#pragma once

/// Marks a function that runs on the host and, where nvcc compiles it, on the device too.
#ifdef __CUDACC__
#define FP8LAB_HD __host__ __device__
#define FP8LAB_HD_INLINE __host__ __device__ __forceinline__
#define FP8LAB_HD_CALL inline __host__ __device__ __noinline__
#else
#define FP8LAB_HD
#define FP8LAB_HD_INLINE inline
#define FP8LAB_HD_CALL inline
#endif
