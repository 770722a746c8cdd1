// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace fp8lab::gpu {

/// The facts that a reader should know of a kernel before reading it.
struct KernelInfo {
  std::string_view name;    ///< of the functor
  std::string_view header;  ///< in gpu/include/fp8lab/gpu
  std::string_view chips;   ///< that it is compiled for
  std::string_view computes;
  std::string_view equals;  ///< the function of formats/ or reference/ whose bits it gives; tests compare them
};

/// All kernels that there are.
[[nodiscard]] std::span<const KernelInfo> kernels();

}  // namespace fp8lab::gpu
