// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/bulk.hpp"

#include <array>
#include <cfenv>
#include <concepts>
#include <stdexcept>
#include <string>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/targets.hpp"
#include "vector_casts.hpp"

namespace fp8lab {
namespace {

/// The default floating-point environment (nearest even, nothing flushed), whatever the caller has set, for as long as
/// this lives.
class DefaultEnvironment {
 public:
  DefaultEnvironment() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  DefaultEnvironment(DefaultEnvironment&&) = delete;
  ~DefaultEnvironment() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_{};
};

template <typename Source>
void encode_all(const Format& format, const CastPolicy& policy, std::span<const Source> in, std::span<std::uint8_t> out,
                int threads) {
  check_bulk(format, in.size(), out.size());
  const auto vector = vector_code_allowed() ? vector_encode(format, policy) : std::nullopt;
  parallel_for(in.size(), threads, [&](std::size_t first, std::size_t last) {
    if constexpr (!std::same_as<Source, double>) {
      if (vector) {
        const DefaultEnvironment guard;
        encode_vector(*vector, in.data() + first, out.data() + first, last - first);
        return;
      }
    }
    for (std::size_t i = first; i < last; ++i) out[i] = static_cast<std::uint8_t>(encode(format, policy, in[i]));
  });
}

}  // namespace

void check_bulk(const Format& format, std::size_t in, std::size_t out) {
  if (format.bits() > 8) {
    throw std::invalid_argument("format must have at most 8 bits, not " + std::to_string(format.bits()));
  }
  if (in != out) {
    throw std::invalid_argument("out has " + std::to_string(out) + " elements, the input " + std::to_string(in));
  }
}

void encode(const Format& format, const CastPolicy& policy, std::span<const float> in, std::span<std::uint8_t> out,
            int threads) {
  encode_all(format, policy, in, out, threads);
}
void encode(const Format& format, const CastPolicy& policy, std::span<const double> in, std::span<std::uint8_t> out,
            int threads) {
  encode_all(format, policy, in, out, threads);
}
void encode(const Format& format, const CastPolicy& policy, std::span<const Half> in, std::span<std::uint8_t> out,
            int threads) {
  encode_all(format, policy, in, out, threads);
}
void encode(const Format& format, const CastPolicy& policy, std::span<const BFloat16> in, std::span<std::uint8_t> out,
            int threads) {
  encode_all(format, policy, in, out, threads);
}

void recode(const Format& format, const CastPolicy& policy, std::span<const float> in, float scale,
            std::span<float> out) {
  const DefaultEnvironment guard;
  const auto vector = vector_code_allowed() ? vector_round(format, policy) : std::nullopt;
  if (vector) return round_vector(*vector, scale, in.data(), out.data(), in.size());
  const float inverse = 1 / scale;
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = decode(format, encode(format, policy, in[i] * scale)) * inverse;
}

void decode(const Format& format, std::span<const std::uint8_t> codes, std::span<float> out, int threads) {
  check_bulk(format, codes.size(), out.size());
  const auto vector = vector_code_allowed() ? vector_decode(format) : std::nullopt;
  std::array<float, 256> table{};
  if (!vector) {
    for (std::uint32_t code = 0; code < 256; ++code) table[code] = decode(format, code);
  }
  parallel_for(codes.size(), threads, [&](std::size_t first, std::size_t last) {
    if (vector) return decode_vector(*vector, codes.data() + first, out.data() + first, last - first);
    for (std::size_t i = first; i < last; ++i) out[i] = table[codes[i]];
  });
}

}  // namespace fp8lab
