// SPDX-License-Identifier: Apache-2.0
// The router gives, bit for bit, what a warp gives operation by operation in 50 digits: its lanes are written once
// more, as 32 threads that exchange numbers.
#include "fp8lab/reference/operators/router.hpp"

#include <functional>
#include <numeric>
#include <stdexcept>

#include "rounded_steps.hpp"

namespace fp8lab::tests {
namespace {

constexpr float tiny = 1e-20F;
using Warp = std::vector<float>;  // a number of each lane

float step_exp(float x) { return x == -inf ? 0 : nearest(exp(Digits(x))); }
float step_root(float x) { return nearest(sqrt(Digits(x))); }
float step_sqrtsoftplus(float x) { return step_root(x > 20 ? x : nearest(log1p(Digits(step_exp(x))))); }

Warp exchanged(const Warp& lanes, std::size_t offset) {
  Warp other(32);
  for (std::size_t lane = 0; lane < 32; ++lane) other[lane] = lanes[lane ^ offset];
  return other;
}
/// Adds by exchange; all lanes have the same sum then.
float sum_of_warp(Warp lanes) {
  for (const std::size_t offset : {16U, 8U, 4U, 2U, 1U}) {
    const Warp other = exchanged(lanes, offset);
    for (std::size_t lane = 0; lane < 32; ++lane) lanes[lane] = step_sum(lanes[lane], other[lane]);
  }
  REQUIRE(std::ranges::count(lanes, lanes[0]) == 32);
  return lanes[0];
}
float sum_of_elements(const std::vector<float>& values) {
  Warp lanes(32);
  for (std::size_t i = 0; i < values.size(); ++i) {
    lanes[i % 32] = i < 32 ? values[i] : step_sum(lanes[i % 32], values[i]);
  }
  return sum_of_warp(lanes);
}

std::vector<float> step_softmax(const std::vector<float>& values) {
  Warp most(32, -inf), sum(32);
  for (std::size_t i = 0; i < values.size(); ++i) {
    float& m = most[i % 32];
    float& s = sum[i % 32];
    if (values[i] > m) {
      s = m == -inf ? 0 : step_product(s, step_exp(step_difference(m, values[i])));
      m = values[i];
    }
    s = step_sum(s, step_exp(step_difference(values[i], m)));
  }
  for (const std::size_t offset : {16U, 8U, 4U, 2U, 1U}) {
    const Warp other_most = exchanged(most, offset);
    const Warp other_sum = exchanged(sum, offset);
    for (std::size_t lane = 0; lane < 32; ++lane) {
      const float larger = std::max(most[lane], other_most[lane]);
      const auto share = [&](float m) { return m == -inf ? 0 : step_exp(step_difference(m, larger)); };
      if (larger != -inf) {
        sum[lane] = step_fused(sum[lane], share(most[lane]), step_product(other_sum[lane], share(other_most[lane])));
      }
      most[lane] = larger;
    }
  }
  std::vector<float> out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float inverse = step_quotient(1, sum[i % 32]);
    out.push_back(step_product(step_exp(step_difference(values[i], most[i % 32])), inverse));
  }
  return out;
}

std::vector<float> step_scores(RouterScore score, bool softmax_first, std::vector<float> values) {
  if (score == RouterScore::softmax) return softmax_first ? step_softmax(values) : values;
  for (float& value : values) {
    value = score == RouterScore::sigmoid ? step_sigmoid(value) : step_sqrtsoftplus(value);
  }
  return values;
}
std::vector<float> step_normalized(std::vector<float> values) {
  const float sum = step_sum(sum_of_elements(values), tiny);
  for (float& value : values) value = step_quotient(value, sum);
  return values;
}

/// Numbers that are all different, so that a sort has one answer.
struct RouterDraw {
  static constexpr std::size_t tokens = 3;
  std::size_t columns;
  std::vector<float> logits, bias, grad;

