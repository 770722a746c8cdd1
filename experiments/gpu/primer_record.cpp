// SPDX-License-Identifier: Apache-2.0
#include "gpu/primer_record.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "files/tensor_file.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/gpu/gemm.hpp"
#include "fp8lab/gpu/quantize.hpp"
#include "fp8lab/gpu/recorder/memory.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace fp8lab::experiments {
namespace {

constexpr int published_capability = 90;  // H100
constexpr std::string_view fp8_product = "out_fp8";

template <typename T>
std::vector<std::uint32_t> words_of(const std::vector<T>& values) {
  std::vector<std::uint32_t> words(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if constexpr (sizeof(T) == 4) {
      words[i] = std::bit_cast<std::uint32_t>(values[i]);
    } else {
      words[i] = values[i];
    }
  }
  return words;
}

/// The printed rows of a matrix.
std::vector<float> printed_rows(const std::vector<float>& matrix, std::size_t rows, std::size_t columns) {
  std::vector<float> some;
  for (const std::size_t row : printed_places(rows)) {
    const auto first = matrix.begin() + static_cast<std::ptrdiff_t>(row * columns);
    some.insert(some.end(), first, first + static_cast<std::ptrdiff_t>(columns));
  }
  return some;
}

/// Both operands of a product whose 36 values are printed.
struct Corners {
  std::vector<float> x, w;  ///< (6, in_features)

