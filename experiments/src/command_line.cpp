// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <CLI/CLI.hpp>
#include <stdexcept>
#include <string>

#include "commands.hpp"
#include "fp8lab/experiments/provenance.hpp"
#include "fp8lab/formats/text_stream.hpp"

namespace fp8lab::experiments {
namespace {

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

}  // namespace

Command command_of(int argc, const char* const* argv) {
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
    TextStream text;  // help, or the version
    app.exit(error, text, text);
    return [shown = text.str()] {
      print(shown);
      return 0;
    };
  }
  return chosen;
}

}  // namespace fp8lab::experiments
