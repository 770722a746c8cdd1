// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/router.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/operators/sum_order.hpp"
#include "operators/kernel_functions.hpp"
#include "operators/row_buffers.hpp"

namespace fp8lab {

namespace {

constexpr float no_score = -std::numeric_limits<float>::infinity();
constexpr float least_sum = 1e-20F;  // which kernels add to what they divide by
/// A number for each lane of a warp.
using Lanes = std::array<float, sum_lanes>;

float sigmoid(const KernelFunctions& f, float x) { return 1 / (1 + f.exp(-x)); }
float sqrtsoftplus(const KernelFunctions& f, float x) { return std::sqrt(x > 20 ? x : f.log1p(f.exp(x))); }

/// The sum of a row as a warp has it.
float sum_of_row(std::span<const float> values) {
  Lanes lanes{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    lanes[i % sum_lanes] = i < sum_lanes ? values[i] : lanes[i % sum_lanes] + values[i];
  }
  return sum_of_lanes(lanes.data());
}

/// The softmax of a row, in place. A lane holds the largest value so far and a sum that refers to it; what it gets of
/// another lane is rounded before the sum, its own product is not. So lanes have different sums, each for its elements.
void softmax_of_row(const KernelFunctions& f, std::span<float> values) {
  Lanes largest{};
  Lanes sum{};
  largest.fill(no_score);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t lane = i % sum_lanes;
    if (values[i] > largest[lane]) {
      sum[lane] *= f.exp(largest[lane] - values[i]);
      largest[lane] = values[i];
    }
    sum[lane] += f.exp(values[i] - largest[lane]);
  }
  for (std::size_t offset = sum_lanes / 2; offset > 0; offset /= 2) {
    const Lanes before = largest;
    const Lanes sums = sum;
    for (std::size_t lane = 0; lane < sum_lanes; ++lane) {
      const std::size_t other = lane ^ offset;
      largest[lane] = std::max(before[lane], before[other]);
      if (largest[lane] == no_score) continue;
      const auto share = [&](std::size_t of) {
        return before[of] > no_score ? f.exp(before[of] - largest[lane]) : 0.0F;
      };
      sum[lane] = std::fma(sums[lane], share(lane), sums[other] * share(other));
    }
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t lane = i % sum_lanes;
    values[i] = f.exp(values[i] - largest[lane]) * (1 / sum[lane]);
  }
}

// --- which experts ---------------------------------------------------------------------------------------------------

/// Experts in the order of the choice, and their scores.
struct Choice {
  std::vector<std::int32_t> experts;
  std::vector<float> scores;

  explicit Choice(std::size_t topk) : experts(topk), scores(topk) {}
};

/// Finds the largest score again and again. A lane keeps the first of equal ones, and in an exchange its own one.
void choose_naively(std::span<const float> scores, std::size_t topk, Choice& choice) {
  const bool starts_with_score =
      topk > 8;  // of topk up to 8 a lane starts with -infinity, which a NaN does not replace
  std::vector<std::uint8_t> taken(scores.size());  // 1: a choice of before
  for (std::size_t k = 0; k < topk; ++k) {
    Lanes best{};
    std::array<std::size_t, sum_lanes> index{};
    for (std::size_t lane = 0; lane < sum_lanes; ++lane) {
      best[lane] = no_score;
      index[lane] = lane;
    }
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const float score = taken[i] != 0 ? no_score : scores[i];
      if (score > best[i % sum_lanes] || (starts_with_score && i < sum_lanes)) {
        best[i % sum_lanes] = score;
        index[i % sum_lanes] = i;
      }
    }
    for (std::size_t offset = sum_lanes / 2; offset > 0; offset /= 2) {
      for (std::size_t lane = 0; lane < offset; ++lane) {  // what lane 0 gets to see
        if (!(best[lane + offset] > best[lane])) continue;
        best[lane] = best[lane + offset];
        index[lane] = index[lane + offset];
      }
    }
    taken[index[0]] = 1;
    choice.experts[k] = static_cast<std::int32_t>(index[0]);
    choice.scores[k] = best[0];
  }
}

/// A word that is larger where the score is: NaNs beyond infinities, +0 above -0.
std::uint32_t ordered_word(float score) {
  const auto word = std::bit_cast<std::uint32_t>(score);
  return word >> 31 != 0 ? ~word : word | 0x80000000U;
}

