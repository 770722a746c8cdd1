// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "kit/commands.hpp"
#include "verify/casts.hpp"
#include "verify/tensor_cores.hpp"

namespace fp8lab::experiments {
namespace {

template <typename Arguments>
struct VerifyOptions {
  Arguments arguments;
  OutputOptions output;
};

/// Runs verify(arguments, progress, row_done). Rows are printed as they are done: a run over everything takes its time,
/// and what it has shown stays when it is cut short.
template <typename Row, typename Arguments, typename Verify>
int run(VerifyOptions<Arguments>& options, const std::string& file, const Verify& verify) {
  options.arguments.threads = threads_of_machine();
  check_output(options.output, {file});
  const bool quiet = options.output.quiet;
  ProgressBar bar;
  bool begun = false;
  const auto result = verify(
      options.arguments,
      [&](double share) {
        if (!quiet) bar(share);
      },
      [&](const Row& row) {
        bar.clear();
        if (!quiet) print((begun ? "" : heading_of(options.arguments)) + row_text(row));
        begun = true;
      });
  deliver(options.output, files_of(result), [&](const TextStyle& /*style*/) { return summary_of(result); }, file);
  return result.passed() ? 0 : not_reproduced;
}

/// The name of what `find` finds.
template <auto find>
std::string name_of(const std::string& name) {
  (void)find(name);
  return name;
}

void add_casts_to(CLI::App& verify, Command& chosen) {
  const auto options = std::make_shared<VerifyOptions<VerifyCastsArguments>>();
  VerifyCastsArguments& arguments = options->arguments;
  CLI::App* casts = verify.add_subcommand("casts", "Every cast from float32, on every instruction set of this machine");
  casts->footer(
      "Each combination of format, profile and rounding is held against the exact values of the format, float by\n"
      "float: where between two neighbours each code begins. What is checked: the vector code of every instruction\n"
      "set, the scalar code, and NVIDIA's host header where fp8lab was built beside the CUDA toolkit.\n\n"
      "Exit status: 0 everything is exact; 2 bad input or unwritable DIR; 3 something is not.\n\n"
      "Examples:\n"
      "  fp8lab verify casts                               a seeded sample of every combination\n"
      "  fp8lab verify casts --all --formats e4m3          all 2^32 floats, and their digests\n"
      "  fp8lab verify casts --all                         everything: about 40 minutes on two cores");
  add_list(*casts, "--formats", arguments.formats, name_of<find_format>, "formats to verify", "all");
  add_list(*casts, "--profiles", arguments.profiles, name_of<find_profile>, "profiles to verify", "all");
  add_list(*casts, "--roundings", arguments.roundings, name_of<find_rounding>, "rounding modes to verify",
           "each profile's own; every one for cuda_satfinite");
  CLI::Option* all =
      casts->add_flag("--all", arguments.all, "all 2^32 floats a combination, and the digest of their codes");
  add_number(*casts, "--chunks", arguments.chunks, "without --all: chunks of 2^20 floats a combination")->excludes(all);
  add_number(*casts, "--seed", arguments.seed, "without --all: which chunks")->excludes(all);
  add_output(*casts, options->output, "verify_casts.json");
  casts->callback([options, &chosen] {
    chosen = [options] { return run<VerifyCastsRow>(*options, "verify_casts.json", verify_casts); };
  });
}

void add_tensor_cores_to(CLI::App& verify, Command& chosen) {
  const auto options = std::make_shared<VerifyOptions<VerifyTensorCoresArguments>>();
  VerifyTensorCoresArguments& arguments = options->arguments;
  CLI::App* cores = verify.add_subcommand(
      "tensor-cores", "Every tensor core, on every instruction set of this machine, and against recorded words");
  cores->footer(
      "For each model the vector code of every instruction set is held against the scalar code, in GEMMs of operands\n"
      "that are hard: all formats, carries, cancellation, subnormals, zeros, NaN, K of one instruction and of "
      "several,\n"
      "with promotion and without. Files of recorded words, JSON or gzipped JSON, are held against the scalar code:\n"
      "--vectors as tests/vectors/mma_sim.json has them, --rows as measured on GPUs. The word of every dot product\n"
      "must be equal.\n\n"
      "Exit status: 0 everything is equal; 2 bad input or unwritable DIR; 3 something is not.\n\n"
      "Examples:\n"
      "  fp8lab verify tensor-cores                                          every model\n"
      "  fp8lab verify tensor-cores --vectors tests/vectors/mma_sim.json     and what MMA-Sim computed\n"
      "  fp8lab verify tensor-cores --models hopper_wgmma_fp8 --dots 100000000");
  add_list(*cores, "--models", arguments.models, name_of<find_model>, "models to verify", "all");
  add_number(*cores, "--dots", arguments.dots, "dot products a model on every instruction set");
  add_number(*cores, "--seed", arguments.seed, "which ones");
  cores->add_option("--vectors", arguments.vectors, "also vectors and chains recorded in FILE")->type_name("FILE");
  cores->add_option("--rows", arguments.rows, "also rows measured on GPUs, in FILE")->type_name("FILE");
  add_output(*cores, options->output, "verify_tensor_cores.json");
  cores->callback([options, &chosen] {
    chosen = [options] { return run<VerifyTensorCoresRow>(*options, "verify_tensor_cores.json", verify_tensor_cores); };
  });
}

}  // namespace

void add_verify(CLI::App& app, Command& chosen) {
  CLI::App* verify = app.add_subcommand("verify", "Prove on this machine that what fp8lab computes is exact");
  verify->require_subcommand(1);
  add_casts_to(*verify, chosen);
  add_tensor_cores_to(*verify, chosen);
}

}  // namespace fp8lab::experiments
