// SPDX-License-Identifier: Apache-2.0
#include "linear/split.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <type_traits>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "kit/exact_product.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t elements_a_band = std::size_t{1} << 18;  // fixed, so that sums never depend on threads
constexpr int part_bits = 46;

// 1. The chain.

/// Elements of a factor that are replaced: by `values`, where the cast had that outcome; all where outcomes are empty.
struct Replacement {
  bool left;
  std::span<const float> values;
  std::span<const Outcome> outcomes = {};
  Outcome outcome = Outcome::rounded;
};
/// The elements that a cause replaces.
using Link = std::vector<Replacement>;

constexpr std::array cast_outcomes{Outcome::saturated, Outcome::underflow, Outcome::rounded};
constexpr std::size_t factor_causes = 1 + 4 * cast_outcomes.size();  // those whose links replace elements of factors
constexpr std::size_t accumulator_cause = factor_causes;
constexpr std::size_t bias_cause = factor_causes + 1;
constexpr std::size_t output_cause = factor_causes + 2;
constexpr std::size_t cause_count = factor_causes + 3;

/// A link for each cause that replaces elements of factors; empty where the recipe has no such cause.
std::array<Link, factor_causes> links_of(const SplitOperand& a, const SplitOperand& b) {
  std::array<Link, factor_causes> links;
  for (const auto& [left, operand] : {std::pair{true, &a}, {false, &b}}) {
    if (!operand->turned.empty()) links[0].push_back({left, operand->turned});
    const auto add_cast = [&](const CastValues& cast, std::size_t first) {
      if (cast.values.empty()) return;
      for (std::size_t i = 0; i < cast_outcomes.size(); ++i) {
        links[first + i].push_back({left, cast.values, cast.outcomes, cast_outcomes[i]});
      }
    };
    add_cast(operand->fresh, left ? 1 : 4);
    add_cast(operand->lagging, left ? 7 : 10);
  }
  return links;
}

// 2. Factors, whose elements are replaced link by link.

/// Some rows of a factor.
class ChangingFactor {
 public:
  ChangingFactor(std::span<const float> given, std::size_t first, std::size_t rows, std::size_t depth)
      : first_(first), rows_(rows), depth_(depth), values_(rows * depth) {
    std::ranges::copy(given.subspan(first * depth, rows * depth), values_.begin());
  }
  [[nodiscard]] FactorMatrix matrix() const { return {values_, rows_, depth_}; }

  /// Replaces elements, and returns the rows, of those that it has, in which a value changed.
  std::vector<std::size_t> replace(const Replacement& by, int threads) {
    std::vector<std::uint8_t> has_changed(rows_);
    parallel_for(rows_, threads, [&](std::size_t first, std::size_t last) {
      for (std::size_t row = first; row < last; ++row) has_changed[row] = replace_row(by, row) ? 1 : 0;
    });
    std::vector<std::size_t> changed;
    for (std::size_t row = 0; row < rows_; ++row) {
      if (has_changed[row] != 0) changed.push_back(row);
    }
    return changed;
  }

 private:
  bool replace_row(const Replacement& by, std::size_t row) {
    checkpoint();
    const std::size_t from = (first_ + row) * depth_;
    bool changed = false;
    for (std::size_t k = 0; k < depth_; ++k) {
      if (!by.outcomes.empty() && by.outcomes[from + k] != by.outcome) continue;
      float& value = values_[row * depth_ + k];
      changed |= value != by.values[from + k];
      value = by.values[from + k];
    }
    return changed;
  }

  std::size_t first_, rows_, depth_;
  Buffer<float> values_;
};

std::vector<std::size_t> all_of(std::size_t count) {
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

// 3. The output, as linear() has it.

/// The output's values, and those before the bias and before the last rounding.
struct Outputs {
  Buffer<float> accumulated;
  Buffer<float> biased;         // empty without a bias
  const Buffer<float>* output;  // the caller's
};

float rounded_to(const Format& format, float x) {
  return format == binary32 ? x : decode(format, encode(format, cuda_nosat_policy, x));
}

/// The GEMM in float32, without the bias.
void accumulate(const SplitGemm& split, std::span<float> out) {
  LinearGemm gemm = split.gemm;
  gemm.recipe.output = binary32;
  const LinearRecipe recipe{gemm, gemm, gemm};
  const LinearOptions options{.threads = split.threads};
  switch (split.pass) {
    case LinearPass::fprop: return linear(recipe, split.a.input(), split.b.input(), out, options);
    case LinearPass::dgrad: return linear_dgrad(recipe, split.a.input(), split.b.input(), out, options);
    case LinearPass::wgrad: return linear_wgrad(recipe, split.a.input(), split.b.input(), out, options);
  }
}

Outputs outputs_of(const SplitGemm& split, Buffer<float>& out) {
  const std::size_t columns = split.b.rows;
  Outputs outputs{.accumulated = Buffer<float>(split.a.rows * columns), .biased = {}, .output = &out};
  accumulate(split, outputs.accumulated);
  if (!split.bias.empty()) {
    std::vector<float> bias(split.bias.begin(), split.bias.end());
    for (float& value : bias) value = rounded_to(bias_format_of(split.gemm), value);
    outputs.biased.resize(outputs.accumulated.size());
    for (std::size_t i = 0; i < outputs.biased.size(); ++i) {
      outputs.biased[i] = outputs.accumulated[i] + bias[i % columns];
    }
  }
  const Buffer<float>& before = split.bias.empty() ? outputs.accumulated : outputs.biased;
  out.resize(before.size());
  parallel_for(out.size(), split.threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      checkpoint(i);
      out[i] = rounded_to(split.gemm.recipe.output, before[i]);
    }
  });
  return outputs;
}

