// SPDX-License-Identifier: Apache-2.0
#include "accumulate/accumulate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <variant>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/measure/errors.hpp"
#include "kit/lists.hpp"

namespace fp8lab::experiments {
namespace {

constexpr long long most_k = 1 << 20;
constexpr long long most_rows = 4096;
constexpr long long most_factors = 1 << 28;
constexpr long long most_dots = 1 << 20;
constexpr std::size_t most_points = 4096;
constexpr std::size_t short_sum = 1024;  // of a dot product: long sums of short sums lose least

void check_range(std::string_view what, long long value, long long low, long long high) {
  if (value < low || value > high) refuse(what, " must be from ", low, " to ", high, ", not ", value);
}

void check(const AccumulateArguments& arguments) {
  check_filled_list("models", arguments.models);
  check_filled_list("distributions", arguments.distributions);
  check_filled_list("k", arguments.ks);
  check_filled_list("promote_k", arguments.promote_ks);
  for (const long long k : arguments.ks) check_range("k", k, 1, most_k);
  for (const long long k : arguments.promote_ks) check_range("promote_k", k, 0, most_k);
  check_range("rows", arguments.rows, 1, most_rows);
  check_range("columns", arguments.columns, 1, most_rows);
  if (arguments.rows * arguments.columns > most_dots) {
    refuse("rows * columns must be at most ", most_dots, ", not ", arguments.rows * arguments.columns);
  }
  const long long factors = (arguments.rows + arguments.columns) * std::ranges::max(arguments.ks);
  if (factors > most_factors) refuse("(rows + columns) * k must be at most ", most_factors, ", not ", factors);
}

/// The format that one of the model's operands is cast to.
ChosenFormat format_for(const MmaModel& model, const std::optional<ChosenFormat>& wanted) {
  const bool takes_e4m3 = std::ranges::find(model.operands, e4m3) != model.operands.end();
  const Format& own = takes_e4m3 ? e4m3 : model.operands.front();
  const ChosenFormat format = wanted.value_or(ChosenFormat{format_name(own), own});
  if (format.format.bits() > 16) {
    refuse(model.name, " takes ", format.name, ", but factors are cast to formats of at most 16 bits");
  }
  return format;
}

/// Codes of at most 8 bits, or wider ones.
using OperandCodes = std::variant<std::vector<std::uint8_t>, std::vector<std::uint16_t>>;

OperandCodes codes_for(const Format& format, std::size_t size) {
  if (format.bits() <= 8) return std::vector<std::uint8_t>(size);
  return std::vector<std::uint16_t>(size);
}

/// Rows of a gemm's operand, which it takes from more and longer ones.
struct Part {
  OperandCodes codes;
  std::vector<std::uint8_t> scales;
  Format format;
  std::size_t rows, depth;

  [[nodiscard]] Operand operand() const {
    const auto view = [&](const auto& list) {
      return Operand{
          .elements = std::span(list), .format = format, .rows = rows, .depth = depth, .scales = {.codes = scales}};
    };
    return std::visit(view, codes);
  }
};

/// Block scales that are all 1, for the models that have them.
std::vector<std::uint8_t> unit_scales(const MmaModel& model, std::size_t rows, std::size_t depth) {
  if (!model.scales) return {};
  const auto one = static_cast<std::uint8_t>(encode(model.scales->format, CastPolicy{}, 1.0F));
  return std::vector<std::uint8_t>(rows * depth / static_cast<std::size_t>(model.scales->block), one);
}

/// All rows of A (side 0) or of B (side 1): row i is row 2 i + side of the stream.
class FactorRows {
 public:
  /// Precondition: the arguments' K ascend.
  FactorRows(const FactorDraws& draws, const Format& format, unsigned side, const AccumulateArguments& arguments,
             const Progress& progress)
      : format_(format),
        rows_(static_cast<std::size_t>(side == 0 ? arguments.rows : arguments.columns)),
        depth_(static_cast<std::size_t>(arguments.ks.back())),
        codes_(codes_for(format, rows_ * depth_)) {
    constexpr std::size_t block = 16;  // rows between two calls of progress
    for (std::size_t row = 0; row < rows_; row += block) {
      parallel_for(std::min(block, rows_ - row), arguments.threads, [&](std::size_t first, std::size_t last) {
        for (std::size_t i = row + first; i < row + last; ++i) draw_row(draws, arguments.seed, i, 2 * i + side);
      });
      progress(0);
    }
  }

  [[nodiscard]] const Format& format() const { return format_; }
  [[nodiscard]] std::size_t rows() const { return rows_; }

  /// The first `depth` elements of rows [first, first + count).
  [[nodiscard]] Part part(const MmaModel& model, std::size_t first, std::size_t count, std::size_t depth) const {
    Part part{codes_for(format_, 0), unit_scales(model, count, depth), format_, count, depth};
    std::visit(
        [&](const auto& all) {
          std::decay_t<decltype(all)> some;
          some.reserve(count * depth);
          for (std::size_t row = first; row < first + count; ++row) {
            checkpoint();
            const auto from = std::span(all).subspan(row * depth_, depth);
            some.insert(some.end(), from.begin(), from.end());
          }
          part.codes = std::move(some);
        },
        codes_);
    return part;
  }

