// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kit/chosen.hpp"
#include "kit/document.hpp"
#include "kit/progress.hpp"

namespace fp8lab::experiments {

/// The inputs are every float32 x with low <= x < high, each once (-0 counts as 0 and is not a value of its own), or,
/// where `uniform` has the two ends of an interval, draws from U(low, high): element i is float(low + (high - low) * (u
/// + 1/2) / 2^53), where u is the one of sample().
struct DoubleRoundingArguments {
  float low = 1;
  float high = 2;
  std::vector<double> uniform = {};  ///< no or two numbers
  long long size = 1 << 24;          ///< draws, 1 to 2^40
  std::uint64_t seed = 1;
  std::vector<ChosenFormat> formats{{"e4m3", e4m3}};  ///< where casts end: at most 8 bits
  std::vector<ChosenFormat> vias{{"float16", binary16}, {"bfloat16", bfloat16}};
  std::vector<Rounding> via_roundings{Rounding::nearest_even, Rounding::toward_zero};
  int threads = 1;  ///< changes nothing but the time
};

/// An input whose code differs, and both codes.
struct DoublyRounded {
  float input;
  std::uint8_t direct;
  std::uint8_t via;
};

/// One chain of casts: IEEE 754's to `via`, then cuda_satfinite's to `format`, which rounds to nearest even.
struct Chain {
  ChosenFormat format;
  ChosenFormat via;
  Rounding via_rounding;
  std::uint64_t count = 0;           ///< inputs whose code differs from the direct cast's
  std::uint64_t toward_zero = 0;     ///< of these, the ones whose value is the smaller one in magnitude
  std::vector<DoublyRounded> first;  ///< up to 8 of them
};

struct DoubleRoundingResult {
  DoubleRoundingArguments arguments;
  std::string inputs;  ///< in words, one line
  std::uint64_t size;  ///< how many
  std::vector<Chain> chains;
};

/// Counts what a conversion in between changes, for every combination of format, via and its rounding.
///
/// Throws std::invalid_argument for lists that are empty or have an entry twice, formats of more than 8 bits, vias of
/// more than 16, stochastic rounding, intervals whose ends are not finite or not in order, and sizes out of range.
[[nodiscard]] DoubleRoundingResult run_double_rounding(const DoubleRoundingArguments& arguments,
                                                       const Progress& progress = {});

/// Tables `chains` with a row for each chain and `examples` with a row for each input whose code differs.
[[nodiscard]] Document document_of(const DoubleRoundingResult& result);

}  // namespace fp8lab::experiments
