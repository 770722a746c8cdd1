// SPDX-License-Identifier: Apache-2.0
#include "gemm/whole.hpp"

#include <algorithm>
#include <bit>
#include <span>

#include "fp8lab/reference/gemm/gemm.hpp"

namespace fp8lab::doctor {
namespace {

/// Whether gemm() is quick for it: by its fast path, and with scales and additions as they usually are.
bool is_quick(const GemmCandidate& candidate, const Operand& a, const Operand& b) {
  const GemmRecipe& r = candidate.recipe;
  const bool has_tiles = !r.model.scales && (!a.tile_scales.values.empty() || !b.tile_scales.values.empty());
  const bool has_order = has_tiles || !a.row_scales.empty() || !b.row_scales.empty();
  const bool has_numbers = a.tensor_scale != TensorScale{} || b.tensor_scale != TensorScale{};
  const bool with_rows = r.scale_order && r.tensor_scales == TensorScaleUse::with_rows;
  if (r.scale_order == ScaleOrder::b_first || (has_order && has_numbers && with_rows)) return false;
  if (r.scale_order == ScaleOrder::accumulator_first && !has_order) return false;
  const bool adds_last = r.addition == Addition::after_scales && r.addend_type == StepType::as_given &&
                         r.c_enters == CEntry::epilogue && !r.bias_first && !r.scale_out_first;
  const bool is_exact = r.sum_type == StepType::as_given && r.unscaled_type == StepType::as_given;
  return candidate.departure == nullptr && r.model.k() != 0 && adds_last && is_exact && slow_because(r, a, b).empty();
}

template <typename Word>
std::vector<std::uint64_t> words_by(const GemmRecipe& recipe, const Operand& a, const Operand& b,
                                    const GemmCall& call) {
  std::vector<Word> out(a.rows * b.rows);
  gemm(recipe, a, b, std::span<Word>(out), call);
  std::vector<std::uint64_t> words(out.size());
  std::ranges::transform(out, words.begin(), [&](Word word) {
    if constexpr (sizeof(Word) == 4) return canonical_word(recipe.output, std::bit_cast<std::uint32_t>(word));
    return canonical_word(recipe.output, static_cast<std::uint64_t>(word));
  });
  return words;
}

}  // namespace

std::optional<std::vector<std::uint64_t>> whole_output(const GemmCandidate& candidate, const GemmProblem& problem,
                                                       int threads) {
  const Operand& a = problem.a();
  const Operand& b = problem.b();
  const GemmOutput& out = problem.out();
  if (!is_quick(candidate, a, b)) return std::nullopt;
  GemmRecipe recipe = candidate.recipe;
  recipe.dequantized = StepType::as_given;  // the operands are
  const GemmCall call{.c = out.c, .bias = out.bias, .scale_out = out.scale_out, .threads = threads};
  if (out.format.bits() <= 8) return words_by<std::uint8_t>(recipe, a, b, call);
  if (out.format.bits() <= 16) return words_by<std::uint16_t>(recipe, a, b, call);
  return words_by<float>(recipe, a, b, call);
}

}  // namespace fp8lab::doctor