  explicit RouterDraw(std::size_t count) : columns(count) {
    logits = normal_draws(1, tokens * count, 2);
    bias = normal_draws(2, count, 0.25);
    grad = normal_draws(3, tokens * count, 1);
    logits[1] = 25;  // above 20, where softplus is x
    logits[2] = -30;
  }
  [[nodiscard]] MatrixView view_logits() const { return {std::span(logits), tokens, columns}; }
  [[nodiscard]] MatrixView view_grad() const { return {std::span(grad), tokens, columns}; }
  [[nodiscard]] std::vector<float> row(const std::vector<float>& of, std::size_t token) const {
    const auto first = of.begin() + static_cast<std::ptrdiff_t>(token * columns);
    return {first, first + static_cast<std::ptrdiff_t>(columns)};
  }
};

/// The numbers of the largest ones: by size, or for the radix selection all but the last by number.
std::vector<std::size_t> largest_of(const std::vector<float>& values, std::size_t count, bool by_radix) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
  order.resize(count);
  if (by_radix) std::sort(order.begin(), order.end() - 1);
  return order;
}

struct Routed {
  std::vector<float> probabilities, saved, cutoff;
  std::vector<std::int32_t> experts;

  Routed(const RouterParameters& p, const RouterDraw& draw, bool has_bias, bool has_cutoff = false, int threads = 1)
      : probabilities(draw.logits.size(), nan),
        saved(draw.logits.size(), nan),
        cutoff(has_cutoff ? RouterDraw::tokens : 0),
        experts(RouterDraw::tokens * p.topk, -1) {
    moe_topk(p, draw.view_logits(), has_bias ? std::span<const float>(draw.bias) : std::span<const float>(),
             std::span(probabilities), experts, saved, cutoff, {.threads = threads});
  }
};

void require_same(const std::vector<float>& actual, const std::vector<float>& expected) {
  Mismatches mismatches;
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) mismatches.compare(i, i, bits(actual[i]), bits(expected[i]), "");
  REQUIRE_NO(mismatches);
}

/// Every way of scoring, of few and of many chosen experts: below and above the threshold, and above the lanes.
void for_each_way(const std::function<void(RouterParameters, const RouterDraw&, bool)>& run) {
  for (const auto& score : router_scores) {
    for (const std::size_t topk : {1U, 3U, 12U, 40U}) {
      for (const bool option : {false, true}) {
        const RouterDraw draw(topk < 12 ? 20 : 70);
        const bool is_softmax = score.value == RouterScore::softmax;
        INFO(score.name << ' ' << topk << ' ' << option);
        run({.topk = topk, .score = score.value, .softmax_first = is_softmax && option, .scaling = 2.5F}, draw,
            !is_softmax && option);
      }
    }
  }
}

TEST_CASE("router: a warp's bits, its choice and what is saved") {
  for_each_way([](const RouterParameters& p, const RouterDraw& draw, bool has_bias) {
    std::vector<float> probabilities(draw.logits.size()), saved;
    std::vector<std::int32_t> experts;
    for (std::size_t token = 0; token < RouterDraw::tokens; ++token) {
      const auto logits = draw.row(draw.logits, token);
      const auto scores = step_scores(p.score, p.softmax_first, logits);
      auto compared = scores;
      for (std::size_t i = 0; has_bias && i < compared.size(); ++i) compared[i] = step_sum(compared[i], draw.bias[i]);
      const auto order = largest_of(compared, p.topk, p.topk >= 16);
      std::vector<float> chosen;
      for (const std::size_t i : order) {
        experts.push_back(static_cast<std::int32_t>(i));
        chosen.push_back(has_bias ? step_difference(compared[i], draw.bias[i]) : compared[i]);
      }
      auto kept = p.score == RouterScore::sqrtsoftplus ? logits : scores;
      if (p.score == RouterScore::softmax && !p.softmax_first) {
        chosen = step_softmax(chosen);
        kept.assign(draw.columns, -inf);
        for (std::size_t k = 0; k < p.topk; ++k) kept[order[k]] = chosen[k];
      }
      if (p.score != RouterScore::softmax && p.topk > 1) chosen = step_normalized(chosen);
      for (std::size_t k = 0; k < p.topk; ++k) {
        probabilities[token * draw.columns + order[k]] = step_product(p.scaling, chosen[k]);
      }
      saved.insert(saved.end(), kept.begin(), kept.end());
    }
    const Routed routed(p, draw, has_bias, false, 2);
    REQUIRE(routed.experts == experts);
    require_same(routed.probabilities, probabilities);
    require_same(routed.saved, saved);
  });
}

