// SPDX-License-Identifier: Apache-2.0
// What fp8lab makes of CUDA's errors, where CUDA is not asked.
#include "fp8lab/gpu/cuda_error.hpp"

#include <fstream>
#include <string>

#include "fp8lab/gpu/device.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using gpu::PointerFacts;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string refusal(const gpu::DeviceBuffer& buffer, const PointerFacts& facts) {
  try {
    gpu::check_device_buffer(buffer, facts, 0);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return {};
}

constexpr gpu::CudaVersions old_driver{.driver = 12020, .runtime = 13000};
constexpr gpu::CudaVersions new_driver{.driver = 13010, .runtime = 13000};

}  // namespace

TEST_CASE("why there is no device tells what CUDA said and what to do") {
  CHECK(gpu::why_no_device({}, 1, new_driver).empty());
  CHECK(has(gpu::why_no_device({}, 0, {}), "built without CUDA"));
  CHECK(has(gpu::why_no_device({}, 0, new_driver), "CUDA_VISIBLE_DEVICES"));
  const gpu::CudaResult no_device{100, "cudaErrorNoDevice", "no CUDA-capable device is detected"};
  const std::string none = gpu::why_no_device(no_device, 0, new_driver);
  CHECK(has(none, "this machine has no CUDA device"));
  CHECK(has(none, "cudaErrorNoDevice, no CUDA-capable device is detected"));
  const gpu::CudaResult too_old{35, "cudaErrorInsufficientDriver", "the text of CUDA"};
  const std::string old = gpu::why_no_device(too_old, 0, old_driver);
  CHECK(has(old, "the driver is for CUDA 12.2, and fp8lab was built with CUDA 13.0"));
  CHECK(has(old, "the text of CUDA"));
  CHECK(has(gpu::why_no_device(too_old, 0, {.driver = 0, .runtime = 13000}), "install NVIDIA's driver"));
  const gpu::CudaResult mismatch{803, "cudaErrorSystemDriverMismatch", "an unsupported combination"};
  CHECK(has(gpu::why_no_device(mismatch, 0, new_driver), "cudaErrorSystemDriverMismatch, an unsupported combination"));
}

TEST_CASE("a failure that ends the process is named as such, and others are not") {
  const std::string illegal =
      gpu::failure_message("run", {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"});
  CHECK(has(illegal, "run: CUDA: an illegal memory access was encountered (cudaErrorIllegalAddress)"));
  CHECK(has(illegal, "start it again"));
  CHECK_FALSE(has(gpu::failure_message("run", {1, "cudaErrorInvalidValue", "invalid argument"}), "start it again"));
  CHECK(has(gpu::failure_message("run", {209, "cudaErrorNoKernelImageForDevice", "no kernel image"}),
            "CMAKE_CUDA_ARCHITECTURES"));
  CHECK(gpu::CudaError("", 716).ends_process());
  CHECK_FALSE(gpu::DeviceMemoryError("", 2).ends_process());
}

#ifdef FP8LAB_CUDA_INCLUDE
TEST_CASE("the errors that end a process are those of which CUDA's header says so") {
  std::ifstream file(std::string(FP8LAB_CUDA_INCLUDE) + "/driver_types.h");
  std::string text;  // without the stars and ends of lines of its comments
  for (std::string word; file >> word;) text += word == "*" ? "" : word + ' ';
  int ending = 0;
  for (std::size_t at = text.find("cudaError"); at != std::string::npos; at = text.find("cudaError", at + 1)) {
    const std::size_t comment = text.rfind("/**", at);
    const std::size_t sign = text.find(' ', at) + 1;
    if (text.substr(at - 3, 3) != "*/ " || text[sign] != '=') continue;  // no enumerator
    const bool stated = has(text.substr(comment, at - comment), "must be terminated");
    INFO(text.substr(comment, sign + 6 - comment));
    CHECK(gpu::ends_process(std::stoi(text.substr(sign + 2))) == stated);
    ending += stated ? 1 : 0;
  }
  CHECK(ending > 8);
}
#endif

TEST_CASE("memory that a device does not have is told with its sizes") {
  const std::string told = gpu::out_of_memory_message(std::uint64_t{1} << 40, {.free = 12, .total = 1000});
  CHECK(has(told, "1099511627776 bytes were asked for, and 12 of 1000 are free"));
}

TEST_CASE("buffers that a kernel cannot use are refused by name") {
  const PointerFacts device{PointerFacts::Kind::device, 0};
  CHECK(refusal({"x", 4096, 16, 4}, device).empty());
  CHECK(refusal({"x", 0, 0, 4}, {}).empty());
  CHECK(refusal({"x", 4096, 16, 4}, {PointerFacts::Kind::managed, 1}).empty());
  CHECK(has(refusal({"x", 0, 16, 4}, {}), "x must be 16 bytes of device memory, not null"));
  CHECK(has(refusal({"x", 4098, 16, 4}, device), "x must lie at a multiple of 4 bytes"));
  CHECK(has(refusal({"out", 4096, 16, 4}, {PointerFacts::Kind::host, 0}), "out must lie in device memory"));
  CHECK(has(refusal({"out", 4096, 16, 4}, {}), "out must lie in device memory"));
  CHECK(has(refusal({"x", 4096, 16, 4}, {PointerFacts::Kind::device, 1}),
            "x lies on device 1, and the current device is 0"));
}

TEST_CASE("where there is no device every entry says why, and none throws before it is needed") {
  const gpu::DeviceStatus status = gpu::device_status();
  CHECK(status.why_none.empty() == (status.count > 0));
  CHECK(gpu::device_count() == status.count);
  CHECK(gpu::devices().size() == static_cast<std::size_t>(status.count));
  if (status.count > 0) return;
  std::vector<float> in(3);
  std::vector<std::uint8_t> out(3);
  CHECK_THROWS_AS(gpu::require_device(), gpu::NoDeviceError);
  CHECK_THROWS_AS(gpu::encode_on_device(e4m3, {}, in, out), gpu::NoDeviceError);
  CHECK_THROWS_AS(gpu::check_device_buffer({"x", 4096, 4, 4}), gpu::NoDeviceError);
}

}  // namespace fp8lab::tests
