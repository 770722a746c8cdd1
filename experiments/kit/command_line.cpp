// SPDX-License-Identifier: Apache-2.0
#include "kit/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <ranges>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/gpu/cuda_error.hpp"
#include "kit/command_facts.hpp"
#include "kit/completion.hpp"
#include "kit/experiment.hpp"
#include "kit/man_page.hpp"
#include "kit/output.hpp"
#include "kit/provenance.hpp"
#include "kit/render.hpp"
#include "kit/report.hpp"
#include "kit/stop_signals.hpp"
#include "kit/terminal.hpp"

namespace fp8lab::experiments {
namespace {

using Apps = std::vector<CLI::App*>;

Apps subcommands_of(const CLI::App& app) {
  Apps all;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App* /*any*/) { return true; })) {
    all.push_back(const_cast<CLI::App*>(sub));  // NOLINT(cppcoreguidelines-pro-type-const-cast): CLI11 gives no other
  }
  return all;
}

/// Throws where `command` is none of the app's: CLI11 would only say that a subcommand is missing.
CLI::App& check_command(const CLI::App& app, const std::string& command) {
  std::vector<std::string> names;
  for (CLI::App* sub : subcommands_of(app)) {
    if (sub->get_name() == command) return *sub;
    names.push_back(sub->get_name());
  }
  refuse_name("command", command, std::vector<std::string_view>(names.begin(), names.end()));
}

/// Throws where an option is none of the app's: CLI11 would say only that it did not expect it.
void check_options(const CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (!name.starts_with("--") || std::ranges::find(names, name) != names.end()) continue;
    refuse_name("option", name, std::vector<std::string_view>(names.begin(), names.end()));
  }
}

/// What to say of a word that CLI11 did not expect: after an option that takes a list, a comma may be missing.
std::string unexpected(const std::vector<std::string>& words, const std::string& message) {
  // 1. The first word of those that the message names at its end, and the experiment.
  const std::string extras = message.substr(std::min(message.rfind(": "), message.size() - 1) + 1) + ' ';
  const auto at = std::ranges::find_if(
      words, [&](const std::string& word) { return extras.find(' ' + word + ' ') != std::string::npos; });
  if (at == words.end()) return message;
  const auto experiment = std::ranges::find_if(experiments(), [&](const Experiment& one) {
    return words.front() == one.name || (words.size() > 1 && words[0] + ' ' + words[1] == one.name);
  });
  std::string reason = "the argument " + in_quotes(*at) + " was not expected";
  // 2. The option before it.
  const auto is_option = [](const std::string& word) { return word.starts_with("--"); };
  const auto before = std::find_if(std::make_reverse_iterator(at), words.rend(), is_option);
  if (experiment == experiments().end() || before == words.rend()) return reason;
  const std::string option = before->substr(0, before->find('='));
  const std::unique_ptr<Call> call = experiment->prepare();
  for (const Argument& argument : call->arguments.all()) {
    if (!argument.is_list || (argument.option() != option && argument.other_option != option)) continue;
    std::string list = option == *before ? "" : before->substr(option.size() + 1);
    for (auto word = before.base(); word != words.end() && !is_option(*word); ++word) {
      list += (list.empty() ? "" : ",") + *word;
    }
    return reason.append(": the entries of a list have commas between them: ").append(option).append(" ").append(list);
  }
  return reason;
}

/// Throws where of the words that a command takes without their options one is missing, and the others need it.
void check_positionals(const Experiment& experiment, const ArgumentList& arguments,
                       const std::vector<std::string>& given) {
  const auto is_given = [&](const std::string& name) { return std::ranges::find(given, name) != given.end(); };
  std::string all;
  std::string missing;
  bool is_needed = false;
  for (const Argument& argument : arguments.all()) {
    if (!argument.is_positional || !argument.command_line) continue;
    all += (all.empty() ? "" : " ") + argument.metavar;
    if (!is_given(argument.name)) {
      missing += (missing.empty() ? "" : ", ") + argument.metavar;
      continue;
    }
    is_needed = is_needed || std::ranges::any_of(arguments.all(), [&](const Argument& other) {
                  return other.is_positional && !is_given(other.name) &&
                         std::ranges::find(argument.needs, other.name) != argument.needs.end();
                });
  }
  if (!is_needed) return;
  const bool is_one = missing.find(',') == std::string::npos;
  throw std::invalid_argument(missing + (is_one ? " is" : " are") + " missing: fp8lab " + experiment.name + " takes " +
                              all + " together (see fp8lab help " + experiment.name + ")");
}

