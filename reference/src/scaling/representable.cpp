// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/representable.hpp"

#include <cmath>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/text_stream.hpp"

namespace fp8lab {
namespace {

template <typename T>
void cast_all(const Format& format, const CastPolicy& policy, std::span<const T> in, double scale, std::span<T> out,
              int threads) {
  const DefaultEnvironment environment;
  check_bulk(format, 1, 16, in.size(), out.size());
  check_apart_or_same("x", in, "out", out);
  if (policy.rounding == Rounding::stochastic) {
    throw std::invalid_argument("rounding 'stochastic' needs random bits: use encode and decode");
  }
  using Arithmetic = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto used = static_cast<Arithmetic>(scale);
  if (!(used > 0) || std::isinf(used) || std::isinf(1 / used)) {
    TextStream reason;
    reason << "scale must be positive and finite, and so must its inverse, not " << scale;
    throw std::invalid_argument(reason.str());
  }
  parallel_for(
      in.size(), threads,
      [&](std::size_t first, std::size_t last) {
        if constexpr (std::is_same_v<T, float>) {
          recode(format, policy, in.subspan(first, last - first), used, out.subspan(first, last - first));
        } else {
          for (std::size_t i = first; i < last; ++i) out[i] = cast_to_representable(format, policy, in[i], scale);
        }
      },
      std::is_same_v<T, float> ? 16 * scalar_piece : scalar_piece);
}

}  // namespace

void cast_to_representable(const Format& format, const CastPolicy& policy, std::span<const float> in, double scale,
                           std::span<float> out, int threads) {
  cast_all(format, policy, in, scale, out, threads);
}
void cast_to_representable(const Format& format, const CastPolicy& policy, std::span<const double> in, double scale,
                           std::span<double> out, int threads) {
  cast_all(format, policy, in, scale, out, threads);
}
void cast_to_representable(const Format& format, const CastPolicy& policy, std::span<const Half> in, double scale,
                           std::span<Half> out, int threads) {
  cast_all(format, policy, in, scale, out, threads);
}
void cast_to_representable(const Format& format, const CastPolicy& policy, std::span<const BFloat16> in, double scale,
                           std::span<BFloat16> out, int threads) {
  cast_all(format, policy, in, scale, out, threads);
}

}  // namespace fp8lab
