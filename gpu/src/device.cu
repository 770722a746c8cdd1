// SPDX-License-Identifier: Apache-2.0
#include "cuda.cuh"
#include "cuda_codes.hpp"
#include "fp8lab/gpu/device.hpp"
#include "fp8lab/gpu/encode_kernel.hpp"
#include "fp8lab/gpu/recorder/memory.hpp"

namespace fp8lab::gpu {
namespace {

static_assert(cuda_codes::memory_allocation == cudaErrorMemoryAllocation);
static_assert(cuda_codes::insufficient_driver == cudaErrorInsufficientDriver);
static_assert(cuda_codes::no_device == cudaErrorNoDevice);
static_assert(cuda_codes::no_kernel_image == cudaErrorNoKernelImageForDevice);

PointerFacts::Kind kind_of(cudaMemoryType type) {
  switch (type) {
    case cudaMemoryTypeUnregistered: return PointerFacts::Kind::unregistered;
    case cudaMemoryTypeHost: return PointerFacts::Kind::host;
    case cudaMemoryTypeDevice: return PointerFacts::Kind::device;
    case cudaMemoryTypeManaged: return PointerFacts::Kind::managed;
  }
  return PointerFacts::Kind::unregistered;
}

}  // namespace

DeviceStatus device_status() {
  DeviceStatus status{.architectures = FP8LAB_CUDA_ARCHITECTURES};
  const cudaError_t counted = cudaGetDeviceCount(&status.count);
  if (counted != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    status.count = 0;
  }
  static_cast<void>(cudaDriverGetVersion(&status.versions.driver));
  static_cast<void>(cudaRuntimeGetVersion(&status.versions.runtime));
  status.why_none = why_no_device(result_of(counted), status.count, status.versions);
  return status;
}

int device_count() { return device_status().count; }

void require_device() {
  const DeviceStatus status = device_status();
  if (status.count == 0) throw NoDeviceError(status.why_none);
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> found;
  for (int i = 0; i < device_count(); ++i) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, i));
    found.push_back({i, properties.name, properties.major, properties.minor, properties.multiProcessorCount,
                     properties.totalGlobalMem});
  }
  return found;
}

int device_capability() {
  require_device();
  return current_capability().second;
}

void check_device_buffer(const DeviceBuffer& buffer) {
  require_device();
  int device = 0;
  check(cudaGetDevice(&device));
  cudaPointerAttributes attributes{};
  if (buffer.address != 0) {
    check(cudaPointerGetAttributes(&attributes, reinterpret_cast<const void*>(buffer.address)));
  }
  check_device_buffer(buffer, {kind_of(attributes.type), attributes.device}, device);
}

std::shared_ptr<std::byte> device_memory(std::size_t bytes) {
  require_device();
  const auto array = std::make_shared<DeviceArray<std::byte>>(bytes);
  return {array, array->get()};
}

std::shared_ptr<std::byte> stream_memory(std::size_t bytes, void* stream) {
  require_device();
  auto* const on = static_cast<cudaStream_t>(stream);
  void* data = nullptr;
  check_allocation(cudaMallocAsync(&data, bytes, on), bytes);
  return {static_cast<std::byte*>(data), [on](std::byte* done) { cudaFreeAsync(done, on); }};
}

void copy_to_device(std::byte* to, std::span<const std::byte> from) {
  check(cudaMemcpy(to, from.data(), from.size(), cudaMemcpyHostToDevice));
}

void copy_from_device(std::span<std::byte> to, const std::byte* from) {
  check(cudaMemcpy(to.data(), from, to.size(), cudaMemcpyDeviceToHost));
}

void encode_on_device(const Format& format, const CastPolicy& policy, std::span<const float> in,
                      std::span<std::uint8_t> out) {
  if (in.size() != out.size()) {
    throw std::invalid_argument("out has " + std::to_string(out.size()) + " elements, the input " +
                                std::to_string(in.size()));
  }
  require_device();
  if (in.empty()) return;
  const DeviceArray<float> input(in);
  const DeviceArray<std::uint8_t> output(out.size());
  const EncodeKernel kernel{format, policy, input.get(), output.get(), in.size()};
  run_on_device(kernel);
  output.copy_to(out);
}

}  // namespace fp8lab::gpu
