// SPDX-License-Identifier: Apache-2.0
#include "convert/quantize_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "checkpoints/checkpoint.hpp"
#include "checkpoints/exclusion.hpp"
#include "checkpoints/matrices.hpp"
#include "checkpoints/recognize.hpp"
#include "checkpoints/writers.hpp"
#include "convert/checkpoint_writer.hpp"
#include "convert/layout_tensors.hpp"
#include "convert/quantization_config.hpp"
#include "convert/tensors.hpp"
#include "files/stored_file.hpp"
#include "files/tensor_file.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text.hpp"
#include "kit/provenance.hpp"

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

const Layout& layout_to_write(const std::string& name) {
  const std::vector<std::string_view> known = layouts_to_write();
  if (std::ranges::find(known, name) == known.end()) refuse_name("layout to write", name, known);
  return find_layout(name);
}

std::string module_of_weight(const std::string& name) {
  constexpr std::string_view ending = ".weight";
  return name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) : name;
}

/// The layout of the same family for stacks of experts whose names end so: FBGEMM's are for Llama 4. The same layout
/// where there is none.
const Layout* layout_of_stack(const Layout* layout, const StoredTensor& tensor) {
  if (tensor.shape.size() != 3) return layout;
  for (const Layout& other : all_layouts()) {
    const bool is_of_stacks = other.scale_shape == ScaleShape::columns && !other.writer.empty();
    if (is_of_stacks && other.family == layout->family && tensor.name.ends_with(other.restored)) return &other;
  }
  return layout;
}

bool is_number_type(std::string_view dtype) {
  return dtype == "BF16" || dtype == "F16" || dtype == "F32" || dtype == "F64";
}

/// A weight that will be written, and how.
struct WeightToWrite {
  const StoredTensor* tensor;
  const Layout* layout;
  WeightFacts facts;
  Writer writer;
};

/// The layout of each module: one of all, or as a plan has it.
class ChosenLayouts {
 public:
  explicit ChosenLayouts(const QuantizeModelArguments& arguments) {
    if (arguments.layout && arguments.plan) refuse("layout cannot be given with plan, which names layouts");
    if (!arguments.layout && !arguments.plan) {
      refuse("layout must be given, or plan: `fp8lab tensors --layouts` lists the layouts");
    }
    if (arguments.recipe && arguments.plan) refuse("recipe cannot be given with plan");
    if (arguments.layout) {
      plan_.everywhere = &layout_to_write(*arguments.layout);
      return;
    }
    read(*arguments.plan);
    for (const ModuleLayout& one : plan_.modules) by_module_[one.module] = one.layout;
  }

  /// Why a module has none is told in `reason`.
  [[nodiscard]] const Layout* layout_of(const std::string& module, std::string& reason) const {
    const auto syntax = syntax_;
    for (const std::string& pattern : plan_.kept) {
      if (!covers(syntax, pattern, module)) continue;
      reason = "the plan keeps it";
      return nullptr;
    }
    if (plan_.everywhere != nullptr) return plan_.everywhere;
    const auto found = by_module_.find(module);
    if (found != by_module_.end()) return found->second;
    reason = "the plan does not name it";
    return nullptr;
  }
  /// Modules of the plan that the model has not.
  [[nodiscard]] std::vector<std::string> missing_in(const std::set<std::string>& modules) const {
    std::vector<std::string> missing;
    for (const auto& [module, layout] : by_module_) {
      if (!modules.contains(module)) missing.push_back(module);
    }
    return missing;
  }

 private:
  void read(fs::path path) {
    std::error_code error;
    if (fs::is_directory(path, error)) path /= "compressed_tensors.json";
    const StoredFile file(path);
    if (file.size() > (std::uint64_t{1} << 28)) file.fail("it is too long for a plan");
    std::string text(static_cast<std::size_t>(file.size()), '\0');
    text.resize(file.read(0, text));
    const nlohmann::json content = nlohmann::json::parse(text, nullptr, false);
    if (content.is_discarded()) file.fail("it is no JSON");
    plan_ = read_plan(content, file.name());
    if (content.contains("quantization")) syntax_ = Exclusion::wildcard;
  }

