// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/representable.hpp"

#include <cmath>
#include <stdexcept>
#include <string>

#include "fp8lab/formats/parallel.hpp"

namespace fp8lab {
namespace {

template <typename T>
void cast_all(const Format& format, const CastPolicy& policy, std::span<const T> in, float scale, std::span<T> out,
              int threads) {
  if (format.bits() > 8) {
    throw std::invalid_argument("format must have at most 8 bits, not " + std::to_string(format.bits()));
  }
  if (in.size() != out.size()) {
    throw std::invalid_argument("out has " + std::to_string(out.size()) + " elements, the input " +
                                std::to_string(in.size()));
  }
  if (!(scale > 0) || std::isinf(scale)) {
    throw std::invalid_argument("scale must be positive and finite, not " + std::to_string(scale));
  }
  parallel_for(in.size(), threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) out[i] = cast_to_representable(format, policy, in[i], scale);
  });
}

}  // namespace

void cast_to_representable(const Format& format, const CastPolicy& policy, std::span<const float> in, float scale,
                           std::span<float> out, int threads) {
  cast_all(format, policy, in, scale, out, threads);
}
void cast_to_representable(const Format& format, const CastPolicy& policy, std::span<const double> in, float scale,
                           std::span<double> out, int threads) {
  cast_all(format, policy, in, scale, out, threads);
}
void cast_to_representable(const Format& format, const CastPolicy& policy, std::span<const Half> in, float scale,
                           std::span<Half> out, int threads) {
  cast_all(format, policy, in, scale, out, threads);
}
void cast_to_representable(const Format& format, const CastPolicy& policy, std::span<const BFloat16> in, float scale,
                           std::span<BFloat16> out, int threads) {
  cast_all(format, policy, in, scale, out, threads);
}

}  // namespace fp8lab
