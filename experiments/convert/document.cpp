// SPDX-License-Identifier: Apache-2.0
// Registers `tensors` and `dequantize`, what a quantized checkpoint holds and the bfloat16 model that it stands for,
// and the experiments that write quantized checkpoints.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convert/dequantize.hpp"
#include "convert/quantize_model.hpp"
#include "convert/reencode.hpp"
#include "convert/tensors.hpp"
#include "files/stored_file.hpp"
#include "files/tensor_file.hpp"
#include "fp8lab/formats/environment.hpp"
#include "kit/experiment.hpp"

namespace fp8lab::experiments {
namespace {

std::string tensors_counted(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// A name without its quotes, where it needs none.
std::string clean_name(const std::string& name) { return in_one_line(name); }

std::string product_words(Product product) { return std::string(entry_of(named_values(product), product).words); }

// ---------------------------------------------------------------------------------------------------- fp8lab tensors

std::string joined_names(const std::vector<std::string_view>& all) {
  std::string text;
  for (const std::string_view one : all) text.append(text.empty() ? "" : ", ").append(one);
  return text;
}

Table layouts_table() {
  return tabulate(all_layouts(), {.name = "layouts", .title = "Layouts that are known", .layout = TableLayout::records})
      .column({"layout"}, [](const Layout& one) { return one.name; })
      .column({"family"}, [](const Layout& one) { return name_of(one.family); })
      .column({"words"}, [](const Layout& one) { return one.words; })
      .column({"codes"}, [](const Layout& one) { return joined_names(one.code_dtypes) + " " + std::string(one.codes); })
      .column({"packing"}, [](const Layout& one) { return name_of(one.packing); })
      .column({"scale"},
              [](const Layout& one) {
                return one.has_scale_tensor() ? joined_names(one.scale_dtypes) + " " + std::string(one.scale) : "";
              })
      .column({.name = "scale_shape", .title = "shape of scales"},
              [](const Layout& one) { return name_of(one.scale_shape); })
      .column({"group"}, [](const Layout& one) { return one.group == 0 ? std::nullopt : std::optional(one.group); })
      .column({.name = "global_scale", .title = "global scale"},
              [](const Layout& one) {
                return one.global == GlobalScale::none
                           ? std::string()
                           : std::string(one.global_scale) + ", " + std::string(name_of(one.global));
              })
      .column({.name = "methods", .title = "quant_method"}, [](const Layout& one) { return joined_names(one.methods); })
      .column({"value"}, [](const Layout& one) { return product_words(one.loaders.front().product); })
      .column({"loaders"},
              [](const Layout& one) {
                std::vector<std::string_view> names;
                names.reserve(one.loaders.size());
                for (const Dequantization& rule : one.loaders) names.push_back(name_of(rule.loader));
                return joined_names(names);
              })
      .column({"recipes"}, [](const Layout& one) { return joined_names(one.recipes); })
      .column({.name = "writer", .title = "written by"}, [](const Layout& one) { return one.writer; })
      .column({"source"}, [](const Layout& one) { return one.source; });
}

std::string sharing_of(const Weight& weight) {
  switch (weight.layout->grouping) {
    case Grouping::tensor: return weight.stacked ? "expert" : "tensor";
    case Grouping::row: return "row";
    case Grouping::column: return "column";
    case Grouping::block:
    case Grouping::group: return fmt::format("{}x{}", weight.block_rows, weight.group);
  }
  return "";
}

std::string joined_sentences(const std::vector<std::string>& all) {
  std::string text;
  for (const std::string& one : all) text += (text.empty() ? "" : "; ") + one;
  return text;
}

Table weights_table(const std::vector<const Weight*>& weights) {
  return tabulate(weights, {.name = "weights", .title = "Quantized weights", .detail = weights.empty()})
      .column({"weight"}, [](const Weight* one) { return clean_name(one->name); })
      .column({"layout"}, [](const Weight* one) { return one->layout->name; })
      .column({"shape"}, [](const Weight* one) { return shape_text(one->shape()); })
      .column({"scales"}, [](const Weight* one) { return sharing_of(*one); })
      .column({.name = "scale_type", .title = "type of scales"},
              [](const Weight* one) {
                return one->scale == nullptr ? std::string(name_of(one->layout->scale_type))
                                             : clean_name(one->scale->dtype);
              })
      .column({.name = "companions", .detail = true},
              [](const Weight* one) {
                std::string text;
                for (const Companion& companion : one->companions) {
                  text += (text.empty() ? "" : ", ") + clean_name(companion.tensor->name);
                }
                return text;
              })
      .column({.name = "evidence", .detail = true}, [](const Weight* one) { return one->evidence; })
      .column({"disagreements"}, [](const Weight* one) { return joined_sentences(one->disagreements); });
}

struct OtherTensor {
  const StoredTensor* tensor;
  std::string_view kind;
};
Table others_table(const std::vector<OtherTensor>& others) {
  return tabulate(others, {.name = "others", .title = "Other tensors", .detail = others.empty()})
      .column({"tensor"}, [](const OtherTensor& one) { return clean_name(one.tensor->name); })
      .column({"type"}, [](const OtherTensor& one) { return clean_name(one.tensor->dtype); })
      .column({"shape"}, [](const OtherTensor& one) { return shape_text(one.tensor->shape); })
      .column({"kind"}, &OtherTensor::kind);
}

struct Problem {
  std::string kind, where, words;
};
Table problems_table(const TensorsResult& result) {
  std::vector<Problem> problems;
  for (const FileProblem& one : result.checkpoint->problems()) {
    problems.push_back({std::string(name_of(one.fault)), clean_name(one.file), one.words});
  }
  for (const Incomplete& one : result.found.incomplete) {
    problems.push_back(
        {"incomplete weight", clean_name(one.codes->name),
         one.lacks + (one.nearest == nullptr ? "" : fmt::format(" (nearest layout: {})", one.nearest->name))});
  }
  for (const UnknownSuffix& one : result.found.unknown) {
    problems.push_back({"unknown tensors", one.suffix,
                        fmt::format("{} such tensors, as {} of shape {}", one.count, printable(one.example->name),
                                    shape_text(one.example->shape))});
  }
  for (const std::string& words : result.found.disagreements) problems.push_back({"configuration", "", words});
  return tabulate(problems, {.name = "problems", .title = "What does not fit", .detail = problems.empty()})
      .column({"kind"}, &Problem::kind)
      .column({"where"}, &Problem::where)
      .column({"words"}, &Problem::words);
}

void describe_tensors(TensorsArguments& arguments, ArgumentList& list) {
  list.add("model", arguments.model, "a .safetensors, .gguf, .npy or .npz file, an index, or a directory").positional();
  list.add("tensors", arguments.names, "names or patterns of the tensors to list").called("NAMES").by_default("all");
  list.add("layouts", arguments.layouts, "list the layouts that are known");
}

Document tell_tensors(const TensorsArguments& arguments, const Context& /*context*/) {
  const TensorsResult result = run_tensors(arguments);
  const DefaultEnvironment environment;
  Document document;
  if (!result.checkpoint) {
    document.sections = sections_of(layouts_table());
    return document;
  }
  std::vector<const Weight*> weights;
  std::map<std::string_view, std::size_t> counts;
  for (const Weight& weight : result.found.weights) {
    ++counts[weight.layout->name];
    if (is_wanted(arguments.names, weight.name)) weights.push_back(&weight);
  }
  std::vector<OtherTensor> others;
  const auto add = [&](const StoredTensor* tensor, std::string_view kind) {
    if (is_wanted(arguments.names, tensor->name)) others.push_back({tensor, kind});
  };
  for (const StoredTensor* one : result.found.plain) add(one, "plain");
  for (const StoredTensor* one : result.found.cache_scales) add(one, "scale of a KV cache");
  for (const StoredTensor* one : result.found.orphans) add(one, "scale without a weight");

  Text verdict{"verdict"};
  std::string line = fmt::format("{} in {}", tensors_counted(result.checkpoint->tensors().size(), "tensor"),
                                 tensors_counted(result.checkpoint->files().size(), "file"));
  for (const auto& [layout, count] : counts)
    line += fmt::format("; {} of layout {}", tensors_counted(count, "weight"), layout);
  verdict.paragraphs.push_back(line + ".");
  if (!result.found.method.empty()) {
    verdict.paragraphs.push_back(
        fmt::format("The configuration's quant_method is {}.", printable(result.found.method)));
  }
  document.sections =
      sections_of(std::move(verdict), weights_table(weights), others_table(others), problems_table(result));
  if (arguments.layouts) document.sections.emplace_back(layouts_table());
  return document;
}

// ------------------------------------------------------------------------------------------------- fp8lab dequantize

void describe_dequantize(DequantizeArguments& arguments, ArgumentList& list) {
  list.add("model", arguments.model, "a quantized checkpoint: a file, an index, or a directory").positional();
  list.add("into", arguments.into, "the directory of the bfloat16 model: new, empty, or made by an earlier call")
      .positional();
  list.add("loader", arguments.as, "whose arithmetic: that of the layout's own library, or of a loader")
      .spelled("--as");
  list.add("tensors", arguments.names, "names or patterns of the tensors to write").called("NAMES").by_default("all");
}

Document tell_dequantize(const DequantizeArguments& arguments, const Context& context) {
  const DequantizeResult result = run_dequantize(arguments, context.progress);
  const DefaultEnvironment environment;
  using One = DequantizedWeight;
  Document document;
  document.passed = result.left_out.empty();
  Text verdict{"verdict"};
  std::uint64_t differing = 0;
  std::uint64_t values = 0;
  std::size_t differing_weights = 0;
  for (const One& one : result.weights) {
    std::uint64_t elements = 1;
    for (const std::uint64_t length : one.shape) elements *= length;
    values += elements;
    differing += one.differing;
    differing_weights += one.differing == 0 ? 0 : 1;
  }
  verdict.paragraphs.push_back(fmt::format(
      "{} dequantized, {} copied, {} of inputs and caches left out.", tensors_counted(result.weights.size(), "weight"),
      tensors_counted(result.copied, "plain tensor"), tensors_counted(result.dropped_scales, "scale")));
  if (arguments.as != Loader::format) {
    verdict.paragraphs.push_back(differing == 0
                                     ? fmt::format("{} makes the values of the format.", name_of(arguments.as))
                                     : fmt::format("{} makes {} of {} values otherwise than the format, in {}.",
                                                   name_of(arguments.as), differing, values,
                                                   tensors_counted(differing_weights, "weight")));
  }
  if (!result.left_out.empty()) {
    verdict.paragraphs.push_back(fmt::format("{} left out: the model lacks what the table names.",
                                             tensors_counted(result.left_out.size(), "tensor")));
  }
  Table weights =
      tabulate(result.weights, {.name = "weights", .title = "Weights", .detail = result.weights.empty()})
          .column({"weight"}, [](const One& one) { return clean_name(one.name); })
          .column({"layout"}, &One::layout)
          .column({"shape"}, [](const One& one) { return shape_text(one.shape); })
          .column({"block"}, [](const One& one) { return fmt::format("{}x{}", one.block_rows, one.block_columns); })
          .column({"value"}, [](const One& one) { return product_words(one.product); })
          .column({.name = "nans", .title = "NaNs"}, &One::nans)
          .column({"differing"}, &One::differing)
          .column({"note"}, &One::note);
  Table left_out =
      tabulate(result.left_out, {.name = "left_out", .title = "Left out", .detail = result.left_out.empty()})
          .column({"tensor"}, [](const LeftOut& one) { return clean_name(one.name); })
          .column({"reason"}, &LeftOut::reason);
  document.sections = sections_of(std::move(verdict), std::move(weights), std::move(left_out));
  return document;
}

}  // namespace

std::vector<Experiment> convert_experiments() {
  return {
      experiment<TensorsArguments>(
          {.name = "tensors",
           .summary = "List the tensors of a checkpoint, and which layout of FP8 or FP4 each weight has",
           .description =
               "Reads the headers of a model's files and says of each quantized weight which layout it has, by its "
               "tensors: names, types, shapes, markers. The configuration is compared with them, not believed. What is "
               "wrong with the files (missing shards, data that end too early, overlaps) is told, and the rest is "
               "listed. Values are not read.",
           .result = "text `verdict`, tables `weights`, `others`, `problems`, `layouts`",
           .examples = {{"tensors model/", "a directory with an index"},
                        {"tensors model.gguf --tensors 'blk.0.*'", "some tensors"},
                        {"tensors --layouts", "the layouts that are known"}},
           .small = R"({"model": "x.npy"})"},
          describe_tensors, tell_tensors),
      experiment<DequantizeArguments>(
          {.name = "dequantize",
           .summary = "Write the bfloat16 model that a quantized checkpoint stands for",
           .description =
               "Dequantizes every weight of a checkpoint, bit for bit as the layout's own library does, or as another "
               "loader does, and writes .safetensors files with the names of the model before, sharded as the input, "
               "with "
               "an index and a config.json that says nothing of quantization. Plain tensors are copied. Memory holds "
               "some "
               "rows at a time. The directory is there whole at the end, or not at all.",
           .result = "text `verdict`, tables `weights`, `left_out`",
           .passed = "all tensors were written",
           .not_passed = "some tensors could not be written, the others are",
           .status_not_passed = 1,
           .examples = {{"dequantize model/ model-bf16", "by the layout's own library"},
                        {"dequantize model/ model-bf16 --as transformers", "as transformers loads it"},
                        {"dequantize model/ layer --tensors 'model.layers.0.*'", "some tensors"}},
           .small = R"({"model": "x.npy", "into": "dequantized"})",
           .saves_when_stopped = true},
          describe_dequantize, tell_dequantize),
      quantize_experiment(), reencode_experiment()};
}

}  // namespace fp8lab::experiments
