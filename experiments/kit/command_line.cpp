// SPDX-License-Identifier: Apache-2.0
#include "kit/command_line.hpp"

#include <CLI/CLI.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/text.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "kit/commands.hpp"
#include "kit/provenance.hpp"

namespace fp8lab::experiments {
namespace {

/// CLI11 would only say that a subcommand is missing.
void check_command(const CLI::App& app, const std::string& command) {
  if (command.empty() || command == "-h" || command == "--help" || command == "--version") return;
  if (command.front() == '-') {
    throw std::invalid_argument("unknown option " + in_quotes(command) + " (see fp8lab --help)");
  }
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App* /*any*/) { return true; })) {
    if (sub->get_name() == command) return;
    names.push_back(sub->get_name());
  }
  refuse_name("command", command, std::vector<std::string_view>(names.begin(), names.end()));
}

/// Without this, CLI11 takes what follows an option for its value, also where that is another option.
void refuse_options_as_values(CLI::App& app) {
  const auto check = [](const std::string& value) -> std::string {
    if (!value.starts_with("--")) return {};
    return "a value must follow, and " + in_quotes(value) + " is an option (a path may begin with ./)";
  };
  for (CLI::Option* option :
       app.get_options([](const CLI::Option* one) { return one->get_items_expected_max() > 0; })) {
    option->check(CLI::Validator(check, {}, {}));
  }
  for (CLI::App* sub : app.get_subcommands([](const CLI::App* /*any*/) { return true; })) {
    refuse_options_as_values(*sub);
  }
}

}  // namespace

Command command_of(int argc, const char* const* argv) {
  // A command may ask its options when it runs: they live as long as it does.
  const auto app = std::make_shared<CLI::App>(
      "fp8lab computes what FP8 hardware computes, bit for bit, and measures what that costs.", "fp8lab");
  app->set_version_flag("--version", "fp8lab " + std::string(version()));
  app->require_subcommand(1);
  Command chosen;
  add_primer(*app, chosen);
  add_cast(*app, chosen);
  add_accumulate(*app, chosen);
  add_double_rounding(*app, chosen);
  add_dot(*app, chosen);
  add_scaling(*app, chosen);
  add_delayed(*app, chosen);
  add_transpose(*app, chosen);
  add_verify(*app, chosen);
  add_lists(*app, chosen);
  refuse_options_as_values(*app);
  try {
    check_command(*app, argc > 1 ? argv[1] : "");
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw std::invalid_argument(std::string(error.what()) + " (see fp8lab --help)");
    TextStream text;  // help, or the version
    app->exit(error, text, text);
    return [shown = text.str()] {
      print(shown);
      return 0;
    };
  }
  return [app, chosen] { return chosen(); };
}

}  // namespace fp8lab::experiments
