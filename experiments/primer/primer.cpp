// SPDX-License-Identifier: Apache-2.0
#include "primer/primer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/measure/random.hpp"
#include "fp8lab/reference/scaling/representable.hpp"
#include "primer/published.hpp"

namespace fp8lab::experiments {
namespace {

constexpr float weight_deviation = 0.023F;  // Transformer Engine's default initialisation of Linear
constexpr CastPolicy hardware_cast{};       // the default policy is cuda_satfinite

void check_size(const char* name, long long size) {
  if (size < 16 || size > 65536 || size % 16 != 0) {
    throw std::invalid_argument(std::string(name) +
                                " must be a multiple of 16 from 16 to 65536 (cuBLASLt's FP8 GEMMs " +
                                "need 16-byte aligned operands in all three passes), not " + std::to_string(size));
  }
}

void check_product(const char* names, long long a, long long b) {
  if (a * b > (1LL << 26)) {
    throw std::invalid_argument(std::string(names) + " must be at most 2^26 elements, not " + std::to_string(a * b));
  }
}

void check(const PrimerArguments& arguments) {
  check_size("in_features", arguments.in_features);
  check_size("out_features", arguments.out_features);
  check_size("rows", arguments.rows);
  check_product("rows * in_features", arguments.rows, arguments.in_features);
  check_product("out_features * in_features", arguments.out_features, arguments.in_features);
  check_product("rows * out_features", arguments.rows, arguments.out_features);
  const auto [x, w] = std::pair{arguments.scale_x, arguments.scale_w};
  if (!(x > 0) || !(w > 0) || !std::isnormal(1 / x) || !std::isnormal(1 / w) || !std::isnormal((1 / x) * (1 / w))) {
    TextStream reason;
    reason << "scale_x and scale_w must be positive, and 1 / scale_x * 1 / scale_w a normal float32, not " << x
           << " and " << w;
    throw std::invalid_argument(reason.str());
  }
  (void)find_primer_model(arguments.mma.name);
  if (arguments.sms < 1) throw std::invalid_argument("sms must be at least 1, not " + std::to_string(arguments.sms));
}

bool as_published(const PrimerArguments& arguments) {
  const PrimerArguments published;
  return arguments.seed == published.seed && arguments.sms == published.sms &&
         arguments.mma.name == published.mma.name && arguments.mma.fraction_bits == published.mma.fraction_bits &&
         arguments.rows == published.rows && arguments.in_features == published.in_features &&
         arguments.out_features == published.out_features && arguments.scale_x == published.scale_x &&
         arguments.scale_w == published.scale_w;
}

/// Inputs, and the five outputs that the tables and the causes need.
struct Tensors {
  std::vector<float> x, w, x_representable, w_representable;
  std::vector<std::uint8_t> x_codes, w_codes;
  std::vector<float> out_fp8, out_fp32, out_fp8_representable;
  std::vector<float> real, real_x_cast, real_both_cast;  ///< exact products of: x w; cast x, w; cast x, cast w
};

std::vector<std::uint8_t> quantize(std::span<const float> x, float scale) {
  std::vector<float> scaled(x.begin(), x.end());
  for (float& value : scaled) value *= scale;
  std::vector<std::uint8_t> codes(x.size());
  encode(e4m3, hardware_cast, std::span<const float>(scaled), codes);
  return codes;
}

std::vector<float> representable(std::span<const float> x, float scale) {
  std::vector<float> result(x.size());
  cast_to_representable(e4m3, hardware_cast, x, scale, std::span<float>(result));
  return result;
}

Tensors compute(const PrimerArguments& arguments, const Progress& progress) {
  const auto rows = static_cast<std::size_t>(arguments.rows);
  const auto depth = static_cast<std::size_t>(arguments.in_features);
  const auto columns = static_cast<std::size_t>(arguments.out_features);
  Tensors t;
  // 1. Inputs, as PyTorch draws them: the input on the CPU, the weight on the device.
  t.x.resize(rows * depth);
  t.w.resize(columns * depth);
  torch_cpu_uniform(arguments.seed, t.x);
  torch_cuda_normal(arguments.seed, 0, {.multiprocessors = arguments.sms}, 0, weight_deviation, t.w);
  // 2. Casts.
  t.x_codes = quantize(t.x, arguments.scale_x);
  t.w_codes = quantize(t.w, arguments.scale_w);
  t.x_representable = representable(t.x, arguments.scale_x);
  t.w_representable = representable(t.w, arguments.scale_w);
  // 3. Products. The bias is zero.
  int done = 0;
  const auto multiply = [&](const MmaModel& model, const Operand& a, const Operand& b, GemmOptions options) {
    constexpr int products = 6;
    options.threads = arguments.threads;
    options.progress = [&](double share) {
      if (progress) progress((done + share) / products);
    };
    std::vector<float> out(rows * columns);
    gemm(model, a, b, out, options);
    ++done;
    return out;
  };
  const auto x_side = [&](const std::vector<float>& x) { return Operand::floats(x, rows, depth); };
  const auto w_side = [&](const std::vector<float>& w) { return Operand::floats(w, columns, depth); };
  Operand x_codes = Operand::codes(t.x_codes, e4m3, rows, depth);
  Operand w_codes = Operand::codes(t.w_codes, e4m3, columns, depth);
  x_codes.tensor_scale = {1 / arguments.scale_x};
  w_codes.tensor_scale = {1 / arguments.scale_w};
  t.out_fp8 = multiply(arguments.mma, x_codes, w_codes, {});
  t.out_fp32 = multiply(hopper_tf32, x_side(t.x), w_side(t.w), {});
  t.out_fp8_representable = multiply(hopper_tf32, x_side(t.x_representable), w_side(t.w_representable), {});
  t.real = multiply(exact, x_side(t.x), w_side(t.w), {});
  t.real_x_cast = multiply(exact, x_side(t.x_representable), w_side(t.w), {});
  t.real_both_cast = multiply(exact, x_side(t.x_representable), w_side(t.w_representable), {});
  return t;
}

Corner corner_of(std::span<const float> matrix, std::size_t rows, std::size_t columns, char notation) {
  const auto index = [](std::size_t i, std::size_t size) { return i < 3 ? i : size - 6 + i; };
  Corner corner;
  for (std::size_t i = 0; i < 6; ++i) {
    for (std::size_t j = 0; j < 6; ++j) {
      const double value = matrix[index(i, rows) * columns + index(j, columns)];
      corner[i][j] = notation == 'f' ? fmt::format("{:.4f}", value) : fmt::format("{:.4e}", value);
    }
  }
  return corner;
}

std::vector<PrimerTable> tables_of(const Tensors& t, std::size_t rows, std::size_t columns) {
  std::vector<float> difference(t.out_fp8.size());
  for (std::size_t i = 0; i < difference.size(); ++i) difference[i] = t.out_fp8[i] - t.out_fp8_representable[i];
  const auto corner = [&](std::span<const float> matrix, char notation) {
    return corner_of(matrix, rows, columns, notation);
  };
  std::vector<PrimerTable> tables{
      {"out_fp8", "FP8: E4M3 inputs, tensor-core accumulator", corner(t.out_fp8, 'f'), published::out_fp8, 0, 36},
      {"out_fp32", "\"FP32\" as the device runs it: TF32", corner(t.out_fp32, 'f'), published::out_fp32, 0, 35},
      {"out_fp8_representable", "the same with inputs that E4M3 can represent", corner(t.out_fp8_representable, 'f'),
       published::out_fp8_representable, 0, 36},
      {"difference", "out_fp8 - out_fp8_representable", corner(difference, 'e'), published::difference, 0, 36},
  };
  for (PrimerTable& table : tables) {
    for (std::size_t i = 0; i < 6; ++i) {
      for (std::size_t j = 0; j < 6; ++j) table.matches += table.ours[i][j] == table.published[i][j] ? 1 : 0;
    }
  }
  return tables;
}

/// The causes telescope: cast_of_x + cast_of_w + accumulator + tf32 = out_fp8 - out_fp32.
struct CauseSpec {
  const char* name;
  const char* meaning;
  std::span<const float> with, without;
};

void add_causes(const Tensors& t, PrimerResult& result) {
  const std::vector<CauseSpec> causes{
      {"cast_of_x", "rounding the input to E4M3", t.real_x_cast, t.real},
      {"cast_of_w", "rounding the weight to E4M3", t.real_both_cast, t.real_x_cast},
      {"accumulator", "the tensor core's narrow sums", t.out_fp8, t.real_both_cast},
      {"tf32", "TF32's own error in out_fp32", t.real, t.out_fp32},
      {"total", "out_fp8 - out_fp32", t.out_fp8, t.out_fp32},
  };
  double total_squares = 0;
  for (std::size_t i = 0; i < t.out_fp8.size(); ++i) {
    checkpoint(i);
    total_squares += std::pow(absolute_error(t.out_fp8[i], t.out_fp32[i]), 2);
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
      projection += error * absolute_error(t.out_fp8[i], t.out_fp32[i]);
    }
    entry.share = total_squares == 0 ? 0 : projection / total_squares;
    result.causes.push_back(entry);
    result.histograms.push_back(
        {std::string("error_") + cause.name, std::string("|error| from ") + cause.meaning + ", by binade", histogram});
  }
}

void add_histograms(const Tensors& t, PrimerResult& result) {
  Histogram relative(LogBins{1e-8, 1e4, 48});
  Histogram difference(LinearBins{-0.2, 0.2, 80});
  Histogram ulps(LogBins{1e-1, 1e7, 64});
  for (std::size_t i = 0; i < t.out_fp8.size(); ++i) {
    checkpoint(i);
    relative.add(relative_error(t.out_fp8[i], t.out_fp32[i]));
    difference.add(absolute_error(t.out_fp8[i], t.out_fp32[i]));
    ulps.add(ulp_error(t.out_fp8[i], t.real_both_cast[i]));
  }
  result.histograms.push_back({"relative_error", "|out_fp8 - out_fp32| / |out_fp32|", relative});
  result.histograms.push_back({"difference_linear", "out_fp8 - out_fp32, signed", difference});
  result.histograms.push_back({"accumulator_ulp", "the accumulator's error in float32 ulps", ulps});
  const auto add_codes = [&](const char* name, const char* title, std::span<const float> values, float scale) {
    Histogram codes(CodeBins{e4m3, hardware_cast});
    for (std::size_t i = 0; i < values.size(); ++i) {
      checkpoint(i);
      codes.add(values[i] * scale, cast_outcome(e4m3, hardware_cast.rounding, values[i] * scale));
    }
    result.histograms.push_back({name, title, codes});
  };
  add_codes("codes_x", "E4M3 codes of x", t.x, result.arguments.scale_x);
  add_codes("codes_w", "E4M3 codes of w", t.w, result.arguments.scale_w);
}

std::vector<MmaModel> primer_models() {
  std::vector<MmaModel> takers;
  std::ranges::copy_if(models, std::back_inserter(takers), [](const MmaModel& model) {
    const bool takes_e4m3 = std::ranges::find(model.operands, e4m3) != model.operands.end();
    return takes_e4m3 && !model.scales && model.accumulator() == binary32;
  });
  return takers;
}

}  // namespace

std::string primer_model_names() {
  std::string names;
  for (const MmaModel& model : primer_models()) names += (names.empty() ? "" : ", ") + std::string(model.name);
  return names;
}

const MmaModel& find_primer_model(std::string_view name) {
  static const std::vector<MmaModel> takers = primer_models();
  return find_named(takers, "model for the FP8 product", name);
}

PrimerResult run_primer(const PrimerArguments& arguments, const Progress& progress) {
  const DefaultEnvironment environment;
  check(arguments);
  const Tensors tensors = compute(arguments, progress);
  PrimerResult result{arguments, {}, {}, {}, as_published(arguments), true};
  result.tables =
      tables_of(tensors, static_cast<std::size_t>(arguments.rows), static_cast<std::size_t>(arguments.out_features));
  for (const PrimerTable& table : result.tables) result.passed = result.passed && table.matches >= table.required;
  add_causes(tensors, result);
  add_histograms(tensors, result);
  return result;
}

}  // namespace fp8lab::experiments
