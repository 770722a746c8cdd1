// SPDX-License-Identifier: Apache-2.0
// Calls of the library whose results an environment of the program must not change, and what they share.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fp8lab/reference/gemm/gemm.hpp"
#include "support.hpp"

namespace fp8lab::tests::environment {

/// A call, by its name: its results as bytes.
using Calls = std::map<std::string, std::function<std::string()>>;
[[nodiscard]] Calls library_calls();
[[nodiscard]] Calls experiment_calls();

// Results become bytes by integers alone: this too runs in the hostile environment.

template <typename T>
std::string bytes(const T& value) {
  if constexpr (std::is_convertible_v<T, std::string_view>) {
    return std::string(std::string_view(value));
  } else if constexpr (requires { value.begin(); }) {
    std::string all;
    for (const auto& one : value) all += bytes(one) + ' ';
    return all;
  } else {
    static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T> ||
                  std::is_floating_point_v<T>);
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }
}
template <typename First, typename... Rest>
  requires(sizeof...(Rest) > 0)
std::string bytes(const First& first, const Rest&... rest) {
  return bytes(first) + '|' + bytes(rest...);
}

/// Arguments of the calls, made once, by the default environment.
struct Inputs {
  static constexpr std::size_t side = 128;
  std::vector<float> any, near, tiny, matrix;
  std::vector<double> doubles, tiny_doubles;
  std::vector<Half> halves;
  std::vector<BFloat16> bfloats, wide_bfloats;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint32_t> words;

  Inputs() {
    for (std::uint64_t i = 0; i < 4096; ++i) {
      const auto word = static_cast<std::uint32_t>(random_bits(20261122, i));
      const auto x = std::bit_cast<float>(word);
      any.push_back(std::isfinite(x) ? x : 1.1F);
      near.push_back(static_cast<float>(word >> 8) * 0x1p-20F - 7.3F);
      tiny.push_back(std::bit_cast<float>(word >> 9));
      doubles.push_back(near.back() / 3.0);
      tiny_doubles.push_back(doubles.back() * 0x1p-1030);
      halves.push_back(Half{static_cast<std::uint16_t>(word & 0x7BFFU)});
      bfloats.push_back(BFloat16{static_cast<std::uint16_t>(word & 0x7F7FU)});
      codes.push_back(static_cast<std::uint8_t>(word % 0x77));
      words.push_back(word);
    }
    for (std::size_t i = 0; i < side * side; ++i) matrix.push_back(i % 4 == 3 ? tiny[i % 4096] : near[i % 4099 % 4096]);
    for (std::size_t i = 0; i < side * side; ++i) wide_bfloats.push_back(bfloats[i % 4096]);
  }
  [[nodiscard]] Operand operand(std::size_t rows, std::size_t depth) const {
    return Operand::codes(std::span(codes).first(rows * depth), e4m3, rows, depth);
  }
};
inline const Inputs& in() {
  static const Inputs inputs;
  return inputs;
}
inline constexpr double scale = 0x1.5555555555555p-2;  // no float32

}  // namespace fp8lab::tests::environment
