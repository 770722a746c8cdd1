// SPDX-License-Identifier: Apache-2.0
// Registers the experiments `accumulate` and `harmonic`: how the error of a tensor core's sums grows with K.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "accumulate/accumulate.hpp"
#include "accumulate/harmonic.hpp"
#include "fp8lab/formats/environment.hpp"
#include "kit/experiment.hpp"

namespace fp8lab::experiments {
namespace {

/// A measure of a point, and its name in the table of points.
struct NamedMeasure {
  const char* name;
  double ErrorSummary::* value;
};
constexpr std::array measures{NamedMeasure{"mean", &ErrorSummary::mean}, NamedMeasure{"rms", &ErrorSummary::rms},
                              NamedMeasure{"median", &ErrorSummary::median},
                              NamedMeasure{"largest", &ErrorSummary::largest}};

struct NamedSummary {
  const char* name;
  ErrorSummary AccumulatePoint::* summary;
};
constexpr std::array summaries{NamedSummary{"relative_error", &AccumulatePoint::relative_error},
                               NamedSummary{"backward_error", &AccumulatePoint::backward_error}};

/// The curves of one distribution.
using CurveGroup = std::vector<const AccumulateCurve*>;

std::vector<CurveGroup> by_distribution(const AccumulateResult& result) {
  std::vector<CurveGroup> groups;
  for (const AccumulateCurve& curve : result.curves) {
    if (groups.empty() || groups.back().front()->draws.name() != curve.draws.name()) groups.emplace_back();
    groups.back().push_back(&curve);
  }
  return groups;
}

std::string label_of(const AccumulateCurve& curve) {
  std::string label(curve.model.name);
  const std::string& a = curve.format_a.name;
  const std::string& b = curve.format_b.name;
  if (curve.format_a.format != e4m3 || curve.format_b.format != e4m3) label += ", " + (a == b ? a : a + " x " + b);
  if (curve.promote_k != 0) label += fmt::format(", promote {}", curve.promote_k);
  return label;
}

/// A row for each curve, a column for each K.
Table errors_table(const CurveGroup& curves, const std::string& title, const NamedSummary& summary,
                   const NamedMeasure& measure) {
  auto table =
      tabulate(curves, {.name = fmt::format("{}_{}_{}", curves.front()->draws.name(), summary.name, measure.name),
                        .title = title,
                        .marked = true});
  table.column({"model"}, [](const AccumulateCurve* curve) { return label_of(*curve); });
  for (std::size_t i = 0; i < curves.front()->points.size(); ++i) {
    const long long k = curves.front()->points[i].k;
    table.column({.name = fmt::format("k_{}", k),
                  .title = fmt::format("K={}", k),
                  .notation = Notation::scientific,
                  .digits = 1},
                 [&](const AccumulateCurve* curve) { return curve->points[i].*summary.summary.*measure.value; });
  }
  return table;
}

Curves curves_of_errors(const CurveGroup& group) {
  Curves section{.name = group.front()->draws.name() + "_errors",
                 .title = "Largest |error| / sum |products| against K; zeros are left out",
                 .x = {"k"},
                 .y = {"backward_error_largest"},
                 .labelled = true};
  for (const AccumulateCurve* curve : group) {
    Curve& line = section.lines.emplace_back(Curve{label_of(*curve)});
    for (const AccumulatePoint& point : curve->points) {
      line.x.push_back(static_cast<double>(point.k));
      line.y.push_back(point.backward_error.largest);
    }
  }
  return section;
}

/// A sentence about what the errors leave out, if anything.
std::vector<std::string> left_out(const CurveGroup& curves, std::uint64_t dots) {
  std::uint64_t count = 0;
  std::uint64_t all = 0;
  for (const AccumulateCurve* curve : curves) {
    for (const AccumulatePoint& point : curve->points) {
      all += dots;
      count += dots - point.relative_error.count;
    }
  }
  if (count == 0) return {};
  return {fmt::format("{} of {} dot products have no finite relative error and are left out", count, all)};
}

void add_distribution(const CurveGroup& curves, std::uint64_t dots, std::vector<Section>& sections) {
  const FactorDraws& draws = curves.front()->draws;
  std::string description(draws.distribution.description);
  if (draws.magnitudes) description = "magnitudes of " + description.substr(0, description.find(':'));
  Text& text = std::get<Text>(sections.emplace_back(Text{draws.name(), "", {draws.name() + ": " + description}}));
  for (std::string& sentence : left_out(curves, dots)) text.paragraphs.push_back(std::move(sentence));
  const auto [mean, rms, median, largest] = measures;
  const auto [relative, backward] = summaries;
  if (draws.has_one_sign()) {
    sections.emplace_back(errors_table(curves, "Largest |relative error|", relative, largest));
    sections.emplace_back(errors_table(curves, "Mean relative error, the bias", relative, mean));
  } else {
    sections.emplace_back(errors_table(curves, "Median |relative error|", relative, median));
    sections.emplace_back(errors_table(curves, "Largest |error| / sum |products|", backward, largest));
    sections.emplace_back(errors_table(curves, "Mean error / sum |products|, the bias", backward, mean));
  }
  sections.emplace_back(curves_of_errors(curves));
}

/// A point with its curve and the curve's number.
struct PointOfCurve {
  std::size_t number;
  const AccumulateCurve& curve;
  const AccumulatePoint& point;
};

std::vector<PointOfCurve> points_of(const AccumulateResult& result) {
  std::vector<PointOfCurve> points;
  for (const AccumulateCurve& curve : result.curves) {
    const auto number = static_cast<std::size_t>(&curve - result.curves.data()) + 1;
    for (const AccumulatePoint& point : curve.points) points.push_back({number, curve, point});
  }
  return points;
}

Table points_table(const std::vector<PointOfCurve>& points) {
  auto table = tabulate(points, {.name = "points", .detail = true});
  table.column({"curve"}, [](const PointOfCurve& one) { return one.number; })
      .column({"distribution"}, [](const PointOfCurve& one) { return one.curve.draws.name(); })
      .column({"model"}, [](const PointOfCurve& one) { return one.curve.model.name; })
      .column({"format_a"}, [](const PointOfCurve& one) { return one.curve.format_a.name; })
      .column({"format_b"}, [](const PointOfCurve& one) { return one.curve.format_b.name; })
      .column({"promote_k"}, [](const PointOfCurve& one) { return one.curve.promote_k; })
      .column({"k"}, [](const PointOfCurve& one) { return one.point.k; });
  for (const NamedSummary& summary : summaries) {
    table.column({fmt::format("{}_count", summary.name)},
                 [&](const PointOfCurve& one) { return (one.point.*summary.summary).count; });
    for (const NamedMeasure& measure : measures) {
      table.column({fmt::format("{}_{}", summary.name, measure.name)},
                   [&](const PointOfCurve& one) { return one.point.*summary.summary.*measure.value; });
    }
  }
  return table;
}

Histograms histograms_of(const std::vector<PointOfCurve>& points) {
  Histograms section{.name = "relative_errors", .title = "|relative error| of each point", .detail = true};
  for (const auto& [number, curve, point] : points) {
    const std::string promoted = curve.promote_k != 0 ? fmt::format("_promoted{}", curve.promote_k) : "";
    section.histograms.push_back(counts_of(point.histogram,
                                           fmt::format("{:02}_{}_{}{}_k{}", section.histograms.size() + 1,
                                                       curve.draws.name(), curve.model.name, promoted, point.k),
                                           "|relative error|"));
  }
  return section;
}

void describe(AccumulateArguments& arguments, ArgumentList& list) {
  list.add("models", arguments.models, "tensor cores with operands of at most 16 bits (fp8lab models lists them)");
  list.add_named(
      "distributions", arguments.distributions,
      "distributions of the operands (fp8lab distributions lists them); abs_NAME takes the magnitudes: abs_uniform is "
      "U(0, 1)",
      choose_factor_draws, [](const FactorDraws& draws) { return draws.name(); });
  list.add("k", arguments.ks,
           "lengths of the dot products, 1 to 2^20; a longer one begins with the elements of a shorter one");
  list.add(
      "promote_k", arguments.promote_ks,
      "after so many elements of K, add the sum to a float32 sum and begin a new one; 0: never. `exact` is measured "
      "without promotion only");
  for (const auto& [name, format] :
       {std::pair{"format_a", &arguments.format_a}, std::pair{"format_b", &arguments.format_b}}) {
    list.add(name, *format, "the format that this operand is cast to, with profile cuda_satfinite")
        .by_default("e4m3, or the format that the model takes");
  }
  list.add("rows", arguments.rows, "rows of A, 1 to 4096; each makes a dot product with each row of B");
  list.add("columns", arguments.columns, "rows of B, 1 to 4096");
  list.add("seed", arguments.seed, "the seed of the draws");
  list.add_threads(arguments.threads);
}

void describe(HarmonicArguments& arguments, ArgumentList& list) {
  list.add("formats", arguments.formats,
           "formats to sum in: with a sign, at most 16 bits and a largest value of at least 2");
}

Document run(const AccumulateArguments& arguments, const Context& context) {
  return document_of(run_accumulate(arguments, context.progress));
}
Document run(const HarmonicArguments& arguments, const Context& context) {
  return document_of(run_harmonic(arguments, context.progress));
}

Experiment accumulate_experiment() {
  return experiment<AccumulateArguments>(
      {.name = "accumulate",
       .summary = "Measure how the error of a tensor core's dot products grows with K",
       .description =
           "Every combination of distribution, model, promotion and K is measured on rows * columns dot products, "
           "which are those of one matrix product: each row takes part in several. Errors are the differences from "
           "the exact dot product of the cast operands, so that they come from the accumulator alone. Block scales "
           "are 1.",
       .result = "table `points` with a row for each curve and K, the tables and curves of each distribution's errors "
                 "against K, and a histogram of the relative error's magnitude for each point",
       .examples = {{"accumulate", "Hopper and Blackwell on U(0, 1) and N(0, 1)"},
                    {"accumulate --promote-k 0,32,128,512", "how often to promote"},
                    {"accumulate --models hopper_fp16,hopper_bf16,exact",
                     "the 16-bit paths, and float32's own rounding"},
                    {"accumulate --k 1024,1048576 --distributions abs_normal", ""}},
       .small = R"({"models": ["hopper_wgmma_fp8", "exact"], "k": [32, 100], "rows": 4, "columns": 4})"},
      describe, run);
}

Experiment harmonic_experiment() {
  return experiment<HarmonicArguments>(
      {.name = "harmonic",
       .summary = "Find where 1 + 1/2 + 1/3 + ... stops growing, summed in small formats",
       .description = "Every quotient and every sum is rounded to nearest even in the format itself.",
       .result = "table `sums`: for each format the sum, and the first term that it does not grow by",
       .examples = {{"harmonic", "half, bfloat16, E4M3 and E5M2"}}},
      describe, run);
}

}  // namespace

Document document_of(const AccumulateResult& result) {
  const DefaultEnvironment environment;
  const AccumulateArguments& arguments = result.arguments;
  const auto dots = static_cast<std::uint64_t>(arguments.rows * arguments.columns);
  Document document;
  document.sections.emplace_back(Text{
      "intro",
      "",
      {fmt::format("The accumulator's error: {} x {} dot products of drawn rows, seed {}", arguments.rows,
                   arguments.columns, arguments.seed),
       "Operands are cast to E4M3 unless a line says otherwise. Errors are against the exact dot products of the cast "
       "operands."}});
  document.sections.emplace_back(
      Table(tabulate(std::array{dots}, {.name = "summary", .detail = true}).column({"dots"}, [](std::uint64_t count) {
        return count;
      })));
  for (const CurveGroup& curves : by_distribution(result)) add_distribution(curves, dots, document.sections);
  const std::vector<PointOfCurve> points = points_of(result);
  document.sections.emplace_back(points_table(points));
  document.sections.emplace_back(histograms_of(points));
  document.sections.emplace_back(Text{
      "reading",
      "How to read it",
      {"A tensor core cuts every term to a few bits below the largest: where the sum is large, small products "
       "vanish, and all errors go toward zero. Without promotion that grows with K. Promote n: after n "
       "elements the sum is added to a float32 sum, and a new one begins. The bias is the mean of signed errors: it is "
       "large where all products have one sign, and small elsewhere."}});
  return document;
}

Document document_of(const HarmonicResult& result) {
  const DefaultEnvironment environment;
  Table sums =
      tabulate(result.sums, {.name = "sums"})
          .column({"format"}, [](const HarmonicSum& sum) { return sum.format.name; })
          .column({.name = "sum", .title = "stops at", .digits = 10}, [](const HarmonicSum& sum) { return sum.sum; })
          .column({"terms", "after terms"}, [](const HarmonicSum& sum) { return sum.terms; });
  return {
      .sections = sections_of(
          Text{"intro", "", {"The harmonic series 1 + 1/2 + 1/3 + ..., rounded to nearest even after every operation"}},
          std::move(sums),
          Text{"reading",
               "",
               {"The sum grows without bound. Rounded, it stops at the first term that is too small to move it: why "
                "products of small formats are not summed in small formats."}})};
}

std::vector<Experiment> accumulate_experiments() { return {accumulate_experiment(), harmonic_experiment()}; }

}  // namespace fp8lab::experiments
