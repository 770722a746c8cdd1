// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/gpu/cuda_error.hpp"

#include <algorithm>

#include "cuda_codes.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text_stream.hpp"

namespace fp8lab::gpu {

bool ends_process(int code) {
  return std::ranges::find(cuda_codes::ending_process, code) != cuda_codes::ending_process.end();
}

std::string failure_message(std::string_view function, const CudaResult& result) {
  TextStream message;
  message << function << ": CUDA: " << result.text << " (" << result.name << ')';
  if (ends_process(result.code)) message << "; CUDA now refuses every call of this process: start it again";
  if (result.code == cuda_codes::no_kernel_image) {
    message << "; fp8lab's kernels were not compiled for this chip: build it with CMAKE_CUDA_ARCHITECTURES of the chip";
  }
  return message.str();
}

std::string out_of_memory_message(std::uint64_t asked, const DeviceMemory& memory) {
  TextStream message;
  message << "device memory: " << asked << " bytes were asked for, and " << memory.free << " of " << memory.total
          << " are free: smaller or fewer arrays take less";
  return message.str();
}

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + '.' + std::to_string(version % 1000 / 10);
}

std::string why_no_device(const CudaResult& result, int count, const CudaVersions& versions) {
  if (versions.runtime == 0) {
    return "this fp8lab was built without CUDA: build it where nvcc is, with FP8LAB_CUDA=ON (from Python: pip install "
           ". "
           "-C cmake.define.FP8LAB_CUDA=ON)";
  }
  if (result.code == 0 && count > 0) return {};
  TextStream reason;
  if (result.code == cuda_codes::insufficient_driver && versions.driver == 0) {
    reason << "this machine has no CUDA device, or no driver for it: install NVIDIA's driver, or run where one is";
  } else if (result.code == cuda_codes::insufficient_driver) {
    reason << "the driver is for CUDA " << cuda_version_text(versions.driver) << ", and fp8lab was built with CUDA "
           << cuda_version_text(versions.runtime) << ": install a newer driver, or build fp8lab with that CUDA";
  } else if (result.code == 0 || result.code == cuda_codes::no_device) {
    reason << "this machine has no CUDA device that this process may see: run where one is, or set "
              "CUDA_VISIBLE_DEVICES";
  } else {
    reason << "CUDA does not start on this machine: see what nvidia-smi says";
  }
  if (result.code != 0) reason << " (cudaGetDeviceCount: " << result.name << ", " << result.text << ')';
  return reason.str();
}

void check_device_buffer(const DeviceBuffer& buffer, const PointerFacts& facts, int device) {
  if (buffer.bytes == 0) return;
  if (buffer.address == 0) refuse(buffer.argument, " must be ", buffer.bytes, " bytes of device memory, not null");
  if (buffer.address % buffer.alignment != 0) {
    refuse(buffer.argument, " must lie at a multiple of ", buffer.alignment,
           " bytes, as its elements do, not at one of ", buffer.address % buffer.alignment, " more");
  }
  switch (facts.kind) {
    case PointerFacts::Kind::unregistered:
    case PointerFacts::Kind::host: refuse(buffer.argument, " must lie in device memory, not in the host's");
    case PointerFacts::Kind::device:
      if (facts.device != device) {
        refuse(buffer.argument, " lies on device ", facts.device, ", and the current device is ", device);
      }
      return;
    case PointerFacts::Kind::managed: return;
  }
}

}  // namespace fp8lab::gpu
