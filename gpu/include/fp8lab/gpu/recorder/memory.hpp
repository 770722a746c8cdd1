// SPDX-License-Identifier: Apache-2.0
// Arrays of a device, and of the host in its place, for plain C++.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace fp8lab::gpu {

/// New memory of the current device. All throw NoDeviceError, DeviceMemoryError and CudaError.
[[nodiscard]] std::shared_ptr<std::byte> device_memory(std::size_t bytes);
/// The same in the order of a stream, a cudaStream_t: it is given back when what was started there before has run.
[[nodiscard]] std::shared_ptr<std::byte> stream_memory(std::size_t bytes, void* stream);
/// Copies between host and device, behind what runs on the device's default stream.
void copy_to_device(std::byte* to, std::span<const std::byte> from);
void copy_from_device(std::span<std::byte> to, const std::byte* from);

/// Arrays for kernels, in the memory of the current device or of the host. They begin at multiples of 16 bytes and live
/// as long as this.
class KernelMemory {
 public:
  explicit KernelMemory(bool on_device) : on_device_(on_device) {}

  /// A copy of values.
  template <typename T>
  std::span<const T> put(const std::vector<T>& values) {
    return array<T>(values.size(), values.data(), false);
  }
  /// An output, full of bytes A5.
  template <typename T>
  std::span<T> out(std::size_t count) {
    return array<T>(count, nullptr, true);
  }
  /// An output of floats, of whose NaNs output() tells only that they are NaN: a device's arithmetic gives 7FFFFFFF for
  /// each, a processor's the operand's.
  std::span<float> out_with_any_nan(std::size_t count) {
    const std::span<float> floats = array<float>(count, nullptr, true);
    if (count > 0) blocks_.back().any_nan = true;
    return floats;
  }
  /// A copy of values that is written, too.
  template <typename T>
  std::span<T> changed(const std::vector<T>& values) {
    return array<T>(values.size(), values.data(), true);
  }

  /// Copies the present values of an array to the host.
  template <typename T>
  [[nodiscard]] std::vector<std::remove_const_t<T>> read(std::span<T> array) const {
    std::vector<std::remove_const_t<T>> values(array.size());
    if (on_device_) {
      copy_from_device(std::as_writable_bytes(std::span(values)), reinterpret_cast<const std::byte*>(array.data()));
    } else if (!array.empty()) {
      std::memcpy(values.data(), array.data(), array.size_bytes());
    }
    return values;
  }
  /// The bytes of all outputs, in order.
  [[nodiscard]] std::vector<std::uint8_t> output() {
    std::vector<std::uint8_t> all;
    for (Block& block : blocks_) {
      if (!block.is_output) continue;
      if (block.device) copy_from_device(block.host, block.device.get());
      if (block.any_nan) make_one_nan(block.host);
      for (const std::byte byte : block.host) all.push_back(std::to_integer<std::uint8_t>(byte));
    }
    return all;
  }

 private:
  struct Block {
    std::vector<std::byte> host = {};
    bool is_output = false;
    std::shared_ptr<std::byte> device = {};
    bool any_nan = false;
  };

  static void make_one_nan(std::span<std::byte> floats) {
    for (std::size_t i = 0; i < floats.size(); i += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, &floats[i], sizeof value);
      if (value == value) continue;
      value = std::numeric_limits<float>::quiet_NaN();
      std::memcpy(&floats[i], &value, sizeof value);
    }
  }

  template <typename T>
  std::span<T> array(std::size_t count, const T* from, bool is_output) {
    if (count == 0) return {};
    Block& block = blocks_.emplace_back();
    block.is_output = is_output;
    block.host.assign(count * sizeof(T), std::byte{0xA5});
    if (from != nullptr) std::memcpy(block.host.data(), from, count * sizeof(T));
    std::byte* place = block.host.data();  // new's alignment is 16
    if (on_device_) {
      block.device = device_memory(block.host.size());
      place = block.device.get();
      copy_to_device(place, block.host);
    }
    return {reinterpret_cast<T*>(place), count};
  }

  bool on_device_;
  std::deque<Block> blocks_;
};

}  // namespace fp8lab::gpu
