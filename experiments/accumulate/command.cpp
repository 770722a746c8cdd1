// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "accumulate/accumulate.hpp"
#include "accumulate/harmonic.hpp"
#include "kit/commands.hpp"

namespace fp8lab::experiments {
namespace {

struct AccumulateOptions {
  AccumulateArguments arguments;
  bool harmonic = false;
  HarmonicArguments harmonic_arguments;
  OutputOptions output;
};

int run_harmonic(const AccumulateOptions& options) {
  check_output(options.output, harmonic_files());
  const HarmonicResult result = run_harmonic(options.harmonic_arguments);
  deliver(
      options.output, files_of(result), [&](const TextStyle& style) { return report_of(result, style); },
      "harmonic.json and harmonic.csv");
  return 0;
}

int run(AccumulateOptions& options) {
  if (options.harmonic) return run_harmonic(options);
  AccumulateArguments& arguments = options.arguments;
  arguments.threads = threads_of_machine();
  if (options.output.out) check_output(options.output, file_names_of(curves_of(arguments), arguments.ks));
  const AccumulateResult result =
      with_progress(options.output, [&](const Progress& progress) { return run_accumulate(arguments, progress); });
  deliver(
      options.output, options.output.out ? files_of(result) : Files{},
      [&](const TextStyle& style) { return report_of(result, style); },
      "accumulate.json, summary.csv with a row a point, and a CSV a histogram");
  return 0;
}

void add_sums(CLI::App& app, AccumulateArguments& arguments) {
  add_list(
      app, "--models", arguments.models, [](const std::string& name) { return find_model(name); },
      "tensor cores (fp8lab models lists them)", "hopper_wgmma_fp8,blackwell_tcgen05_fp8");
  add_list(
      app, "--distributions", arguments.distributions, choose_factor_draws,
      "what factors are drawn from (fp8lab distributions lists them); abs_NAME: magnitudes, so that abs_uniform is "
      "U(0, 1)",
      "abs_uniform,normal");
  add_list(app, "--k", arguments.ks, parse_number<long long>, "lengths of the dot products",
           "32,128,512,1024,4096,16384");
  add_list(app, "--promote-k", arguments.promote_ks, parse_number<long long>,
           "elements of K after which the sum is added to a float32 one; 0: never", "0,128");
  const auto add_format = [&](const std::string& name, std::optional<ChosenFormat>& format) {
    add_parsed(app, name, format, choose_format, "what these factors are cast to")
        ->type_name("NAME")
        ->default_str("e4m3, or what the model takes");
  };
  add_format("--format-a", arguments.format_a);
  add_format("--format-b", arguments.format_b);
  add_number(app, "--rows", arguments.rows, "rows of A; each with each row of B makes a dot product");
  add_number(app, "--columns", arguments.columns, "rows of B");
  add_number(app, "--seed", arguments.seed, "which draws");
}

/// Excludes all options that there are so far.
void add_harmonic(CLI::App& app, AccumulateOptions& options) {
  const std::vector<CLI::Option*> others =
      app.get_options([](const CLI::Option* option) { return option->get_name() != "--help"; });
  CLI::Option* harmonic = app.add_flag("--harmonic", options.harmonic,
                                       "instead: where 1 + 1/2 + 1/3 + ... stops growing, summed in small formats");
  for (CLI::Option* other : others) harmonic->excludes(other);
  add_list(app, "--formats", options.harmonic_arguments.formats, choose_format, "in which formats",
           "float16,bfloat16,e4m3,e5m2")
      ->needs(harmonic);
}

}  // namespace

void add_accumulate(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<AccumulateOptions>();
  CLI::App* accumulate =
      app.add_subcommand("accumulate", "Measure how the error of a tensor core's dot products grows with K");
  accumulate->footer(
      "Every combination of distribution, model, promotion and K is measured on rows * columns dot products: those of\n"
      "a matrix product, so that every row takes part in several. Errors are against the exact dot product of the "
      "cast\n"
      "factors: what the accumulator does, and nothing else. Block scales are 1.\n\n"
      "Exit status: 0 done; 2 bad input or unwritable DIR.\n\n"
      "Examples:\n"
      "  fp8lab accumulate                                        Hopper and Blackwell on U(0, 1) and N(0, 1)\n"
      "  fp8lab accumulate --promote-k 0,32,128,512               how often to promote\n"
      "  fp8lab accumulate --models hopper_fp16,hopper_bf16,exact the 16-bit paths, and float32's own rounding\n"
      "  fp8lab accumulate --k 1024,1048576 --distributions abs_normal\n"
      "  fp8lab accumulate --harmonic                             when half and bfloat16 sum themselves");
  add_sums(*accumulate, options->arguments);
  add_harmonic(*accumulate, *options);
  add_output(*accumulate, options->output,
             "accumulate.json, summary.csv and a CSV a histogram (harmonic.json, harmonic.csv)");
  accumulate->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace fp8lab::experiments
