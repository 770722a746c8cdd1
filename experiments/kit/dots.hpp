// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "files/dot_words.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/tensor_core/mma.hpp"

namespace fp8lab::experiments {

/// The number that a code of the format is, exactly.
[[nodiscard]] double number_of(const Format& format, std::uint64_t code);

/// An operand's codes in the element type that the library takes them in.
class Elements {
 public:
  Elements(const Codes& codes, const Format& format);
  /// A view of them, which must not outlive this.
  [[nodiscard]] Operand operand(std::size_t rows, std::size_t depth, const Scales& scales = {}) const;

 private:
  Format format_;
  std::vector<std::uint8_t> bytes_;
  std::vector<std::uint16_t> words_;
  std::vector<float> floats_;
  std::vector<double> doubles_;
};

/// Computes gemm(), and returns the results as words: of float64 for FP64 models, else of float32.
[[nodiscard]] Codes gemm_words(const GemmRecipe& recipe, const Operand& a, const Operand& b, const GemmCall& call = {});
/// Computes mma(), and returns the results as words of the accumulator.
[[nodiscard]] Codes mma_words(const MmaModel& model, const Dots& dots, ZeroRule zero_rule);

/// A stream of seeded random numbers (SplitMix64), the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits();
  /// From low to high, both included.
  int between(int low, int high) { return low + static_cast<int>(bits() % static_cast<std::uint64_t>(high - low + 1)); }
  bool one_in(int n) { return between(1, n) == 1; }

 private:
  std::uint64_t state_;
};

/// A random code whose exponent field lies in [low, high] as far as the format has it; specials only where they may be.
[[nodiscard]] std::uint64_t code_between(Random& random, const Format& format, int low, int high, bool specials);

/// A word that is added: zeros of both signs, what products are about as large as, tiny and huge numbers, any word.
[[nodiscard]] std::uint64_t accumulator_of(Random& random, const Format& word);

/// `count` dot products of one instruction that are hard on it, in accumulators and scales too, of eight kinds in turn:
/// any codes at all; sums that carry; moderate exponents; subnormals; mostly zeros; and three of a few large elements
/// with the rest far below, of which two cancel. Only the first kind and, seldom, the last three have infinities and
/// NaN.
[[nodiscard]] Dots hard_dots(const MmaModel& model, const Format& format_a, const Format& format_b, std::size_t count,
                             std::uint64_t seed);

}  // namespace fp8lab::experiments