/// The gradient of a row, for the experts that are chosen; `lane_of` says where each one adds.
std::vector<float> step_row_gradient(const RouterParameters& p, const std::vector<float>& saved,
                                     const std::vector<float>& grad, const std::vector<std::size_t>& chosen,
                                     bool in_order) {
  const bool is_softmax = p.score == RouterScore::softmax;
  std::vector<bool> is_chosen(saved.size());
  for (const std::size_t i : chosen) is_chosen[i] = true;
  Warp of_s(32), of_gs(32);
  const auto s = [&](std::size_t i) {
    return p.score == RouterScore::sqrtsoftplus ? step_sqrtsoftplus(saved[i]) : saved[i];
  };
  const auto g = [&](std::size_t i) { return step_product(grad[i], p.scaling); };
  const auto add = [&](std::size_t lane, std::size_t i) {
    of_s[lane] = step_sum(of_s[lane], s(i));
    of_gs[lane] = step_fused(g(i), s(i), of_gs[lane]);
  };
  for (std::size_t k = 0; in_order && k < chosen.size(); ++k) add(k % 32, chosen[k]);
  for (std::size_t i = 0; !in_order && i < saved.size(); ++i) {
    if (is_chosen[i]) add(i % 32, i);
  }
  const float sum_gs = sum_of_warp(of_gs);
  const float below = step_sum(sum_of_warp(of_s), tiny);
  std::vector<float> out(saved.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (is_softmax) {
      if (p.softmax_first) {
        const bool is_fused = is_chosen[i] && in_order;
        const float own = is_chosen[i] ? g(i) : 0;
        out[i] =
            step_product(saved[i], is_fused ? step_fused(grad[i], p.scaling, -sum_gs) : step_difference(own, sum_gs));
      } else if (is_chosen[i]) {
        out[i] = step_product(saved[i], step_fused(grad[i], p.scaling, -sum_gs));
      }
      continue;
    }
    float own = is_chosen[i] ? g(i) : 0;
    if (is_chosen[i] && p.topk > 1) {
      own = step_difference(step_quotient(own, below), step_quotient(sum_gs, step_product(below, below)));
    }
    if (!is_chosen[i] && in_order) continue;
    if (p.score == RouterScore::sigmoid) {
      out[i] = step_product(step_product(own, saved[i]), step_difference(1, saved[i]));
    } else {
      const float slope = step_quotient(saved[i] > 20 ? 1 : step_sigmoid(saved[i]), step_fused(2, s(i), tiny));
      out[i] = step_product(own, slope);
    }
  }
  return out;
}