// 4. Parts.

/// high + low + addend - output, to about 53 bits of the result.
double deviation(double high, double low, double addend, double output) {
  const auto two_sum = [](double x, double y) {
    const double sum = x + y;
    const double added = sum - x;
    return std::pair{sum, (x - (sum - added)) + (y - added)};
  };
  const auto [difference, rest] = two_sum(high, -output);
  const auto [sum, more] = two_sum(difference, addend);
  return sum + (rest + more + low);
}

/// A band of whole rows: the deviations of its chain from the output, then the parts.
class Band {
 public:
  Band(const SplitGemm& split, const Outputs& outputs, std::size_t first, std::size_t rows)
      : split_(split),
        outputs_(outputs),
        first_(first),
        rows_(rows),
        columns_(split.b.rows),
        high_(rows * columns_),
        low_(rows * columns_),
        deviations_(cause_count + 1) {}

  /// Computes the chain.
  void run(const std::array<Link, factor_causes>& links) {
    ChangingFactor a(split_.a.given, first_, rows_, split_.a.depth);
    ChangingFactor b(split_.b.given, 0, columns_, split_.b.depth);
    const auto from = static_cast<std::ptrdiff_t>(first_ * columns_);
    std::copy_n(split_.real->high.begin() + from, high_.size(), high_.begin());
    std::copy_n(split_.real->low.begin() + from, low_.size(), low_.begin());
    deviations_[0] = of_products();
    for (std::size_t i = 0; i < links.size(); ++i) {
      bool has_changed = false;
      std::vector<std::size_t> left;
      std::vector<std::size_t> right;
      for (const Replacement& by : links[i]) {
        auto changed = by.left ? a.replace(by, split_.threads) : b.replace(by, split_.threads);
        has_changed |= !changed.empty();
        (by.left ? left : right) = std::move(changed);
      }
      if (!has_changed) continue;
      const auto all_rows = all_of(rows_);
      const auto all_columns = all_of(columns_);
      if (!right.empty()) {
        multiply(a, all_rows, b, right);
        if (!left.empty()) multiply(a, left, b, all_columns);
      } else {
        multiply(a, left, b, all_columns);
      }
      deviations_[i + 1] = of_products();
    }
    deviations_[accumulator_cause + 1] = of_values(outputs_.accumulated, split_.bias);
    if (!split_.bias.empty()) deviations_[bias_cause + 1] = of_values(outputs_.biased, {});
    deviations_[output_cause + 1] = of_values(*outputs_.output, {});
  }