  /// The values of elements k to k + out.size() of a row.
  void decode_row(std::size_t row, std::size_t k, std::span<float> out) const {
    std::visit([&](const auto& all) { decode(format_, std::span(all).subspan(row * depth_ + k, out.size()), out); },
               codes_);
  }

 private:
  void draw_row(const FactorDraws& draws, std::uint64_t seed, std::size_t row, std::uint64_t row_of_stream) {
    std::vector<float> values(depth_);
    sample(draws.distribution, seed, row_of_stream * most_k, values);
    if (draws.magnitudes) std::ranges::transform(values, values.begin(), [](float x) { return std::abs(x); });
    std::visit([&](auto& all) { encode(format_, CastPolicy{}, values, std::span(all).subspan(row * depth_, depth_)); },
               codes_);
  }

  Format format_;
  std::size_t rows_, depth_;
  OperandCodes codes_;
};

/// The dot products of all pairs of rows and the sums of their products' magnitudes, up to each K.
struct ExactDots {
  std::vector<double> dot, magnitude;
};

/// Adds elements k to k + count of every pair of rows.
void add_piece(const FactorRows& a, const FactorRows& b, std::size_t k, std::size_t count, int threads,
               ExactDots& dots) {
  std::vector<float> right(b.rows() * count);
  for (std::size_t row = 0; row < b.rows(); ++row) b.decode_row(row, k, std::span(right).subspan(row * count, count));
  parallel_for(a.rows(), threads, [&](std::size_t first, std::size_t last) {
    std::vector<float> left(count);
    for (std::size_t row = first; row < last; ++row) {
      checkpoint();
      a.decode_row(row, k, left);
      for (std::size_t column = 0; column < b.rows(); ++column) {
        double dot = 0;
        double magnitude = 0;
        for (std::size_t i = 0; i < count; ++i) {
          const double product = static_cast<double>(left[i]) * static_cast<double>(right[column * count + i]);
          dot += product;
          magnitude += std::abs(product);
        }
        dots.dot[row * b.rows() + column] += dot;
        dots.magnitude[row * b.rows() + column] += magnitude;
      }
    }
  });
}

/// For each K, which ascend.
std::vector<ExactDots> exact_dots(const FactorRows& a, const FactorRows& b, const std::vector<long long>& ks,
                                  int threads, const Progress& progress) {
  std::vector<ExactDots> at_each;
  const std::size_t size = a.rows() * b.rows();
  ExactDots dots{std::vector<double>(size), std::vector<double>(size)};
  std::size_t done = 0;
  for (const long long k : ks) {
    const auto end = static_cast<std::size_t>(k);
    while (done < end) {
      const std::size_t count = std::min(short_sum, end - done);
      add_piece(a, b, done, count, threads, dots);
      done += count;
      progress(0);
    }
    at_each.push_back(dots);
  }
  return at_each;
}

/// The inputs that all curves of a distribution and a pair of formats share.
struct DotInputs {
  /// Precondition: the arguments' K ascend.
  DotInputs(const AccumulateCurve& curve, const AccumulateArguments& arguments, const Progress& progress)
      : draws(curve.draws),
        a(draws, curve.format_a.format, 0, arguments, progress),
        b(draws, curve.format_b.format, 1, arguments, progress),
        exact(exact_dots(a, b, arguments.ks, arguments.threads, progress)) {}

  [[nodiscard]] bool fit(const AccumulateCurve& curve) const {
    return draws.name() == curve.draws.name() && a.format() == curve.format_a.format &&
           b.format() == curve.format_b.format;
  }