TEST_CASE("router: the gradient's bits, for a table and for numbers of experts") {
  for_each_way([](const RouterParameters& p, const RouterDraw& draw, bool has_bias) {
    const Routed routed(p, draw, has_bias);
    for (const bool in_order : {false, true}) {
      std::vector<float> expected;
      std::vector<std::uint8_t> bytes(draw.logits.size());
      for (std::size_t token = 0; token < RouterDraw::tokens; ++token) {
        std::vector<std::size_t> chosen;
        for (std::size_t k = 0; k < p.topk; ++k) {
          chosen.push_back(static_cast<std::size_t>(routed.experts[token * p.topk + k]));
          bytes[token * draw.columns + chosen.back()] = 1;
        }
        const auto row =
            step_row_gradient(p, draw.row(routed.saved, token), draw.row(draw.grad, token), chosen, in_order);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      std::vector<float> dlogits(draw.logits.size(), nan);
      const Routing routing = in_order ? Routing{.experts = routed.experts} : Routing{.bytes = bytes};
      moe_topk_backward(p, routing, routed.saved, draw.view_grad(), std::span(dlogits), {.threads = 2});
      INFO(in_order);
      require_same(dlogits, expected);
    }
  });
}

TEST_CASE("router: scores of the auxiliary loss, and their gradient") {
  for (const auto& score : router_scores) {
    const RouterDraw draw(45);
    const RouterParameters p{.topk = 4, .score = score.value};
    std::vector<float> scores(draw.logits.size()), saved(scores.size()), dlogits(scores.size());
    std::vector<std::int32_t> experts(RouterDraw::tokens * p.topk);
    moe_scores(p, draw.view_logits(), scores, experts, saved, {.threads = 2});
    moe_scores_backward(score.value, saved, draw.view_grad(), std::span(dlogits), {.threads = 2});
    std::vector<float> expected, expected_gradient;
    std::vector<std::size_t> all(draw.columns);
    std::iota(all.begin(), all.end(), std::size_t{0});
    for (std::size_t token = 0; token < RouterDraw::tokens; ++token) {
      auto row = step_scores(score.value, true, draw.row(draw.logits, token));
      if (score.value != RouterScore::softmax) row = step_normalized(row);
      for (const std::size_t i : largest_of(row, p.topk, false)) {
        REQUIRE(std::ranges::count(std::span(experts).subspan(token * p.topk, p.topk), static_cast<std::int32_t>(i)) ==
                1);
      }
      expected.insert(expected.end(), row.begin(), row.end());
      const RouterParameters of_all{.topk = draw.columns, .score = score.value, .softmax_first = true};
      const auto gradient = step_row_gradient(of_all, draw.row(saved, token), draw.row(draw.grad, token), all, false);
      expected_gradient.insert(expected_gradient.end(), gradient.begin(), gradient.end());
    }
    INFO(score.name);
    require_same(scores, expected);
    require_same(dlogits, expected_gradient);
  }
}

std::vector<std::int32_t> choose(std::vector<float> logits, std::size_t topk, std::size_t radix_from) {
  std::vector<float> out(logits.size()), saved(logits.size());
  std::vector<std::int32_t> experts(topk);
  const RouterParameters p{.topk = topk, .score = RouterScore::softmax, .radix_from = radix_from};
  moe_topk(p, {std::span<const float>(logits), 1, logits.size()}, {}, std::span(out), experts, saved);
  return experts;
}

TEST_CASE("router: ties go by lanes, or by number") {
  using Numbers = std::vector<std::int32_t>;
  // Lane 0 meets lane 16 first and lane 1 last: of equal lanes the even one stays, then the one that 4 divides, ...
  REQUIRE(choose(std::vector<float>(32, 1), 5, 16) == Numbers{0, 16, 8, 24, 4});
  REQUIRE(choose(std::vector<float>(32, 1), 9, 16) == Numbers{0, 16, 8, 24, 4, 20, 12, 28, 2});
  REQUIRE(choose(std::vector<float>(40, 1), 3, 16) == Numbers{0, 32, 16});  // a lane's first one before other lanes
  REQUIRE(choose(std::vector<float>(32, 1), 5, 5) == Numbers{0, 1, 2, 3, 4});
  std::vector<float> two(40, 0);
  two[39] = two[33] = 1;
  REQUIRE(choose(two, 2, 16) == Numbers{33, 39});
  REQUIRE(choose(two, 3, 0) == Numbers{33, 39, 0});
  // Zeros of both signs are equal, or the positive one is larger; a NaN is never larger, or beyond all.
  REQUIRE(choose({-0.0F, 0, -1}, 1, 16) == Numbers{0});
  REQUIRE(choose({-0.0F, 0, -1}, 1, 1) == Numbers{1});
  REQUIRE(choose({1, nan, 2}, 2, 16) == Numbers{2, 0});
  REQUIRE(choose({1, nan, 2}, 2, 1) == Numbers{1, 2});
  REQUIRE(choose({nan, nan, -inf}, 2, 16) == Numbers{0, 0});  // nothing is above -infinity
  REQUIRE(choose({5}, 1, 16) == Numbers{0});
  REQUIRE(choose({3, 1, 2}, 3, 16) == Numbers{0, 2, 1});
}

TEST_CASE("router: a NaN in lane 0 stays for topk above 8") {
  std::vector<float> logits(12);
  std::iota(logits.begin(), logits.end(), 0.0F);
  logits[0] = nan;
  REQUIRE(choose(logits, 9, 16) == std::vector<std::int32_t>{0, 11, 10, 9, 8, 7, 6, 5, 4});
  REQUIRE(choose(logits, 8, 16) == std::vector<std::int32_t>{11, 10, 9, 8, 7, 6, 5, 4});
}

TEST_CASE("router: experts of the best groups") {
  // Groups of 4: sums of their best two are 3, 5 and 4; that of the largest one is not among them.
  const std::vector<float> logits{2, 1, 0, 0, 2.5F, 2.5F, 0, 0, 4, 0, 0, -9};
  for (const std::size_t radix_from : {0U, 16U}) {
    std::vector<float> out(12), saved(12);
    std::vector<std::int32_t> experts(4);
    const RouterParameters p{.topk = 4, .groups = 3, .group_topk = 2, .radix_from = radix_from};
    moe_topk(p, {std::span(logits), 1, 12}, {}, std::span(out), experts, saved);
    std::ranges::sort(experts);
    // Four zeros are left. The radix selection takes the first one, the naive one that whose lane comes first.
    REQUIRE(experts == std::vector<std::int32_t>{4, 5, radix_from == 0 ? 6 : 8, radix_from == 0 ? 8 : 10});
  }
}

TEST_CASE("router: the next expert's score, and the biases that are counted") {
  const RouterDraw draw(20);
  const RouterParameters p{.topk = 3, .score = RouterScore::sigmoid};
  const Routed without(p, draw, true);
  const Routed routed(p, draw, true, true);
  REQUIRE(routed.experts == without.experts);
  require_same(routed.probabilities, without.probabilities);
  std::vector<std::int32_t> histogram(20 * 4), expected(20 * 4);
  for (std::size_t token = 0; token < RouterDraw::tokens; ++token) {
    auto scores = step_scores(p.score, false, draw.row(draw.logits, token));
    const auto plain = scores;
    for (std::size_t i = 0; i < 20; ++i) scores[i] = step_sum(scores[i], draw.bias[i]);
    const float next = scores[largest_of(scores, 4, false)[3]];
    REQUIRE(routed.cutoff[token] == next);
    for (std::size_t i = 0; i < 20; ++i) {
      const float place = step_product(step_difference(step_difference(next, plain[i]), -0.5F), step_quotient(4, 1));
      expected[i * 4 + static_cast<std::size_t>(std::clamp(std::floor(place), 0.0F, 3.0F))] += 1;
    }
  }
  moe_bias_histogram(routed.saved, routed.cutoff, -0.5F, 0.5F, histogram);
  REQUIRE(histogram == expected);
}

TEST_CASE("router: the auxiliary loss in the kernel's order") {
  const std::size_t rows = 7, columns = 40;
  const auto probabilities = normal_draws(4, rows * columns, 1);
  std::vector<float> counts;
  for (std::size_t i = 0; i < columns; ++i) counts.push_back(static_cast<float>(3 * i + 1));
  const AuxLossParameters p{.experts = 20, .topk = 3, .tokens = 11, .coefficient = 0.3F, .sms = 2};
  const AuxLoss found = moe_aux_loss(p, {std::span(probabilities), rows, columns}, counts, {.threads = 2});
  const float factor = step_quotient(step_quotient(step_quotient(step_product(20, 0.3F), 3), 11), 11);
  float loss = 0;
  for (std::size_t block = 0; block < 4; ++block) {  // 2 for each of 2 multiprocessors
    std::vector<float> threads(64);
    for (std::size_t i = 0; i < columns; ++i) {
      float sum = 0;
      for (std::size_t row = block; row < rows; row += 4) sum = step_sum(sum, probabilities[row * columns + i]);
      threads[i] = step_fused(sum, counts[i], threads[i]);
    }
    loss = step_sum(loss, step_product(sum_of_elements(threads), factor));
  }
  REQUIRE(bits(found.factor) == bits(factor));
  REQUIRE(bits(found.loss) == bits(loss));
  std::vector<float> gradient(2 * columns);
  moe_aux_loss_backward(found.factor, counts, 0.7F, 2, std::span(gradient));
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    REQUIRE(gradient[i] == step_product(step_product(factor, counts[i % columns]), 0.7F));
  }
}

