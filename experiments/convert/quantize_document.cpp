// SPDX-License-Identifier: Apache-2.0
// Registers `quantize`: a model as a quantized checkpoint of a public layout.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoints/writers.hpp"
#include "convert/quantize_model.hpp"
#include "files/stored_file.hpp"
#include "fp8lab/formats/environment.hpp"

namespace fp8lab::experiments {
namespace {

void describe_quantize(QuantizeModelArguments& arguments, ArgumentList& list) {
  list.add("model", arguments.model, "a model in BF16, F16 or F32: a file, an index, or a directory").positional();
  list.add("into", arguments.into, "the directory of the quantized model: new, empty, or made by an earlier call")
      .positional();
  list.add("layout", arguments.layout, "the layout to write; `fp8lab tensors --layouts` lists them")
      .by_default("what the plan says")
      .excluding({"plan"});
  list.add("plan", arguments.plan,
           "a plan of `fp8lab check --plan`: its folder for compressed-tensors, or its hf_quant_config.json for "
           "ModelOpt")
      .by_default("one layout");
  list.add("recipe", arguments.recipe,
           "the rule that makes codes and scales, by its key; a wrong one lists those of the layout")
      .by_default("that of the layout's own writer")
      .excluding({"plan"});
  list.add("ignore", arguments.ignore, "names or patterns of tensors that stay as they are").called("NAMES").or_none();
  list.add("tensors", arguments.names, "names or patterns of the tensors to quantize")
      .called("NAMES")
      .by_default("all");
  list.add("shard_size", arguments.shard_size, "the largest size of a file, in 10^9 bytes")
      .by_default("the files of the model");
  list.add_threads(arguments.threads);
}

Table quantized_table(const QuantizeModelResult& result) {
  using One = QuantizedModelWeight;
  return tabulate(result.weights, {.name = "weights", .title = "Quantized weights"})
      .column({"weight"}, [](const One& one) { return in_one_line(one.name); })
      .column({"layout"}, &One::layout)
      .column({"recipe"}, &One::recipe)
      .column({"shape"}, [](const One& one) { return shape_text(one.shape); })
      .column({"bytes"}, &One::bytes)
      .column({.name = "nans", .title = "NaNs"}, &One::nans)
      .column({.name = "fused", .title = "one global scale with", .detail = true}, [](const One& one) {
        std::vector<std::string> names;
        names.reserve(one.fused.size());
        for (const std::string& name : one.fused) names.push_back(in_one_line(name));
        return fmt::format("{}", fmt::join(names, ", "));
      });
}

Document tell_quantize(const QuantizeModelArguments& arguments, const Context& context) {
  const QuantizeModelResult result = run_quantize_model(arguments, context.progress);
  const DefaultEnvironment environment;
  Document document;
  std::uint64_t nans = 0;
  for (const QuantizedModelWeight& one : result.weights) nans += one.nans;
  Text verdict{"verdict"};
  verdict.paragraphs.push_back(fmt::format("{} weights quantized, {} tensors copied; {:.3f} GB in all.",
                                           result.weights.size(), result.copied,
                                           static_cast<double>(result.bytes) / 1e9));
  if (result.has_no_input_scales) {
    verdict.paragraphs.emplace_back(
        "Static scales of inputs are not there: they need activations. ModelOpt's servers want input_scale for FP8 and "
        "NVFP4.");
  }
  if (nans != 0) {
    verdict.paragraphs.push_back(
        fmt::format("{} codes are NaN: of weights that are, or as the layout's library makes "
                    "them of a row of zeros.",
                    nans));
  }
  Table kept = tabulate(result.kept, {.name = "kept", .title = "What stays as it is", .detail = result.kept.empty()})
                   .column({"tensor"}, [](const KeptModelTensor& one) { return in_one_line(one.name); })
                   .column({"reason"}, &KeptModelTensor::reason);
  document.sections = sections_of(std::move(verdict), quantized_table(result), std::move(kept));
  return document;
}

}  // namespace

Experiment quantize_experiment() {
  return experiment<QuantizeModelArguments>(
      {.name = "quantize",
       .summary = "Write a model as a quantized checkpoint of a public layout of FP8 or FP4",
       .description =
           "Quantizes every weight of two dimensions by the rule of the layout's own writer, bit for bit, or by "
           "another "
           "rule, and writes .safetensors files with the layout's names, config.json with its quantization_config, and "
           "what else its readers look for. All other tensors are copied. q, k and v, gate and up share a global scale "
           "where the layout's writer has them do so. A weight is in memory at a time. The directory is there whole at "
           "the end, or not at all.",
       .result = "text `verdict`, tables `weights`, `kept`",
       .examples = {{"quantize model/ model-fp8 --layout ct_fp8_channel", "as llm-compressor writes FP8"},
                    {"quantize model/ model-nvfp4 --layout modelopt_nvfp4 --ignore '*lm_head*,*embed*'",
                     "as ModelOpt writes NVFP4"},
                    {"quantize model/ model-mixed --plan plan/", "by a plan of `fp8lab check`"}},
       .small = R"({"model": "w.weight.npy", "into": "quantized", "layout": "ct_fp8_channel"})",
       .saves_when_stopped = true},
      describe_quantize, tell_quantize);
}

}  // namespace fp8lab::experiments
