// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

/// Numbers of cudaError_t, for what must compile without CUDA; src/device.cu compares them with driver_types.h.
namespace fp8lab::gpu::cuda_codes {

inline constexpr int memory_allocation = 2;
inline constexpr int insufficient_driver = 35;
inline constexpr int no_device = 100;
inline constexpr int no_kernel_image = 209;

/// The errors after which CUDA serves a process no more, so that it must end: a contained exception of the device,
/// illegal address, launch timeout, assert, hardware stack, illegal instruction, misaligned address, invalid address
/// space, invalid program counter, launch failure, tensor memory leak, a client of MPS that was ended, and an error
/// outside of the device.
inline constexpr std::array ending_process{226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911};

}  // namespace fp8lab::gpu::cuda_codes