  /// Makes parts of the deviations, and hands them over.
  void finish(const std::function<void(const SplitBand&)>& use) {
    std::vector<double> total(rows_ * columns_);
    std::vector<std::vector<double>*> chain;
    for (auto& one : deviations_) {
      if (!one.empty()) chain.push_back(&one);
    }
    std::vector<double> real(rows_ * columns_);
    parallel_for(total.size(), split_.threads, [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) {
        checkpoint(i);
        real[i] = real_value(i, (*chain.front())[i]);
        total[i] = to_parts(chain, i);
      }
    });
    deviations_.erase(deviations_.begin());  // the real product: each of the others is now the part of a cause
    use({first_, total.size(), deviations_, real, total});
  }

 private:
  void multiply(const ChangingFactor& a, std::span<const std::size_t> rows, const ChangingFactor& b,
                std::span<const std::size_t> columns) {
    exact_products(a.matrix(), rows, b.matrix(), columns, split_.threads, {high_, low_, columns_});
  }
  [[nodiscard]] double addend(std::span<const float> bias, std::size_t i) const {
    return bias.empty() ? 0 : static_cast<double>(bias[i % columns_]);
  }
  [[nodiscard]] double output(std::size_t i) const { return (*outputs_.output)[first_ * columns_ + i]; }
  /// deviation + output, where the deviation is that of the real product.
  [[nodiscard]] double real_value(std::size_t i, double its_deviation) const { return its_deviation + output(i); }

  /// The deviation of the products at hand, with the bias, from the output.
  [[nodiscard]] std::vector<double> of_products() const {
    return deviations([&](std::size_t i) { return deviation(high_[i], low_[i], addend(split_.bias, i), output(i)); });
  }
  /// The deviation of float32 values of the whole output, with a bias, from the output.
  [[nodiscard]] std::vector<double> of_values(std::span<const float> values, std::span<const float> bias) const {
    return deviations(
        [&](std::size_t i) { return deviation(values[first_ * columns_ + i], 0, addend(bias, i), output(i)); });
  }
  template <typename Of>
  [[nodiscard]] std::vector<double> deviations(const Of& of) const {
    std::vector<double> result(rows_ * columns_);
    parallel_for(result.size(), split_.threads, [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) {
        checkpoint(i);
        result[i] = of(i);
      }
    });
    return result;
  }

  /// Rounds the deviations of element i to multiples of one power of two, and replaces each but the first by its
  /// difference from the one before. Returns the total.
  static double to_parts(const std::vector<std::vector<double>*>& chain, std::size_t i) {
    double largest = 0;
    bool is_finite = true;
    for (const auto* one : chain) {
      is_finite = is_finite && std::isfinite((*one)[i]);
      largest = std::max(largest, std::abs((*one)[i]));
    }
    if (!is_finite) return std::numeric_limits<double>::quiet_NaN();
    if (largest == 0) return 0;
    // Adding and subtracting 3/2 * 2^52 units rounds what is below 2^51 units to a whole number of them.
    const double unit = std::ldexp(1, std::ilogb(largest) + 1 - part_bits);
    const double magic = 0x1.8p52 * unit;
    for (auto* one : chain) (*one)[i] = ((*one)[i] + magic) - magic;
    const double total = -chain.front()->at(i);
    for (std::size_t link = chain.size(); --link > 0;) (*chain[link])[i] -= (*chain[link - 1])[i];
    return total;
  }

  const SplitGemm& split_;
  const Outputs& outputs_;
  std::size_t first_, rows_, columns_;
  std::vector<double> high_, low_;
  std::vector<std::vector<double>> deviations_;  // the real product's, then one for each cause; empty: as before it
};

std::vector<Cause> factor_causes_of(const std::string& tensor) {
  return {{tensor + "_saturation", "elements of " + tensor + " that the cast cuts to the largest value"},
          {tensor + "_underflow", "elements of " + tensor + " that the cast makes zero"},
          {tensor + "_rounding", "all other elements of " + tensor + ", rounded"}};
}
std::vector<Cause> lag_causes_of(const std::string& tensor) {
  return {{tensor + "_lag_saturation", "elements of " + tensor + " that the history's scale saturates"},
          {tensor + "_lag_underflow", "elements of " + tensor + " that the history's scale makes zero"},
          {tensor + "_lag_rounding", "all other elements of " + tensor + ", by the history's scale"}};
}

}  // namespace

std::vector<Cause> causes_of(LinearPass pass) {
  const LinearFactors factors = factors_of(pass);
  const std::string a(name_of(factors.a.tensor));
  const std::string b(name_of(factors.b.tensor));
  std::vector<Cause> causes{{"hadamard", "both factors turned by a Hadamard matrix, and rounded"}};
  for (const auto& some : {factor_causes_of(a), factor_causes_of(b), lag_causes_of(a), lag_causes_of(b)}) {
    causes.insert(causes.end(), some.begin(), some.end());
  }
  causes.push_back({"accumulator", "the tensor core's sums, promotions and scales"});
  causes.push_back({"bias", "the bias rounded, and added in float32"});
  causes.push_back({"output_rounding", "the result rounded to the output's type"});
  return causes;
}

RealProducts real_products(const FactorMatrix& a, const FactorMatrix& b, int threads, const Progress& progress) {
  const DefaultEnvironment environment;
  RealProducts real;
  real.high.resize(a.rows * b.rows);
  real.low.resize(real.high.size());
  const std::vector<std::size_t> rows = all_of(a.rows);
  const std::vector<std::size_t> columns = all_of(b.rows);
  constexpr std::size_t most = 64;
  for (std::size_t first = 0; first < a.rows; first += most) {
    const std::size_t count = std::min(most, a.rows - first);
    exact_products(a, std::span(rows).subspan(first, count), b, columns, threads, {real.high, real.low, b.rows});
    if (progress) progress(static_cast<double>(first + count) / static_cast<double>(a.rows));
  }
  return real;
}

void split_gemm(const SplitGemm& split, const Progress& progress, const std::function<void(const SplitBand&)>& use,
                Buffer<float>& out) {
  const DefaultEnvironment environment;
  const Outputs outputs = outputs_of(split, out);
  const auto links = links_of(split.a, split.b);
  const std::size_t most = std::max<std::size_t>(1, elements_a_band / split.b.rows);
  for (std::size_t first = 0; first < split.a.rows; first += most) {
    const std::size_t rows = std::min(most, split.a.rows - first);
    Band band(split, outputs, first, rows);
    band.run(links);
    band.finish(use);
    if (progress) progress(static_cast<double>(first + rows) / static_cast<double>(split.a.rows));
  }
}

}  // namespace fp8lab::experiments