/// Without this, CLI11 takes what follows an option for its value, also where that is another option.
void refuse_options_as_values(CLI::App& app) {
  const auto check = [](const std::string& value) -> std::string {
    if (!value.starts_with("--")) return {};
    return "its value is missing, and " + in_quotes(value) + " is an option (a path of that name is written ./--name)";
  };
  for (CLI::Option* option :
       app.get_options([](const CLI::Option* one) { return one->get_items_expected_max() > 0; })) {
    option->check(CLI::Validator(check, {}, {}));
  }
  for (CLI::App* sub : subcommands_of(app)) refuse_options_as_values(*sub);
}

/// The threads that an experiment takes: what the machine has.
int threads_of_machine() {
  return static_cast<int>(std::clamp<unsigned>(std::thread::hardware_concurrency(), 1, most_threads));
}

/// The next comma from `first` on that stands in no {a,b} of a pattern; a "{" that nothing closes is a character.
std::size_t find_comma(const std::string& text, std::size_t first) {
  int depth = 0;
  for (std::size_t i = first; i < text.size(); ++i) {
    if (text[i] == '{' && text.find('}', i) != std::string::npos) ++depth;
    if (text[i] == '}' && depth > 0) --depth;
    if (text[i] == ',' && depth == 0) return i;
  }
  return std::string::npos;
}

/// The entries of the comma-separated list that option `name` got. Throws where there is none, an empty one, or, unless
/// it may repeat, one twice.
std::vector<std::string> split_list(const std::string& name, const std::string& text, bool repeats) {
  std::vector<std::string> entries;
  std::size_t first = 0;
  for (std::size_t end = 0; end != std::string::npos; first = end + 1) {
    end = find_comma(text, first);
    const std::string entry = text.substr(first, end - first);
    if (entry.empty()) refuse(name, " must be a list without empty entries, such as a,b,c, not ", in_quotes(text));
    if (!repeats && std::ranges::find(entries, entry) != entries.end()) {
      refuse(name, " must have each entry once, and has ", in_quotes(entry), " twice");
    }
    entries.push_back(entry);
  }
  return entries;
}

// The options of an experiment.

std::string metavar_of(const Argument& argument) {
  if (!argument.metavar.empty()) return argument.metavar;
  if (argument.is_list) return argument.kind == Kind::path ? "FILE ..." : "LIST";
  switch (argument.kind) {
    case Kind::flag: return "";
    case Kind::integer: return "INT";
    case Kind::number:
    case Kind::amax: return "FLOAT";
    case Kind::path:
    case Kind::trace: return "PATH";
    case Kind::name:
    case Kind::format:
    case Kind::profile:
    case Kind::model:
    case Kind::distribution:
    case Kind::version:
    case Kind::recipe:
    case Kind::linear_recipe:
    case Kind::gemm_recipe:
    case Kind::delayed:
    case Kind::tensor: break;
    case Kind::outliers: return "COUNT,FACTOR";
  }
  return "NAME";
}

/// A default for --help: "a,b,c" for a list, nothing for null.
std::string default_of(const Argument& argument) {
  if (!argument.otherwise.empty()) return argument.otherwise;
  std::string text;
  bool in_text = false;
  for (const char c : argument.value().text()) {  // JSON without its brackets, blanks and quotation marks
    if (c == '"') in_text = !in_text;
    if (in_text ? c != '"' : c != '"' && c != '[' && c != ']' && c != '\n' && c != ' ') text += c;
  }
  return text == "null" ? "" : text;
}

/// The options of an experiment's run, and what the command does with its document.
struct Options {
  std::unique_ptr<Call> call;
  std::optional<std::string> out = {};   ///< the directory for files
  std::optional<std::string> html = {};  ///< the file for a page
  bool quiet = false;
  bool json = false;
  std::vector<std::pair<const Argument*, CLI::Option*>> options = {};
};

