// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <stdexcept>

#include "kit/commands.hpp"
#include "transpose/transpose.hpp"

namespace fp8lab::experiments {
namespace {

struct TransposeOptions {
  TransposeArguments arguments;
  Draws draws{.rows = 1024, .columns = 1024};
  std::vector<std::string> files;
  std::vector<std::string> tensors;
  OutputOptions output;
};

int run(TransposeOptions& options) {
  TransposeArguments& arguments = options.arguments;
  arguments.source = options.draws;
  if (!options.files.empty()) {
    arguments.source = StoredTensors{{options.files.begin(), options.files.end()}, options.tensors};
  }
  arguments.threads = threads_of_machine();
  check_output(options.output, file_names_of(arguments));
  const TransposeResult result =
      with_progress(options.output, [&](const Progress& progress) { return run_transpose(arguments, progress); });
  deliver(
      options.output, options.output.out ? files_of(result) : Files{},
      [&](const TextStyle& style) { return report_of(result, style); },
      "transpose.json, summary.csv with a row a recipe, and a CSV a histogram");
  return 0;
}

/// An option that is COUNT,FACTOR.
CLI::Option* add_outliers(CLI::App& app, const char* name, OutlierLines& outliers, const std::string& help) {
  const auto parse = [](const std::string& text) -> OutlierLines {
    const std::size_t comma = text.find(',');
    if (comma == std::string::npos) throw std::invalid_argument(in_quotes(text) + " is not two numbers, COUNT,FACTOR");
    return {parse_number<long long>(text.substr(0, comma)), parse_number<double>(text.substr(comma + 1))};
  };
  return add_parsed(app, name, outliers, parse, help)->type_name("COUNT,FACTOR");
}

void add_matrix(CLI::App& app, TransposeOptions& options) {
  Draws& draws = options.draws;
  CLI::Option* file =
      app.add_option("--file,--files", options.files, "2-D tensors of .npy or .safetensors files instead of draws")
          ->type_name("PATH ...");
  app.add_option("--tensor", options.tensors,
                 "which tensors of the files: names, or patterns such as 'layers.*.weight'")
      ->type_name("NAME ...")
      ->needs(file);
  add_parsed(app, "--distribution", draws.distribution, find_distribution,
             "draw the values (fp8lab distributions lists them)")
      ->type_name("NAME")
      ->default_str("normal")
      ->excludes(file);
  add_number(app, "--seed", draws.seed, "which draws")->excludes(file);
  add_number(app, "--rows", draws.rows, "of the matrix")->excludes(file);
  add_number(app, "--columns", draws.columns, "of the matrix")->excludes(file);
  add_outliers(app, "--outlier-rows", draws.outlier_rows, "so many rows, spread evenly, times FACTOR: tokens")
      ->excludes(file);
  add_outliers(app, "--outlier-columns", draws.outlier_columns, "the same of columns: channels")->excludes(file);
}

}  // namespace

void add_transpose(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<TransposeOptions>();
  CLI::App* command =
      app.add_subcommand("transpose", "Measure what it costs to make the columnwise copy from the rowwise one");
  command->footer(
      "Training needs a tensor along its rows (fprop) and along its columns (wgrad). Quantized from the original\n"
      "values, both copies are as good as the format; made of the rowwise copy, the columnwise one is quantized\n"
      "twice. Where both directions share scales, the transposed codes serve, and cost nothing.\n\n"
      "Exit status: 0 done; 2 bad input or unwritable DIR.\n\n"
      "Examples:\n"
      "  fp8lab transpose                                       ten recipes on 1024 x 1024 normal values\n"
      "  fp8lab transpose --recipes te_block_1x128,te_block_1x128_fp32   scales that are powers of two, or not\n"
      "  fp8lab transpose --outlier-rows 8,64                   eight tokens are 64 times as large\n"
      "  fp8lab transpose --file model.safetensors --tensor w   a tensor of your own");
  std::string shown;
  for (const std::string_view name : default_transpose_recipes) shown.append(shown.empty() ? "" : ",").append(name);
  add_list(*command, "--recipes", options->arguments.recipes, choose_recipe,
           "what quantizes (fp8lab recipes lists them)", shown);
  add_matrix(*command, *options);
  add_output(*command, options->output, "transpose.json, summary.csv and a CSV a histogram");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace fp8lab::experiments
