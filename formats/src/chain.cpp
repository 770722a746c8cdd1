// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/chain.hpp"

#include <algorithm>
#include <array>
#include <mutex>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/parallel.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t chain_block = 2048;

/// One block, through the vector code where what lies between is a half or a bfloat16.
template <typename Source>
void encode_block(const CastStep& via, const Format& format, const CastPolicy& policy, std::span<const Source> in,
                  std::span<std::uint8_t> out) {
  const auto through = [&]<typename Between>(Between /*between*/) {
    std::array<std::uint16_t, chain_block> words;
    encode(via.format, via.policy, in, std::span(words).first(in.size()));
    const auto* between = reinterpret_cast<const Between*>(words.data());
    encode(format, policy, std::span(between, in.size()), out);
  };
  if (via.format == binary16) return through(Half{});
  if (via.format == bfloat16) return through(BFloat16{});
  for (std::size_t i = 0; i < in.size(); ++i) {
    out[i] = static_cast<std::uint8_t>(encode_via(via, format, policy, in[i]));
  }
}

template <typename Source>
void encode_all(const CastStep& via, const Format& format, const CastPolicy& policy, std::span<const Source> in,
                std::span<std::uint8_t> out, int threads) {
  check_bulk(format, 1, 8, in.size(), out.size());
  check_apart("x", in, "out", out);
  check_bulk(via.format, 1, 16, 0, 0);
  parallel_for(in.size(), threads, [&](std::size_t first, std::size_t last) {
    for (; first < last; first += chain_block) {
      checkpoint();
      const std::size_t size = std::min(chain_block, last - first);
      encode_block(via, format, policy, in.subspan(first, size), out.subspan(first, size));
    }
  });
}

template <typename Source>
ChainDifferences differences(const CastStep& via, const Format& format, const CastPolicy& policy,
                             std::span<const Source> in, std::size_t most, int threads) {
  check_bulk(format, 1, 8, in.size(), in.size());
  check_bulk(via.format, 1, 16, 0, 0);
  ChainDifferences result;
  result.total = in.size();
  std::mutex mutex;
  parallel_for(in.size(), threads, [&](std::size_t first, std::size_t last) {
    std::array<std::uint8_t, chain_block> direct;
    std::array<std::uint8_t, chain_block> chained;
    std::size_t count = 0;
    std::vector<std::size_t> indices;
    for (; first < last; first += chain_block) {
      checkpoint();
      const auto part = in.subspan(first, std::min(chain_block, last - first));
      encode(format, policy, part, std::span(direct).first(part.size()));
      encode_block(via, format, policy, part, std::span(chained).first(part.size()));
      for (std::size_t i = 0; i < part.size(); ++i) {
        if (direct[i] == chained[i]) continue;
        if (count++ < most) indices.push_back(first + i);
      }
    }
    const std::scoped_lock lock(mutex);
    result.count += count;
    result.indices.insert(result.indices.end(), indices.begin(), indices.end());
  });
  std::ranges::sort(result.indices);
  result.indices.resize(std::min(most, result.indices.size()));
  return result;
}

}  // namespace

void encode_via(const CastStep& via, const Format& format, const CastPolicy& policy, std::span<const float> in,
                std::span<std::uint8_t> out, int threads) {
  encode_all(via, format, policy, in, out, threads);
}
void encode_via(const CastStep& via, const Format& format, const CastPolicy& policy, std::span<const double> in,
                std::span<std::uint8_t> out, int threads) {
  encode_all(via, format, policy, in, out, threads);
}

ChainDifferences chain_differences(const CastStep& via, const Format& format, const CastPolicy& policy,
                                   std::span<const float> in, std::size_t most, int threads) {
  return differences(via, format, policy, in, most, threads);
}
ChainDifferences chain_differences(const CastStep& via, const Format& format, const CastPolicy& policy,
                                   std::span<const double> in, std::size_t most, int threads) {
  return differences(via, format, policy, in, most, threads);
}

}  // namespace fp8lab