  Corners(const PrimerArguments& arguments, const std::vector<float>& all_x, const std::vector<float>& all_w)
      : x(printed_rows(all_x, static_cast<std::size_t>(arguments.rows),
                       static_cast<std::size_t>(arguments.in_features))),
        w(printed_rows(all_w, static_cast<std::size_t>(arguments.out_features),
                       static_cast<std::size_t>(arguments.in_features))) {}
};

/// A float32 as cuBLAS and PyTorch round it to TF32: to nearest, ties away from zero.
std::uint32_t tf32_word(float value) {
  constexpr CastPolicy policy{.rounding = Rounding::nearest_away, .overflow = Overflow::to_special};
  return static_cast<std::uint32_t>(encode(tf32, policy, value)) << (binary32.mantissa_bits - tf32.mantissa_bits);
}

std::vector<std::uint32_t> multiply_corners(const Corners& corners, const MmaModel& model) {
  const std::size_t depth = corners.x.size() / 6;
  std::vector<float> out(36);
  gemm({.model = model}, Operand::floats(corners.x, 6, depth), Operand::floats(corners.w, 6, depth), out);
  return words_of(out);
}

/// The same by instructions, one after the other along K, whose accumulators go on from each to the next.
std::vector<std::uint32_t> multiply_corners(const Corners& corners, gpu::Recorder& recorder, std::size_t number) {
  const gpu::Instruction& instruction = gpu::instructions().at(number);
  const gpu::TileSet set = instruction.tiles(gpu::Draw::gaussian, 0);
  const std::size_t depth = corners.x.size() / 6;
  const auto tile_of = [&](const std::vector<float>& from, std::size_t first, std::size_t words) {
    std::vector<std::byte> tile(words * sizeof(float));
    for (std::size_t i = 0; i < std::size_t{6} * set.depth; ++i) {
      const std::size_t k = first + i % set.depth;
      if (k < depth) gpu::store_word(set.a, tile.data(), i, tf32_word(from[i / set.depth * depth + k]));
    }
    return tile;
  };
  std::vector<std::uint32_t> d(set.dots());
  for (std::size_t first = 0; first < depth; first += set.depth) {
    const auto words = recorder.multiply(number, tile_of(corners.x, first, set.words_of_a()),
                                         tile_of(corners.w, first, set.words_of_b()), std::as_bytes(std::span(d)));
    d.assign(words.begin(), words.end());
  }
  std::vector<std::uint32_t> out;
  for (std::size_t row = 0; row < 6; ++row) {
    const auto begin = d.begin() + static_cast<std::ptrdiff_t>(row * set.columns);
    out.insert(out.end(), begin, begin + 6);
  }
  return out;
}

/// Codes and values of a tensor by the quantizer, in the memory of its device.
struct QuantizedByKernel {
  std::span<std::uint8_t> codes;
  std::span<float> values;
};
QuantizedByKernel quantize_by_kernel(gpu::KernelMemory& memory, bool on_device, const std::vector<float>& x,
                                     std::size_t rows, std::size_t columns, float scale) {
  const std::span<const float> in = memory.put(x);
  Recipe recipe = find_recipe("given_scale").recipe;
  recipe.given_scale = scale;
  const gpu::QuantizedSizes sizes = gpu::quantized_sizes(recipe, Direction::rowwise, rows, columns);
  const gpu::QuantizedArrays arrays{memory.out<std::uint8_t>(sizes.codes), memory.out<float>(sizes.scale_inv),
                                    memory.out<std::uint8_t>(sizes.scale_codes)};
  const gpu::QuantizeCall call{
      .x = {std::as_bytes(in), gpu::ElementType::float32, rows, columns}, .recipe = recipe, .rowwise = arrays};
  const gpu::QuantizedView view{.recipe = recipe,
                                .rows = rows,
                                .columns = columns,
                                .codes = arrays.codes,
                                .scale_inv = arrays.scale_inv,
                                .scale_codes = arrays.scale_codes};
  const std::span<float> values = memory.out<float>(rows * columns);
  if (on_device) {
    gpu::quantize_on_device(call);
    gpu::dequantize_on_device(view, values);
  } else {
    gpu::quantize_on_host(call);
    gpu::dequantize_on_host(view, values);
  }
  return {arrays.codes, values};
}

gpu::GemmKernel kernel_of(int capability) {
  return capability == 90 ? gpu::GemmKernel::wgmma_fast : gpu::GemmKernel::mma_sync;
}

/// The TF32 instruction of a chip with the largest K: that of the library.
std::size_t tf32_instruction(int capability) {
  const auto& all = gpu::instructions();
  const auto found = std::ranges::find_if(all, [&](const gpu::Instruction& one) {
    return one.is_for(capability) && one.type_a == gpu::MmaType::tf32 && one.k == 8;
  });
  return static_cast<std::size_t>(found - all.begin());
}

std::vector<PrimerTensor> tensors_of(const PrimerArguments& arguments, std::string_view tf32) {
  std::vector<PrimerTensor> all;
  for (const auto& [name, model] : {std::pair<std::string_view, std::string_view>{"x_codes", "encode"},
                                    {"w_codes", "encode"},
                                    {"x_representable", "decode"},
                                    {"w_representable", "decode"},
                                    {fp8_product, arguments.mma.name},
                                    {"out_fp32_printed", tf32},
                                    {"out_fp8_representable_printed", tf32}}) {
    all.push_back({std::string(name), std::string(model), {}});
  }
  return all;
}

PrimerArguments arguments_of(const PrimerRecord& record) {
  const auto size = [](std::uint64_t count) { return static_cast<long long>(std::min(count, std::uint64_t{1} << 40)); };
  return {.seed = record.seed,
          .sms = record.multiprocessors,
          .in_features = size(record.in_features),
          .out_features = size(record.out_features),
          .rows = size(record.rows)};
}
/// Whether no tensor core made the tensor.
bool is_cast(const PrimerRecord& record) { return record.model == "encode" || record.model == "decode"; }

/// The first words that differ.
void add_differences(const PrimerTensor& got, const PrimerTensor& expected, Ledger& ledger) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < got.words.size() && found < most_differences; ++i) {
    if (got.words[i] == expected.words[i]) continue;
    ++found;
    ledger.differences.push_back({"primer " + got.name, i, "of PyTorch's streams", fmt::format("{:08x}", got.words[i]),
                                  fmt::format("{:08x}", expected.words[i])});
  }
}