void add_option(CLI::App& app, Argument& argument, Options& options) {
  const std::string name = argument.option();
  std::string help = argument.option_help.empty() ? argument.help : argument.option_help;
  const std::string conditions = options.call->arguments.conditions(
      argument, [](const Argument& other) { return other.command_line ? other.option() : ""; });
  if (!conditions.empty()) help += "; " + conditions;
  CLI::Option* option = nullptr;
  if (argument.kind == Kind::flag) {
    option = app.add_flag_callback(name, [&argument] { argument.set({Entry(argument.sets)}); }, help);
  } else {
    const bool takes_many = argument.is_list && (argument.kind == Kind::path || argument.words);
    CLI::callback_t take = [&argument, name, takes_many](const CLI::results_t& given) {
      std::vector<std::string> texts = given;
      if (argument.is_list && !takes_many) texts = split_list(name, given.front(), argument.repeats);
      try {
        argument.set({texts.begin(), texts.end()});
      } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(name + ": " + error.what());
      }
      return true;
    };
    std::string names = argument.other_option.empty() ? name : name + "," + argument.other_option;
    if (argument.is_positional) names.append(1, ',').append(metavar_of(argument));
    option = app.add_option(names, std::move(take), help)->type_name(metavar_of(argument));
    if (takes_many) option->expected(1, 1 << 16);
    const std::string shown = default_of(argument);
    if (!shown.empty()) option->default_str(shown);
  }
  options.options.emplace_back(&argument, option);
}

/// The columns of the terminal. Long lines are hard to read: paragraphs have 100 at most.
std::size_t help_width() { return static_cast<std::size_t>(style_of_terminal().width); }

/// Where the second column of a line of CLI11's help, or of an example, begins; 0 where the line has one column.
std::size_t second_column(std::string_view line) {
  constexpr std::size_t options = 30;  // CLI11's width of the first column
  const std::size_t lead = std::min(line.find_first_not_of(' '), line.size());
  if (lead >= options) return lead;
  const bool is_paragraph = lead == 0;
  const bool is_example = line.starts_with("  fp8lab ");
  if (!is_paragraph && !is_example && line.size() > options && line[options - 1] == ' ') return options;
  const std::size_t gap = line.find("   ", lead);
  return gap == std::string_view::npos ? 0 : line.find_first_not_of(' ', gap);
}

/// The help with its lines wrapped; what goes on stands below its own column.
std::string fitted(std::string_view help, std::size_t width) {
  std::string text;
  while (!help.empty()) {
    const std::string_view line = help.substr(0, help.find('\n'));
    help.remove_prefix(std::min(line.size() + 1, help.size()));
    const std::size_t column = second_column(line);
    if (line.size() <= width || (column == 0 && line.starts_with(' '))) {  // or a command, which stays whole
      text += line;
    } else if (column == 0) {
      text += wrapped(line, width);
    } else if (column > width / 2) {  // an example, and below it what it means
      text += line.substr(0, line.find_last_not_of(' ', column - 1) + 1);
      text += '\n' + wrapped(std::string(6, ' ').append(line.substr(column)), width, 6);
    } else {
      text += line.substr(0, column);
      text += wrapped(std::string(column, ' ').append(line.substr(column)), width, column).substr(column);
    }
    text += '\n';
  }
  return text;
}

/// The sentence that tells what each exit status means.
std::string statuses_of(const Experiment& experiment) {
  std::string text;
  std::map<int, std::string> statuses{{0, experiment.passed}, {2, "bad input or unwritable DIR"}};
  if (!experiment.not_passed.empty()) statuses[experiment.status_not_passed] = experiment.not_passed;
  if (!experiment.passed_in_part.empty()) statuses[experiment.status_in_part] = experiment.passed_in_part;
  std::string_view separator = "Exit status: ";
  for (const auto& [status, meaning] : statuses) {
    text.append(separator).append(std::to_string(status)).append(" ").append(meaning);
    separator = "; ";
  }
  return text + '.';
}

/// The text that the help prints after the options: what the command does, its exit status and examples.
std::string footer_of(const Experiment& experiment) {
  const std::size_t width = std::min<std::size_t>(help_width(), 100);
  std::string text = experiment.description.empty() ? "" : wrapped(experiment.description, width) + "\n\n";
  text += statuses_of(experiment);
  if (experiment.examples.empty()) return text;
  std::size_t longest = 0;
  for (const Example& example : experiment.examples) {
    if (example.command.size() < 60) longest = std::max(longest, example.command.size());
  }
  text += "\n\nExamples:";
  for (const Example& example : experiment.examples) {
    std::string command = example.command;
    if (!example.meaning.empty()) command.resize(std::max(longest, command.size()) + 3, ' ');
    text += "\n  fp8lab " + command + example.meaning;
  }
  return text;
}

