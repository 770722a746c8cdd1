// SPDX-License-Identifier: Apache-2.0
// What a user gives of a dot product, as texts, numbers and files, and what run_dot() takes of it.
#include "dot/dot.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/text.hpp"
#include "kit/experiment.hpp"

namespace fp8lab::experiments {

/// A format of operands: also float32, for TF32.
struct OperandFormat {
  Format format;
};
template <>
struct ArgumentType<OperandFormat> {
  static constexpr Kind kind = Kind::format;
  static OperandFormat from(const Entry& entry) {
    if (const auto* name = std::get_if<std::string>(&entry)) return {operand_format(*name)};
    return {std::get<ChosenFormat>(entry).format};
  }
  static Json json(const OperandFormat& value) { return format_name(value.format); }
};

namespace {

/// What is given of one side.
struct SideOptions {
  std::optional<std::string> codes;
  std::vector<double> values;
  std::optional<std::filesystem::path> file;
  std::vector<std::string> tensors;
  std::uint64_t row = 0;
  std::optional<OperandFormat> format;
  std::optional<std::string> scales;
};

struct DotOptions {
  MmaModel model = hopper_wgmma_fp8;
  SideOptions a, b;
  std::optional<std::string> c, got;
  int promote_k = 0;
  ZeroRule zero_rule = ZeroRule::skip;
  std::optional<std::uint64_t> at;
};

/// The codes of a text, or a message that begins with the argument's name.
Codes codes_of(const std::string& argument, const Format& format, const std::string& text) {
  try {
    return parse_codes(format, text);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(argument + ": " + error.what());
  }
}

DotOperand operand_of(const MmaModel& model, const SideOptions& side, const std::string& name) {
  Format format = model.operands.front();
  if (format == tf32) format = binary32;  // which TF32 instructions read
  if (side.format) format = side.format->format;
  DotOperand operand{.format = format};
  if (!side.values.empty()) {
    operand = operand_of_values(format, side.values);
  } else if (side.file) {
    operand = operand_of_tensor(format, StoredTensors{{*side.file}, side.tensors}, side.row);
  } else if (side.codes) {
    operand.codes = codes_of(name, format, *side.codes);
    operand.source = std::to_string(operand.codes.size()) + " codes";
  } else {
    throw std::invalid_argument("one of " + name + ", values_" + name + " and file_" + name + " is needed");
  }
  if (side.scales) {
    for (const std::uint32_t code :
         codes_of("scale_" + name, model.scales ? model.scales->format : e8m0, *side.scales)) {
      operand.scales.push_back(static_cast<std::uint8_t>(code));
    }
  }
  return operand;
}

/// A word of binary16 or binary32, in hexadecimal.
std::uint32_t word_of(const std::string& name, const Format& format, const std::string& text) {
  const Codes words = codes_of(name, format, text);
  if (words.size() != 1) throw std::invalid_argument(name + " must be one word of " + format_name(format));
  return words.front();
}

Document run(const DotOptions& options, const Context& context) {
  const DefaultEnvironment environment;
  DotArguments arguments{options.model, operand_of(options.model, options.a, "a"),
                         operand_of(options.model, options.b, "b")};
  const Format& word = options.model.accumulator();
  arguments.options = {options.c ? word_of("c", word, *options.c) : 0, options.zero_rule, options.promote_k};
  if (options.got) arguments.got = word_of("got", options.promote_k > 0 ? binary32 : word, *options.got);
  arguments.at = options.at;
  return document_of(run_dot(arguments, context.progress));
}

void describe_side(SideOptions& side, const std::string& name, const std::string& row, ArgumentList& list) {
  const std::string values = "values_" + name;
  const std::string file = "file_" + name;
  list.add(name, side.codes, "codes in hexadecimal, in the order of k: 38,3c,... or 383c...").called("HEX");
  list.add(values, side.values, "numbers instead, rounded to the format: 1.5,0.25,...")
      .excluding({name.c_str()})
      .with_repeats();
  list.add(file, side.file, "or a matrix in a .npy or .safetensors file: uint8 codes, or numbers that are rounded")
      .excluding({name.c_str(), values.c_str()});
  list.add("tensor_" + name, side.tensors, "which tensor of it, where it has several").needing({file.c_str()});
  list.add(row, side.row, name == "b" ? "which row of it, as a Linear keeps its weight" : "which row of it")
      .needing({file.c_str()});
  list.add("format_" + name, side.format, "the codes' format").by_default("the first that the model takes");
  list.add("scale_" + name, side.scales, "codes of its block scales, for models that have them").called("HEX");
}

void describe(DotOptions& options, ArgumentList& list) {
  list.add("model", options.model, "tensor core, one of fp8lab models").called("MODEL");
  describe_side(options.a, "a", "row", list);
  describe_side(options.b, "b", "column", list);
  list.add("c", options.c, "the word that the first instruction adds to").called("HEX");
  list.add("promote_k", options.promote_k, "add to a float32 sum every so many of K; 0: never");
  list.add_named("zero_rule", options.zero_rule, "skip, skip_empty_groups, skip_zero_groups, mma_sim", find_zero_rule,
                 [](ZeroRule rule) { return name_of(rule); });
  list.add("got", options.got, "the word that a kernel gave").called("HEX");
  list.add("at", options.at, "show the instruction of this k in full");
}

}  // namespace

std::vector<Experiment> dot_experiments() {
  return {experiment<DotOptions>(
      {.name = "dot",
       .summary = "Tell one dot product of a tensor core step by step",
       .description =
           "For a kernel's one wrong element: every product with its exponent, what aligning it cut off, the sum, and "
           "the accumulator's bits after each step. K may be any: zeros fill up the last instruction. Of more than "
           "four "
           "instructions a line each is shown, and the one of --at in full. FP4 codes come one a byte: 02,0a,... or "
           "020a... Where --got is another word, all models that take the operands are tried, all zero rules and "
           "promotions.",
       .result = "tables `result`, `instructions`, `steps`, `terms`, `products`, `scales` and `candidates`",
       .not_passed = "--got is not the model's word",
       .examples = {{"dot --values-a 1.5,0.25,100 --values-b 2,3,0.01", ""},
                    {"dot --model ada_mma_fp8 --a 38,3c,c1 --b 40,08,7e --got 41000000", ""},
                    {"dot --file-a x.npy --row 3 --file-b w.npy --column 5 --promote-k 128 --at 200", ""},
                    {"dot --model blackwell_mxf8 --a 38... --b 38... --scale-a 7f --scale-b 80", ""}},
       .python = false},
      describe, run)};
}

}  // namespace fp8lab::experiments