void choose_by_radix(std::span<const float> scores, std::size_t topk, Choice& choice) {
  std::vector<std::uint32_t> words(scores.size());
  std::ranges::transform(scores, words.begin(), ordered_word);
  std::vector<std::uint32_t> sorted = words;
  const auto last = sorted.begin() + static_cast<std::ptrdiff_t>(topk - 1);
  std::ranges::nth_element(sorted, last, std::greater());
  const std::uint32_t least = *last;
  std::size_t count = 0;
  const auto take = [&](std::size_t i) {
    choice.experts[count] = static_cast<std::int32_t>(i);
    choice.scores[count++] = scores[i];
  };
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] > least) take(i);
  }
  for (std::size_t i = 0; i < words.size() && count < topk; ++i) {
    if (words[i] == least) take(i);
  }
}

/// Chooses experts as the parameters say.
class Chooser {
 public:
  Chooser(const RouterParameters& parameters, std::size_t columns)
      : parameters_(parameters),
        choose_(parameters.topk >= parameters.radix_from && columns <= most_radix_experts ? choose_by_radix
                                                                                          : choose_naively) {}

  void operator()(std::span<const float> scores, std::size_t topk, Choice& choice) const {
    if (parameters_.group_topk == 0) return choose_(scores, topk, choice);
    // 1. The score of a group is the sum of its best ones.
    const std::size_t size = scores.size() / parameters_.groups;
    const std::size_t of_group = topk / parameters_.group_topk;
    std::vector<float> of_groups(parameters_.groups);
    for (std::size_t group = 0; group < parameters_.groups; ++group) {
      choose_(scores.subspan(group * size, size), of_group, choice);
      for (std::size_t k = 0; k < of_group; ++k) of_groups[group] += choice.scores[k];
    }
    // 2. Groups are chosen, and of these the experts.
    choose_(of_groups, parameters_.group_topk, choice);
    std::vector<float> masked(scores.size(), no_score);
    for (std::size_t k = 0; k < parameters_.group_topk; ++k) {
      const std::size_t first = static_cast<std::size_t>(choice.experts[k]) * size;
      std::copy_n(scores.begin() + static_cast<std::ptrdiff_t>(first), size,
                  masked.begin() + static_cast<std::ptrdiff_t>(first));
    }
    choose_(masked, topk, choice);
  }

 private:
  const RouterParameters& parameters_;
  void (*choose_)(std::span<const float>, std::size_t, Choice&);
};

/// Drops the least one of topk + 1 experts, of equal ones that with the largest number, and returns its score.
float drop_least(Choice& choice) {
  std::size_t least = 0;
  for (std::size_t i = 1; i < choice.scores.size(); ++i) {
    const float score = choice.scores[i];
    const float lowest = choice.scores[least];
    if (score < lowest || (score == lowest && choice.experts[i] > choice.experts[least])) least = i;
  }
  const float cutoff = choice.scores[least];
  choice.scores.erase(choice.scores.begin() + static_cast<std::ptrdiff_t>(least));
  choice.experts.erase(choice.experts.begin() + static_cast<std::ptrdiff_t>(least));
  return cutoff;
}

// --- checks ----------------------------------------------------------------------------------------------------------

void check_topk(std::size_t topk, std::size_t columns, std::string_view name) {
  if (topk == 0 || topk > columns) refuse("topk must be from 1 to the ", columns, " experts of ", name, ", not ", topk);
}

void check_groups(const RouterParameters& p, std::size_t columns) {
  if (p.group_topk == 0) return;
  if (p.groups == 0 || columns % p.groups != 0) {
    refuse("groups must divide the ", columns, " experts of logits, not be ", p.groups);
  }
  if (p.group_topk > p.groups || p.topk % p.group_topk != 0 || p.topk / p.group_topk > columns / p.groups) {
    refuse("group_topk must be at most the ", p.groups, " groups and divide topk ", p.topk, " into at most the ",
           columns / p.groups, " experts of a group, not be ", p.group_topk);
  }
}

void check_rows(const MatrixView& x, std::string_view name) {
  check_kernel_floats(name, x);
  if (x.columns() == 0) refuse(name, " must have columns, one for each expert");
}

