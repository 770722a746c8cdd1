// SPDX-License-Identifier: Apache-2.0
#include "convert/reencode.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <utility>

#include "checkpoints/checkpoint.hpp"
#include "checkpoints/dequantize.hpp"
#include "checkpoints/matrices.hpp"
#include "checkpoints/recognize.hpp"
#include "checkpoints/writers.hpp"
#include "convert/checkpoint_writer.hpp"
#include "convert/dequantize.hpp"
#include "convert/layout_tensors.hpp"
#include "convert/quantization_config.hpp"
#include "convert/tensors.hpp"
#include "files/stored_file.hpp"
#include "files/tensor_file.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text.hpp"
#include "kit/provenance.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t most_blocks_told = 4096;

const Layout& target_layout(const std::string& name) {
  if (name == "e4m3_128x128") return find_layout("deepseek_fp8_block");
  std::vector<std::string_view> known = layouts_to_write();
  known.emplace_back("e4m3_128x128");
  if (std::ranges::find(known, name) == known.end()) refuse_name("layout to re-encode to", name, known);
  return find_layout(name);
}

/// Whether codes and scales can stay as they are.
bool has_same_arithmetic(const Layout& from, const Layout& to) {
  const bool both_global = (from.global == GlobalScale::none) == (to.global == GlobalScale::none);
  return from.format == to.format && from.grouping == to.grouping && from.group == to.group &&
         from.block_rows == to.block_rows && from.scale_type == to.scale_type && both_global;
}

/// The values of a matrix as the layout's own library makes them, before they are rounded to bfloat16.
std::vector<float> values_as_read(const CodedMatrix& matrix, const Layout& layout) {
  const Product product = layout.loaders.front().product;
  std::vector<float> of_code(256);
  for (unsigned code = 0; code < 256; ++code) {
    of_code[code] = decode(matrix.format, matrix.format.bits() == 4 ? code & 15 : code);
  }
  std::vector<float> values(matrix.codes.size());
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    checkpoint();
    for (std::size_t column = 0; column < matrix.columns; ++column) {
      const std::size_t i = row * matrix.columns + column;
      values[i] =
          of_code[matrix.codes[i]] * factor_of(product, matrix.scale_of(row, column), matrix.global.value_or(1));
    }
  }
  return values;
}

/// What a change of one value is, relative to it.
double relative_change(float before, float after) {
  if (before == 0 || !std::isfinite(before) || !std::isfinite(after)) return std::numeric_limits<double>::infinity();
  return std::abs((double{after} - double{before}) / double{before});
}
bool is_equal_value(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// Counts what differs, block by block of the new layout.
void compare_values(const std::vector<float>& before, const std::vector<float>& after, const CodedMatrix& matrix,
                    std::uint64_t expert, ReencodedWeight& told, std::vector<InexactBlock>& blocks) {
  const std::size_t across = matrix.grid_columns();
  std::vector<InexactBlock> of_grid(matrix.grid_rows() * across);
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    checkpoint();
    for (std::size_t column = 0; column < matrix.columns; ++column) {
      const float a = before[row * matrix.columns + column];
      const float b = after[row * matrix.columns + column];
      if (is_equal_value(a, b)) continue;
      InexactBlock& block = of_grid[row / matrix.block_rows * across + column / matrix.block_columns];
      ++block.changed;
      block.zeroed += b == 0 ? 1 : 0;
      block.largest_change = std::max(block.largest_change, relative_change(a, b));
      told.changed_bfloat16 += is_equal_value(nearest_bfloat16(a), nearest_bfloat16(b)) ? 0 : 1;
    }
  }
  told.blocks += of_grid.size();
  for (std::size_t i = 0; i < of_grid.size(); ++i) {
    InexactBlock& block = of_grid[i];
    if (block.changed == 0) continue;
    ++told.inexact_blocks;
    told.changed += block.changed;
    told.zeroed += block.zeroed;
    told.largest_change = std::max(told.largest_change, block.largest_change);
    if (blocks.size() == most_blocks_told) continue;
    block.weight = told.name;
    block.expert = expert;
    block.row = i / across;
    block.column = i % across;
    blocks.push_back(std::move(block));
  }
}

class Reencoder {
 public:
  Reencoder(const ReencodeArguments& arguments, Progress progress)
      : arguments_(arguments),
        progress_(std::move(progress)),
        to_(target_layout(arguments.to)),
        model_(arguments.model),
        found_(recognize(model_)) {}

  ReencodeResult run() {
    check();
    leave_out_what_is_missing();
    for (const Weight& weight : found_.weights) {
      if (is_wanted(arguments_.names, weight.name)) total_ += static_cast<double>(weight.elements());
    }
    if (arguments_.into) total_ *= 2;  // they are made again where they are written
    for (const Weight& weight : found_.weights) {
      if (is_wanted(arguments_.names, weight.name)) look_at(weight);
    }
    if (result_.weights.empty()) refuse("there is nothing to re-encode: ", reason_of_nothing());
    if (arguments_.into) write(*arguments_.into);
    return std::move(result_);
  }

 private:
  using Put = std::function<void(std::span<const std::byte>)>;

