// SPDX-License-Identifier: Apache-2.0
// The larger of magnitudes in words of one element and of two, beside the float32 values of the elements.
#include "fp8lab/gpu/ptx/max.hpp"

#include <algorithm>
#include <bit>

#include "fp8lab/gpu/kernels/run.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// The amax of a word's elements by their values: a NaN is dropped, or larger than all else.
template <typename Source>
std::uint32_t amax_by_values(NanInAmax rule, std::uint32_t word) {
  std::uint32_t amax = 0;
  gpu::Run<Source> run{};
  run.words[0] = word;
  for (unsigned i = 0; i < gpu::Run<Source>::per_word; ++i) {
    const std::uint32_t magnitude = bits(gpu::ptx::float_of(run[i])) & 0x7FFFFFFFU;
    if (rule == NanInAmax::dropped && magnitude > 0x7F800000U) continue;
    amax = std::max(amax, magnitude);
  }
  return amax;
}

template <typename Source>
Mismatches wrong_amaxes(NanInAmax rule) {
  Mismatches wrong;
  for (std::uint32_t low = 0; low < 0x10000; ++low) {
    const std::uint32_t word = low << 16 | (low * 40503U & 0xFFFFU);
    gpu::Run<Source> run{};
    run.words[gpu::Run<Source>::size - 1] = word;
    wrong.compare(word, "", gpu::amax_of_run(rule, run), amax_by_values<Source>(rule, word));
  }
  return wrong;
}

}  // namespace

TEST_CASE("the amax of a run is the largest magnitude of its elements, which words compare in pairs") {
  for (const NanInAmax rule : {NanInAmax::dropped, NanInAmax::counted}) {
    REQUIRE_NO(wrong_amaxes<float>(rule));
    REQUIRE_NO(wrong_amaxes<Half>(rule));
    REQUIRE_NO(wrong_amaxes<BFloat16>(rule));
  }
}

}  // namespace fp8lab::tests