  ReadPlan plan_;
  Exclusion syntax_ = Exclusion::module;
  std::map<std::string, const Layout*> by_module_;
};

class ModelQuantizer {
 public:
  ModelQuantizer(const QuantizeModelArguments& arguments, Progress progress)
      : arguments_(arguments), progress_(std::move(progress)), layouts_(arguments), model_(arguments.model) {}

  QuantizeModelResult run() {
    check();
    plan();
    write();
    for (const auto& [weight, result] : results_) result_.weights[result].nans = nans_[weight];
    return std::move(result_);
  }

 private:
  using Put = std::function<void(std::span<const std::byte>)>;

  void check() const {
    if (arguments_.shard_size) {
      const bool fits = *arguments_.shard_size > 0 && *arguments_.shard_size <= 1e6;  // a NaN does not
      if (!fits) refuse("shard_size must be above 0 and at most 1e6, in 10^9 bytes, not ", *arguments_.shard_size);
    }
    std::error_code error;
    const fs::path directory = fs::is_directory(model_.path(), error) ? model_.path() : model_.path().parent_path();
    if (fs::equivalent(arguments_.into, directory.empty() ? fs::path(".") : directory, error)) {
      refuse("into: ", in_one_line(arguments_.into.native()), " is the model that is read");
    }
    for (const FileProblem& problem : model_.problems()) {
      throw std::runtime_error(cannot_read(in_one_line(problem.file), problem.words));
    }
    const Recognition found = recognize(model_);
    if (!found.weights.empty() || !found.incomplete.empty()) {
      refuse("model: ",
             printable(found.weights.empty() ? found.incomplete.front().codes->name : found.weights.front().name),
             " is quantized; `fp8lab dequantize` or `fp8lab reencode` read such a model");
    }
  }

  /// Why a tensor stays as it is; empty: it is quantized, by `weight`.
  std::string reason_to_keep(const StoredTensor& tensor, WeightToWrite& weight) const {
    for (const std::string& pattern : arguments_.ignore) {
      if (names_tensor(pattern, tensor.name)) return "ignore names it: " + pattern;
    }
    if (!is_wanted(arguments_.names, tensor.name)) return "tensors does not name it";
    std::string reason;
    const Layout* layout = layouts_.layout_of(module_of_weight(tensor.name), reason);
    if (layout == nullptr) return reason;
    layout = layout_of_stack(layout, tensor);
    if (!is_number_type(tensor.dtype)) return "its type is " + tensor.dtype + ", not BF16, F16, F32 or F64";
    if (tensor.fortran_order) return "it is stored in Fortran's order";
    if (!tensor.name.ends_with(layout->restored)) return "its name does not end in " + std::string(layout->restored);
    WeightFacts facts{.name = tensor.name, .dtype = tensor.dtype == "F64" ? "F32" : tensor.dtype};
    if (layout->transposed || layout->scale_shape == ScaleShape::columns) {
      if (tensor.shape.size() != 3)
        return std::string(layout->name) + " has stacks of experts alone, of three dimensions";
      facts.stacked = true;
      facts.experts = tensor.shape[0];
      facts.rows = tensor.shape[layout->transposed ? 2 : 1];
      facts.columns = tensor.shape[layout->transposed ? 1 : 2];
    } else {
      if (tensor.shape.size() != 2) return "it has more than two dimensions";
      facts.rows = tensor.shape[0];
      facts.columns = tensor.shape[1];
    }
    if (std::string why = reason_not_to_fit(*layout, facts); !why.empty()) return why;
    weight.tensor = &tensor;
    weight.layout = layout;
    weight.facts = std::move(facts);
    return "";
  }

  [[nodiscard]] static Weight as_weight(const WeightToWrite& one) {
    Weight weight;
    weight.name = one.facts.name;
    weight.layout = one.layout;
    weight.rows = one.facts.rows;
    weight.columns = one.facts.columns;
    weight.block_rows = one.layout->block_rows;
    weight.group = one.layout->group;
    return weight;
  }