  void check() const {
    if (found_.weights.empty()) refuse("model: it has no quantized weight that is known; `fp8lab tensors` lists them");
    if (!arguments_.into) return;
    std::error_code error;
    const std::filesystem::path& model = model_.path();
    const auto directory = std::filesystem::is_directory(model, error) ? model : model.parent_path();
    if (std::filesystem::equivalent(*arguments_.into, directory.empty() ? "." : directory, error)) {
      refuse("into: ", in_one_line(arguments_.into->native()), " is the model that is read");
    }
  }
  [[nodiscard]] std::string reason_of_nothing() const {
    if (result_.left_out.empty()) return "tensors names no weight";
    return named_reason(result_.left_out.front().name, result_.left_out.front().reason);
  }

  [[nodiscard]] static WeightFacts facts_of(const Weight& weight) {
    return {.name = weight.name,
            .dtype = "F32",  // scales stay as they are made
            .experts = weight.experts,
            .stacked = weight.stacked,
            .rows = weight.rows,
            .columns = weight.columns};
  }
  [[nodiscard]] bool keeps_codes(const Weight& weight) const {
    return !arguments_.recipe && has_same_arithmetic(*weight.layout, to_) && weight.group == same_group(weight) &&
           weight.block_rows == same_rows(weight);
  }
  [[nodiscard]] std::uint64_t same_group(const Weight& weight) const {
    return to_.group == 0 ? weight.columns : to_.group;
  }
  [[nodiscard]] std::uint64_t same_rows(const Weight& weight) const {
    return to_.grouping == Grouping::tensor ? weight.rows : std::max<std::uint64_t>(1, to_.block_rows);
  }
  [[nodiscard]] Writer writer_for(const Weight& weight) const {
    Weight target;
    target.name = weight.name;
    target.layout = &to_;
    target.rows = weight.rows;
    target.columns = weight.columns;
    target.block_rows = to_.block_rows;
    target.group = to_.group;
    // A power of two changes no bit of a value within the range: NVFP4's scales are none.
    const std::string_view own = to_.scale_type == ScaleType::e4m3 ? to_.writer : "power_of_two";
    return find_writer(target, arguments_.recipe ? std::string_view(*arguments_.recipe) : own);
  }

  /// The codes and scales of an expert in the new layout.
  [[nodiscard]] CodedMatrix reencoded(const WeightReader& reader, std::uint64_t expert) const {
    const Weight& weight = reader.weight();
    if (keeps_codes(weight)) {
      CodedMatrix same = read_coded_matrix(reader, expert);
      const bool divides = to_.global == GlobalScale::divisor;
      if (same.global && same.global_divides != divides) same.global = 1 / *same.global;
      same.global_divides = divides;
      return same;
    }
    const Writer writer = writer_for(weight);
    const std::vector<float> values = values_before(reader, expert);
    return quantized_as({.original = MatrixView(std::span(values), weight.rows, weight.columns),
                         .recipe = writer.recipe,
                         .global_divides = to_.global == GlobalScale::divisor,
                         .threads = arguments_.threads,
                         .make = writer.make});
  }
  [[nodiscard]] static std::vector<float> values_before(const WeightReader& reader, std::uint64_t expert) {
    const Weight& weight = reader.weight();
    std::vector<float> values(static_cast<std::size_t>(weight.rows * weight.columns));
    reader.values(expert * weight.rows, weight.rows, values);
    return values;
  }

  void leave_out(const Weight& weight, std::string reason) {
    result_.left_out.push_back({weight.name, std::move(reason)});
  }
  /// Tensors of files that are not there, and codes without their scales.
  void leave_out_what_is_missing() {
    const auto leave_out_named = [&](const std::string& name, std::string reason) {
      if (is_wanted(arguments_.names, name)) result_.left_out.push_back({name, std::move(reason)});
    };
    for (const FileProblem& problem : model_.problems()) {
      if (problem.fault != FileFault::missing_shard && problem.fault != FileFault::unreadable) continue;
      for (const std::string& name : problem.tensors) {
        leave_out_named(name, std::string(name_of(problem.fault)) + ": " + problem.file);
      }
    }
    for (const Incomplete& one : found_.incomplete) leave_out_named(one.codes->name, one.lacks);
  }
  [[nodiscard]] std::string reason_to_leave(const Weight& weight) const {
    if (arguments_.into && weight.stacked && weight.layout != &to_) {
      return "it is a stack of experts, which " + std::string(to_.name) + " has not; without `into` it is told";
    }
    const bool has_stacks_alone = to_.transposed || to_.scale_shape == ScaleShape::columns;
    if (has_stacks_alone && !weight.stacked) return std::string(to_.name) + " has stacks of experts alone";
    return reason_not_to_fit(to_, facts_of(weight));
  }
  void look_at(const Weight& weight) {
    if (std::string why = reason_to_leave(weight); !why.empty()) {
      leave_out(weight, std::move(why));
      return;
    }
    std::unique_ptr<const WeightReader> reader;
    try {
      reader = std::make_unique<const WeightReader>(model_, weight);
    } catch (const std::invalid_argument& error) {
      leave_out(weight, error.what());
      return;
    } catch (const std::runtime_error& error) {
      leave_out(weight, error.what());
      return;
    }
    ReencodedWeight told{
        .name = weight.name,
        .from = weight.layout->name,
        .to = to_.name,
        .recipe = keeps_codes(weight) ? "same codes and scales" : std::string(writer_for(weight).keys.front()),
        .shape = weight.shape()};
    double signal = 0;
    double noise = 0;
    for (std::uint64_t expert = 0; expert < weight.experts; ++expert) {
      checkpoint();
      const std::vector<float> before = values_before(*reader, expert);
      const CodedMatrix matrix = reencoded(*reader, expert);
      const std::vector<float> after = values_as_read(matrix, to_);
      compare_values(before, after, matrix, expert, told, result_.blocks);
      for (std::size_t i = 0; i < before.size(); ++i) {
        const double error = double{after[i]} - double{before[i]};
        signal += double{before[i]} * before[i];
        noise += error * error;
      }
      count(static_cast<double>(weight.rows * weight.columns));
    }
    told.sqnr_db = noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
    result_.weights.push_back(std::move(told));
  }
  void count(double elements) {
    done_ += elements;
    if (progress_ && total_ > 0) progress_(done_ / total_);
  }

