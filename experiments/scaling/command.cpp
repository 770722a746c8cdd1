// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <stdexcept>

#include "kit/commands.hpp"
#include "scaling/scaling.hpp"

namespace fp8lab::experiments {
namespace {

struct ScalingOptions {
  ScalingArguments arguments;
  Draws drawn{.rows = 256, .columns = 256, .steps = 48, .kind = StreamKind::jump};
  std::string stream = "jump";
  std::vector<std::string> files;
  std::vector<std::string> tensors;
  std::string version{te_current.name};
  int margin = 0;
  bool backward = false;
  OutputOptions output;
  std::vector<CLI::Option*> of_draws;  // which the grid has none of
};

TensorSource source_of(const ScalingOptions& options) {
  if (!options.files.empty()) {
    return StoredTensors{{options.files.begin(), options.files.end()}, options.tensors};
  }
  for (const CLI::Option* option : options.of_draws) {
    if (options.stream == "grid" && option->count() != 0) {
      throw std::invalid_argument(option->get_name() + " goes with draws, which --stream grid has none of");
    }
  }
  if (options.stream == "grid") return Grid{options.drawn.rows, options.drawn.columns};
  Draws drawn = options.drawn;
  drawn.kind = parse_option("--stream", options.stream, find_stream_kind);
  return drawn;
}

int run(ScalingOptions& options) {
  ScalingArguments& arguments = options.arguments;
  arguments.threads = threads_of_machine();
  arguments.source = source_of(options);
  if (options.backward && arguments.delayed.empty()) {
    throw std::invalid_argument("--backward goes with delayed scaling, of which there is none");
  }
  arguments.pass = options.backward ? Pass::backward : Pass::forward;
  for (Delayed& delayed : arguments.delayed) {
    delayed.version = parse_option("--version", options.version, find_delayed_version);
    delayed.margin = options.margin;
  }
  if (options.output.out) check_output(options.output, file_names_of(arguments));
  const ScalingResult result =
      with_progress(options.output, [&](const Progress& progress) { return run_scaling(arguments, progress); });
  deliver(
      options.output, options.output.out ? files_of(result) : Files{},
      [&](const TextStyle& style) { return report_of(result, style); },
      "scaling.json, summary.csv with a row a recipe, steps.csv with a row a step, and CSVs of histograms");
  return 0;
}

void add_stream(CLI::App& app, ScalingOptions& options) {
  CLI::Option* stream = app.add_option("--stream", options.stream,
                                       "how drawn tensors change: stationary, drift, outliers, jump; grid: one tensor "
                                       "of the quantiles of N(0, 1)")
                            ->type_name("NAME")
                            ->default_str("jump");
  std::vector<CLI::Option*> drawn{stream};
  drawn.push_back(add_parsed(app, "--distribution", options.drawn.distribution, find_distribution,
                             "what they are drawn from (fp8lab distributions lists them)")
                      ->type_name("NAME")
                      ->default_str("normal"));
  drawn.push_back(add_number(app, "--steps", options.drawn.steps, "tensors"));
  drawn.push_back(add_number(app, "--rows", options.drawn.rows, "of each"));
  drawn.push_back(add_number(app, "--columns", options.drawn.columns, "of each: the dimension that blocks lie along"));
  drawn.push_back(add_number(app, "--seed", options.drawn.seed, "which draws"));
  CLI::Option* files = app.add_option("--files,--file", options.files,
                                      "instead: tensors of .npy or .safetensors files, a step each, in this order")
                           ->type_name("FILE ...");
  for (CLI::Option* option : drawn) files->excludes(option);
  for (CLI::Option* option : drawn) {
    for (const char* name : {"--distribution", "--steps", "--seed"}) {
      if (option->check_name(name)) options.of_draws.push_back(option);
    }
  }
  app.add_option("--tensor", options.tensors,
                 "which tensors of the files: names, or patterns such as 'layers.*.weight'")
      ->type_name("NAME ...")
      ->needs(files);
}

}  // namespace

void add_scaling(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ScalingOptions>();
  CLI::App* command = app.add_subcommand(
      "scaling", "Quantize one stream of tensors by every recipe: just-in-time, delayed, MX, tiles, NVFP4");
  command->footer(
      "All recipes see the same tensors in the same order, rows along K; delayed scaling starts with scale 1, as\n"
      "Transformer Engine does.\n\n"
      "Exit status: 0 done; 2 bad input or unwritable DIR.\n\n"
      "Examples:\n"
      "  fp8lab scaling                                   a jump up and down again: how long delayed scaling lags\n"
      "  fp8lab scaling --stream outliers --delayed max:16,max:1024,most_recent:1\n"
      "  fp8lab scaling --recipes te_mxfp8,ocp_mxfp8_e4m3,mx:e4m3:even --delayed none --stream grid\n"
      "  fp8lab scaling --files step1.npy step2.npy step3.npy --out DIR");
  add_stream(*command, *options);
  add_list(*command, "--recipes", options->arguments.recipes, choose_recipe,
           "recipes without memory (fp8lab recipes lists them), or mx:FORMAT:RULE",
           "te_current_scaling,te_mxfp8,te_block_1x128,te_nvfp4");
  CLI::callback_t take = [options](const CLI::results_t& given) {
    options->arguments.delayed.clear();
    if (given.front() == "none") return true;
    for (const std::string& entry : split_list("--delayed", given.front())) {
      options->arguments.delayed.push_back(parse_option("--delayed", entry, choose_delayed));
    }
    return true;
  };
  command->add_option("--delayed", std::move(take), "delayed scaling, ALGORITHM:LENGTH each; none")
      ->type_name("LIST")
      ->default_str("max:1024,max:8,most_recent:1");
  command->add_option("--version", options->version, "whose delayed scaling (fp8lab delayed-versions lists them)")
      ->type_name("NAME")
      ->default_str(options->version);
  add_number(*command, "--margin", options->margin, "of delayed scaling: divide scales by 2^margin");
  command->add_flag("--backward", options->backward, "delayed scaling casts to E5M2, as gradients are");
  command->add_flag("--bfloat16", options->arguments.bfloat16, "round values to bfloat16 first");
  add_parsed(*command, "--out-dtype", options->arguments.out_dtype, find_out_dtype,
             "the type of what comes back: float32, source")
      ->type_name("NAME")
      ->default_str("float32");
  add_output(*command, options->output, "scaling.json, summary.csv, steps.csv and CSVs of histograms");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace fp8lab::experiments