TEST_CASE("router: nothing to do, and what is refused") {
  const std::vector<float> x(12, 1);
  std::vector<float> out(12), saved(12);
  std::vector<std::int32_t> experts(4);
  const MatrixView view{std::span(x), 2, 6};
  const auto run = [&](const RouterParameters& p, std::span<const float> bias = {}, std::span<float> cutoff = {}) {
    moe_topk(p, view, bias, std::span(out), experts, saved, cutoff);
  };
  moe_topk({.topk = 2}, {std::span<const float>(), 0, 6}, {}, std::span<float>(), {}, {});
  REQUIRE_THROWS_WITH(run({.topk = 7}), ContainsSubstring("topk must be from 1 to the 6 experts of logits, not 7"));
  REQUIRE_THROWS_WITH(run({.topk = 0}), ContainsSubstring("not 0"));
  REQUIRE_THROWS_WITH(run({.topk = 2, .groups = 4, .group_topk = 1}),
                      ContainsSubstring("groups must divide the 6 experts of logits, not be 4"));
  REQUIRE_THROWS_WITH(run({.topk = 2, .groups = 3, .group_topk = 4}), ContainsSubstring("group_topk must be at most"));
  REQUIRE_THROWS_WITH(run({.topk = 2}, std::span(x).first(6)), ContainsSubstring("bias goes with"));
  REQUIRE_THROWS_WITH(run({.topk = 2, .score = RouterScore::sigmoid}, std::span(x).first(5)),
                      ContainsSubstring("bias must have 6 elements, not 5"));
  REQUIRE_THROWS_WITH(run({.topk = 3}), ContainsSubstring("experts must have 6 elements, not 4"));
  REQUIRE_THROWS_WITH(moe_topk({}, {std::span<const float>(), 12, 0}, {}, std::span(out), experts, saved),
                      ContainsSubstring("logits must have columns"));
  REQUIRE_THROWS_WITH(moe_topk_backward({.topk = 2}, {}, saved, view, std::span(out)),
                      ContainsSubstring("routing must have bytes or experts"));
  const std::vector<std::int32_t> wrong{0, 1, 2, 6};
  REQUIRE_THROWS_WITH(moe_topk_backward({.topk = 2}, {.experts = wrong}, saved, view, std::span(out)),
                      ContainsSubstring("experts must be from 0 to 5, not 6"));
  REQUIRE_THROWS_WITH(moe_aux_loss({.experts = 4}, view, std::span(x).first(6)),
                      ContainsSubstring("experts must divide the 6 columns of probabilities, not be 4"));
  REQUIRE_THROWS_WITH(moe_bias_histogram(x, std::span(x).first(2), 1, 1, experts),
                      ContainsSubstring("lower and upper must be finite and ascend"));
}

}  // namespace
}  // namespace fp8lab::tests