  void write_part(const WeightReader& reader, const LayoutTensor& tensor, const Put& put) {
    const std::uint64_t experts = tensor.part == WeightPart::marker ? 1 : reader.weight().experts;
    for (std::uint64_t expert = 0; expert < experts; ++expert) {
      if (last_ != &reader || last_expert_ != expert) {
        last_ = nullptr;
        matrix_ = reencoded(reader, expert);
        last_ = &reader;
        last_expert_ = expert;
      }
      put(bytes_of(to_, tensor, matrix_));
      if (tensor.part == WeightPart::codes) count(static_cast<double>(reader.weight().rows * reader.weight().columns));
    }
  }
  [[nodiscard]] std::string file_of(const StoredTensor& tensor) const {
    const std::filesystem::path& file = model_.files()[tensor.file];
    if (file.extension() == ".safetensors") return file.filename().native();
    return model_.files().size() == 1 ? "model.safetensors" : file.stem().native() + ".safetensors";
  }
  void write(const std::filesystem::path& into) {
    if (to_.family == Family::torchao) refuse("into: torchao's metadata are written by `fp8lab quantize` alone");
    std::map<std::string, std::vector<WrittenTensor>> shards;
    ModuleLayouts modules;
    std::vector<std::shared_ptr<const WeightReader>> readers;
    for (const Weight& weight : found_.weights) {
      const bool is_told =
          std::ranges::find(result_.weights, weight.name, &ReencodedWeight::name) != result_.weights.end();
      if (!is_told) continue;
      const auto reader = std::make_shared<const WeightReader>(model_, weight);
      for (const LayoutTensor& tensor : layout_tensors(to_, facts_of(weight))) {
        shards[file_of(*weight.codes)].push_back(
            {tensor.name, tensor.dtype, tensor.shape, tensor.bytes,
             [this, reader, tensor](const Put& put) { write_part(*reader, tensor, put); }});
      }
      modules.quantized.push_back({weight.name.substr(0, weight.name.size() - to_.restored.size()), &to_});
    }
    modules.powers_of_two = modules.quantized.front().layout->scale_type == ScaleType::number && !arguments_.recipe;
    for (const StoredTensor* tensor : found_.plain) {
      shards[file_of(*tensor)].push_back(
          {tensor->name, tensor->dtype, tensor->shape, tensor->bytes,
           [this, tensor](const Put& put) { copy_tensor(model_, *tensor, put, [](std::size_t) {}); }});
      if (tensor->name.ends_with(".weight")) modules.kept.push_back(tensor->name.substr(0, tensor->name.size() - 7));
    }
    CheckpointWriter writer(into);
    for (const auto& [file, tensors] : shards) writer.write_shard(file, tensors, {{"format", "pt"}});
    nlohmann::json config = model_.config().is_object() ? plain_config(model_.config()) : nlohmann::json::object();
    if (const auto told = quantization_config(modules); !told.is_null()) config["quantization_config"] = told;
    writer.write_json("config.json", config);
    if (const auto hf = hf_quant_config(modules); !hf.is_null()) writer.write_json("hf_quant_config.json", hf);
    writer.finish({{"made_by", "fp8lab reencode"},
                   {"version", provenance().version},
                   {"model", in_one_line(arguments_.model.native())},
                   {"layout", std::string(to_.name)}});
  }

  const ReencodeArguments& arguments_;
  Progress progress_;
  const Layout& to_;
  Checkpoint model_;
  Recognition found_;
  ReencodeResult result_;
  const WeightReader* last_ = nullptr;
  std::uint64_t last_expert_ = 0;
  CodedMatrix matrix_;
  double total_ = 0, done_ = 0;
};

}  // namespace

ReencodeResult run_reencode(const ReencodeArguments& arguments, const Progress& progress) {
  const DefaultEnvironment environment;
  return Reencoder(arguments, progress).run();
}

}  // namespace fp8lab::experiments