std::vector<PrimerTable> tables_of(const PrimerArguments& arguments, const std::vector<PrimerTensor>& tensors) {
  const auto floats = [&](std::size_t tensor) {
    std::vector<float> values;
    for (const std::uint32_t word : tensors[tensor].words) values.push_back(std::bit_cast<float>(word));
    return values;
  };
  return primer_tables(corner_values(floats(4), static_cast<std::size_t>(arguments.rows),
                                     static_cast<std::size_t>(arguments.out_features)),
                       corner_values(floats(5), 6, 6), corner_values(floats(6), 6, 6));
}

/// Compares the tables of the device with those of the models and with NVIDIA's documentation.
void add_findings(const std::vector<PrimerTable>& got, const std::vector<PrimerTable>& expected, bool is_published,
                  Ledger& ledger) {
  const auto rows = [](const char* who, const Corner& corner, std::vector<std::string>& words) {
    for (const auto& row : corner) words.push_back(fmt::format("{}: {}", who, fmt::join(row, " ")));
  };
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool equals_models = got[i].ours == expected[i].ours;
    Finding finding{.part = "primer",
                    .name = "primer: " + got[i].name,
                    .question = "Does the device print what the models and NVIDIA's documentation print?",
                    .answer = equals_models ? "the models: yes" : "the models: no",
                    .agrees = equals_models,
                    .words = {}};
    if (is_published) {
      finding.answer += fmt::format("; the documentation: {} of 36", got[i].matches);
      finding.agrees = equals_models && got[i].matches >= got[i].required;
    }
    rows("device", got[i].ours, finding.words);
    if (!equals_models) rows("models", expected[i].ours, finding.words);
    ledger.findings.push_back(std::move(finding));
  }
}

}  // namespace

std::vector<PrimerTensor> primer_by_models(const PrimerArguments& arguments, const MmaModel& tf32) {
  const PrimerTensors t = primer_casts(arguments);
  std::vector<PrimerTensor> all = tensors_of(arguments, tf32.name);
  all[0].words = words_of(t.x_codes);
  all[1].words = words_of(t.w_codes);
  all[2].words = words_of(t.x_representable);
  all[3].words = words_of(t.w_representable);
  all[4].words = words_of(primer_fp8_product(arguments, t));
  all[5].words = multiply_corners(Corners(arguments, t.x, t.w), tf32);
  all[6].words = multiply_corners(Corners(arguments, t.x_representable, t.w_representable), tf32);
  return all;
}

std::vector<PrimerTensor> primer_by_kernels(const PrimerArguments& arguments, gpu::Recorder& recorder,
                                            std::size_t tf32) {
  const gpu::RecordedDevice device = recorder.device();
  const bool on_device = !device.is_host_team;
  const auto rows = static_cast<std::size_t>(arguments.rows);
  const auto depth = static_cast<std::size_t>(arguments.in_features);
  const auto outputs = static_cast<std::size_t>(arguments.out_features);
  const PrimerTensors inputs = primer_inputs(arguments);
  gpu::KernelMemory memory(on_device);
  const QuantizedByKernel x = quantize_by_kernel(memory, on_device, inputs.x, rows, depth, arguments.scale_x);
  const QuantizedByKernel w = quantize_by_kernel(memory, on_device, inputs.w, outputs, depth, arguments.scale_w);
  const std::span<float> out = memory.out<float>(rows * outputs);
  const gpu::GemmArguments product{.m = rows,
                                   .n = outputs,
                                   .k = depth,
                                   .a = x.codes,
                                   .b = w.codes,
                                   .scale_a = memory.put(std::vector{1 / arguments.scale_x}),
                                   .scale_b = memory.put(std::vector{1 / arguments.scale_w}),
                                   .out = out};
  const gpu::GemmKernel kernel = kernel_of(device.capability);
  on_device ? gpu::gemm_on_device(kernel, product)
            : gpu::gemm_on_host(kernel, product, {}, gpu::chip_of(device.capability));
  const std::vector<float> x_values = memory.read(x.values);
  const std::vector<float> w_values = memory.read(w.values);
  std::vector<PrimerTensor> all = tensors_of(arguments, gpu::instructions()[tf32].name());
  all[0].words = words_of(memory.read(x.codes));
  all[1].words = words_of(memory.read(w.codes));
  all[2].words = words_of(x_values);
  all[3].words = words_of(w_values);
  all[4].words = words_of(memory.read(out));
  all[5].words = multiply_corners(Corners(arguments, inputs.x, inputs.w), recorder, tf32);
  all[6].words = multiply_corners(Corners(arguments, x_values, w_values), recorder, tf32);
  return all;
}