/// The run; where a signal ended it, the process says what is kept and ends by that signal.
Document run_stoppable(const Experiment& experiment, const Call& call, Context context, bool quiet) {
  if (!experiment.saves_when_stopped) return call.run(context);
  std::string kept;
  if (!quiet) context.kept = [&kept](const std::string& sentence) { kept = sentence; };
  try {
    const StopSignals scope;
    return call.run(context);
  } catch (const Stopped& stopped) {
    if (!kept.empty()) std::fprintf(stderr, "%s\n", one_line("fp8lab: " + kept).c_str());
    std::raise(stopped.signal);
    throw;
  }
}

int run(const Experiment& experiment, Options& options, const Cluster& cluster) {
  std::vector<std::string> given;
  for (const auto& [argument, option] : options.options) {
    if (option->count() > 0) given.push_back(argument->name);
  }
  ArgumentList& arguments = options.call->arguments;
  check_positionals(experiment, arguments, given);
  arguments.check_given(given, [&](const std::string& name) { return arguments.find(name).option(); });
  for (const Argument& argument : arguments.all()) {
    if (argument.name == "threads") argument.set({Entry(std::int64_t{threads_of_machine()})});
  }
  if (options.out) check_writable(*options.out, {experiment.identifier() + ".json"});
  if (options.html) check_file_writable(*options.html);
  const bool quiet = options.quiet;
  ProgressBar bar;
  Context context{.cluster = cluster};
  if (!quiet) {
    context.progress = [&](double share) { bar(share); };
    context.bytes = [&](const BytesDone& bytes) { bar(bytes); };
    context.note = [&](const std::string& line) { bar.note(line); };
  }
  const Document document = run_stoppable(experiment, *options.call, context, quiet);
  bar.clear();
  if (options.out) write_files(*options.out, files_of(document));
  if (options.html) write_file(*options.html, page_of(document));
  if (!quiet && options.json) {
    print(json_of(document));
  } else if (!quiet) {
    print(text_of(document, style_of_terminal()));
    if (options.out) print("Results: " + *options.out + "/" + json_file(document) + " and CSV\n");
    if (options.html) print("Page: " + *options.html + "\n");
  }
  if (!document.passed.value_or(true)) return experiment.status_not_passed;
  return document.in_part ? experiment.status_in_part : 0;
}

/// The app that a command of one or two words goes below.
CLI::App& parent_of(CLI::App& app, const std::string& name) {
  const std::size_t blank = name.find(' ');
  if (blank == std::string::npos) return app;
  const std::string group = name.substr(0, blank);
  for (CLI::App* sub : subcommands_of(app)) {
    if (sub->get_name() == group) return *sub;
  }
  CLI::App* added = app.add_subcommand(group, "Prove on this machine that what fp8lab computes is exact");
  added->require_subcommand(1);
  return *added;
}

void add_experiment(CLI::App& app, const Experiment& experiment, Command& chosen, const Cluster& cluster) {
  const auto options = std::make_shared<Options>(Options{.call = experiment.prepare()});
  const std::string word = experiment.name.substr(experiment.name.find(' ') + 1);
  CLI::App* command = parent_of(app, experiment.name).add_subcommand(word, experiment.summary);
  command->footer(footer_of(experiment));
  for (Argument& argument : options->call->arguments.all()) {
    if (argument.command_line) add_option(*command, argument, *options);
  }
  command
      ->add_option("--out", options->out,
                   "write " + experiment.identifier() + ".json and a CSV for each table and histogram into DIR")
      ->type_name("DIR");
  command->add_option("--html", options->html, "write the result as one page for a browser into FILE")
      ->type_name("FILE");
  command->add_flag("--quiet", options->quiet, "print nothing; the exit status tells the result");
  command->add_flag("--json", options->json, "print JSON instead of text");
  command->callback([&experiment, options, &chosen, cluster] {
    chosen = [&experiment, options, cluster] { return run(experiment, *options, cluster); };
  });
}

// What the command line says of itself.

