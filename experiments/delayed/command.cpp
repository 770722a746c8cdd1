// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "delayed/delayed.hpp"
#include "kit/commands.hpp"

namespace fp8lab::experiments {
namespace {

struct DelayedOptions {
  DelayedArguments arguments;
  std::string file;
  bool no_reduce = false;
  OutputOptions output;
};

int run(DelayedOptions& options) {
  DelayedArguments& arguments = options.arguments;
  arguments.reduce_amax = !options.no_reduce;
  if (!options.file.empty()) arguments.trace = read_amax_trace(options.file);
  check_output(options.output, delayed_files());
  const DelayedResult result =
      with_progress(options.output, [&](const Progress& progress) { return run_delayed(arguments, progress); });
  deliver(
      options.output, options.output.out ? files_of(result) : Files{},
      [&](const TextStyle& style) { return report_of(result, style); }, "delayed.json, scales.csv and summary.csv");
  return 0;
}

void add_variants(CLI::App& app, DelayedArguments& arguments) {
  add_list(app, "--formats", arguments.formats, choose_format, "what the scales are for: e4m3, e5m2", "e4m3");
  add_list(
      app, "--versions", arguments.versions, [](const std::string& name) { return find_delayed_version(name); },
      "whose rules (fp8lab delayed-versions lists them)", "te_current,te_current_unfused,te_1_6,te_0_1,ms_amp,torchao");
  add_list(app, "--algorithms", arguments.algorithms, find_amax_compute_algo,
           "which amax of the history makes the scale: max, most_recent; ms_amp and torchao have max alone",
           "max,most_recent");
  add_list(app, "--history", arguments.histories, parse_number<long long>, "lengths of the history in steps",
           "1024,16");
  add_number(app, "--margin", arguments.margin, "divide scales by 2^margin, where the version has a margin");
}

}  // namespace

void add_delayed(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<DelayedOptions>();
  CLI::App* command = app.add_subcommand(
      "delayed", "Replay the scales of delayed scaling from a run's amaxes, every version side by side");
  command->footer(
      "The scales of a run depend on its amaxes alone, so that a log of them is enough to see what another version,\n"
      "history or algorithm would have done. The CSV has a header and a line a step:\n\n"
      "  step,layer1,layer2        or, of several ranks,   step,layer1@0,layer1@1\n"
      "  1,3.5,0.25                                        1,3.5,3.25\n\n"
      "Exit status: 0 done; 2 bad input or unwritable DIR.\n\n"
      "Examples:\n"
      "  fp8lab delayed                                       a built-in trace: a drift, an outlier, a jump, zeros\n"
      "  fp8lab delayed --amax trace.csv --history 1,16,1024  how long a history\n"
      "  fp8lab delayed --amax trace.csv --versions te_0_1,te_1_6,te_current --algorithms most_recent\n"
      "  fp8lab delayed --amax trace.csv --formats e5m2 --margin 1 --out DIR");
  command->add_option("--amax", options->file, "the trace")->type_name("CSV")->default_str("a built-in one");
  add_variants(*command, options->arguments);
  command->add_flag("--no-reduce", options->no_reduce, "every rank has scales of its own: reduce_amax off");
  add_output(*command, options->output, "delayed.json, scales.csv and summary.csv");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace fp8lab::experiments