/// Calls work(row, values of the row as float32) on several threads.
template <typename Work>
void for_each_token(const MatrixView& x, int threads, const Work& work) {
  parallel_for(x.rows(), threads, [&](std::size_t first, std::size_t last) {
    const DefaultEnvironment environment;
    std::vector<float> values(padded(x.columns()));
    for (std::size_t row = first; row < last; ++row) {
      checkpoint();
      read_piece(x, row * x.columns(), x.columns(), values.data());
      work(row, std::span<float>(values).first(x.columns()));
    }
  });
}

/// Makes every NaN that of NVIDIA's instructions, by which the radix selection orders it.
void make_nans_alike(std::span<float> values) { narrow_row(values.data(), values.size(), values.data()); }

/// The scores that experts are compared by, in place; `saved` gets what the gradient needs.
void score_row(const KernelFunctions& f, RouterScore score, bool softmax_first, std::span<float> values,
               std::span<float> saved) {
  switch (score) {
    case RouterScore::softmax:
      if (softmax_first) softmax_of_row(f, values);
      std::ranges::copy(values, saved.begin());
      return;
    case RouterScore::sigmoid:
      for (float& value : values) value = sigmoid(f, value);
      std::ranges::copy(values, saved.begin());
      return;
    case RouterScore::sqrtsoftplus:
      std::ranges::copy(values, saved.begin());
      for (float& value : values) value = sqrtsoftplus(f, value);
      return;
  }
}

/// Divides by the sum of all.
void normalize_row(std::span<float> values) {
  const float sum = sum_of_row(values) + least_sum;
  for (float& value : values) value /= sum;
}

/// Throws unless moe_topk() can choose so, whatever it writes to.
void check_choice(const RouterParameters& parameters, const MatrixView& logits, std::span<const float> bias,
                  std::span<float> cutoff) {
  check_rows(logits, "logits");
  const std::size_t columns = logits.columns();
  check_topk(parameters.topk, columns, "logits");
  check_groups(parameters, columns);
  if (!bias.empty()) check_size("bias", bias.size(), columns);
  if (!bias.empty() && parameters.score == RouterScore::softmax) {
    refuse("bias goes with the scores sigmoid and sqrtsoftplus, not with softmax");
  }
  if (cutoff.empty()) return;
  if (parameters.topk == columns) refuse("topk must be below the ", columns, " experts of logits for a cutoff");
  if (parameters.group_topk != 0) refuse("cutoff goes without groups");
  check_size("cutoff", cutoff.size(), logits.rows());
}

/// What the scores of chosen experts become: without their bias, and normalized.
void finish_scores(const KernelFunctions& f, const RouterParameters& parameters, std::span<const float> bias,
                   Choice& choice) {
  for (std::size_t k = 0; k < choice.scores.size() && !bias.empty(); ++k) {
    choice.scores[k] -= bias[static_cast<std::size_t>(choice.experts[k])];
  }
  if (parameters.score == RouterScore::softmax) {
    if (!parameters.softmax_first) softmax_of_row(f, choice.scores);
  } else if (parameters.topk > 1) {
    normalize_row(choice.scores);
  }
}

}  // namespace

void moe_topk(const RouterParameters& parameters, const MatrixView& logits, std::span<const float> bias,
              FloatOutput probabilities, std::span<std::int32_t> experts, std::span<float> saved,
              std::span<float> cutoff, const OperatorOptions& options) {
  check_exact_functions("moe_topk", options);
  check_choice(parameters, logits, bias, cutoff);
  const std::size_t columns = logits.columns();
  const bool softmax_of_chosen = parameters.score == RouterScore::softmax && !parameters.softmax_first;
  check_size("probabilities", output_size(probabilities), logits.size());
  check_size("experts", experts.size(), logits.rows() * parameters.topk);
  check_size("saved", saved.size(), logits.size());
  const Chooser choose(parameters, columns);
  const KernelFunctions functions = kernel_functions(options.functions);
  for_each_token(logits, options.threads, [&](std::size_t row, std::span<float> values) {
    // 1. Scores with their bias, by which experts are chosen.
    const std::span<float> kept = saved.subspan(row * columns, columns);
    score_row(functions, parameters.score, parameters.softmax_first, values, kept);
    for (std::size_t i = 0; i < bias.size(); ++i) values[i] += bias[i];
    if (!softmax_of_chosen) make_nans_alike(values);
    Choice choice(parameters.topk + (cutoff.empty() ? 0 : 1));
    choose(values, choice.scores.size(), choice);
    if (!cutoff.empty()) cutoff[row] = drop_least(choice);
    // 2. Their scores without it, normalized.
    finish_scores(functions, parameters, bias, choice);
    // 3. Results.
    std::ranges::fill(values, 0.0F);
    if (softmax_of_chosen) std::ranges::fill(kept, no_score);
    for (std::size_t k = 0; k < parameters.topk; ++k) {
      const auto expert = static_cast<std::size_t>(choice.experts[k]);
      if (softmax_of_chosen) kept[expert] = choice.scores[k];
      values[expert] = parameters.scaling * choice.scores[k];
    }
    make_nans_alike(kept);
    std::ranges::copy(choice.experts, experts.begin() + static_cast<std::ptrdiff_t>(row * parameters.topk));
    write_piece(values.data(), columns, probabilities, row * columns);
  });
}