/// The options of a command, with the choices that the experiment's arguments have.
std::vector<OptionFacts> option_facts(const CLI::App& app, const ArgumentList& arguments) {
  std::vector<OptionFacts> all;
  for (const CLI::Option* option : app.get_options()) {
    OptionFacts facts{.names = {},
                      .metavar = option->get_items_expected_max() == 0 ? "" : option->get_type_name(),
                      .help = option->get_description(),
                      .otherwise = option->get_default_str()};
    for (const std::string& name : option->get_snames()) facts.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) facts.names.push_back("--" + name);
    facts.is_word = facts.names.empty();
    if (facts.is_word) facts.names.push_back(facts.metavar);
    for (const Argument& argument : arguments.all()) {
      if (!argument.command_line || argument.option() != option->get_name().substr(0, argument.option().size()) ||
          std::ranges::find(facts.names, argument.option()) == facts.names.end()) {
        continue;
      }
      facts.choices = choices_of(argument.kind);
      facts.is_list = argument.is_list;
    }
    all.push_back(std::move(facts));
  }
  return all;
}

/// All commands, in the order of the help.
std::vector<CommandFacts> command_facts(const CLI::App& top) {
  std::vector<CommandFacts> all;
  const ArgumentList none;
  for (const CLI::App* app : subcommands_of(top)) {
    const Apps below = subcommands_of(*app);
    for (const CLI::App* command : below.empty() ? Apps{const_cast<CLI::App*>(app)} : below) {  // NOLINT
      CommandFacts facts{.name = below.empty() ? app->get_name() : app->get_name() + " " + command->get_name(),
                         .summary = command->get_description()};
      const auto experiment = std::ranges::find(experiments(), facts.name, &Experiment::name);
      if (experiment == experiments().end()) {
        facts.options = option_facts(*command, none);
      } else {
        facts.description = experiment->description;
        facts.statuses = statuses_of(*experiment);
        facts.examples = experiment->examples;
        facts.options = option_facts(*command, experiment->prepare()->arguments);
      }
      all.push_back(std::move(facts));
    }
  }
  return all;
}

/// Adds the commands that are no experiments.
void add_tools(CLI::App& app, Command& chosen) {
  const auto shell = std::make_shared<Shell>();
  CLI::App* completion =
      app.add_subcommand("completion", "Print the script by which bash, zsh or fish completes words");
  completion
      ->add_option(
          "SHELL",
          [shell](const CLI::results_t& given) {
            *shell = find_value<Shell>("shell", given.front());
            return true;
          },
          "bash, zsh or fish")
      ->required()
      ->type_name("");
  completion->footer(
      "Examples:\n  . <(fp8lab completion bash)\n  fp8lab completion fish > ~/.config/fish/completions/fp8lab.fish");
  completion->callback([&app, shell, &chosen] {
    chosen = [&app, shell] {
      print(completion_of(*shell, command_facts(app)));
      return 0;
    };
  });
  struct Paths {
    std::string directory;
    std::optional<std::string> page;
  };
  const auto paths = std::make_shared<Paths>();
  CLI::App* report = app.add_subcommand("report", "Make one page for a browser of all results in a directory");
  report
      ->add_option("DIR", paths->directory,
                   "the directory: of the .json files in it and below it, those that --out or save() wrote")
      ->required()
      ->type_name("");
  report->add_option("--html", paths->page, "write the page into FILE")
      ->type_name("FILE")
      ->default_str("DIR/report.html");
  report->footer("Exit status: 0 done; 2 no result in DIR or below it, or an unwritable FILE.");
  report->callback([paths, &chosen] {
    chosen = [paths] {
      const ReportFacts facts = write_report(paths->directory, paths->page.value_or(""));
      std::string text = "Page: " + facts.page.native() + ", of " + std::to_string(facts.documents.size()) +
                         (facts.documents.size() == 1 ? " result\n" : " results\n");
      constexpr std::size_t shown = 20;
      for (const std::string& other : facts.others | std::views::take(shown)) text += "Left out: " + other + "\n";
      if (facts.others.size() > shown) {
        text += "Left out: " + std::to_string(facts.others.size() - shown) + " more, which the page names\n";
      }
      print(text);
      return 0;
    };
  });
  CLI::App* man = app.add_subcommand("man", "Print the manual page, with all commands and options");
  man->footer("Examples:\n  fp8lab man | man -l -\n  fp8lab man > ~/.local/share/man/man1/fp8lab.1");
  man->callback([&app, &chosen] {
    chosen = [&app] {
      print(man_page_of(command_facts(app), version()));
      return 0;
    };
  });
}

