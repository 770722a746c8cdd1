// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/pack.hpp"

#include <stdexcept>
#include <string>

namespace fp8lab {
namespace {

void check_packed(std::size_t codes, std::size_t bytes) {
  if (bytes != (codes + 1) / 2) {
    throw std::invalid_argument(std::to_string(codes) + " codes of 4 bits take " + std::to_string((codes + 1) / 2) +
                                " bytes, not " + std::to_string(bytes));
  }
}

}  // namespace

void pack_pairs(std::span<const std::uint8_t> codes, std::span<std::uint8_t> out) {
  check_packed(codes.size(), out.size());
  for (std::size_t i = 0; i + 1 < codes.size(); i += 2) {
    out[i / 2] = static_cast<std::uint8_t>((codes[i] & 0xF) | codes[i + 1] << 4);
  }
  if (codes.size() % 2 != 0) out[out.size() - 1] = codes.back() & 0xF;
}

void unpack_pairs(std::span<const std::uint8_t> packed, std::span<std::uint8_t> out) {
  check_packed(out.size(), packed.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::uint8_t>(i % 2 == 0 ? packed[i / 2] & 0xF : packed[i / 2] >> 4);
  }
}

}  // namespace fp8lab
