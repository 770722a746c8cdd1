// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kit/chosen.hpp"
#include "kit/document.hpp"
#include "kit/progress.hpp"

namespace fp8lab::experiments {

struct HarmonicArguments {
  std::vector<ChosenFormat> formats{{"float16", binary16}, {"bfloat16", bfloat16}, {"e4m3", e4m3}, {"e5m2", e5m2}};
};

/// Where 1 + 1/2 + 1/3 + ... stops growing.
struct HarmonicSum {
  ChosenFormat format;
  double sum;
  std::uint64_t terms;  ///< the first term that the sum does not grow by, counted from 1
};

struct HarmonicResult {
  HarmonicArguments arguments;
  std::vector<HarmonicSum> sums;
};

/// Sums the harmonic series term by term in every format, each quotient and each sum rounded to nearest even, until the
/// sum no longer grows: an accumulator of the format itself, the worst that there is.
///
/// Source: Higham, "The rise of mixed precision arithmetic", 2021, does so for half and bfloat16.
/// Throws std::invalid_argument for a list that is empty or has an entry twice, and formats of more than 16 bits,
/// without a sign, or whose largest value is below 2.
[[nodiscard]] HarmonicResult run_harmonic(const HarmonicArguments& arguments, const Progress& progress = {});

/// Table `sums` with a row for each format.
[[nodiscard]] Document document_of(const HarmonicResult& result);

}  // namespace fp8lab::experiments
