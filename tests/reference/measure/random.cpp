// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/measure/random.hpp"

#include <cmath>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("Philox4x32-10 gives Random123's known answers") {
  // Random123 1.14, tests/kat_vectors, philox4x32 10.
  using Words = std::array<std::uint32_t, 4>;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8});
  CHECK(philox4x32({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}) == Words{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD});
  CHECK(philox4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}) ==
        Words{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1});
}

TEST_CASE("torch_cpu_uniform draws what torch.rand draws") {
  // Float32 words printed by PyTorch 2.13.0 (CPU): torch.manual_seed(seed); torch.rand(n).view(torch.int32).
  const auto words = [](std::uint64_t seed, std::size_t count) {
    std::vector<float> x(count);
    torch_cpu_uniform(seed, x);
    std::vector<std::uint32_t> result;
    for (const float value : x) result.push_back(bits(value));
    return result;
  };
  CHECK(words(0, 20) == std::vector<std::uint32_t>{1056839000, 1061464623, 1035285416, 1040659200, 1050502790,
                                                   1059214075, 1056632198, 1063615847, 1055475730, 1059184339,
                                                   1051894314, 1053666788, 1018619008, 1043130716, 1050048652,
                                                   1057275352, 1060280920, 1061997964, 1042605288, 1049658754});
  CHECK(words((1ULL << 40) + 7, 5) ==
        std::vector<std::uint32_t>{1057550511, 1045140240, 1059635737, 1059596790, 1047419148});
  const auto primer = words(12345, 1024 * 768);
  CHECK(std::vector(primer.begin(), primer.begin() + 4) ==
        std::vector<std::uint32_t>{1065046498, 1063333349, 1065221405, 1055658242});
  CHECK(std::vector(primer.end() - 4, primer.end()) ==
        std::vector<std::uint32_t>{1054163404, 1063882001, 1060205190, 1039276576});
}

TEST_CASE("CUDA streams follow PyTorch's launch geometry") {
  // 2 SMs x 1 block x 256 threads: element i is word i / 512 % 4 of call i / 2048 of thread i % 512.
  const LaunchGeometry small{2, 1};
  std::vector<float> uniform(5000);
  torch_cuda_uniform(99, 8, small, uniform);
  for (const std::uint32_t i : {0U, 511U, 512U, 2047U, 2048U, 4999U}) {
    const auto words = philox4x32({8 / 4 + i / 2048, 0, i % 512, 0}, {99, 0});
    // (0, 1] in steps of 2^-32, offset by half of one: cuRAND device API, curand_uniform.h.
    const double expected = words[i / 512 % 4] * 0x1p-32 + 0x1p-33;
    INFO(i);
    CHECK(std::abs(uniform[i] - expected) <= 0x1p-25);  // half an ulp of float32 below 1
  }
  std::vector<float> halves(5000);
  torch_cuda_uniform(99, 8, small, halves, {.low = -3, .high = 5, .type = binary16});
  for (std::size_t i = 0; i < halves.size(); ++i) {
    // The product is exact in float64.
    const auto near = static_cast<float>(8.0 * uniform[i] - 3);
    const float wanted = decode(binary16, encode(binary16, ieee_policy, near));
    INFO(i);
    CHECK(halves[i] == (wanted == 5 ? -3 : wanted));
  }
  // A tensor that one wave covers does not depend on the number of SMs.
  std::vector<float> a(1000);
  std::vector<float> b(1000);
  torch_cuda_normal(12345, 0, {4, 8}, 0, 1, a);
  torch_cuda_normal(12345, 0, {132, 8}, 0, 1, b);
  CHECK(a == b);
  std::vector<float> large(300 * 256);
  std::vector<float> larger(300 * 256);
  torch_cuda_normal(12345, 0, {4, 8}, 0, 1, large);
  torch_cuda_normal(12345, 0, {114, 8}, 0, 1, larger);
  CHECK(large != larger);
}

TEST_CASE("CUDA normals are Box-Muller pairs, and normal") {
  std::vector<float> x(1 << 20);
  torch_cuda_normal(5, 0, {}, 2, 3, x);
  double sum = 0;
  double squares = 0;
  for (const float value : x) {
    sum += value;
    squares += (value - 2.0) * (value - 2.0);
  }
  const auto n = static_cast<double>(x.size());
  CHECK(std::abs(sum / n - 2) < 5 * 3 / std::sqrt(n));          // five standard errors of the mean
  CHECK(std::abs(squares / n - 9) < 5 * 9 * std::sqrt(2 / n));  // and of the variance
  std::vector<float> one(4);
  torch_cuda_normal(5, 0, {}, 0, 1, one);
  const auto words = philox4x32({0, 0, 0, 0}, {5, 0});
  const double u = words[0] * 0x1p-32 + 0x1p-33;
  const double v = (words[1] * 0x1p-32 + 0x1p-33) * 2 * std::acos(-1.0);
  // One call serves the four elements of a thread; here elements 0, and the cosine one grid further.
  CHECK(std::abs(one[0] - std::sin(v) * std::sqrt(-2 * std::log(u))) <
        1e-6);  // float32 rounding of u, v and the product
}

TEST_CASE("bad stream arguments are named") {
  std::vector<float> x(8);
  CHECK_THROWS_WITH(torch_cuda_uniform(0, 2, {}, x), "offset must be a multiple of 4, not 2");
  CHECK_THROWS_WITH(torch_cuda_uniform(0, 0, {}, x, {.low = 2}), ContainsSubstring("not 2 and 1"));
  CHECK_THROWS_WITH(torch_cuda_uniform(0, 0, {}, x, {.high = 7e4, .type = binary16}), ContainsSubstring("0 and 70000"));
  CHECK_THROWS_WITH(torch_cuda_uniform(0, 0, {}, x, {.type = e4m3}), ContainsSubstring("binary16 or bfloat16"));
  CHECK_THROWS_WITH(torch_cuda_normal(0, 0, {0, 8}, 0, 1, x), ContainsSubstring("at least 1, not 0 and 8"));
}

}  // namespace fp8lab::tests
