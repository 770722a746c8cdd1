// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/formats/interruption.hpp"

#include "cast/cast.hpp"

namespace fp8lab::experiments {

/// The values of a CastSource, block by block: never more than 2^20 of them in memory, but for the grid, which has to
/// be sorted, and for values that are held there anyway.
class Source {
 public:
  /// Opens it. Throws std::invalid_argument for sizes out of range, and what TensorFile throws.
  Source(const CastSource& source, int threads);

  [[nodiscard]] ElementType type() const { return type_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  /// What it is, in words and one line.
  [[nodiscard]] const std::string& description() const { return description_; }

  /// Calls use(values) for every block, in order; values are a span of const float, double, Half or BFloat16.
  template <typename Use>
  void for_each_block(const Use& use) {
    switch (type_) {
      case ElementType::float32: return blocks_of<float>(use);
      case ElementType::float64: return blocks_of<double>(use);
      case ElementType::float16: return blocks_of<Half>(use);
      case ElementType::bfloat16: return blocks_of<BFloat16>(use);
      case ElementType::uint8: return;  // open() refuses codes
    }
  }

 private:
  template <typename T, typename Use>
  void blocks_of(const Use& use) {
    constexpr std::uint64_t most = 1 << 20;
    std::vector<T> room;
    for (std::uint64_t first = 0; first < size_; first += most) {
      checkpoint();
      const std::uint64_t count = std::min(most, size_ - first);
      if (const auto* held = std::get_if<HeldTensor>(source_)) {
        use(std::get<std::span<const T>>(*held).subspan(first, count));
        continue;
      }
      room.resize(count);
      if (file_) {
        file_->read(first, std::span<T>(room));
      } else if constexpr (std::is_same_v<T, float>) {
        fill(first, room);
      }
      use(std::span<const T>(room));
    }
  }
  /// Draws, or values of the grid.
  void fill(std::uint64_t first, std::span<float> out);

  void open(const Draws& draws);
  void open(const Grid& grid);
  void open(const StoredTensor& stored);
  void open(const HeldTensor& held);

  const CastSource* source_;
  int threads_;
  std::optional<TensorFile> file_;
  std::vector<float> grid_;
  ElementType type_ = ElementType::float32;
  std::uint64_t size_ = 0;
  std::string description_;
};

}  // namespace fp8lab::experiments
