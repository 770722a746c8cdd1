// SPDX-License-Identifier: Apache-2.0
// Turns what a user gives for a dot product, as texts, numbers and files, into the arguments of run_dot().
#include "dot/dot.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text.hpp"
#include "kit/experiment.hpp"

namespace fp8lab::experiments {

/// A format of operands: also float32, for TF32, and float64.
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

/// The options that the user gives for one operand.
struct SideOptions {
  std::optional<std::string> codes;
  std::vector<double> values;
  std::optional<std::filesystem::path> file;
  std::vector<std::string> tensors;
  std::uint64_t row = 0;
  std::optional<Distribution> distribution;
  std::uint64_t seed = 1;
  std::optional<OperandFormat> format;
  std::optional<std::string> scales;
};

struct DotOptions {
  MmaModel model = hopper_wgmma_fp8;
  SideOptions a, b;
  std::optional<std::uint64_t> k;
  std::optional<std::string> c, got;
  int promote_k = 0;
  ZeroRule zero_rule = ZeroRule::floor;
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

/// Throws where a side has no elements: it is not known where they come from.
void check_side(const SideOptions& side, const std::string& name) {
  if (side.codes || !side.values.empty() || side.file || side.distribution) return;
  refuse("one of ", name, ", values_", name, ", file_", name, " and distribution_", name, " is needed");
}

/// `drawn_k` is the number of elements where they are drawn.
DotOperand operand_of(const MmaModel& model, const SideOptions& side, const std::string& name, std::uint64_t drawn_k) {
  Format format = model.operands.front();
  if (format == tf32) format = binary32;  // which TF32 instructions read
  if (side.format) format = side.format->format;
  DotOperand operand{.format = format};
  if (!side.values.empty()) {
    operand = operand_of_values(format, side.values);
  } else if (side.file) {
    operand = operand_of_tensor(format, StoredTensors{{*side.file}, side.tensors}, side.row);
  } else if (side.distribution) {
    const Draws draws{
        .distribution = *side.distribution, .seed = side.seed, .rows = 1, .columns = static_cast<long long>(drawn_k)};
    operand = operand_of_tensor(format, draws, 0);
  } else if (side.codes) {
    operand.codes = codes_of(name, format, *side.codes);
    operand.source = std::to_string(operand.codes.size()) + " codes";
  }
  if (side.scales) {
    for (const std::uint64_t code :
         codes_of("scale_" + name, model.scales ? model.scales->format : e8m0, *side.scales)) {
      operand.scales.push_back(static_cast<std::uint8_t>(code));
    }
  }
  return operand;
}

/// Both sides; one that is drawn has as many elements as the other, or as `k` says.
std::pair<DotOperand, DotOperand> operands_of(const DotOptions& options) {
  check_side(options.a, "a");
  check_side(options.b, "b");
  if (options.k && !options.a.distribution && !options.b.distribution) {
    refuse("k needs distribution_a or distribution_b: without draws, the operands tell their own K");
  }
  if (options.k && (*options.k < 1 || *options.k > most_depth)) {
    refuse("k must be from 1 to ", most_depth, ", not ", *options.k);
  }
  constexpr std::uint64_t k_of_draws = 32;  // where nothing else tells
  const auto side_a = [&](std::uint64_t k) { return operand_of(options.model, options.a, "a", options.k.value_or(k)); };
  const auto side_b = [&](std::uint64_t k) { return operand_of(options.model, options.b, "b", options.k.value_or(k)); };
  if (!options.b.distribution) {
    DotOperand b = side_b(k_of_draws);
    DotOperand a = side_a(b.codes.size());
    return {std::move(a), std::move(b)};
  }
  DotOperand a = side_a(k_of_draws);
  DotOperand b = side_b(a.codes.size());
  return {std::move(a), std::move(b)};
}

/// A word of an accumulator, in hexadecimal.
std::uint64_t word_of(const std::string& name, const Format& format, const std::string& text) {
  const Codes words = codes_of(name, format, text);
  if (words.size() != 1) throw std::invalid_argument(name + " must be one word of " + format_name(format));
  return words.front();
}

Document run(const DotOptions& options, const Context& context) {
  const DefaultEnvironment environment;
  auto [a, b] = operands_of(options);
  DotArguments arguments{options.model, std::move(a), std::move(b)};
  const Format& word = options.model.accumulator();
  arguments.options = {options.c ? word_of("c", word, *options.c) : 0, options.zero_rule, options.promote_k};
  if (options.got) arguments.got = word_of("got", options.promote_k > 0 ? binary32 : word, *options.got);
  arguments.at = options.at;
  return document_of(run_dot(arguments, context.progress));
}

void describe_side(SideOptions& side, const std::string& name, const std::string& row, ArgumentList& list) {
  const std::string values = "values_" + name;
  const std::string file = "file_" + name;
  const std::string distribution = "distribution_" + name;
  list.add(name, side.codes, "codes in hexadecimal, in the order of k: 38,3c,... or 383c...").called("HEX");
  list.add(values, side.values, "numbers, which are rounded to the format: 1.5,0.25,...")
      .excluding({name.c_str()})
      .with_repeats();
  list.add(file, side.file, "a matrix in a .npy or .safetensors file: uint8 codes, or numbers, which are rounded")
      .excluding({name.c_str(), values.c_str()});
  list.add("tensor_" + name, side.tensors, "the name of the tensor, where the file has several")
      .needing({file.c_str()});
  list.add(row, side.row,
           name == "b" ? "the row of that matrix: b is stored as a Linear stores its weight, so that a column of the "
                         "product comes from a row"
                       : "the row of that matrix")
      .needing({file.c_str()});
  list.add(distribution, side.distribution, "draw numbers, which are rounded (fp8lab distributions lists them)")
      .excluding({name.c_str(), values.c_str(), file.c_str()});
  list.add("seed_" + name, side.seed, "the seed of the draws").needing({distribution.c_str()});
  list.add("format_" + name, side.format, "the format of the codes").by_default("the first that the model takes");
  list.add("scale_" + name, side.scales, "codes of the block scales in hexadecimal, for models that have them")
      .called("HEX");
}

void describe(DotOptions& options, ArgumentList& list) {
  list.add("model", options.model, "the tensor core (fp8lab models lists them)").called("MODEL");
  describe_side(options.a, "a", "row", list);
  options.b.seed = 2;  // so that the draws of a and b differ also where no seed is given
  describe_side(options.b, "b", "column", list);
  list.add("k", options.k, "the number of elements to draw").by_default("as many as the other operand has, or 32");
  list.add("c", options.c, "the word of the accumulator before the first instruction").called("HEX");
  list.add("promote_k", options.promote_k, "after so many elements of K, add the sum to a float32 sum; 0: never");
  list.add("zero_rule", options.zero_rule,
           "what terms that are zero count for in the largest exponent: floor, skip_terms, skip_empty_groups, "
           "skip_zero_groups, count_zero_factors");
  list.add("got", options.got, "the word that a kernel computed, to compare with the model's").called("HEX");
  list.add("at", options.at, "the k whose instruction is shown in full");
}

}  // namespace

std::vector<Experiment> dot_experiments() {
  return {experiment<DotOptions>(
      {
          .name = "dot",
          .summary = "Show one dot product of a tensor core step by step",
          .description =
              "Shows why one element of a kernel's result is what it is: every product with its exponent, the bits "
              "that "
              "its alignment cuts off, the sum, and the bits of the accumulator after each step. K may be any number: "
              "zeros fill up the last instruction. With more than four instructions, each gets one line, and the one "
              "that has the k `at` is shown in full. FP4 codes are given as one byte each: 02,0a,... or 020a... Where "
              "`got` differs from the model's word, all models that take the operands are tried with all zero rules "
              "and "
              "promotions, and those that give it are listed.",
          .result = "tables `result`, `instructions`, `steps`, `terms`, `products`, `scales` and `candidates`",
          .not_passed = "--got is not the model's word",
          .examples = {{"dot --values-a 1.5,0.25,100 --values-b 2,3,0.01", ""},
                       {"dot --model ada_mma_fp8 --a 38,3c,c1 --b 40,08,7e --got 41000000", ""},
                       {"dot --file-a x.npy --row 3 --file-b w.npy --column 5 --promote-k 128 --at 200", ""},
                       {"dot --distribution-a normal --distribution-b uniform --k 64", ""},
                       {"dot --model blackwell_mxf8 --a 38... --b 38... --scale-a 7f --scale-b 80", ""}},
          .small = R"({"a": "387e3c", "b": "40df38", "got": "3f800000"})",
      },
      describe, run)};
}

}  // namespace fp8lab::experiments
