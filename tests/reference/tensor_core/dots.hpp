// SPDX-License-Identifier: Apache-2.0
// Batches of one instruction's dot products through the slow oracle.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/reference/tensor_core/models.hpp"
#include "kit/dots.hpp"
#include "reference/tensor_core/mma_vectors.hpp"
#include "reference/tensor_core/slow_models.hpp"
#include "support.hpp"

namespace fp8lab::tests {

using experiments::accumulator_of;
using experiments::code_between;
using experiments::Dots;
using experiments::Elements;
using experiments::gemm_words;
using experiments::hard_dots;
using experiments::mma_words;
using experiments::Random;

inline constexpr std::array every_rule{ZeroRule::floor, ZeroRule::skip_terms, ZeroRule::count_zero_factors,
                                       ZeroRule::skip_empty_groups, ZeroRule::skip_zero_groups};
/// The zero rules that a model tells apart.
inline std::span<const ZeroRule> rules_of(const MmaModel& model) {
  return std::span(every_rule).first(model.group > 1 ? every_rule.size() : 3);
}

/// Whether an earlier model has the same arithmetic.
inline bool is_repeated(const MmaModel& model) {
  const auto same = [&](const MmaModel& other) {
    return other.arithmetic == model.arithmetic && other.sums == model.sums &&
           other.products_per_step == model.products_per_step && other.steps == model.steps &&
           other.fraction_bits == model.fraction_bits && other.output == model.output &&
           other.operands.data() == model.operands.data() && other.scales.has_value() == model.scales.has_value() &&
           (!model.scales ||
            (other.scales->block == model.scales->block && other.scales->format == model.scales->format)) &&
           other.order == model.order && other.lowering == model.lowering && other.zero_exponent == model.zero_exponent;
  };
  return &*std::ranges::find_if(models, same) != &find_model(model.name);
}

/// A zero rule of the library's, as the oracle has it: which groups count, and what zeros do.
inline SlowZeroRule slow_rule(ZeroRule rule) {
  switch (rule) {
    case ZeroRule::floor: return SlowZeroRule::floor_of_zero_terms;
    case ZeroRule::skip_terms:
    case ZeroRule::skip_empty_groups:
    case ZeroRule::skip_zero_groups: break;
    case ZeroRule::count_zero_factors: return SlowZeroRule::count_zero_factors;
  }
  return SlowZeroRule::skip_terms;
}
inline SlowModel under(SlowModel model, ZeroRule rule) {
  switch (rule) {
    case ZeroRule::skip_terms: model.groups = model.group > 1 ? SlowGroups::all : SlowGroups::nonzero_sum; break;
    case ZeroRule::floor:
    case ZeroRule::skip_empty_groups: model.groups = SlowGroups::nonzero_product; break;
    case ZeroRule::skip_zero_groups: model.groups = SlowGroups::nonzero_sum; break;
    case ZeroRule::count_zero_factors: break;
  }
  return model;
}

/// The oracle's words for what mma_words() takes.
inline Codes slow_words(const SlowModel& model, const Dots& dots, SlowZeroRule zero) {
  Codes words;
  const std::size_t blocks = dots.scale_a.size() / std::max<std::size_t>(dots.count(), 1);
  for (std::size_t i = 0; i < dots.count(); ++i) {
    const auto row = [&](const auto& all, std::size_t width) { return std::span(all).subspan(i * width, width); };
    words.push_back(slow_mma(model, {row(dots.a, dots.k), dots.format_a, row(dots.scale_a, blocks)},
                             {row(dots.b, dots.k), dots.format_b, row(dots.scale_b, blocks)}, dots.c[i], zero));
  }
  return words;
}
inline Codes slow_words(const SlowModel& model, const Dots& dots, ZeroRule rule) {
  return slow_words(under(model, rule), dots, slow_rule(rule));
}

/// Compares word for word.
inline Mismatches differences(const Codes& actual, const Codes& expected, const char* what) {
  Mismatches wrong;
  for (std::size_t i = 0; i < actual.size(); ++i) wrong.compare(i, i, actual[i], expected[i], what);
  return wrong;
}

}  // namespace fp8lab::tests
