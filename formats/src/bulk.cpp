// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <string>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/parallel.hpp"

namespace fp8lab {
namespace {

void check_bulk(const Format& format, std::size_t in, std::size_t out) {
  if (format.bits() > 8) {
    throw std::invalid_argument("format must have at most 8 bits, not " + std::to_string(format.bits()));
  }
  if (in != out) {
    throw std::invalid_argument("out has " + std::to_string(out) + " elements, the input " + std::to_string(in));
  }
}

template <typename Source>
void encode_all(const Format& format, const CastPolicy& policy, std::span<const Source> in, std::span<std::uint8_t> out,
                int threads) {
  check_bulk(format, in.size(), out.size());
  parallel_for(in.size(), threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) out[i] = static_cast<std::uint8_t>(encode(format, policy, in[i]));
  });
}

}  // namespace

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

void decode(const Format& format, std::span<const std::uint8_t> codes, std::span<float> out, int threads) {
  check_bulk(format, codes.size(), out.size());
  float table[256];
  for (std::uint32_t code = 0; code < 256; ++code) table[code] = decode(format, code);
  parallel_for(codes.size(), threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) out[i] = table[codes[i]];
  });
}

}  // namespace fp8lab
