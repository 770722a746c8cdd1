// SPDX-License-Identifier: Apache-2.0
#include "kit/primer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/measure/random.hpp"
#include "fp8lab/reference/scaling/representable.hpp"
#include "kit/primer_published.hpp"

namespace fp8lab::experiments {
namespace {

constexpr float weight_deviation = 0.023F;  // Transformer Engine's default initialisation of Linear

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

std::vector<std::uint8_t> quantize(std::span<const float> x, float scale) {
  std::vector<float> scaled(x.begin(), x.end());
  for (float& value : scaled) value *= scale;
  std::vector<std::uint8_t> codes(x.size());
  encode(e4m3, primer_cast, std::span<const float>(scaled), codes);
  return codes;
}

std::vector<float> representable(std::span<const float> x, float scale) {
  std::vector<float> result(x.size());
  cast_to_representable(e4m3, primer_cast, x, scale, std::span<float>(result));
  return result;
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

std::vector<float> primer_fp8_product(const PrimerArguments& arguments, const PrimerTensors& tensors,
                                      const Progress& progress) {
  const DefaultEnvironment environment;
  const auto operand = [&](const std::vector<std::uint8_t>& codes, long long rows, float scale) {
    Operand result =
        Operand::codes(codes, e4m3, static_cast<std::size_t>(rows), static_cast<std::size_t>(arguments.in_features));
    result.tensor_scale = {1 / scale};
    return result;
  };
  std::vector<float> out(static_cast<std::size_t>(arguments.rows * arguments.out_features));
  gemm({.model = arguments.mma}, operand(tensors.x_codes, arguments.rows, arguments.scale_x),
       operand(tensors.w_codes, arguments.out_features, arguments.scale_w), out,
       {.threads = arguments.threads, .progress = progress});
  return out;
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

}  // namespace fp8lab::experiments
