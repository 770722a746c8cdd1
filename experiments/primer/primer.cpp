// SPDX-License-Identifier: Apache-2.0
#include "primer/primer.hpp"

#include <cmath>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"

namespace fp8lab::experiments {
namespace {

/// The products that the tables and the causes compare.
struct Outputs {
  std::vector<float> out_fp8, out_fp32, out_fp8_representable;
  std::vector<float> real, real_x_cast, real_both_cast;  ///< exact products of: x w; cast x, w; cast x, cast w
};

/// Multiplies one after the other, and tells which share of all is done. The bias is zero.
class Products {
 public:
  Products(const PrimerArguments& arguments, const Progress& progress) : arguments_(arguments), progress_(progress) {}

  [[nodiscard]] Operand x_side(const std::vector<float>& x) const { return Operand::floats(x, rows(), depth()); }
  [[nodiscard]] Operand w_side(const std::vector<float>& w) const { return Operand::floats(w, columns(), depth()); }
  [[nodiscard]] std::vector<float> multiply(const MmaModel& model, const Operand& a, const Operand& b) {
    GemmCall call{.threads = arguments_.threads};
    call.progress = [&](double share) { report(share); };
    std::vector<float> out(rows() * columns());
    gemm({.model = model}, a, b, out, call);
    ++done_;
    return out;
  }
  /// The product of the FP8 codes, by the model of the arguments.
  [[nodiscard]] std::vector<float> multiply_codes(const PrimerTensors& t) {
    std::vector<float> out = primer_fp8_product(arguments_, t, [&](double share) { report(share); });
    ++done_;
    return out;
  }

 private:
  void report(double share) const {
    constexpr int products = 6;
    if (progress_) progress_((done_ + share) / products);
  }
  [[nodiscard]] std::size_t rows() const { return static_cast<std::size_t>(arguments_.rows); }
  [[nodiscard]] std::size_t columns() const { return static_cast<std::size_t>(arguments_.out_features); }
  [[nodiscard]] std::size_t depth() const { return static_cast<std::size_t>(arguments_.in_features); }

  const PrimerArguments& arguments_;
  const Progress& progress_;
  int done_ = 0;
};

Outputs outputs_of(const PrimerArguments& arguments, const PrimerTensors& t, const Progress& progress) {
  Products p(arguments, progress);
  Outputs o;
  o.out_fp8 = p.multiply_codes(t);
  o.out_fp32 = p.multiply(hopper_tf32, p.x_side(t.x), p.w_side(t.w));
  o.out_fp8_representable = p.multiply(hopper_tf32, p.x_side(t.x_representable), p.w_side(t.w_representable));
  o.real = p.multiply(exact, p.x_side(t.x), p.w_side(t.w));
  o.real_x_cast = p.multiply(exact, p.x_side(t.x_representable), p.w_side(t.w));
  o.real_both_cast = p.multiply(exact, p.x_side(t.x_representable), p.w_side(t.w_representable));
  return o;
}

/// The causes telescope: cast_of_x + cast_of_w + accumulator + tf32 = out_fp8 - out_fp32.
struct CauseSpec {
  const char* name;
  const char* meaning;
  std::span<const float> with, without;
};

void add_causes(const Outputs& o, PrimerResult& result) {
  const std::vector<CauseSpec> causes{
      {"cast_of_x", "rounding the input to E4M3", o.real_x_cast, o.real},
      {"cast_of_w", "rounding the weight to E4M3", o.real_both_cast, o.real_x_cast},
      {"accumulator", "the tensor core's narrow sums", o.out_fp8, o.real_both_cast},
      {"tf32", "TF32's own error in out_fp32", o.real, o.out_fp32},
      {"total", "out_fp8 - out_fp32", o.out_fp8, o.out_fp32},
  };
  double total_squares = 0;
  for (std::size_t i = 0; i < o.out_fp8.size(); ++i) {
    checkpoint(i);
    total_squares += std::pow(absolute_error(o.out_fp8[i], o.out_fp32[i]), 2);
  }
  for (const CauseSpec& cause : causes) {
    PrimerCause entry{cause.name, cause.meaning, {}, 0};
    Histogram histogram(BinadeBins{-40, 8});
    double projection = 0;
    for (std::size_t i = 0; i < cause.with.size(); ++i) {
      checkpoint(i);
      const double error = absolute_error(cause.with[i], cause.without[i]);
      entry.totals.add(cause.with[i], cause.without[i]);
      histogram.add(error);
      projection += error * absolute_error(o.out_fp8[i], o.out_fp32[i]);
    }
    entry.share = total_squares == 0 ? 0 : projection / total_squares;
    result.causes.push_back(entry);
    result.histograms.push_back(
        {std::string("error_") + cause.name, std::string("|error| from ") + cause.meaning + ", by binade", histogram});
  }
}

void add_histograms(const PrimerTensors& t, const Outputs& o, PrimerResult& result) {
  Histogram relative(LogBins{1e-8, 1e4, 48});
  Histogram difference(LinearBins{-0.2, 0.2, 80});
  Histogram ulps(LogBins{1e-1, 1e7, 64});
  for (std::size_t i = 0; i < o.out_fp8.size(); ++i) {
    checkpoint(i);
    relative.add(relative_error(o.out_fp8[i], o.out_fp32[i]));
    difference.add(absolute_error(o.out_fp8[i], o.out_fp32[i]));
    ulps.add(ulp_error(o.out_fp8[i], o.real_both_cast[i]));
  }
  result.histograms.push_back({"relative_error", "|out_fp8 - out_fp32| / |out_fp32|", relative});
  result.histograms.push_back({"difference_linear", "out_fp8 - out_fp32, signed", difference});
  result.histograms.push_back({"accumulator_ulp", "the accumulator's error in float32 ulps", ulps});
  const auto add_codes = [&](const char* name, const char* title, std::span<const float> values, float scale) {
    Histogram codes(CodeBins{e4m3, primer_cast});
    for (std::size_t i = 0; i < values.size(); ++i) {
      checkpoint(i);
      codes.add(values[i] * scale, cast_outcome(e4m3, primer_cast.rounding, values[i] * scale));
    }
    result.histograms.push_back({name, title, codes});
  };
  add_codes("codes_x", "E4M3 codes of x", t.x, result.arguments.scale_x);
  add_codes("codes_w", "E4M3 codes of w", t.w, result.arguments.scale_w);
}

}  // namespace

PrimerResult run_primer(const PrimerArguments& arguments, const Progress& progress) {
  const DefaultEnvironment environment;
  check_primer(arguments);
  const PrimerTensors tensors = primer_casts(arguments);
  const Outputs outputs = outputs_of(arguments, tensors, progress);
  PrimerResult result{arguments, {}, {}, {}, is_published_primer(arguments), true};
  const auto corner = [&](const std::vector<float>& out) {
    return corner_values(out, static_cast<std::size_t>(arguments.rows),
                         static_cast<std::size_t>(arguments.out_features));
  };
  result.tables =
      primer_tables(corner(outputs.out_fp8), corner(outputs.out_fp32), corner(outputs.out_fp8_representable));
  for (const PrimerTable& table : result.tables) result.passed = result.passed && table.matches >= table.required;
  add_causes(outputs, result);
  add_histograms(tensors, outputs, result);
  return result;
}

}  // namespace fp8lab::experiments
