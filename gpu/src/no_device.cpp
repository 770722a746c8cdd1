// SPDX-License-Identifier: Apache-2.0
// The room where there is no CUDA compiler: kernels still run on the host team, and there is no device.
#include "fp8lab/gpu/device.hpp"
#include "fp8lab/gpu/quantize.hpp"
#include "fp8lab/gpu/recorder/memory.hpp"
#include "fp8lab/gpu/recorder/recorder.hpp"
#include "fp8lab/gpu/recorder/speeds.hpp"
#include "gemm_kernels.hpp"

namespace fp8lab::gpu {

DeviceStatus device_status() {
  DeviceStatus status;
  status.why_none = why_no_device({}, 0, {});
  return status;
}

int device_count() { return 0; }

void require_device() { throw NoDeviceError(device_status().why_none); }

std::vector<DeviceInfo> devices() { return {}; }

int device_capability() { throw NoDeviceError(device_status().why_none); }

void check_device_buffer(const DeviceBuffer& /*buffer*/) { require_device(); }

void encode_on_device(const Format& /*format*/, const CastPolicy& /*policy*/, std::span<const float> /*in*/,
                      std::span<std::uint8_t> /*out*/) {
  require_device();
}

std::shared_ptr<std::byte> device_memory(std::size_t /*bytes*/) {
  require_device();
  return {};
}
std::shared_ptr<std::byte> stream_memory(std::size_t bytes, void* /*stream*/) { return device_memory(bytes); }
void copy_to_device(std::byte* /*to*/, std::span<const std::byte> /*from*/) { require_device(); }
void copy_from_device(std::span<std::byte> /*to*/, const std::byte* /*from*/) { require_device(); }

const std::vector<std::string>& speed_names() {
  static const std::vector<std::string> none;
  return none;
}

MeasuredSpeed measure_speed(std::size_t /*number*/, std::uint64_t /*bytes*/) {
  require_device();
  return {};
}

MeasuredSpeed measure_gemm_speed(GemmKernel /*kernel*/, const CublasLt* /*library*/, std::size_t /*size*/) {
  require_device();
  return {};
}

std::unique_ptr<Recorder> device_recorder() { throw NoDeviceError(device_status().why_none); }

void start_wgmma_gemm(GemmKernel /*kernel*/, const GemmArguments& /*arguments*/, void* /*stream*/) { require_device(); }
void start_mma_sync_gemm(GemmKernel /*kernel*/, const GemmArguments& /*arguments*/, void* /*stream*/) {
  require_device();
}
void start_swizzle(const SwizzleScales& /*kernel*/, void* /*stream*/) { require_device(); }

void quantize_on_device(const QuantizeCall& /*call*/, void* /*stream*/) { require_device(); }
void amax_on_device(const ElementMatrix& /*x*/, NanInAmax /*nan*/, float* /*amax*/, void* /*stream*/) {
  require_device();
}
void dequantize_on_device(const QuantizedView& /*q*/, std::span<float> /*out*/, void* /*stream*/) { require_device(); }
void update_scales_on_device(const Delayed& /*recipe*/, Pass /*pass*/, const DelayedStates& /*states*/,
                             void* /*stream*/) {
  require_device();
}

}  // namespace fp8lab::gpu
