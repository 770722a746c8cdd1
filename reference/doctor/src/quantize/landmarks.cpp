// SPDX-License-Identifier: Apache-2.0
#include "quantize/landmarks.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "fp8lab/formats/parallel.hpp"

namespace fp8lab::doctor {
namespace {

constexpr std::size_t special_kinds = 5;
using FoundKinds = std::array<bool, special_kinds>;

/// NaN, infinity, subnormals, -0 and 0.
std::size_t special_kind(float x) {
  if (std::isnan(x)) return 0;
  if (std::isinf(x)) return 1;
  if (x != 0) return 2;
  return std::signbit(x) ? 3 : 4;
}

/// Whether some of these elements are larger than `most`, or special.
bool has_special(std::span<const float> x, float most) {
  const auto low = std::bit_cast<std::int32_t>(std::numeric_limits<float>::min());
  const auto high = std::bit_cast<std::int32_t>(std::min(most, std::numeric_limits<float>::max()));
  std::int32_t count = 0;
  for (const float one : x) {
    const std::int32_t magnitude = std::bit_cast<std::int32_t>(one) & 0x7FFFFFFF;
    count += static_cast<std::int32_t>(magnitude < low) + static_cast<std::int32_t>(magnitude > high);
  }
  return count != 0;
}

/// Finds those among elements [first, last), as if none came before.
Landmarks landmarks_within(std::span<const float> x, std::uint64_t first, std::uint64_t last) {
  constexpr std::uint64_t at_once = 256;
  Landmarks found;
  FoundKinds is_found{};
  float most = 0;
  for (std::uint64_t begin = first; begin < last; begin += at_once) {
    const std::uint64_t end = std::min(begin + at_once, last);
    if (!has_special(x.subspan(begin, end - begin), most)) continue;
    for (std::uint64_t i = begin; i < end; ++i) {
      const float magnitude = std::abs(x[i]);
      if (magnitude > most) {
        most = magnitude;
        found.records.push_back(i);
      }
      if (magnitude >= std::numeric_limits<float>::min() && magnitude < std::numeric_limits<float>::infinity())
        continue;
      if (!std::exchange(is_found[special_kind(x[i])], true)) found.specials.push_back(i);
    }
  }
  return found;
}

}  // namespace

Landmarks landmarks_of(std::span<const float> x, int threads) {
  constexpr std::size_t part = std::size_t{1} << 20;
  std::vector<Landmarks> parts((x.size() + part - 1) / part);
  parallel_for(parts.size(), threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i)
      parts[i] = landmarks_within(x, i * part, std::min((i + 1) * part, x.size()));
  });
  Landmarks all;
  FoundKinds is_found{};
  float most = 0;
  for (const Landmarks& own : parts) {
    for (const std::uint64_t i : own.records) {
      if (std::abs(x[i]) <= most) continue;
      most = std::abs(x[i]);
      all.records.push_back(i);
    }
    for (const std::uint64_t i : own.specials) {
      if (!std::exchange(is_found[special_kind(x[i])], true)) all.specials.push_back(i);
    }
  }
  return all;
}

}  // namespace fp8lab::doctor