/// The words of a command line; "help X" becomes "X --help".
std::vector<std::string> words_of(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (!words.empty() && words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  return words;
}

/// Throws where a command or an option is unknown, or where the command needs Python.
void check_words(const CLI::App& top, const std::vector<std::string>& words) {
  for (const PythonCommand& command : python_commands()) {
    if (words.empty() || words.front() != command.name) continue;
    throw std::invalid_argument(std::string(command.name) +
                                " needs Python: the command line of the Python package has it (pip install .)");
  }
  const CLI::App* app = &top;
  std::size_t next = 0;
  for (; next < words.size() && !words[next].starts_with('-') && !subcommands_of(*app).empty(); ++next) {
    if (words[next].empty()) return;
    app = &check_command(*app, words[next]);
  }
  if (next < words.size() && app == &top && words[next] != "-h" && words[next] != "--help" &&
      words[next] != "--version") {
    throw std::invalid_argument("unknown option " + in_quotes(words[next]) + " (see fp8lab --help)");
  }
  if (subcommands_of(*app).empty())
    check_options(*app, {words.begin() + static_cast<std::ptrdiff_t>(next), words.end()});
}

/// One line on stderr, whatever the user typed.
int fail(const std::string& reason) {
  std::fprintf(stderr, "%s\n", one_line("fp8lab: " + reason).c_str());
  return bad_input;
}

/// Does the same without taking memory. `command` may be anything.
int fail_for_memory(const char* command) {
  std::fprintf(stderr, "fp8lab: out of memory in %.16s; smaller or fewer tensors, or fewer threads, take less\n",
               command);
  return bad_input;
}

}  // namespace

std::span<const PythonCommand> python_commands() {
  static constexpr std::array commands{PythonCommand{
      "effective-recipe", "Say which FP8 recipe runs when accelerate is asked for one, and what is lost"}};
  return commands;
}

int run_command_line(int argc, const char* const* argv, const Cluster& cluster) {
  std::signal(SIGXFSZ, SIG_IGN);         // a file that grows too large is an error to report, not the end
  const DefaultEnvironment environment;  // a parent process may have left another one of floating point
  try {
    return command_of(argc, argv, cluster)();
  } catch (const std::bad_alloc&) {
    return fail_for_memory(argv[1]);    // without a command, nothing takes memory
  } catch (const std::length_error&) {  // sizes that no memory has
    return fail_for_memory(argv[1]);
  } catch (const gpu::NoDeviceError& error) {
    static_cast<void>(fail(error.what()));
    return no_device;
  } catch (const std::exception& error) {
    return fail(error.what());
  } catch (...) {
    return fail("unknown error");
  }
}

Command command_of(int argc, const char* const* argv, const Cluster& cluster) {
  // A command may ask its options when it runs: they live as long as it does.
  const auto app = std::make_shared<CLI::App>(
      "fp8lab computes what FP8 hardware computes, bit for bit, and measures what that costs.", "fp8lab");
  app->set_version_flag("--version", "fp8lab " + std::string(version()));
  app->require_subcommand(1);
  app->footer("fp8lab help COMMAND explains a command.");
  Command chosen;
  for (const Experiment& experiment : experiments()) add_experiment(*app, experiment, chosen, cluster);
  for (const PythonCommand& command : python_commands()) {
    app->add_subcommand(std::string(command.name), std::string(command.summary) + " (needs Python)");
  }
  add_tools(*app, chosen);
  refuse_options_as_values(*app);
  std::vector<std::string> words = words_of(argc, argv);
  const std::vector<std::string> as_given = words;
  try {
    check_words(*app, words);
    std::ranges::reverse(words);  // as CLI11 takes them
    app->parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    if (const auto* extras = dynamic_cast<const CLI::ExtrasError*>(&error)) {
      throw std::invalid_argument(unexpected(as_given, extras->what()));
    }
    if (error.get_exit_code() != 0) throw std::invalid_argument(std::string(error.what()) + " (see fp8lab --help)");
    TextStream text;  // help, or the version
    app->exit(error, text, text);
    return [shown = fitted(text.str(), help_width())] {
      print(shown);
      return 0;
    };
  }
  return [app, chosen] { return chosen(); };
}

}  // namespace fp8lab::experiments
