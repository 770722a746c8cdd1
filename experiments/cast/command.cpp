// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "cast/cast.hpp"
#include "kit/commands.hpp"

namespace fp8lab::experiments {
namespace {

/// The values' options, of which --grid and --file exclude the others.
struct SourceOptions {
  Draws draws;
  bool grid = false;
  std::vector<std::string> files;
  std::vector<std::string> tensors;
};

struct CastOptions {
  CastArguments arguments;
  SourceOptions source;
  OutputOptions output;
};

TensorSource source_of(const SourceOptions& options) {
  if (!options.files.empty()) return StoredTensors{{options.files.begin(), options.files.end()}, options.tensors};
  const long long size = options.draws.columns;
  const int log2_most = options.grid ? 26 : 40;
  if (size < 1 || size > 1LL << log2_most) {
    throw std::invalid_argument("--size must be from 1 to 2^" + std::to_string(log2_most) + ", not " +
                                std::to_string(size));
  }
  if (options.grid) return Grid{1, size};
  return options.draws;
}

int run(CastOptions& options) {
  CastArguments& arguments = options.arguments;
  arguments.source = source_of(options.source);
  arguments.threads = threads_of_machine();
  if (options.output.out) check_output(options.output, file_names_of(casts_of(arguments)));
  const CastResult result =
      with_progress(options.output, [&](const Progress& progress) { return run_cast(arguments, progress); });
  deliver(
      options.output, options.output.out ? files_of(result) : Files{},
      [&](const TextStyle& style) { return report_of(result, style); },
      "cast.json, summary.csv with a row a cast, and a CSV a histogram");
  return 0;
}

/// The names of a list of named things, as "a, b, c".
template <typename Entries>
std::string names_of(const Entries& entries) {
  std::string names;
  for (const auto& entry : entries) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

void add_source(CLI::App& app, SourceOptions& source) {
  CLI::Option* distribution = add_parsed(app, "--distribution", source.draws.distribution, find_distribution,
                                         "draw the values: " + names_of(distributions))
                                  ->type_name("NAME")
                                  ->default_str("normal");
  CLI::Option* seed = add_number(app, "--seed", source.draws.seed, "which draws");
  CLI::Option* grid = app.add_flag("--grid", source.grid, "quantiles of N(0, 1) instead of draws, without chance");
  CLI::Option* file =
      app.add_option("--file,--files", source.files, "tensors of .npy or .safetensors files, of any size")
          ->type_name("PATH ...");
  app.add_option("--tensor", source.tensors, "which tensors of the files: names, or patterns such as 'layers.*.weight'")
      ->type_name("NAME ...")
      ->needs(file);
  CLI::Option* size = add_number(app, "--size", source.draws.columns, "how many draws, or quantiles");
  grid->excludes(distribution)->excludes(seed)->excludes(file);
  file->excludes(distribution)->excludes(seed)->excludes(size);
}

void add_casts(CLI::App& app, CastArguments& arguments) {
  add_list(app, "--formats", arguments.formats, choose_format, "what to cast to: " + names_of(named_formats),
           "e4m3,e5m2");
  add_list(app, "--profiles", arguments.profiles, choose_profile,
           "what overflow, infinity and NaN become: " + names_of(profiles), "cuda_satfinite");
  add_list(app, "--roundings", arguments.roundings, choose_rounding,
           "nearest_even, nearest_away, toward_zero, upward, downward, to_odd", "the profile's own");
  add_list(app, "--scales", arguments.scales, parse_number<double>, "factors before the cast, divided out afterwards",
           "1");
  add_list(app, "--amax", arguments.amaxes, parse_number<double>,
           "magnitudes that become the format's largest value: scale = largest / amax", "");
  add_parsed(app, "--out-dtype", arguments.out_dtype, find_out_dtype,
             "the type of what comes back: float32 (float64 of float64 values), source")
      ->type_name("NAME")
      ->default_str("float32");
  app.add_flag("--best-scale", arguments.best_scale, "also the scale of the highest exact SQNR");
  app.add_flag("--exact", arguments.exact, "also the exact SQNR of the distribution, without chance");
}

}  // namespace

void add_cast(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<CastOptions>();
  CLI::App* cast =
      app.add_subcommand("cast", "Measure what a cast does to values: SQNR, errors, underflow, saturation");
  cast->footer(
      "Every combination of format, profile, rounding and scale is measured on every value. What comes back is\n"
      "decode(encode(x * scale)) * (1 / scale) in float32, or float64; its error is measured in double against x.\n\n"
      "Exit status: 0 done; 2 bad input or unwritable DIR.\n\n"
      "Examples:\n"
      "  fp8lab cast                                        E4M3 and E5M2 on a million normal values\n"
      "  fp8lab cast --formats e4m3 --amax 6,4 --exact      where to clip: 6 or 4 standard deviations\n"
      "  fp8lab cast --file model.safetensors --tensor w    a tensor of your own\n"
      "  fp8lab cast --roundings nearest_even,toward_zero   the bias of truncation\n"
      "  fp8lab cast --best-scale --scales 1 --exact        how much a scale can help");
  add_source(*cast, options->source);
  add_casts(*cast, options->arguments);
  add_output(*cast, options->output, "cast.json, summary.csv and a CSV a histogram");
  cast->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace fp8lab::experiments
