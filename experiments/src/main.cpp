// SPDX-License-Identifier: Apache-2.0
// The fp8lab command line. Exit status: 0 done; 2 bad input or unwritable output; 3 published numbers not reproduced.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <new>
#include <stdexcept>

#include "commands.hpp"
#include "fp8lab/experiments/provenance.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/text_stream.hpp"

namespace {

using namespace fp8lab::experiments;

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
  Command chosen;
  add_primer(app, chosen);
  add_cast(app, chosen);
  add_accumulate(app, chosen);
  add_double_rounding(app, chosen);
  add_dot(app, chosen);
  add_scaling(app, chosen);
  add_delayed(app, chosen);
  add_transpose(app, chosen);
  add_verify(app, chosen);
  add_lists(app, chosen);
  try {
    check_command(app, argc > 1 ? argv[1] : "");
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw std::invalid_argument(std::string(error.what()) + " (see fp8lab --help)");
    fp8lab::TextStream text;
    app.exit(error, text, text);
    print(text.str());
    return 0;
  }
  return chosen();
}

/// One line on stderr, whatever the user typed.
int fail(std::string reason) {
  std::ranges::replace_if(reason, [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  std::fprintf(stderr, "fp8lab: %s\n", reason.c_str());
  return bad_input;
}

/// The same without taking memory. `command` may be anything.
int fail_for_memory(const char* command) {
  std::fprintf(stderr, "fp8lab: out of memory in %.16s; smaller or fewer tensors, or fewer threads, take less\n",
               command);
  return bad_input;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);                 // a file that grows too large is an error to report, not the end
  const fp8lab::DefaultEnvironment environment;  // a parent process may have left another one of floating point
  try {
    return parse_and_run(argc, argv);
  } catch (const std::bad_alloc&) {
    return fail_for_memory(argv[1]);    // without a command, nothing takes memory
  } catch (const std::length_error&) {  // sizes that no memory has
    return fail_for_memory(argv[1]);
  } catch (const std::exception& error) {
    return fail(error.what());
  } catch (...) {
    return fail("unknown error");
  }
}
