// SPDX-License-Identifier: Apache-2.0
#include "kit/completion.hpp"

#include <array>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace fp8lab::experiments {
namespace {

constexpr std::array named_shells{Named<Shell>{"bash", Shell::bash}, Named<Shell>{"zsh", Shell::zsh},
                                  Named<Shell>{"fish", Shell::fish}};

/// A text in single quotes of a shell of POSIX, zsh or fish: a quotation mark would end it.
std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "\xE2\x80\x99";  // the typographical one means the same to a reader
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

/// The words that go on a command's name, with what each means, in the order of the registry: "" has the commands.
using NextWords = std::vector<std::pair<std::string, std::vector<std::pair<std::string, std::string>>>>;

NextWords next_words(std::span<const CommandFacts> commands) {
  NextWords all{{"", {}}};
  const auto below = [&](const std::string& name) -> auto& {
    for (auto& [parent, words] : all) {
      if (parent == name) return words;
    }
    return all.emplace_back(name, std::vector<std::pair<std::string, std::string>>()).second;
  };
  for (const CommandFacts& command : commands) {
    const std::size_t blank = command.name.find(' ');
    const std::string group = blank == std::string::npos ? "" : command.name.substr(0, blank);
    if (!group.empty() && (below("").empty() || below("").back().first != group)) {
      below("").emplace_back(group, "its subcommands: fp8lab " + group + " --help");
    }
    below(group).emplace_back(command.name.substr(blank == std::string::npos ? 0 : blank + 1), command.summary);
  }
  below("").emplace_back("help", "Explain a command");
  return all;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// The names of all options of a command.
std::vector<std::string> option_names(const CommandFacts& command) {
  std::vector<std::string> names;
  for (const OptionFacts& option : command.options) {
    if (!option.is_word) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

std::string bash_of(std::span<const CommandFacts> commands) {
  std::string text =
      "# bash completion of fp8lab: . <(fp8lab completion bash), or into\n"
      "# ~/.local/share/bash-completion/completions/fp8lab\n"
      "_fp8lab() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} command= option= words= list= i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    case ${COMP_WORDS[i]} in\n"
      "      -*) break ;;\n"
      "      help) ;;\n"
      "      *) command+=${command:+ }${COMP_WORDS[i]} ;;\n"
      "    esac\n"
      "  done\n"
      "  for ((i = COMP_CWORD - 1; i > 0; --i)); do\n"
      "    case ${COMP_WORDS[i]} in --*) option=${COMP_WORDS[i]}; break ;; esac\n"
      "  done\n"
      "  case $command in\n";
  const NextWords all = next_words(commands);
  for (const auto& [name, words] : all) {
    text += "    " + shell_quoted(name) + ") words=\"";
    for (const auto& [word, meaning] : words) text += word + " ";
    text += name.empty() ? "--help --version\" ;;\n" : "--help\" ;;\n";
  }
  for (const CommandFacts& command : commands) {
    std::string words = joined(option_names(command));
    std::string values;
    for (const OptionFacts& option : command.options) {
      if (option.choices.empty()) continue;
      if (option.is_word) {
        words += " " + joined(option.choices);
        continue;
      }
      std::string names;
      for (const std::string& one : option.names) names += (names.empty() ? "" : "|") + one;
      values += "      " + names + ") list=\"" + joined(option.choices) + "\" ;;\n";
    }
    text += "    " + shell_quoted(command.name) + "|" + shell_quoted(command.name) + "\\ *) words=\"" + words + "\"\n";
    if (!values.empty()) text += "      case $option in\n" + values + "      esac\n";
    text += "      ;;\n";
  }
  return text +
         "  esac\n"
         "  if [[ -n $list && $current != -* ]]; then  # the last entry of a list\n"
         "    local before=\n"
         "    [[ $current == *,* ]] && before=${current%,*},\n"
         "    COMPREPLY=($(compgen -P \"$before\" -W \"$list\" -- \"${current##*,}\"))\n"
         "  else\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "  fi\n"
         "}\n"
         "complete -o default -F _fp8lab fp8lab\n";
}

/// What _describe of zsh and complete of fish take: a colon parts a word from what it means.
std::string described(const std::string& word, const std::string& meaning) {
  std::string text;
  for (const char c : word) text += c == ':' ? std::string("\\:") : std::string(1, c);
  return shell_quoted(meaning.empty() ? text : text + ":" + meaning);
}

std::string zsh_of(std::span<const CommandFacts> commands) {
  std::string text =
      "#compdef fp8lab\n"
      "# zsh completion of fp8lab: a file _fp8lab in a directory of $fpath, or: . <(fp8lab completion zsh)\n"
      "_fp8lab() {\n"
      "  local command= option= i before=\n"
      "  local -a entries list\n"
      "  for ((i = 2; i < CURRENT; ++i)); do\n"
      "    case ${words[i]} in\n"
      "      -*) break ;;\n"
      "      help) ;;\n"
      "      *) command+=${command:+ }${words[i]} ;;\n"
      "    esac\n"
      "  done\n"
      "  for ((i = CURRENT - 1; i > 1; --i)); do\n"
      "    case ${words[i]} in --*) option=${words[i]}; break ;; esac\n"
      "  done\n"
      "  case $command in\n";
  for (const auto& [name, words] : next_words(commands)) {
    text += "    " + shell_quoted(name) + ") entries=(\n";
    for (const auto& [word, meaning] : words) text += "      " + described(word, meaning) + "\n";
    text += "    ) ;;\n";
  }
  for (const CommandFacts& command : commands) {
    text += "    " + shell_quoted(command.name) + "|" + shell_quoted(command.name + " ") + "*) entries=(\n";
    std::string values;
    for (const OptionFacts& option : command.options) {
      if (option.is_word) {
        for (const std::string& one : option.choices) text += "      " + described(one, option.metavar) + "\n";
        continue;
      }
      std::string names;
      for (const std::string& one : option.names) {
        text += "      " + described(one, option.help) + "\n";
        names += (names.empty() ? "" : "|") + one;
      }
      if (!option.choices.empty()) values += "      " + names + ") list=(" + joined(option.choices) + ") ;;\n";
    }
    text += "    )\n";
    if (!values.empty()) text += "      case $option in\n" + values + "      esac\n";
    text += "      ;;\n";
  }
  return text +
         "  esac\n"
         "  if (( ${#list} )) && [[ ${words[CURRENT]} != -* ]]; then  # the last entry of a list\n"
         "    [[ ${words[CURRENT]} == *,* ]] && before=${words[CURRENT]%,*},\n"
         "    compadd -P \"$before\" -- $list\n"
         "  else\n"
         "    _describe fp8lab entries || _files\n"
         "  fi\n"
         "}\n"
         "if [ \"$funcstack[1]\" = _fp8lab ]; then _fp8lab \"$@\"; else compdef _fp8lab fp8lab; fi\n";
}

std::string fish_argument(const OptionFacts& option, const std::string& choices) {
  if (option.metavar.empty()) return "";
  return choices.empty() ? " -r" : choices;
}

std::string fish_options_of(const CommandFacts& command) {
  std::string text;
  const std::string condition = "complete -c fp8lab -n '__fp8lab_is " + command.name + "'";
  for (const OptionFacts& option : command.options) {
    const std::string choices = option.choices.empty() ? "" : " -x -a " + shell_quoted(joined(option.choices));
    if (option.is_word) {
      if (!choices.empty()) text.append(condition).append(choices, 3).append("\n");
      continue;
    }
    for (const std::string& one : option.names) {
      if (!one.starts_with("--")) continue;
      text.append(condition).append(" -l ").append(one, 2).append(" -d ").append(shell_quoted(option.help));
      text.append(fish_argument(option, choices)).append("\n");
    }
  }
  return text;
}

std::string fish_of(std::span<const CommandFacts> commands) {
  std::string text =
      "# fish completion of fp8lab: fp8lab completion fish > ~/.config/fish/completions/fp8lab.fish\n"
      "function __fp8lab_is  # whether these are the words so far that are no options\n"
      "  set -l words (commandline -opc)[2..-1]\n"
      "  set -l command\n"
      "  for word in $words\n"
      "    string match -q -- '-*' $word; and break\n"
      "    test $word = help; or set -a command $word\n"
      "  end\n"
      "  set -l many (count $argv)\n"
      "  if test $many -eq 0\n"
      "    test (count $command) -eq 0\n"
      "  else if test $many -le (count $command)\n"
      "    test \"$argv\" = \"$command[1..$many]\"\n"
      "  else\n"
      "    false\n"
      "  end\n"
      "end\n";
  for (const auto& [name, words] : next_words(commands)) {
    for (const auto& [word, meaning] : words) {
      text.append("complete -c fp8lab -f -n '__fp8lab_is").append(name.empty() ? "" : " " + name);
      text.append("' -a ").append(word).append(" -d ").append(shell_quoted(meaning)).append("\n");
    }
  }
  for (const CommandFacts& command : commands) text += fish_options_of(command);
  return text;
}

}  // namespace

std::span<const Named<Shell>> named_values(Shell /*of_type*/) { return named_shells; }

std::string completion_of(Shell shell, std::span<const CommandFacts> commands) {
  switch (shell) {
    case Shell::bash: return bash_of(commands);
    case Shell::zsh: return zsh_of(commands);
    case Shell::fish: break;
  }
  return fish_of(commands);
}

}  // namespace fp8lab::experiments
