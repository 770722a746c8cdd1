// SPDX-License-Identifier: Apache-2.0
#include "linear/reduce.hpp"

#include <algorithm>
#include <utility>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/policy.hpp"

namespace fp8lab {
namespace {

using Values = Buffer<float>;

/// Rounds values to a type of 16 bits.
void round_to(const Format& type, std::span<float> values) {
  Buffer<std::uint16_t> codes(values.size());
  encode(type, cuda_nosat_policy, values, codes);
  decode(type, codes, values);
}

/// sum += term, rounded to the type. (A float32 sum of two numbers of float16 or bfloat16, rounded to their type, is
/// their exact sum, rounded once: float32 has 24 bits, and these at most 11: 24 >= 2 * 11 + 2.)
void add_to(std::span<float> sum, std::span<const float> term, const Format& type) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
  if (type != binary32) round_to(type, sum);
}

/// Terms one after the other.
Values chain_of(const std::vector<std::span<const float>>& terms, const Format& type) {
  Values sum(terms.front().begin(), terms.front().end());
  for (std::size_t i = 1; i < terms.size(); ++i) add_to(sum, terms[i], type);
  return sum;
}

/// Terms in pairs, pairs in pairs, and so on.
Values tree_of(const std::vector<std::span<const float>>& terms, const Format& type) {
  std::vector<Values> sums;
  sums.reserve(terms.size());
  for (const auto& term : terms) sums.emplace_back(term.begin(), term.end());
  while (sums.size() > 1) {
    std::vector<Values> next;
    for (std::size_t i = 0; i < sums.size(); i += 2) {
      if (i + 1 < sums.size()) add_to(sums[i], sums[i + 1], type);
      next.push_back(std::move(sums[i]));
    }
    sums = std::move(next);
  }
  return std::move(sums.front());
}

/// Elements [first, last), and the order of the ranks whose results are added there.
struct Chunk {
  std::size_t first, last;
  std::vector<int> ranks;
};

std::vector<Chunk> chunks_of(const TensorParallel& parallel, std::size_t size) {
  std::vector<int> ranks = parallel.reduction.ranks;
  if (ranks.empty()) {
    ranks.resize(static_cast<std::size_t>(parallel.ranks));
    std::ranges::generate(ranks, [i = 0]() mutable { return i++; });
  }
  if (parallel.reduction.order != ReductionOrder::ring) return {{0, size, ranks}};
  std::vector<Chunk> chunks;
  const std::size_t length = (size + ranks.size() - 1) / ranks.size();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    // Scattered, the chunk of a rank is its part; otherwise chunks lie in the order of the ring.
    const std::size_t place = parallel.sequence_parallel ? static_cast<std::size_t>(ranks[i]) : i;
    Chunk chunk{std::min(place * length, size), std::min((place + 1) * length, size), ranks};
    std::ranges::rotate(chunk.ranks, chunk.ranks.begin() + static_cast<std::ptrdiff_t>((i + 1) % ranks.size()));
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

/// Adds values of a type, or, where that is binary32, float32 ones.
void add_up(const std::vector<Values>& results, const TensorParallel& parallel, const Format& type,
            std::span<float> out) {
  for (const Chunk& chunk : chunks_of(parallel, out.size())) {
    std::vector<std::span<const float>> terms;
    terms.reserve(chunk.ranks.size());
    for (const int rank : chunk.ranks) {
      terms.push_back(
          std::span(results[static_cast<std::size_t>(rank)]).subspan(chunk.first, chunk.last - chunk.first));
    }
    const bool pairs = parallel.reduction.order == ReductionOrder::pairwise;
    std::ranges::copy(pairs ? tree_of(terms, type) : chain_of(terms, type), out.subspan(chunk.first).begin());
  }
}

}  // namespace

void reduce_results(const std::vector<Buffer<float>>& results, const TensorParallel& parallel, std::span<float> out) {
  add_up(results, parallel, binary32, out);
}

void reduce_results(const std::vector<Buffer<std::uint16_t>>& results, const TensorParallel& parallel,
                    const Format& type, std::span<std::uint16_t> out) {
  std::vector<Values> values;
  values.reserve(results.size());
  for (const Buffer<std::uint16_t>& codes : results) decode(type, codes, values.emplace_back(codes.size()));
  Values sum(out.size());
  add_up(values, parallel, parallel.reduction.in_float32 ? binary32 : type, sum);
  encode(type, cuda_nosat_policy, sum, out);
}

}  // namespace fp8lab
