// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "dot/dot.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "kit/commands.hpp"

namespace fp8lab::experiments {
namespace {

/// One side's options.
struct SideOptions {
  std::optional<std::string> codes, values, file, format, scales;
  std::uint64_t row = 0;
};

struct DotOptions {
  std::string model{hopper_wgmma_fp8.name};
  SideOptions a, b;
  std::string zero_rule = "skip";
  int promote_k = 0;
  std::optional<std::string> c, got;
  std::optional<std::size_t> at;
  OutputOptions output;
};

std::vector<double> parse_values(const std::string& text) {
  std::vector<double> values;
  for (std::size_t first = 0, end = 0; end != std::string::npos; first = end + 1) {
    end = text.find(',', first);
    values.push_back(parse_number<double>(text.substr(first, end - first)));
  }
  return values;
}

Codes codes_of(const std::string& option, const Format& format, const std::string& text) {
  return parse_option(option, text, [&](const std::string& codes) { return parse_codes(format, codes); });
}

DotOperand operand_of(const MmaModel& model, const SideOptions& side, const std::string& name) {
  Format format = model.operands.front();
  if (format == tf32) format = binary32;  // which TF32 instructions read
  if (side.format) format = parse_option("--format-" + name, *side.format, operand_format);
  DotOperand operand{.format = format};
  if (side.values) {
    operand = operand_of_values(format, parse_option("--values-" + name, *side.values, parse_values));
  } else if (side.file) {
    operand = operand_of_file(format, *side.file, side.row);
  } else if (side.codes) {
    operand.codes = codes_of("--" + name, format, *side.codes);
    operand.source = std::to_string(operand.codes.size()) + " codes";
  } else {
    throw std::invalid_argument("one of --" + name + ", --values-" + name + " and --file-" + name + " is needed");
  }
  if (side.scales) {
    for (const std::uint32_t code :
         codes_of("--scale-" + name, model.scales ? model.scales->format : e8m0, *side.scales)) {
      operand.scales.push_back(static_cast<std::uint8_t>(code));
    }
  }
  return operand;
}

/// A word of binary16 or binary32, in hexadecimal.
std::uint32_t parse_word(const std::string& name, const Format& format, const std::string& text) {
  const Codes words = codes_of(name, format, text);
  if (words.size() != 1) throw std::invalid_argument(name + " must be one word of " + format_name(format));
  return words.front();
}

int run(const DotOptions& options) {
  const MmaModel model = parse_option("--model", options.model, find_model);
  DotArguments arguments{model, operand_of(model, options.a, "a"), operand_of(model, options.b, "b")};
  arguments.options = {0, parse_option("--zero-rule", options.zero_rule, find_zero_rule), options.promote_k};
  if (options.c) arguments.options.c = parse_word("--c", model.accumulator(), *options.c);
  if (options.got) {
    arguments.got = parse_word("--got", options.promote_k > 0 ? binary32 : model.accumulator(), *options.got);
  }
  arguments.at = options.at;
  check_output(options.output, {"dot.json"});
  const DotResult result =
      with_progress(options.output, [&](const Progress& progress) { return run_dot(arguments, progress); });
  deliver(
      options.output, options.output.out ? files_of(result) : Files{},
      [&](const TextStyle& style) { return report_of(result, style); }, "dot.json");
  return result.passed() ? 0 : not_reproduced;
}

void add_side(CLI::App& app, SideOptions& side, const std::string& name, const std::string& row) {
  CLI::Option* codes =
      app.add_option("--" + name, side.codes, "codes in hexadecimal, in the order of k: 38,3c,... or 383c...")
          ->type_name("HEX");
  CLI::Option* values =
      app.add_option("--values-" + name, side.values, "numbers instead, rounded to the format: 1.5,0.25,...")
          ->type_name("LIST")
          ->excludes(codes);
  CLI::Option* file = app.add_option("--file-" + name, side.file,
                                     "or a matrix in a .npy file: uint8 codes, or numbers that are rounded")
                          ->type_name("PATH")
                          ->excludes(codes)
                          ->excludes(values);
  add_number(app, row, side.row, "which row of it" + std::string(name == "b" ? ", as a Linear keeps its weight" : ""))
      ->needs(file);
  app.add_option("--format-" + name, side.format, "the codes' format; default: the first that the model takes")
      ->type_name("NAME");
  app.add_option("--scale-" + name, side.scales, "codes of its block scales, for models that have them")
      ->type_name("HEX");
}

}  // namespace

void add_dot(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<DotOptions>();
  CLI::App* dot = app.add_subcommand("dot", "Tell one dot product of a tensor core step by step");
  dot->footer(
      "For a kernel's one wrong element: every product with its exponent, what aligning it cut off, the sum, and the\n"
      "accumulator's bits after each step. K may be any: zeros fill up the last instruction. Of more than four\n"
      "instructions a line each is shown, and the one of --at in full. FP4 codes come one a byte: 02,0a,... or "
      "020a...\n\n"
      "Where --got is another word, all models that take the operands are tried, all zero rules and promotions.\n\n"
      "Exit status: 0 done; 2 bad input or unwritable DIR; 3 --got is not the model's word.\n\n"
      "Examples:\n"
      "  fp8lab dot --values-a 1.5,0.25,100 --values-b 2,3,0.01\n"
      "  fp8lab dot --model ada_mma_fp8 --a 38,3c,c1 --b 40,08,7e --got 41000000\n"
      "  fp8lab dot --file-a x.npy --row 3 --file-b w.npy --column 5 --promote-k 128 --at 200\n"
      "  fp8lab dot --model blackwell_mxf8 --a 38... --b 38... --scale-a 7f --scale-b 80");
  dot->add_option("--model", options->model, "tensor core, one of fp8lab models")
      ->type_name("MODEL")
      ->capture_default_str();
  add_side(*dot, options->a, "a", "--row");
  add_side(*dot, options->b, "b", "--column");
  dot->add_option("--c", options->c, "the word that the first instruction adds to")->type_name("HEX");
  add_number(*dot, "--promote-k", options->promote_k, "add to a float32 sum every so many of K; 0: never");
  dot->add_option("--zero-rule", options->zero_rule, "skip, skip_empty_groups, skip_zero_groups, mma_sim")
      ->type_name("NAME")
      ->capture_default_str();
  dot->add_option("--got", options->got, "the word that a kernel gave")->type_name("HEX");
  add_parsed(*dot, "--at", options->at, parse_number<std::size_t>, "show the instruction of this k in full")
      ->type_name("INT");
  add_output(*dot, options->output, "dot.json");
  dot->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace fp8lab::experiments
