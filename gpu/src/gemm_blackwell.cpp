// SPDX-License-Identifier: Apache-2.0
// Blackwell's GEMMs: which of its chips' kernels runs, with scales as these read them.
#include <memory>
#include <string>
#include <vector>

#include "blackwell_kernels.hpp"
#include "fp8lab/gpu/device.hpp"
#include "fp8lab/gpu/recorder/memory.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"

namespace fp8lab::gpu {
namespace {

/// Whether scales have to be swizzled.
bool is_compact(const BlockScaleCodes& scales) {
  return !scales.codes.empty() && scales.layout == ScaleLayout::compact;
}

/// Scales on a device, swizzled there on a stream if they are not yet.
class DeviceScales {
 public:
  DeviceScales(BlockScaleCodes& scales, std::size_t rows, std::size_t columns, void* stream) {
    if (!is_compact(scales)) return;
    const std::size_t size = swizzled_size(rows, columns);
    memory_ = stream_memory(size, stream);
    auto* const to = reinterpret_cast<std::uint8_t*>(memory_.get());
    start_swizzle({.compact = scales.codes.data(), .swizzled = to, .rows = rows, .columns = columns}, stream);
    scales = {.codes = {to, size}, .layout = ScaleLayout::swizzled};
  }

 private:
  std::shared_ptr<std::byte> memory_;
};
/// Holds swizzled scales in memory of the host.
class HostScales {
 public:
  HostScales(BlockScaleCodes& scales, std::size_t rows, std::size_t columns, HostOrder order) {
    if (!is_compact(scales)) return;
    memory_.assign(swizzled_size(rows, columns), 0xA5);
    run_on_host(SwizzleScales{scales.codes.data(), memory_.data(), rows, columns}, order);
    scales = {.codes = memory_, .layout = ScaleLayout::swizzled};
  }

 private:
  std::vector<std::uint8_t> memory_;
};

}  // namespace

void start_blackwell_gemm(GemmKernel kernel, MmaKind kind, const GemmArguments& arguments, void* stream) {
  const bool has_mma_sync = kind != MmaKind::f8f6f4 && kind != MmaKind::mxf4nvf4_ue8m0;
  const int capability = device_capability();
  if (capability != 100 && (capability != 120 || !has_mma_sync)) {
    throw NoDeviceError(std::string(name_of(kernel)) + " needs a device of compute capability 10.0 (sm_100a)" +
                        (has_mma_sync ? " or 12.0 (sm_120a)" : "") + "; the current device has " +
                        std::to_string(capability / 10) + "." + std::to_string(capability % 10));
  }
  GemmArguments swizzled = arguments;
  const std::size_t columns = arguments.k / block_of(kind);
  const DeviceScales a(swizzled.block_scales_a, arguments.m, columns, stream);
  const DeviceScales b(swizzled.block_scales_b, arguments.n, columns, stream);
  if (capability == 100) {
    start_tcgen05_gemm(kind, swizzled, stream);
  } else {
    start_scaled_mma_sync_gemm(kind, swizzled, stream);
  }
}

void run_blackwell_gemm(MmaKind kind, const GemmArguments& arguments, HostOrder order, HostChip chip) {
  GemmArguments swizzled = arguments;
  const std::size_t columns = arguments.k / block_of(kind);
  const HostScales a(swizzled.block_scales_a, arguments.m, columns, order);
  const HostScales b(swizzled.block_scales_b, arguments.n, columns, order);
  const auto run = [&](const auto& one) { run_on_host(one, order, chip); };
  const auto map = [](const std::uint8_t* data, std::size_t rows, std::size_t bytes, unsigned box_rows) {
    return HostTensorMap{.data = data, .rows = rows, .columns = bytes, .box_rows = box_rows};
  };
  if (chip == HostChip::blackwell) {
    with_tcgen05_kernel(kind, swizzled, map, run);
  } else {
    with_scaled_mma_sync_kernel(kind, swizzled, run);
  }
}

}  // namespace fp8lab::gpu
