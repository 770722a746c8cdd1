// SPDX-License-Identifier: Apache-2.0
// The kernels' own source, run by the host team.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "fp8lab/gpu/encode_kernel.hpp"
#include "fp8lab/gpu/host_team.hpp"
#include "fp8lab/gpu/kernels/fill.hpp"
#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("the encode kernel on the host team equals the model, odd sizes and special values included") {
  for (const std::size_t size : {0U, 1U, 1023U, 1024U, 1025U, 5000U}) {
    std::vector<float> in(size);
    for (std::size_t i = 0; i < size; ++i) in[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random_bits(7, i)));
    if (size > 3) {
      in[0] = std::numeric_limits<float>::quiet_NaN();
      in[1] = -std::numeric_limits<float>::infinity();
      in[2] = -0.0F;
    }
    for (const Format& format : {e4m3, e5m2, e8m0}) {
      std::vector<std::uint8_t> codes(size, 0xAA);
      const gpu::EncodeKernel kernel{format, {}, in.data(), codes.data(), size};
      gpu::run_on_host(kernel);
      Mismatches wrong;
      for (std::size_t i = 0; i < size; ++i) wrong.compare(i, bits(in[i]), codes[i], encode(format, {}, in[i]));
      REQUIRE_NO(wrong);
    }
  }
}

TEST_CASE("the fill kernel writes zeros to every byte of several blocks, and to no other") {
  for (const std::size_t size : {0U, 1U, 4U, 4095U, 4096U, 4097U, 10000U}) {
    std::vector<std::uint8_t> bytes(size + 16, 0xAA);
    gpu::run_on_host(gpu::FillZero{bytes.data() + 8, size}, {.kind = gpu::HostOrder::Kind::shuffled, .seed = 2});
    std::vector<std::uint8_t> wanted(size + 16);
    std::fill_n(wanted.begin(), 8, 0xAA);
    std::fill_n(wanted.end() - 8, 8, 0xAA);
    Mismatches wrong;
    for (std::size_t i = 0; i < bytes.size(); ++i) wrong.compare(i, std::uint32_t{0}, bytes[i], wanted[i]);
    REQUIRE_NO(wrong);
  }
}

}  // namespace fp8lab::tests
