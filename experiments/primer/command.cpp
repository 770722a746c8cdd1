// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "kit/commands.hpp"

namespace fp8lab::experiments {
namespace {

struct PrimerOptions {
  PrimerArguments arguments;
  std::string mma{hopper_wgmma_fp8.name};
  OutputOptions output;
};

int run(PrimerOptions& options) {
  options.arguments.mma = parse_option("--mma", options.mma, find_primer_model);
  options.arguments.threads = threads_of_machine();
  check_output(options.output, primer_files());
  const PrimerResult result =
      with_progress(options.output, [&](const Progress& progress) { return run_primer(options.arguments, progress); });
  deliver(
      options.output, files_of(result), [&](const TextStyle& style) { return report_of(result, style); },
      "primer.json and a CSV a histogram");
  return result.judged && !result.passed ? not_reproduced : 0;
}

}  // namespace

void add_primer(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<PrimerOptions>();
  PrimerArguments& arguments = options->arguments;
  CLI::App* primer =
      app.add_subcommand("primer", "Reproduce the H100 tables of Transformer Engine's FP8 primer, and explain them");
  primer->footer(
      "A Linear layer in FP8, in TF32, and in TF32 with inputs that E4M3 can represent: the corners that NVIDIA's\n"
      "documentation prints, computed here from PyTorch's random streams, the E4M3 cast and a bit-exact model of the\n"
      "tensor core; then what each step contributes to the difference between FP8 and FP32.\n\n"
      "Exit status: 0 done; 2 bad input or unwritable DIR; 3 the default arguments did not reproduce the tables.\n"
      "With other arguments the counts of matches are shown but not judged.\n\n"
      "Examples:\n"
      "  fp8lab primer --out results/primer      tables, causes, histograms; also as JSON and CSV\n"
      "  fp8lab primer --mma exact               the same without the tensor core's error\n"
      "  fp8lab primer --scale-w 16              the weight lifted out of E4M3's subnormals");
  add_number(*primer, "--seed", arguments.seed, "torch.manual_seed");
  add_number(*primer, "--sms", arguments.sms, "SMs of the device that draws the weight (H100 PCIe: 114, SXM: 132)");
  primer->add_option("--mma", options->mma, "tensor core of the FP8 product: " + primer_model_names())
      ->type_name("MODEL")
      ->capture_default_str();
  add_number(*primer, "--in-features", arguments.in_features, "K, a multiple of 16");
  add_number(*primer, "--out-features", arguments.out_features, "N, a multiple of 16");
  add_number(*primer, "--rows", arguments.rows, "M, a multiple of 16");
  add_number(*primer, "--scale-x", arguments.scale_x, "factor on x before the cast, divided out afterwards");
  add_number(*primer, "--scale-w", arguments.scale_w, "factor on w before the cast, divided out afterwards");
  add_output(*primer, options->output, "primer.json and a CSV a histogram");
  primer->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace fp8lab::experiments