void moe_scores(const RouterParameters& parameters, const MatrixView& logits, std::span<float> scores,
                std::span<std::int32_t> experts, std::span<float> saved, const OperatorOptions& options) {
  check_exact_functions("moe_scores", options);
  check_rows(logits, "logits");
  check_topk(parameters.topk, logits.columns(), "logits");
  if (parameters.group_topk != 0) refuse("groups are not for scores of the auxiliary loss");
  check_size("scores", scores.size(), logits.size());
  check_size("experts", experts.size(), logits.rows() * parameters.topk);
  check_size("saved", saved.size(), logits.size());
  const Chooser choose(parameters, logits.columns());
  const KernelFunctions functions = kernel_functions(options.functions);
  for_each_token(logits, options.threads, [&](std::size_t row, std::span<float> values) {
    const std::span<float> kept = saved.subspan(row * values.size(), values.size());
    score_row(functions, parameters.score, true, values, kept);
    make_nans_alike(kept);
    if (parameters.score != RouterScore::softmax) normalize_row(values);
    make_nans_alike(values);
    Choice choice(parameters.topk);
    choose(values, parameters.topk, choice);
    std::ranges::copy(choice.experts, experts.begin() + static_cast<std::ptrdiff_t>(row * parameters.topk));
    narrow_row(values.data(), values.size(), scores.data() + row * values.size());
  });
}

namespace {

/// The gradient of a row: which experts are chosen, and in which lane the chosen one adds to sums.
struct RowGradient {
  const RouterParameters& parameters;
  std::span<const float> saved;
  std::span<const float> grad;
  std::vector<std::int32_t> chosen;
  KernelFunctions functions;
  bool in_order;  // sums go by the place among the chosen ones, else by the numbers of experts
  float sum_s = 0;
  float sum_gs = 0;

  [[nodiscard]] bool is_softmax() const { return parameters.score == RouterScore::softmax; }
  [[nodiscard]] float g(std::size_t i) const { return grad[i] * parameters.scaling; }
  [[nodiscard]] float s(std::size_t i) const {
    return parameters.score == RouterScore::sqrtsoftplus ? sqrtsoftplus(functions, saved[i]) : saved[i];
  }

  /// The sums over the experts that are chosen.
  void add_up() {
    Lanes of_s{};
    Lanes of_gs{};
    const auto add = [&](std::size_t lane, float own_s, float own_g) {
      of_s[lane] += own_s;
      of_gs[lane] = std::fma(own_g, own_s, of_gs[lane]);
    };
    if (in_order) {
      for (std::size_t k = 0; k < chosen.size(); ++k) {
        const auto i = static_cast<std::size_t>(chosen[k]);
        add(k % sum_lanes, s(i), g(i));
      }
    } else {
      for (std::size_t i = 0; i < saved.size(); ++i) {
        if (chosen[i] != 0) {
          add(i % sum_lanes, s(i), g(i));
        } else if (is_softmax() && parameters.softmax_first) {
          add(i % sum_lanes, s(i), 0);
        }
      }
    }
    sum_s = sum_of_lanes(of_s.data());
    sum_gs = sum_of_lanes(of_gs.data());
  }
  /// The gradient by the logit of a chosen expert.
  [[nodiscard]] float of_chosen(std::size_t i) const {
    if (is_softmax()) {
      const bool is_rounded =
          parameters.softmax_first && !in_order;  // a choice between two numbers keeps it from fusing
      return saved[i] * (is_rounded ? g(i) - sum_gs : std::fma(grad[i], parameters.scaling, -sum_gs));
    }
    return of_score(i, parameters.topk > 1 ? normalized(g(i)) : g(i));
  }
  /// The gradient by the logit of another expert.
  [[nodiscard]] float of_other(std::size_t i) const {
    if (!is_softmax()) return in_order ? 0 : of_score(i, 0);
    return parameters.softmax_first ? saved[i] * (0 - sum_gs) : 0;
  }

