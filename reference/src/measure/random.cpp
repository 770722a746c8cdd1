// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/measure/random.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <stdexcept>
#include <string>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/text_stream.hpp"

namespace fp8lab {
namespace {

constexpr std::uint64_t threads_per_block = 256;
constexpr std::uint64_t words_per_call = 4;

/// Calls transform(four Philox words) -> four floats for every thread and iteration of PyTorch's grid-stride loop.
template <typename Transform>
void fill_as_cuda(std::uint64_t seed, std::uint64_t offset, const LaunchGeometry& geometry, std::span<float> out,
                  const Transform& transform) {
  const DefaultEnvironment environment;
  if (geometry.multiprocessors < 1 || geometry.blocks_per_multiprocessor < 1) {
    throw std::invalid_argument("multiprocessors and blocks_per_multiprocessor must be at least 1, not " +
                                std::to_string(geometry.multiprocessors) + " and " +
                                std::to_string(geometry.blocks_per_multiprocessor));
  }
  if (offset % words_per_call != 0) {
    throw std::invalid_argument("offset must be a multiple of 4, not " + std::to_string(offset));
  }
  if (out.size_bytes() > (std::uint64_t{1} << 31)) {
    throw std::invalid_argument("a tensor of " + std::to_string(out.size()) +
                                " elements is over 2 GiB: PyTorch splits it over several kernels");
  }
  const auto most = static_cast<std::uint64_t>(geometry.multiprocessors) *
                    static_cast<std::uint64_t>(geometry.blocks_per_multiprocessor);
  const std::uint64_t blocks = std::min((out.size() + threads_per_block - 1) / threads_per_block, most);
  const std::uint64_t threads = blocks * threads_per_block;
  const std::array key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (std::uint64_t first = 0, call = offset / words_per_call; first < out.size();
       first += words_per_call * threads, ++call) {
    for (std::uint64_t thread = 0; thread < threads && first + thread < out.size(); ++thread) {
      checkpoint(thread);
      const std::array counter{static_cast<std::uint32_t>(call), static_cast<std::uint32_t>(call >> 32),
                               static_cast<std::uint32_t>(thread), static_cast<std::uint32_t>(thread >> 32)};
      const std::array<float, 4> values = transform(philox4x32(counter, key));
      for (std::uint64_t lane = 0; lane < words_per_call; ++lane) {
        const std::uint64_t i = first + lane * threads + thread;
        if (i < out.size()) out[i] = values[lane];
      }
    }
  }
}

/// Two normal deviates of two random words, in cuRAND's float32 operations (curand_normal.h, _curand_box_muller).
std::array<float, 2> box_muller(std::uint32_t x, std::uint32_t y) {
  constexpr float turn = 0x1p-32F * static_cast<float>(2 * std::numbers::pi);
  const float u = std::fma(static_cast<float>(x), 0x1p-32F, 0x1p-33F);
  const float v = std::fma(static_cast<float>(y), turn, turn / 2);
  const auto log_u = static_cast<float>(std::log(static_cast<double>(u)));
  const float radius = std::sqrt(-2.0F * log_u);
  const auto sine = static_cast<float>(std::sin(static_cast<double>(v)));
  const auto cosine = static_cast<float>(std::cos(static_cast<double>(v)));
  return {sine * radius, cosine * radius};
}

float rounded(const Format& type, float x) { return static_cast<float>(decode(type, encode(type, ieee_policy, x))); }

/// Rounds numbers to a type of 16 bits, in place.
void round_to_half(const Format& type, std::span<float> values) {
  std::array<std::uint16_t, 4096> codes{};
  for (std::size_t first = 0; first < values.size(); first += codes.size()) {
    const auto piece = values.subspan(first, std::min(codes.size(), values.size() - first));
    const auto of_piece = std::span(codes).first(piece.size());
    encode(type, ieee_policy, std::span<const float>(piece), of_piece);
    decode(type, std::span<const std::uint16_t>(of_piece), piece);
  }
}

}  // namespace

void torch_cpu_uniform(std::uint64_t seed, std::span<float> out) {
  const DefaultEnvironment environment;
  std::mt19937 generator(static_cast<std::uint32_t>(seed));
  const auto draw = [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) out[i] = static_cast<float>(generator() & 0xFFFFFFU) * 0x1p-24F;
  };
  parallel_for(out.size(), 1, draw, scalar_piece);
}

void torch_cuda_uniform(std::uint64_t seed, std::uint64_t offset, const LaunchGeometry& geometry, std::span<float> out,
                        const UniformDraw& draw) {
  if (draw.type != binary32 && draw.type != binary16 && draw.type != bfloat16) {
    throw std::invalid_argument("a uniform draw has the type binary32, binary16 or bfloat16");
  }
  const float low = rounded(draw.type, static_cast<float>(draw.low));
  const float high = rounded(draw.type, static_cast<float>(draw.high));
  const float width = rounded(draw.type, high - low);
  if (!(low <= high) || !std::isfinite(width)) {
    TextStream reason;
    reason << "low must be at most high, and both and their difference finite in the type, not " << draw.low << " and "
           << draw.high;
    throw std::invalid_argument(reason.str());
  }
  fill_as_cuda(seed, offset, geometry, out, [&](const std::array<std::uint32_t, 4>& words) {
    std::array<float, 4> values{};
    for (std::size_t i = 0; i < 4; ++i) {
      const float u = std::fma(static_cast<float>(words[i]), 0x1p-32F, 0x1p-33F);
      values[i] = std::fma(u, width, low);
    }
    return values;
  });
  if (draw.type != binary32) round_to_half(draw.type, out);
  std::ranges::replace(out, high, low);
}

void torch_cuda_normal(std::uint64_t seed, std::uint64_t offset, const LaunchGeometry& geometry, float mean,
                       float deviation, std::span<float> out) {
  fill_as_cuda(seed, offset, geometry, out, [=](const std::array<std::uint32_t, 4>& words) {
    const auto [a, b] = box_muller(words[0], words[1]);
    const auto [c, d] = box_muller(words[2], words[3]);
    return std::array{std::fma(a, deviation, mean), std::fma(b, deviation, mean), std::fma(c, deviation, mean),
                      std::fma(d, deviation, mean)};
  });
}

}  // namespace fp8lab
