// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <stdexcept>

#include "double_rounding/double_rounding.hpp"
#include "kit/commands.hpp"

namespace fp8lab::experiments {
namespace {

struct DoubleRoundingOptions {
  DoubleRoundingArguments arguments;
  EveryFloat every;
  UniformDraws draws{};
  bool is_uniform = false;
  OutputOptions output;
};

int run(DoubleRoundingOptions& options) {
  DoubleRoundingArguments& arguments = options.arguments;
  arguments.inputs = options.every;
  if (options.is_uniform) arguments.inputs = options.draws;
  arguments.threads = threads_of_machine();
  check_output(options.output, double_rounding_files());
  const DoubleRoundingResult result =
      with_progress(options.output, [&](const Progress& progress) { return run_double_rounding(arguments, progress); });
  deliver(
      options.output, files_of(result), [&](const TextStyle& style) { return report_of(result, style); },
      "double_rounding.json, double_rounding.csv and examples.csv");
  return 0;
}

void add_inputs(CLI::App& app, DoubleRoundingOptions& options) {
  CLI::Option* low = add_number(app, "--low", options.every.low, "take every float32 from here");
  CLI::Option* high = add_number(app, "--high", options.every.high, "up to, and not including, this");
  const auto take_ends = [&options](const std::string& text) {
    const std::vector<std::string> ends = split_list("--uniform", text);
    if (ends.size() != 2)
      throw std::invalid_argument("--uniform: " + in_quotes(text) + " is not two numbers, LOW,HIGH");
    options.draws.low = parse_option("--uniform", ends[0], parse_number<double>);
    options.draws.high = parse_option("--uniform", ends[1], parse_number<double>);
    options.is_uniform = true;
  };
  CLI::Option* uniform = app.add_option_function<std::string>("--uniform", take_ends, "draw the inputs instead")
                             ->type_name("LOW,HIGH")
                             ->excludes(low)
                             ->excludes(high);
  add_number(app, "--size", options.draws.size, "how many draws")->needs(uniform);
  add_number(app, "--seed", options.draws.seed, "which draws")->needs(uniform);
}

}  // namespace

void add_double_rounding(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<DoubleRoundingOptions>();
  CLI::App* command = app.add_subcommand("double-rounding",
                                         "Count the codes that change where a cast goes by way of float16 or bfloat16");
  command->footer(
      "Software that has no direct conversion from float32 converts to half or bfloat16 first, and so rounds twice.\n"
      "This counts the inputs whose code is another one then, for the casts of IEEE 754 to the format in between and\n"
      "of cuda_satfinite to the last.\n\n"
      "Exit status: 0 done; 2 bad input or unwritable DIR.\n\n"
      "Examples:\n"
      "  fp8lab double-rounding                                 every float32 of [1, 2) to E4M3\n"
      "  fp8lab double-rounding --uniform -448,448              draws over E4M3's whole range\n"
      "  fp8lab double-rounding --formats e5m2 --via-roundings to_odd   the rounding that may come first");
  add_list(*command, "--formats", options->arguments.formats, choose_format, "what to cast to, of at most 8 bits",
           "e4m3");
  add_list(*command, "--via", options->arguments.vias, choose_format, "formats in between", "float16,bfloat16");
  add_list(*command, "--via-roundings", options->arguments.via_roundings, choose_rounding,
           "roundings to them: nearest_even, nearest_away, toward_zero, upward, downward, to_odd",
           "nearest_even,toward_zero");
  add_inputs(*command, *options);
  add_output(*command, options->output, "double_rounding.json, double_rounding.csv and examples.csv");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace fp8lab::experiments
