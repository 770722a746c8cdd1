// SPDX-License-Identifier: Apache-2.0
// Registers `reencode`: whether a quantized checkpoint can be another layout without a change of values.
#include <fmt/format.h>

#include <limits>

#include "convert/reencode.hpp"
#include "files/stored_file.hpp"
#include "fp8lab/formats/environment.hpp"

namespace fp8lab::experiments {
namespace {

void describe_reencode(ReencodeArguments& arguments, ArgumentList& list) {
  list.add("model", arguments.model, "a quantized checkpoint: a file, an index, or a directory").positional();
  list.add("to", arguments.to, "the new layout; e4m3_128x128 stands for deepseek_fp8_block").called("LAYOUT");
  list.add("into", arguments.into,
           "a directory where the new checkpoint is written: new, empty, or made by an earlier call")
      .by_default("nothing is written");
  list.add("recipe", arguments.recipe, "the rule that makes codes and scales, by its key")
      .by_default("the same codes and scales where the layouts have the same arithmetic, else powers of two");
  list.add("tensors", arguments.names, "names or patterns of the weights").called("NAMES").by_default("all");
  list.add_threads(arguments.threads);
}

Table reencoded_table(const ReencodeResult& result) {
  using One = ReencodedWeight;
  return tabulate(result.weights, {.name = "weights", .title = "Weights"})
      .column({"weight"}, [](const One& one) { return in_one_line(one.name); })
      .column({"from"}, &One::from)
      .column({"exact"}, [](const One& one) { return one.changed == 0 ? "yes" : "no"; })
      .column({"blocks"}, &One::blocks)
      .column({.name = "inexact_blocks", .title = "not exact"}, &One::inexact_blocks)
      .column({"changed"}, &One::changed)
      .column({.name = "changed_bfloat16", .title = "changed in bfloat16"}, &One::changed_bfloat16)
      .column({"zeroed"}, &One::zeroed)
      .column({.name = "largest_change", .title = "largest relative change", .digits = 3}, &One::largest_change)
      .column({.name = "sqnr_db", .title = "SQNR", .unit = "dB", .notation = Notation::fixed, .digits = 1},
              &One::sqnr_db)
      .column({.name = "recipe", .detail = true}, &One::recipe);
}

Document tell_reencode(const ReencodeArguments& arguments, const Context& context) {
  const ReencodeResult result = run_reencode(arguments, context.progress);
  const DefaultEnvironment environment;
  std::size_t exact = 0;
  for (const ReencodedWeight& one : result.weights) exact += one.changed == 0 ? 1 : 0;
  Document document;
  document.passed = exact == result.weights.size() && result.left_out.empty();
  Text verdict{"verdict"};
  verdict.paragraphs.push_back(fmt::format("{} of {} weights are the same values in {}.", exact, result.weights.size(),
                                           result.weights.front().to));
  if (!result.left_out.empty()) {
    verdict.paragraphs.push_back(
        fmt::format("{} tensors are left out; the table left_out says why.", result.left_out.size()));
  }
  Table blocks = tabulate(result.blocks, {.name = "blocks",
                                          .title = "Blocks that are not exact",
                                          .detail = result.blocks.empty() || result.blocks.size() > 25})
                     .column({"weight"}, [](const InexactBlock& one) { return in_one_line(one.weight); })
                     .column({"expert"}, &InexactBlock::expert)
                     .column({"row"}, &InexactBlock::row)
                     .column({"column"}, &InexactBlock::column)
                     .column({"changed"}, &InexactBlock::changed)
                     .column({"zeroed"}, &InexactBlock::zeroed)
                     .column({.name = "largest_change", .title = "largest relative change", .digits = 3},
                             &InexactBlock::largest_change);
  using LeftOutOne = ReencodeResult::LeftOutWeight;
  Table left_out =
      tabulate(result.left_out, {.name = "left_out", .title = "Left out", .detail = result.left_out.empty()})
          .column({"weight"}, [](const LeftOutOne& one) { return in_one_line(one.name); })
          .column({"reason"}, &LeftOutOne::reason);
  document.sections = sections_of(std::move(verdict), reencoded_table(result), std::move(blocks), std::move(left_out));
  return document;
}

}  // namespace

Experiment reencode_experiment() {
  return experiment<ReencodeArguments>(
      {.name = "reencode",
       .summary = "Say whether a quantized checkpoint is exact in another layout, and write it",
       .description =
           "Makes the codes and scales of another layout from the values of a checkpoint, and compares all values: for "
           "each weight whether it is exact, for which blocks not, how many values change, and by how much. Scales are "
           "powers of two unless a recipe is given, for these change no value that has a code; layouts of the same "
           "arithmetic keep their codes and scales.",
       .result = "text `verdict`, tables `weights`, `blocks` (the first 4096 that are not exact), `left_out`",
       .passed = "all weights are exact",
       .not_passed = "some values change, or weights are left out",
       .status_not_passed = 1,
       .examples = {{"reencode model/ --to e4m3_128x128", "MXFP4 as E4M3 in blocks of 128x128, for instance"},
                    {"reencode model/ --to ct_nvfp4 --into model-ct", "ModelOpt's NVFP4 as compressed-tensors has it"}},
       .small = R"({"model": "quantized.safetensors", "to": "deepseek_fp8_block"})",
       .saves_when_stopped = true},
      describe_reencode, tell_reencode);
}

}  // namespace fp8lab::experiments