  void plan() {
    std::set<std::string> modules;
    for (const StoredTensor& tensor : model_.tensors()) {
      if (tensor.shape.size() < 2) continue;
      const std::string module = module_of_weight(tensor.name);
      modules.insert(module);
      WeightToWrite weight;
      const std::string reason = reason_to_keep(tensor, weight);
      if (!reason.empty()) {
        result_.kept.push_back({tensor.name, reason});
        continue;
      }
      weight.writer = find_writer(as_weight(weight), arguments_.recipe.value_or(""));
      weights_.emplace(tensor.name, std::move(weight));
    }
    if (const std::vector<std::string> missing = layouts_.missing_in(modules); !missing.empty()) {
      refuse("plan: the model has no weight of ", printable(missing.front()),
             missing.size() == 1 ? "" : fmt::format(" and {} more that the plan names", missing.size() - 1));
    }
    if (weights_.empty()) refuse("there is nothing to quantize: ", reason_of_nothing());
    result_.weights.reserve(weights_.size());
  }
  [[nodiscard]] std::string reason_of_nothing() const {
    if (result_.kept.empty()) return "the model has no tensor of two dimensions";
    const auto is_ignored = [](const KeptModelTensor& one) { return one.reason.starts_with("ignore"); };
    const auto other = std::ranges::find_if_not(result_.kept, is_ignored);
    const KeptModelTensor& told = other == result_.kept.end() ? result_.kept.front() : *other;
    return printable(told.name) + ": " + told.reason;
  }

  /// The weights of a fused layer that are written in the same layout; this one alone where there is none.
  [[nodiscard]] std::vector<const WeightToWrite*> fused_with(const WeightToWrite& weight) const {
    std::vector<const WeightToWrite*> all;
    for (const std::string& name : fused_names(*weight.layout, weight.facts.name)) {
      const auto found = weights_.find(name);
      if (found != weights_.end() && found->second.layout == weight.layout) all.push_back(&found->second);
    }
    return all;
  }
  [[nodiscard]] NumberMatrix numbers_of(const WeightToWrite& weight, std::uint64_t expert) const {
    std::optional<NumberMatrix> numbers = read_numbers(model_, *weight.tensor,
                                                       {.slice = expert,
                                                        .rows = weight.facts.rows,
                                                        .columns = weight.facts.columns,
                                                        .transposed = weight.layout->transposed});
    if (!numbers) throw std::runtime_error("cannot read " + printable(weight.tensor->name));
    return *std::move(numbers);
  }
  float amax_of(const WeightToWrite& weight) {
    const auto found = amaxes_.find(weight.facts.name);
    if (found != amaxes_.end()) return found->second;
    return amaxes_[weight.facts.name] = numbers_of(weight, 0).amax();
  }

  /// Codes and scales: those of the last call are kept, for codes and scales are written one after the other.
  const CodedMatrix& matrix_of(const WeightToWrite& weight, std::uint64_t expert) {
    if (last_weight_ == &weight && last_expert_ == expert) return last_;
    const NumberMatrix numbers = numbers_of(weight, expert);
    ExpectedMatrix how{.original = numbers.view(),
                       .recipe = weight.writer.recipe,
                       .global_divides = weight.layout->global == GlobalScale::divisor,
                       .threads = arguments_.threads,
                       .make = weight.writer.make};
    const std::vector<const WeightToWrite*> fused = fused_with(weight);
    if (fused.size() > 1) {
      float largest = 0;
      for (const WeightToWrite* one : fused) largest = std::max(largest, amax_of(*one));
      how.group_amax = largest;
    }
    last_weight_ = nullptr;
    last_ = quantized_as(how);
    last_weight_ = &weight;
    last_expert_ = expert;
    return last_;
  }

  void count_nans(const WeightToWrite& weight, const CodedMatrix& matrix) {
    const bool is_fnuz = weight.layout->format == e4m3fnuz;
    if (weight.layout->format != e4m3 && !is_fnuz) return;
    nans_[&weight] += static_cast<std::uint64_t>(std::ranges::count_if(
        matrix.codes, [&](std::uint8_t code) { return is_fnuz ? code == 0x80 : (code & 0x7FU) == 0x7FU; }));
  }

