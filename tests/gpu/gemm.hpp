// SPDX-License-Identifier: Apache-2.0
// Operands and results of GEMM kernels, and gemm() of the reference on the same.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "fp8lab/gpu/fragments.hpp"
#include "fp8lab/gpu/host_team.hpp"
#include "fp8lab/gpu/kernels/gemm_epilogue.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "support.hpp"

namespace fp8lab::tests {

/// The orders in which a host team must give the same bits.
inline constexpr gpu::HostOrder ascending{};
inline constexpr gpu::HostOrder descending{.kind = gpu::HostOrder::Kind::descending};
inline constexpr gpu::HostOrder shuffled{.kind = gpu::HostOrder::Kind::shuffled, .seed = 3};

/// What a problem's codes are.
enum class Codes : std::uint8_t {
  any,     ///< every code, NaN and infinities among them
  finite,  ///< all but NaN and infinities
  small,   ///< zeros and subnormals, and a few ones
};

struct Problem {
  std::size_t m, n, k;
  Codes codes = Codes::finite;
};

inline std::uint8_t code_of(gpu::MmaType type, Codes codes, std::uint64_t random) {
  const auto code = static_cast<std::uint8_t>(random);
  const unsigned largest = type == gpu::MmaType::e4m3 ? 0x7E : 0x7B;
  switch (codes) {
    case Codes::any: return random % 64 == 0 ? code : code & 0xBFU;
    case Codes::finite: return static_cast<std::uint8_t>((code & 0x80U) | std::min<unsigned>(code & 0x7FU, largest));
    case Codes::small: return random % 97 == 0 ? 0x38 : code & 0x83U;
  }
  return 0;
}
inline std::vector<std::uint8_t> random_codes(gpu::MmaType type, Codes codes, std::uint64_t stream, std::size_t count) {
  std::vector<std::uint8_t> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = code_of(type, codes, random_bits(stream, i) >> 8);
  return all;
}
/// Scales of any significand and of exponents around 1.
inline std::vector<float> random_scales(std::uint64_t stream, std::size_t count) {
  std::vector<float> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<std::uint32_t>(random_bits(stream, i) >> 20);
    all[i] = std::bit_cast<float>((0x3A000000U + (bits & 0x0AFFFFFFU)));
  }
  return all;
}

/// Everything that a kernel reads, and its result beside that of the reference.
struct GemmCase {
  Problem problem;
  gpu::MmaType type_a, type_b;
  std::vector<std::uint8_t> a, b;
  float scale_a = 0.37F, scale_b = 3.1F;
  std::vector<float> bias, tile_scales_a, tile_scales_b;
  std::vector<float> out;

  GemmCase(const Problem& of, gpu::MmaType type_of_a, gpu::MmaType type_of_b)
      : problem(of),
        type_a(type_of_a),
        type_b(type_of_b),
        a(random_codes(type_a, of.codes, 21, of.m * of.k)),
        b(random_codes(type_b, of.codes, 22, of.n * of.k)),
        bias(random_scales(23, of.n)),
        out(of.m * of.n + 8) {
    for (std::size_t i = 0; i < bias.size(); i += 2) bias[i] = -bias[i];
  }
  [[nodiscard]] gpu::GemmEpilogue epilogue() {
    std::ranges::fill(out, std::bit_cast<float>(0xAAAAAAAAU));
    return {.m = problem.m,
            .n = problem.n,
            .scale_a = &scale_a,
            .scale_b = &scale_b,
            .bias = bias.data(),
            .out = out.data(),
            .output = gpu::GemmOutput::float32};
  }
  /// Where the result and gemm(model, ...) with these options differ; what lies behind the result must be untouched.
  [[nodiscard]] Mismatches compare(const MmaModel& model, GemmOptions options, std::size_t rows_b = 1) const {
    const auto [m, n, k, codes] = problem;
    Operand left = Operand::codes(std::span(a), gpu::format_of(type_a), m, k);
    Operand right = Operand::codes(std::span(b), gpu::format_of(type_b), n, k);
    left.tensor_scale.factor = scale_a;
    right.tensor_scale.factor = scale_b;
    if (!tile_scales_a.empty()) left.tile_scales = {.values = tile_scales_a, .rows = 1, .depth = 128};
    if (!tile_scales_b.empty()) right.tile_scales = {.values = tile_scales_b, .rows = rows_b, .depth = 128};
    options.bias = bias;
    std::vector<float> wanted(m * n);
    gemm(model, left, right, wanted, options);
    Mismatches wrong;
    for (std::size_t i = 0; i < wanted.size(); ++i) wrong.compare(i, std::uint32_t{0}, bits(out[i]), bits(wanted[i]));
    for (std::size_t i = m * n; i < out.size(); ++i) wrong.compare(i, std::uint32_t{0}, bits(out[i]), 0xAAAAAAAAU);
    return wrong;
  }
};

}  // namespace fp8lab::tests