 private:
  [[nodiscard]] float normalized(float own_g) const {
    const float below = sum_s + least_sum;
    return own_g / below - sum_gs / (below * below);
  }
  [[nodiscard]] float of_score(std::size_t i, float by_score) const {
    if (parameters.score == RouterScore::sigmoid) return by_score * saved[i] * (1 - saved[i]);
    const float below = std::fma(2.0F, s(i), least_sum);
    return by_score * ((saved[i] > 20 ? 1 : sigmoid(functions, saved[i])) / below);
  }
};

void check_routing(const Routing& routing, std::size_t rows, std::size_t columns, std::size_t topk) {
  if (routing.bytes.empty() == routing.experts.empty() && rows != 0) {
    refuse("routing must have bytes or experts, and not both");
  }
  if (!routing.bytes.empty()) check_size("routing", routing.bytes.size(), rows * columns);
  if (!routing.experts.empty()) check_size("experts", routing.experts.size(), rows * topk);
  for (const std::int32_t expert : routing.experts) {
    if (expert < 0 || std::cmp_greater_equal(expert, columns)) {
      refuse("experts must be from 0 to ", columns - 1, ", not ", expert);
    }
  }
}

}  // namespace

void moe_topk_backward(const RouterParameters& parameters, const Routing& routing, std::span<const float> saved,
                       const MatrixView& grad, FloatOutput dlogits, const OperatorOptions& options) {
  check_exact_functions("moe_topk_backward", options);
  check_rows(grad, "grad");
  const std::size_t columns = grad.columns();
  check_topk(parameters.topk, columns, "grad");
  check_routing(routing, grad.rows(), columns, parameters.topk);
  check_size("saved", saved.size(), grad.size());
  check_size("dlogits", output_size(dlogits), grad.size());
  const KernelFunctions functions = kernel_functions(options.functions);
  for_each_token(grad, options.threads, [&](std::size_t row, std::span<float> values) {
    const bool in_order = routing.bytes.empty();
    RowGradient of_row{parameters, saved.subspan(row * columns, columns), values, {}, functions, in_order};
    if (in_order) {
      const auto chosen = routing.experts.subspan(row * parameters.topk, parameters.topk);
      of_row.chosen.assign(chosen.begin(), chosen.end());
    } else {
      const auto chosen = routing.bytes.subspan(row * columns, columns);
      of_row.chosen.assign(chosen.begin(), chosen.end());
    }
    of_row.add_up();
    std::vector<float> out(padded(columns));
    for (std::size_t i = 0; i < columns; ++i) {
      out[i] = !in_order && of_row.chosen[i] != 0 ? of_row.of_chosen(i) : of_row.of_other(i);
    }
    for (std::size_t k = 0; in_order && k < parameters.topk; ++k) {
      const auto i = static_cast<std::size_t>(of_row.chosen[k]);
      out[i] = of_row.of_chosen(i);
    }
    write_piece(out.data(), columns, dlogits, row * columns);
  });
}

void moe_scores_backward(RouterScore score, std::span<const float> saved, const MatrixView& grad, FloatOutput dlogits,
                         const OperatorOptions& options) {
  check_exact_functions("moe_scores_backward", options);
  // With two experts of topk it normalizes, whatever the number of columns; scaling by 1 changes no bit.
  RouterParameters parameters{.topk = 2, .score = score, .softmax_first = true};
  check_rows(grad, "grad");
  const std::size_t columns = grad.columns();
  check_size("saved", saved.size(), grad.size());
  check_size("dlogits", output_size(dlogits), grad.size());
  const KernelFunctions functions = kernel_functions(options.functions);
  for_each_token(grad, options.threads, [&](std::size_t row, std::span<float> values) {
    RowGradient of_row{parameters, saved.subspan(row * columns, columns),
                       values,     std::vector<std::int32_t>(columns, 1),
                       functions,  false};
    of_row.add_up();
    std::vector<float> out(padded(columns));
    for (std::size_t i = 0; i < columns; ++i) out[i] = of_row.of_chosen(i);
    write_piece(out.data(), columns, dlogits, row * columns);
  });
}

