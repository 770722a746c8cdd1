// SPDX-License-Identifier: Apache-2.0
// The fp8lab command line. Exit status: 0 done; 2 bad input or unwritable output; 3 published numbers not reproduced.
#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>

#include "fp8lab/experiments/output.hpp"
#include "fp8lab/experiments/primer.hpp"
#include "fp8lab/experiments/provenance.hpp"

namespace {

using namespace fp8lab;
using namespace fp8lab::experiments;

constexpr int bad_input = 2;
constexpr int not_reproduced = 3;

TextStyle style_of_terminal() {
  TextStyle style;
  style.unicode = std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  winsize size{};
  if (isatty(STDOUT_FILENO) != 0) {
    style.color = std::getenv("NO_COLOR") == nullptr;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) style.width = size.ws_col;
  }
  return style;
}

/// Draws a progress bar on stderr once a run has taken a second, where stderr is a terminal.
class ProgressBar {
 public:
  void operator()(double share) {
    if (isatty(STDERR_FILENO) == 0 || std::chrono::steady_clock::now() - start_ < std::chrono::seconds(1)) return;
    std::fprintf(stderr, "\r[%s] %3.0f %%", bar(share, 1, 40, {.unicode = false}).c_str(), 100 * share);
    shown_ = true;
  }
  void clear() const {
    if (shown_) std::fprintf(stderr, "\r\x1b[K");
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool shown_ = false;
};

struct PrimerOptions {
  PrimerArguments arguments;
  std::string mma{hopper_wgmma_fp8.name};
  std::optional<std::string> out;
  bool quiet = false;
};

/// Prints to stdout, or throws: a report that nobody can read is no success.
void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) == EOF || std::fflush(stdout) != 0) {
    throw std::runtime_error(std::string("cannot write to stdout: ") + std::strerror(errno));
  }
}

int run(PrimerOptions& options) {
  options.arguments.mma = find_primer_model(options.mma);
  options.arguments.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  // Before the work, not after it: can the results be written?
  if (options.out) check_writable(*options.out, {"primer.json"});
  ProgressBar bar;
  Progress progress;
  if (!options.quiet) progress = [&](double share) { bar(share); };
  const PrimerResult result = run_primer(options.arguments, progress);
  bar.clear();
  if (options.out) write_files(*options.out, files_of(result));
  if (!options.quiet) print(report_of(result, style_of_terminal()));
  if (options.out && !options.quiet) print("Results: " + *options.out + "/primer.json and a CSV a histogram\n");
  return result.judged && !result.passed ? not_reproduced : 0;
}

/// An option whose whole text has to be a number that fits T. (CLI11 would read 010 as octal, and "" as 0.)
template <typename T>
void add_number(CLI::App& app, const std::string& name, T& value, const std::string& help) {
  const auto parse = [&value](const std::string& text) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc{} && end == text.data() + text.size()) return;
    std::ostringstream reason;
    reason << "'" << text << "' is no " << (std::is_integral_v<T> ? "whole " : "") << "number from "
           << std::numeric_limits<T>::lowest() << " to " << std::numeric_limits<T>::max();
    throw CLI::ValidationError(reason.str());
  };
  std::ostringstream text;
  text << value;
  app.add_option_function<std::string>(name, parse, help)
      ->type_name(std::is_integral_v<T> ? "INT" : "FLOAT")
      ->default_str(text.str());
}

void add_primer(CLI::App& app, PrimerOptions& options) {
  PrimerArguments& arguments = options.arguments;
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
  primer->add_option("--mma", options.mma, "tensor core of the FP8 product: " + primer_model_names())
      ->type_name("MODEL")
      ->capture_default_str();
  add_number(*primer, "--in-features", arguments.in_features, "K, a multiple of 16");
  add_number(*primer, "--out-features", arguments.out_features, "N, a multiple of 16");
  add_number(*primer, "--rows", arguments.rows, "M, a multiple of 16");
  add_number(*primer, "--scale-x", arguments.scale_x, "factor on x before the cast, divided out afterwards");
  add_number(*primer, "--scale-w", arguments.scale_w, "factor on w before the cast, divided out afterwards");
  primer->add_option("--out", options.out, "write primer.json and a CSV a histogram into DIR")->type_name("DIR");
  primer->add_flag("--quiet", options.quiet, "print nothing; the exit status tells");
}

/// CLI11 would only say that a subcommand is missing.
void check_command(const CLI::App& app, const std::string& command) {
  if (command.empty() || command == "-h" || command == "--help" || command == "--version") return;
  if (command.front() == '-') throw std::invalid_argument("unknown option '" + command + "' (see fp8lab --help)");
  std::string known;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App* /*any*/) { return true; })) {
    if (sub->get_name() == command) return;
    known += (known.empty() ? "" : ", ") + sub->get_name();
  }
  throw std::invalid_argument("unknown command '" + command + "'; known: " + known);
}

/// Parses and runs. Help and version come as CLI::ParseError with exit code 0.
int parse_and_run(int argc, char** argv) {
  CLI::App app{"fp8lab computes what FP8 hardware computes, bit for bit, and measures what that costs.", "fp8lab"};
  app.set_version_flag("--version", "fp8lab " + std::string(version()));
  app.require_subcommand(1);
  PrimerOptions primer;
  add_primer(app, primer);
  try {
    check_command(app, argc > 1 ? argv[1] : "");
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw std::invalid_argument(std::string(error.what()) + " (see fp8lab --help)");
    std::ostringstream text;
    app.exit(error, text, text);
    print(text.str());
    return 0;
  }
  return run(primer);
}

/// One line on stderr, whatever the user typed.
int fail(std::string reason) {
  std::ranges::replace_if(reason, [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  std::fprintf(stderr, "fp8lab: %s\n", reason.c_str());
  return bad_input;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is an error to report, not the end
  std::setlocale(LC_CTYPE, "");
  try {
    return parse_and_run(argc, argv);
  } catch (const std::exception& error) {
    return fail(error.what());
  } catch (...) {
    return fail("unknown error");
  }
}
