// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/gpu/recorder/kernel_cases.hpp"

#include <bit>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/gpu/device.hpp"
#include "fp8lab/gpu/recorder/digest.hpp"

namespace fp8lab::gpu {
namespace {

/// Floats of random bits, of a count that no block size divides.
std::vector<float> random_floats(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random_word(9, i)));
  return values;
}

/// Counts the words that differ.
template <typename Words, typename Inputs>
KernelCheck compare(const Inputs& inputs, const Words& got, const Words& expected) {
  KernelCheck check{.compared = got.size(), .wrong = 0, .first = {}};
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i] || check.wrong++ > 0) continue;
    TextStream text;
    text << "element " << i << " of input " << inputs[i] << ": " << +got[i] << ", expected " << +expected[i];
    check.first = text.str();
  }
  return check;
}

KernelCheck check_encode(const Format& format) {
  const DefaultEnvironment environment;
  const std::vector<float> in = random_floats((1U << 22) + 3);
  std::vector<std::uint8_t> codes(in.size(), 0xA5);
  std::vector<std::uint8_t> expected(in.size());
  encode_on_device(format, {}, in, codes);
  encode(format, {}, in, expected);
  return compare(in, codes, expected);
}

}  // namespace

const std::vector<KernelCase>& kernel_cases() {
  static const std::vector<KernelCase> all{{"encode to e4m3", [] { return check_encode(e4m3); }},
                                           {"encode to e5m2", [] { return check_encode(e5m2); }},
                                           {"encode to e8m0", [] { return check_encode(e8m0); }}};
  return all;
}

}  // namespace fp8lab::gpu