AuxLoss moe_aux_loss(const AuxLossParameters& parameters, const MatrixView& probabilities,
                     std::span<const float> tokens_per_expert, const OperatorOptions& options) {
  check_rounded_functions("moe_aux_loss", options);
  check_rows(probabilities, "probabilities");
  const std::size_t columns = probabilities.columns();
  check_size("tokens_per_expert", tokens_per_expert.size(), columns);
  if (parameters.experts == 0 || columns % parameters.experts != 0) {
    refuse("experts must divide the ", columns, " columns of probabilities, not be ", parameters.experts);
  }
  if (parameters.topk == 0) refuse("topk must be at least 1, not 0");
  if (parameters.sms == 0) refuse("sms must be at least 1, not 0");
  const DefaultEnvironment environment;
  const auto tokens = static_cast<float>(parameters.tokens);
  const float factor = static_cast<float>(parameters.experts) * parameters.coefficient /
                       static_cast<float>(parameters.topk) / tokens / tokens;
  const std::size_t stride = 2 * parameters.sms;
  const std::size_t size = (std::min<std::size_t>(1024, columns) + sum_lanes - 1) / sum_lanes * sum_lanes;
  std::vector<float> of_blocks(std::min(stride, probabilities.rows()));
  parallel_for(of_blocks.size(), options.threads, [&](std::size_t first, std::size_t last) {
    const DefaultEnvironment of_thread;
    std::vector<float> row_values(padded(columns));
    for (std::size_t block = first; block < last; ++block) {
      checkpoint();
      std::vector<float> sums(columns);
      for (std::size_t row = block; row < probabilities.rows(); row += stride) {
        read_piece(probabilities, row * columns, columns, row_values.data());
        for (std::size_t i = 0; i < columns; ++i) sums[i] += row_values[i];
      }
      std::vector<float> of_threads(size);
      for (std::size_t i = 0; i < columns; ++i) {
        of_threads[i % size] = std::fma(sums[i], tokens_per_expert[i], of_threads[i % size]);
      }
      of_blocks[block] = sum_of_row(of_threads) * factor;
    }
  });
  float loss = 0;
  for (const float of_block : of_blocks) loss += of_block;
  return {loss, factor};
}

void moe_aux_loss_backward(float factor, std::span<const float> tokens_per_expert, float grad, std::size_t rows,
                           FloatOutput dprobabilities) {
  const std::size_t columns = tokens_per_expert.size();
  check_size("dprobabilities", output_size(dprobabilities), rows * columns);
  const DefaultEnvironment environment;
  std::vector<float> values(padded(columns));
  for (std::size_t i = 0; i < columns; ++i) values[i] = factor * tokens_per_expert[i] * grad;
  for (std::size_t row = 0; row < rows; ++row) write_piece(values.data(), columns, dprobabilities, row * columns);
}

void moe_bias_histogram(std::span<const float> scores, std::span<const float> cutoff, float lower, float upper,
                        std::span<std::int32_t> histogram) {
  if (!std::isfinite(lower) || !std::isfinite(upper) || !(lower < upper)) {
    refuse("lower and upper must be finite and ascend, not ", lower, " and ", upper);
  }
  if (cutoff.empty()) return;
  const std::size_t columns = scores.size() / cutoff.size();
  if (columns == 0 || scores.size() % cutoff.size() != 0) {
    refuse("scores must have a row for each of the ", cutoff.size(), " elements of cutoff, not ", scores.size(),
           " elements");
  }
  const std::size_t bins = histogram.size() / columns;
  if (bins == 0 || histogram.size() % columns != 0) {
    refuse("histogram must have a row for each of the ", columns, " experts, not ", histogram.size(), " elements");
  }
  const DefaultEnvironment environment;
  const float scale = static_cast<float>(bins) / (upper - lower);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const float place = std::floor((cutoff[i / columns] - scores[i] - lower) * scale);
    const auto last = static_cast<float>(bins - 1);
    const float limited = place > 0 ? std::min(place, last) : 0;  // 0 of NaN, as the conversion to an integer has it
    ++histogram[i % columns * bins + static_cast<std::size_t>(limited)];
  }
}

}  // namespace fp8lab
