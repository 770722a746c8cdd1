// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "commands.hpp"
#include "fp8lab/experiments/verify_casts.hpp"

namespace fp8lab::experiments {
namespace {

struct VerifyOptions {
  VerifyCastsArguments arguments;
  OutputOptions output;
};

/// Rows are printed as they are done: a run over all floats takes its time, and what it has shown stays when it is cut
/// short.
int run(VerifyOptions& options) {
  options.arguments.threads = threads_of_machine();
  check_output(options.output, {"verify_casts.json"});
  const bool quiet = options.output.quiet;
  ProgressBar bar;
  bool begun = false;
  const VerifyCastsResult result = verify_casts(
      options.arguments,
      [&](double share) {
        if (!quiet) bar(share);
      },
      [&](const VerifyCastsRow& row) {
        bar.clear();
        if (!quiet) print((begun ? "" : heading_of(options.arguments)) + row_text(row));
        begun = true;
      });
  deliver(
      options.output, files_of(result), [&](const TextStyle& /*style*/) { return summary_of(result); },
      "verify_casts.json");
  return result.passed() ? 0 : not_reproduced;
}

std::string same(const std::string& entry) { return entry; }

}  // namespace

void add_verify(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<VerifyOptions>();
  VerifyCastsArguments& arguments = options->arguments;
  CLI::App* verify = app.add_subcommand("verify", "Prove on this machine that what fp8lab computes is exact");
  verify->require_subcommand(1);
  CLI::App* casts =
      verify->add_subcommand("casts", "Every cast from float32, on every instruction set of this machine");
  casts->footer(
      "Each combination of format, profile and rounding is held against the exact values of the format, float by\n"
      "float: where between two neighbours each code begins. What is checked: the vector code of every instruction\n"
      "set, the scalar code, and NVIDIA's host header where fp8lab was built beside the CUDA toolkit.\n\n"
      "Exit status: 0 everything is exact; 2 bad input or unwritable DIR; 3 something is not.\n\n"
      "Examples:\n"
      "  fp8lab verify casts                               a seeded sample of every combination\n"
      "  fp8lab verify casts --all --formats e4m3          all 2^32 floats, and their digests\n"
      "  fp8lab verify casts --all                         everything: about 40 minutes on two cores");
  add_list(*casts, "--formats", arguments.formats, same, "formats to verify", "all");
  add_list(*casts, "--profiles", arguments.profiles, same, "profiles to verify", "all");
  add_list(*casts, "--roundings", arguments.roundings, same, "rounding modes to verify",
           "each profile's own; every one for cuda_satfinite");
  casts->add_flag("--all", arguments.all, "all 2^32 floats a combination, and the digest of their codes");
  add_number(*casts, "--chunks", arguments.chunks, "without --all: chunks of 2^20 floats a combination");
  add_number(*casts, "--seed", arguments.seed, "without --all: which chunks");
  add_output(*casts, options->output, "verify_casts.json");
  casts->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace fp8lab::experiments
