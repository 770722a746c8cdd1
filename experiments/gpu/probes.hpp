// SPDX-License-Identifier: Apache-2.0
// Questions about instructions that no published row answers, and operands whose results answer them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/gpu/recorder/recorder.hpp"
#include "gpu/ledger.hpp"

namespace fp8lab::experiments {

/// One answer that is possible: a model, and how it takes zeros and float32 operands.
struct Hypothesis {
  std::string name;
  MmaModel model;
  ZeroRule zero_rule = ZeroRule::floor;
  Rounding tf32_rounding = Rounding::toward_zero;
  bool is_ours = false;  ///< whether fp8lab computes so
  /// Another arithmetic in the model's place, of FP64 alone: its models all compute alike.
  std::function<double(std::span<const double> a, std::span<const double> b, double c)> other = {};
};

/// A question to an instruction.
struct Probe {
  std::string name, question;
  std::size_t instruction;  ///< its number
  std::vector<Hypothesis> hypotheses;
  /// Operands of the i-th dot product that is tried, block scales behind the elements of a and b; those on which
  /// hypotheses differ are kept.
  std::function<void(std::uint64_t i, std::span<std::uint64_t> a, std::span<std::uint64_t> b, std::uint64_t& c)> draw;
};

/// All questions to the instructions of a chip; empty where fp8lab has no models of it.
[[nodiscard]] std::vector<Probe> probes(int capability);

/// The operands of one dot product, and its result under every hypothesis.
struct ProbeDot {
  std::vector<std::uint64_t> a, b;
  std::uint64_t c;
  std::vector<std::uint64_t> results;
};
/// Dot products that tell hypotheses apart: for every two that differ on any of the first `tries` at least one.
[[nodiscard]] std::vector<ProbeDot> telling_dots(const Probe& probe, std::uint64_t tries = 4096);

/// Asks: which hypothesis gives all results of the device?
[[nodiscard]] Finding ask(gpu::Recorder& recorder, const Probe& probe);

/// Asks an instruction with a float32 accumulator, whose operands are zero: is d what the model makes of c, for the
/// words c = 1 to `last`? It is what decides the exponent of zero terms for every small c.
[[nodiscard]] Finding ask_zero_products(gpu::Recorder& recorder, std::size_t instruction,
                                        std::uint32_t last = 0x00FFFFFF, int threads = 1);

}  // namespace fp8lab::experiments