void check_primer_record(const PrimerRecord& record) {
  const PrimerArguments arguments = arguments_of(record);
  check_primer(arguments);
  const std::vector<PrimerTensor> all = tensors_of(arguments, hopper_tf32.name);
  const auto found = std::ranges::find(all, record.tensor, &PrimerTensor::name);
  if (found == all.end()) refuse("unknown tensor of the primer ", printable(record.tensor));
  if (is_cast(record)) {
    if (record.model != found->model) refuse("the model of ", record.tensor, " is ", found->model);
  } else if (record.tensor == fp8_product) {
    (void)find_primer_model(record.model);
  } else if (find_model(record.model).operands.front() != tf32) {
    refuse(record.model, " does not multiply TF32, as ", record.tensor, " was");
  }
}

std::uint64_t model_digest(const PrimerRecord& record, const MmaModel& model) {
  PrimerArguments arguments = arguments_of(record);
  if (record.tensor == fp8_product) arguments.mma = model;
  const std::vector<PrimerTensor> all =
      primer_by_models(arguments, is_cast(record) || record.tensor == fp8_product ? hopper_tf32 : model);
  return gpu::digest_of(std::ranges::find(all, record.tensor, &PrimerTensor::name)->words);
}

TaskResult record_primer(gpu::Recorder& recorder, PrimerArguments arguments) {
  const DefaultEnvironment environment;
  const gpu::RecordedDevice device = recorder.device();
  arguments.mma = gpu::model_of(kernel_of(device.capability), gpu::chip_of(device.capability));
  check_primer(arguments);
  const std::size_t instruction = tf32_instruction(device.capability);
  const MmaModel& tf32 = gpu::model_of(gpu::instructions()[instruction], device.capability);
  const std::vector<PrimerTensor> got = primer_by_kernels(arguments, recorder, instruction);
  const std::vector<PrimerTensor> expected = primer_by_models(arguments, tf32);
  TaskResult result{.ledger = {.device = device}, .rows = {}};
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool is_wrong = got[i].words != expected[i].words;
    const std::uint64_t words = got[i].words.size();
    result.ledger.primer.push_back({.tensor = got[i].name,
                                    .model = expected[i].model,
                                    .seed = arguments.seed,
                                    .multiprocessors = arguments.sms,
                                    .rows = static_cast<std::uint64_t>(arguments.rows),
                                    .in_features = static_cast<std::uint64_t>(arguments.in_features),
                                    .out_features = static_cast<std::uint64_t>(arguments.out_features),
                                    .digest = gpu::digest_of(got[i].words)});
    result.rows.push_back({"primer", "primer " + got[i].name, expected[i].model, words, words, is_wrong ? 1U : 0U});
    if (is_wrong) add_differences(got[i], expected[i], result.ledger);
  }
  const bool is_published = device.capability == published_capability && is_published_primer(arguments);
  add_findings(tables_of(arguments, got), tables_of(arguments, expected), is_published, result.ledger);
  return result;
}

}  // namespace fp8lab::experiments