  FactorDraws draws;
  FactorRows a, b;
  std::vector<ExactDots> exact;  // for each K
};

/// The dot products of the first K elements as the curve's model computes them. Goes through A and B in squares whose
/// factors, of which gemm() makes records, do not fill the memory.
std::vector<float> computed_dots(const AccumulateCurve& curve, const DotInputs& inputs, std::size_t depth, int threads,
                                 const Progress& progress) {
  constexpr std::size_t most_at_once = 1 << 23;
  const std::size_t side = std::max<std::size_t>(1, most_at_once / depth);
  const std::size_t columns = inputs.b.rows();
  std::vector<float> out(inputs.a.rows() * columns);
  std::vector<float> square;
  for (std::size_t row = 0; row < inputs.a.rows(); row += side) {
    const Part a = inputs.a.part(curve.model, row, std::min(side, inputs.a.rows() - row), depth);
    for (std::size_t column = 0; column < columns; column += side) {
      const Part b = inputs.b.part(curve.model, column, std::min(side, columns - column), depth);
      square.resize(a.rows * b.rows);
      const auto before = static_cast<double>(row * columns + a.rows * column);
      gemm({.model = curve.model, .promote_k = curve.promote_k}, a.operand(), b.operand(), square,
           {.threads = threads, .progress = [&](double share) {
              const double now = before + share * static_cast<double>(square.size());
              progress(now / static_cast<double>(out.size()));
            }});
      for (std::size_t i = 0; i < a.rows; ++i) {
        std::copy_n(&square[i * b.rows], b.rows, &out[(row + i) * columns + column]);
      }
    }
  }
  return out;
}

ErrorSummary summary_of(std::vector<double> errors) {
  std::erase_if(errors, [](double error) { return !std::isfinite(error); });
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  if (errors.empty()) return {0, none, none, none, none};
  const auto n = static_cast<double>(errors.size());
  double sum = 0;
  double squares = 0;
  for (double& error : errors) {
    sum += error;
    squares += error * error;
    error = std::abs(error);
  }
  std::ranges::sort(errors);
  const std::size_t half = errors.size() / 2;
  const double median = errors.size() % 2 == 1 ? errors[half] : (errors[half - 1] + errors[half]) / 2;
  return {errors.size(), sum / n, std::sqrt(squares / n), median, errors.back()};
}

AccumulatePoint measure(long long k, const std::vector<float>& computed, const ExactDots& exact) {
  AccumulatePoint point{k, {}, {}, Histogram(LogBins{1e-12, 1e4, 128})};
  std::vector<double> relative;
  std::vector<double> backward;
  for (std::size_t i = 0; i < computed.size(); ++i) {
    checkpoint(i);
    relative.push_back(relative_error(computed[i], exact.dot[i]));
    point.histogram.add(relative.back());
    const double error = computed[i] - exact.dot[i];
    backward.push_back(error == 0 ? 0 : error / exact.magnitude[i]);
  }
  point.relative_error = summary_of(std::move(relative));
  point.backward_error = summary_of(std::move(backward));
  return point;
}

std::vector<long long> sorted(std::vector<long long> list) {
  std::ranges::sort(list);
  return list;
}

/// Throws what gemm() throws for operands of the curve's shape, without rows.
void ask_gemm(const AccumulateCurve& curve, const std::vector<long long>& ks) {
  for (const long long k : ks) {
    const auto none = [&](const Format& format) {
      return Part{codes_for(format, 0), {}, format, 0, static_cast<std::size_t>(k)};
    };
    const Part a = none(curve.format_a.format);
    const Part b = none(curve.format_b.format);
    gemm({.model = curve.model, .promote_k = curve.promote_k}, a.operand(), b.operand(), std::span<float>());
  }
}

}  // namespace

std::vector<AccumulateCurve> curves_of(const AccumulateArguments& arguments) {
  check(arguments);
  std::vector<AccumulateCurve> curves;
  for (const FactorDraws& draws : arguments.distributions) {
    for (const MmaModel& model : arguments.models) {
      const ChosenFormat a = format_for(model, arguments.format_a);
      const ChosenFormat b = format_for(model, arguments.format_b);
      std::vector<long long> promote_ks = arguments.promote_ks;
      if (model.k() == 0) promote_ks = {0};
      for (const long long promote_k : promote_ks) {
        curves.push_back({draws, model, a, b, static_cast<int>(promote_k), {}});
        if (curves.size() * arguments.ks.size() > most_points) {
          refuse("at most ", most_points, " points can be measured at once");
        }
        ask_gemm(curves.back(), arguments.ks);
      }
    }
  }
  return curves;
}

AccumulateResult run_accumulate(const AccumulateArguments& arguments, const Progress& progress) {
  const DefaultEnvironment environment;
  AccumulateResult result{arguments, curves_of(arguments)};
  result.arguments.ks = sorted(arguments.ks);
  const std::vector<long long>& ks = result.arguments.ks;
  double work = 0;
  for (const long long k : ks) work += static_cast<double>(k);
  work *= static_cast<double>(result.curves.size());
  double done = 0;
  const Progress more = [&](double part) {
    if (progress) progress((done + part) / work);
  };
  std::unique_ptr<DotInputs> inputs;
  for (AccumulateCurve& curve : result.curves) {
    if (!inputs || !inputs->fit(curve)) {
      inputs.reset();  // first, so that there are never two in memory
      inputs = std::make_unique<DotInputs>(curve, result.arguments, more);
    }
    for (std::size_t i = 0; i < ks.size(); ++i) {
      const auto k = static_cast<double>(ks[i]);
      const std::vector<float> computed = computed_dots(curve, *inputs, static_cast<std::size_t>(ks[i]),
                                                        arguments.threads, [&](double share) { more(share * k); });
      done += k;
      curve.points.push_back(measure(ks[i], computed, inputs->exact[i]));
    }
  }
  return result;
}

}  // namespace fp8lab::experiments
