// SPDX-License-Identifier: Apache-2.0
// The router of a mixture of experts as Transformer Engine's fused kernels compute it: which experts a token goes to,
// with which probabilities, the scores of the auxiliary loss, and that loss; with their gradients.
//
// Source: Transformer Engine 2.20, common/fused_router. A warp of 32 lanes has a token: lane l has elements l, l + 32,
// and so on, in this order, and lanes are added by exchange with lane l ^ 16, l ^ 8, l ^ 4, l ^ 2 and l ^ 1. All of it
// is float32, and sums are made in the kernels' own order; what is fused is what nvcc 13.0 fuses of the formulas for
// sm_90. expf and log1pf are libdevice's there, and here with Functions::hopper.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/operators/float_output.hpp"

namespace fp8lab {

/// What becomes of logits before experts are compared.
enum class RouterScore : std::uint8_t {
  sigmoid,
  softmax,
  sqrtsoftplus,
};
inline constexpr std::array router_scores{
    Named{"sigmoid", RouterScore::sigmoid, "1 / (1 + exp(-x))"},
    Named{"softmax", RouterScore::softmax, "exp(x - max(x)) / sum(exp(x - max(x)))"},
    Named{"sqrtsoftplus", RouterScore::sqrtsoftplus, "sqrt(log1p(exp(x))), sqrt(x) where x > 20"},
};
static_assert(is_in_order(router_scores));
[[nodiscard]] constexpr std::span<const Named<RouterScore>> named_values(RouterScore /*of_type*/) {
  return router_scores;
}

/// The kernel's radix selection counts in 8 bits, so that it serves up to this many experts.
inline constexpr std::size_t most_radix_experts = std::size_t{255} * 32;

struct RouterParameters {
  std::size_t topk = 1;
  RouterScore score = RouterScore::softmax;
  bool softmax_first = false;   ///< softmax of all logits, before the choice; else of those that are chosen
  std::size_t groups = 0;       ///< experts lie in so many groups of one size
  std::size_t group_topk = 0;   ///< experts are chosen from so many groups; 0: from all
  float scaling = 1;            ///< multiplies the probabilities
  std::size_t radix_from = 16;  ///< NVTE_RADIX_TOPK_THRESHOLD: from this topk on the selection is the radix one
};

/// Chooses topk experts for each row of logits. `probabilities` gets, in the columns of those that are chosen,
///
///     of sigmoid and sqrtsoftplus: scaling (s / (sum(s) + 1e-20)), s without the bias; scaling s where topk is 1
///     of softmax: scaling s
///
/// and 0 in the others. `bias`, of one number for each expert or empty, is added to sigmoid and sqrtsoftplus while
/// experts are compared. `experts` gets topk numbers for each row, in the order of the choice. `saved` gets what the
/// gradient needs: the sigmoid or the softmax (-infinity where softmax is of chosen ones and this one is not); of
/// sqrtsoftplus the logits.
///
/// The naive selection, below radix_from or above most_radix_experts, takes of equal scores the one that comes first by
/// the reversed bits of its lane, then by number; it lists the largest first. Where only -infinity or NaN is left it
/// takes expert 0 again, for topk up to 8. The radix selection takes the first one, counts +0 above -0 and NaN above
/// infinity, and lists those above the least one, then those equal to it, by number.
///
/// With groups, a group's score is the sum of its topk / group_topk largest scores, from the largest on.
///
/// `cutoff`, where it is not empty, gets for each row the score of the expert that comes next, with its bias: the naive
/// selection or the radix one then chooses topk + 1 experts, of which the least one is dropped, of equal ones that with
/// the largest number. (The form for quantile balancing; sigmoid with a bias and without groups.)
///
/// Throws std::invalid_argument for float64, no columns, topk and groups that do not fit, a bias with softmax, and
/// sizes that do not fit.
void moe_topk(const RouterParameters& parameters, const MatrixView& logits, std::span<const float> bias,
              FloatOutput probabilities, std::span<std::int32_t> experts, std::span<float> saved,
              std::span<float> cutoff = {}, const OperatorOptions& options = {});

/// The experts of each row: a byte for each row and expert, 1 where it is chosen; or the numbers of the chosen ones,
/// topk for each row. The other is empty. Sums go by the numbers of experts, or by their place among the chosen ones.
struct Routing {
  std::span<const std::uint8_t> bytes = {};
  std::span<const std::int32_t> experts = {};
};

/// dlogits for the gradient by the probabilities, g = grad scaling. With s from `saved`, sums over the chosen experts
/// and d = sum(s) + 1e-20:
///
///     of sigmoid: n s (1 - s);  of sqrtsoftplus: n sigmoid(x) / (2 s + 1e-20), where x > 20 n / (2 s + 1e-20),
///         n = g / d - sum(g s) / d^2, or g where topk is 1
///     of softmax: s (g - sum(g s))
///
/// and 0 for the others, but that with softmax_first s (0 - sum(g s)).
///
/// Throws as moe_topk() does, and for a routing that has both or none, and numbers that are no experts.
void moe_topk_backward(const RouterParameters& parameters, const Routing& routing, std::span<const float> saved,
                       const MatrixView& grad, FloatOutput dlogits, const OperatorOptions& options = {});

/// The scores of all experts for the auxiliary loss: softmax, or s / (sum(s) + 1e-20); `experts` and `saved` as of
/// moe_topk(), by these scores.
///
/// Throws as moe_topk() does.
void moe_scores(const RouterParameters& parameters, const MatrixView& logits, std::span<float> scores,
                std::span<std::int32_t> experts, std::span<float> saved, const OperatorOptions& options = {});

/// Its gradient: as of moe_topk() without scaling, all experts being chosen.
///
/// Throws as moe_topk() does.
void moe_scores_backward(RouterScore score, std::span<const float> saved, const MatrixView& grad, FloatOutput dlogits,
                         const OperatorOptions& options = {});

struct AuxLossParameters {
  std::size_t experts = 1;  ///< a divisor of the columns
  std::size_t topk = 1;
  std::int64_t tokens = 1;  ///< of the whole loss
  float coefficient = 1;
  std::size_t sms = 132;  ///< of the device: rows are dealt out to 2 blocks for each
};

/// A loss, and the factor that its gradient needs.
struct AuxLoss {
  float loss;
  float factor;
};

/// loss = sum over columns (sum over rows of probabilities) tokens_per_expert, times factor = experts coefficient /
/// topk / tokens / tokens. Block b has rows b, b + 2 sms, and so on, in this order; a thread has every n-th column, n =
/// min(1024, columns) up to a multiple of 32, with the product fused; lane l of a warp has threads l, l + 32, and so
/// on. Blocks are added in ascending order, each times the factor; the kernel adds them in any order.
///
/// Throws std::invalid_argument for float64, sizes that do not fit, and experts that do not divide the columns.
[[nodiscard]] AuxLoss moe_aux_loss(const AuxLossParameters& parameters, const MatrixView& probabilities,
                                   std::span<const float> tokens_per_expert, const OperatorOptions& options = {});

/// The gradient by the probabilities, the same in each of `rows` rows: (factor tokens_per_expert) grad.
///
/// Throws likewise.
void moe_aux_loss_backward(float factor, std::span<const float> tokens_per_expert, float grad, std::size_t rows,
                           FloatOutput dprobabilities);

/// Counts, for quantile balancing, which bias each expert would need to be chosen: adds 1 to bin floor((cutoff - score
/// - lower) (bins / (upper - lower))), at least 0 and at most the last one, of the expert's row of `histogram`.
/// `scores` are what moe_topk() saved.
///
/// Throws std::invalid_argument for sizes that do not fit and limits that are not finite or do not ascend.
void moe_bias_histogram(std::span<const float> scores, std::span<const float> cutoff, float lower, float upper,
                        std::span<std::int32_t> histogram);

}  // namespace fp8lab