  void add_weight(const WeightToWrite& weight, std::vector<WrittenTensor>& tensors) {
    QuantizedModelWeight told{.name = weight.facts.name,
                              .layout = weight.layout->name,
                              .recipe = std::string(weight.writer.keys.front()),
                              .shape = weight.tensor->shape};
    for (const WeightToWrite* one : fused_with(weight)) {
      if (one != &weight) told.fused.push_back(one->facts.name);
    }
    for (const LayoutTensor& tensor : layout_tensors(*weight.layout, weight.facts)) {
      told.bytes += tensor.bytes;
      tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes,
                         [this, &weight, tensor](const Put& put) { write_part(weight, tensor, put); }});
    }
    results_[&weight] = result_.weights.size();
    result_.weights.push_back(std::move(told));
  }
  void write_part(const WeightToWrite& weight, const LayoutTensor& tensor, const Put& put) {
    const std::uint64_t experts = tensor.part == WeightPart::marker ? 1 : weight.facts.experts;
    for (std::uint64_t expert = 0; expert < experts; ++expert) {
      const CodedMatrix& matrix = matrix_of(weight, expert);
      if (tensor.part == WeightPart::codes) count_nans(weight, matrix);
      const std::vector<std::byte> bytes = bytes_of(*weight.layout, tensor, matrix);
      put(bytes);
      count(bytes.size());
    }
  }
  void add_copy(const StoredTensor& tensor, std::vector<WrittenTensor>& tensors) {
    ++result_.copied;
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes, [this, &tensor](const Put& put) {
                         copy_tensor(model_, tensor, put, [this](std::size_t bytes) { count(bytes); });
                       }});
  }
  void count(std::size_t bytes) {
    done_ += static_cast<double>(bytes);
    if (progress_ && result_.bytes != 0) progress_(done_ / static_cast<double>(result_.bytes));
  }

  /// All tensors of a file of the output, in the order of the model's.
  struct Shard {
    std::string name;
    std::vector<WrittenTensor> tensors;
    std::map<std::string, std::string> metadata = {{"format", "pt"}};
  };
  [[nodiscard]] std::string file_of(const StoredTensor& tensor) const {
    const fs::path& file = model_.files()[tensor.file];
    if (file.extension() == ".safetensors") return file.filename().native();
    return model_.files().size() == 1 ? "model.safetensors" : file.stem().native() + ".safetensors";
  }
  std::vector<Shard> shards() {
    std::vector<Shard> all;
    std::map<std::string, std::size_t> places;
    double size = 0;
    for (const StoredTensor& tensor : model_.tensors()) {
      std::vector<WrittenTensor> tensors;
      const auto weight = weights_.find(tensor.name);
      if (weight != weights_.end()) {
        add_weight(weight->second, tensors);
      } else {
        if (!bits_of_dtype(tensor.dtype)) refuse("model: the type of ", printable(tensor.name), " is not read");
        add_copy(tensor, tensors);
      }
      double bytes = 0;
      for (const WrittenTensor& one : tensors) bytes += static_cast<double>(one.bytes);
      result_.bytes += static_cast<std::uint64_t>(bytes);
      std::size_t place = 0;
      if (arguments_.shard_size) {
        if (all.empty() || (size > 0 && size + bytes > *arguments_.shard_size * 1e9)) {
          all.emplace_back();
          size = 0;
        }
        size += bytes;
        place = all.size() - 1;
      } else {
        const auto [entry, is_new] = places.try_emplace(file_of(tensor), all.size());
        if (is_new) all.push_back({.name = entry->first, .tensors = {}});
        place = entry->second;
      }
      add_metadata(all[place], tensor, weight == weights_.end() ? nullptr : &weight->second);
      std::ranges::move(tensors, std::back_inserter(all[place].tensors));
    }
    name_by_number(all);
    return all;
  }
  void name_by_number(std::vector<Shard>& all) const {
    if (!arguments_.shard_size) return;
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].name =
          all.size() == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, all.size());
    }
  }
  /// torchao finds its tensors by the metadata of each file.
  void add_metadata(Shard& shard, const StoredTensor& tensor, const WeightToWrite* weight) const {
    if (weights_.begin()->second.layout->family != Family::torchao) return;
    nlohmann::json names = nlohmann::json::array();
    if (const auto before = shard.metadata.find("tensor_names"); before != shard.metadata.end()) {
      names = nlohmann::json::parse(before->second);
    }
    names.push_back(tensor.name);
    shard.metadata["tensor_names"] = names.dump();
    shard.metadata[tensor.name] =
        weight == nullptr ? torchao_metadata(nullptr, {}) : torchao_metadata(weight->layout, weight->facts);
  }

  [[nodiscard]] ModuleLayouts modules() const {
    ModuleLayouts all;
    for (const auto& [name, weight] : weights_) {
      all.quantized.push_back({module_of_weight(name), weight.layout});
      all.powers_of_two |= weight.writer.recipe.rounding != ScaleRounding::none;
    }
    for (const StoredTensor& tensor : model_.tensors()) {
      const bool is_weight = tensor.name.ends_with(".weight") || tensor.shape.size() > 1;
      if (is_weight && !weights_.contains(tensor.name)) all.kept.push_back(module_of_weight(tensor.name));
    }
    return all;
  }

  void write() {
    std::vector<Shard> all = shards();
    // The marker of ComfyUI's older files: two elements ask for products in high precision.
    if (weights_.begin()->second.layout->scale == ".scale_weight") {
      all.front().tensors.push_back({"scaled_fp8", "F8_E4M3", {2}, 2, [](const Put& put) {
                                       const std::array<std::byte, 2> zeros{};
                                       put(zeros);
                                     }});
    }
    const ModuleLayouts told = modules();
    const Family family = told.quantized.front().layout->family;
    result_.has_no_input_scales = family == Family::modelopt;
    CheckpointWriter writer(arguments_.into);
    for (const Shard& shard : all) writer.write_shard(shard.name, shard.tensors, shard.metadata);
    const nlohmann::ordered_json quantization = quantization_config(told);
    if (!quantization.is_null() || model_.config().is_object()) {
      nlohmann::json config = model_.config().is_object() ? model_.config() : nlohmann::json::object();
      if (!quantization.is_null()) config["quantization_config"] = quantization;
      writer.write_json("config.json", config);
    }
    if (const nlohmann::ordered_json hf = hf_quant_config(told); !hf.is_null())
      writer.write_json("hf_quant_config.json", hf);
    copy_other_files(writer);
    const Provenance made = provenance();
    writer.finish({{"made_by", "fp8lab quantize"},
                   {"version", made.version},
                   {"model", in_one_line(arguments_.model.native())},
                   {"layout", arguments_.layout.value_or("of a plan")}});
  }

  /// The tokenizer and the like, without which a model cannot be loaded.
  void copy_other_files(CheckpointWriter& writer) const {
    std::error_code error;
    if (!fs::is_directory(model_.path(), error)) return;
    for (const fs::directory_entry& entry : fs::directory_iterator(model_.path(), error)) {
      const std::string name = entry.path().filename().native();
      const std::string ending = entry.path().extension().native();
      const bool is_of_model = ending == ".json" || ending == ".txt" || ending == ".model" || ending == ".jinja";
      const bool is_made = name == "config.json" || name == "hf_quant_config.json" || name == "fp8lab.json" ||
                           name.ends_with(".index.json");
      if (is_of_model && !is_made && entry.is_regular_file(error)) writer.copy_file(entry.path());
    }
  }

  const QuantizeModelArguments& arguments_;
  Progress progress_;
  ChosenLayouts layouts_;
  Checkpoint model_;
  std::map<std::string, WeightToWrite> weights_;
  std::map<std::string, float> amaxes_;
  std::map<const WeightToWrite*, std::size_t> results_;
  std::map<const WeightToWrite*, std::uint64_t> nans_;
  QuantizeModelResult result_;
  const WeightToWrite* last_weight_ = nullptr;
  std::uint64_t last_expert_ = 0;
  CodedMatrix last_;
  double done_ = 0;
};

}  // namespace

QuantizeModelResult run_quantize_model(const QuantizeModelArguments& arguments, const Progress& progress) {
  const DefaultEnvironment environment;
  return ModelQuantizer(arguments, progress).run();
}

}  // namespace fp8lab::experiments
