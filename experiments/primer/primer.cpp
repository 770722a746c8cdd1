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

/// What the tables and the causes need.
struct Outputs {
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

/// Multiplies one after the other, and tells which share of all is done. The bias is zero.
class Products {
 public:
  Products(const PrimerArguments& arguments, const Progress& progress) : arguments_(arguments), progress_(progress) {}

  [[nodiscard]] Operand x_side(const std::vector<float>& x) const { return Operand::floats(x, rows(), depth()); }
  [[nodiscard]] Operand w_side(const std::vector<float>& w) const { return Operand::floats(w, columns(), depth()); }
  [[nodiscard]] Operand x_side(const std::vector<std::uint8_t>& codes) const {
    return of_codes(codes, rows(), arguments_.scale_x);
  }
  [[nodiscard]] Operand w_side(const std::vector<std::uint8_t>& codes) const {
    return of_codes(codes, columns(), arguments_.scale_w);
  }
  [[nodiscard]] std::vector<float> multiply(const MmaModel& model, const Operand& a, const Operand& b) {
    constexpr int products = 6;
    GemmCall call{.threads = arguments_.threads};
    call.progress = [&](double share) {
      if (progress_) progress_((done_ + share) / products);
    };
    std::vector<float> out(rows() * columns());
    gemm({.model = model}, a, b, out, call);
    ++done_;
    return out;
  }

 private:
  [[nodiscard]] std::size_t rows() const { return static_cast<std::size_t>(arguments_.rows); }
  [[nodiscard]] std::size_t columns() const { return static_cast<std::size_t>(arguments_.out_features); }
  [[nodiscard]] std::size_t depth() const { return static_cast<std::size_t>(arguments_.in_features); }
  [[nodiscard]] Operand of_codes(const std::vector<std::uint8_t>& codes, std::size_t count, float scale) const {
    Operand operand = Operand::codes(codes, e4m3, count, depth());
    operand.tensor_scale = {1 / scale};
    return operand;
  }

  const PrimerArguments& arguments_;
  const Progress& progress_;
  int done_ = 0;
};

Outputs outputs_of(const PrimerArguments& arguments, const PrimerTensors& t, const Progress& progress) {
  Products p(arguments, progress);
  Outputs o;
  o.out_fp8 = p.multiply(arguments.mma, p.x_side(t.x_codes), p.w_side(t.w_codes));
  o.out_fp32 = p.multiply(hopper_tf32, p.x_side(t.x), p.w_side(t.w));
  o.out_fp8_representable = p.multiply(hopper_tf32, p.x_side(t.x_representable), p.w_side(t.w_representable));
  o.real = p.multiply(exact, p.x_side(t.x), p.w_side(t.w));
  o.real_x_cast = p.multiply(exact, p.x_side(t.x_representable), p.w_side(t.w));
  o.real_both_cast = p.multiply(exact, p.x_side(t.x_representable), p.w_side(t.w_representable));
  return o;
}

Corner corner_of(const CornerValues& values, char notation) {
  Corner corner;
  for (std::size_t i = 0; i < 6; ++i) {
    for (std::size_t j = 0; j < 6; ++j) {
      const double value = values[i][j];
      corner[i][j] = notation == 'f' ? fmt::format("{:.4f}", value) : fmt::format("{:.4e}", value);
    }
  }
  return corner;
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

void check_primer(const PrimerArguments& arguments) {
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

PrimerTensors primer_inputs(const PrimerArguments& arguments) {
  const DefaultEnvironment environment;
  // The input as PyTorch draws it on the CPU, the weight on the device.
  const auto elements = [](long long rows, long long columns) { return static_cast<std::size_t>(rows * columns); };
  PrimerTensors t;
  t.x.resize(elements(arguments.rows, arguments.in_features));
  t.w.resize(elements(arguments.out_features, arguments.in_features));
  torch_cpu_uniform(arguments.seed, t.x);
  torch_cuda_normal(arguments.seed, 0, {.multiprocessors = arguments.sms}, 0, weight_deviation, t.w);
  return t;
}

bool is_published_primer(const PrimerArguments& arguments) {
  const PrimerArguments published;
  return arguments.seed == published.seed && arguments.sms == published.sms &&
         arguments.mma.name == published.mma.name && arguments.mma.fraction_bits == published.mma.fraction_bits &&
         arguments.rows == published.rows && arguments.in_features == published.in_features &&
         arguments.out_features == published.out_features && arguments.scale_x == published.scale_x &&
         arguments.scale_w == published.scale_w;
}

PrimerTensors primer_casts(const PrimerArguments& arguments) {
  const DefaultEnvironment environment;
  PrimerTensors t = primer_inputs(arguments);
  t.x_codes = quantize(t.x, arguments.scale_x);
  t.w_codes = quantize(t.w, arguments.scale_w);
  t.x_representable = representable(t.x, arguments.scale_x);
  t.w_representable = representable(t.w, arguments.scale_w);
  return t;
}

std::vector<float> primer_fp8_product(const PrimerArguments& arguments, const PrimerTensors& tensors) {
  const DefaultEnvironment environment;
  const Progress none;
  Products products(arguments, none);
  return products.multiply(arguments.mma, products.x_side(tensors.x_codes), products.w_side(tensors.w_codes));
}

std::array<std::size_t, 6> printed_places(std::size_t size) { return {0, 1, 2, size - 3, size - 2, size - 1}; }

CornerValues corner_values(std::span<const float> matrix, std::size_t rows, std::size_t columns) {
  CornerValues values;
  for (std::size_t i = 0; i < 6; ++i) {
    for (std::size_t j = 0; j < 6; ++j) {
      values[i][j] = matrix[printed_places(rows)[i] * columns + printed_places(columns)[j]];
    }
  }
  return values;
}

std::vector<PrimerTable> primer_tables(const CornerValues& out_fp8, const CornerValues& out_fp32,
                                       const CornerValues& out_fp8_representable) {
  CornerValues difference;
  for (std::size_t i = 0; i < 6; ++i) {
    for (std::size_t j = 0; j < 6; ++j) difference[i][j] = out_fp8[i][j] - out_fp8_representable[i][j];
  }
  std::vector<PrimerTable> tables{
      {"out_fp8", "FP8: E4M3 inputs, tensor-core accumulator", corner_of(out_fp8, 'f'), published::out_fp8, 0, 36},
      {"out_fp32", "\"FP32\" as the device runs it: TF32", corner_of(out_fp32, 'f'), published::out_fp32, 0, 35},
      {"out_fp8_representable", "the same with inputs that E4M3 can represent", corner_of(out_fp8_representable, 'f'),
       published::out_fp8_representable, 0, 36},
      {"difference", "out_fp8 - out_fp8_representable", corner_of(difference, 'e'), published::difference, 0, 36},
  };
  for (PrimerTable& table : tables) {
    for (std::size_t i = 0; i < 6; ++i) {
      for (std::size_t j = 0; j < 6; ++j) table.matches += table.ours[i][j] == table.published[i][j] ? 1 : 0;
    }
  }
  return tables;
}

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
