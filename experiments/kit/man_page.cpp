// SPDX-License-Identifier: Apache-2.0
#include "kit/man_page.hpp"

namespace fp8lab::experiments {
namespace {

/// A text as a line of troff: no character of it is an escape, a dash that one types or the start of a request.
std::string troff_of(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (c == '\\') {
      line += "\\e";
    } else if (c == '-') {
      line += "\\-";
    } else {
      line += c == '\n' ? ' ' : c;
    }
  }
  return line.starts_with('.') || line.starts_with('\'') ? "\\&" + line : line;
}

std::string tag_of(const OptionFacts& option) {
  std::string tag;
  for (const std::string& name : option.names) tag += (tag.empty() ? "\\fB" : ", \\fB") + troff_of(name) + "\\fR";
  if (!option.metavar.empty() && !option.is_word) tag += " \\fI" + troff_of(option.metavar) + "\\fR";
  return tag;
}

std::string page_of(const CommandFacts& command) {
  std::string text = ".SS \"fp8lab " + troff_of(command.name) + "\"\n" + troff_of(command.summary) + ".\n";
  if (!command.description.empty()) text += ".PP\n" + troff_of(command.description) + "\n";
  for (const OptionFacts& option : command.options) {
    text += ".TP\n" + tag_of(option) + "\n" + troff_of(option.help);
    text += option.otherwise.empty() ? "\n" : " [" + troff_of(option.otherwise) + "]\n";
  }
  if (!command.statuses.empty()) text += ".PP\n" + troff_of(command.statuses) + "\n";
  for (const Example& example : command.examples) {
    text += ".PP\n\\fBfp8lab " + troff_of(example.command) + "\\fR\n";
    if (!example.meaning.empty()) text += ".br\n" + troff_of(example.meaning) + "\n";
  }
  return text;
}

}  // namespace

std::string man_page_of(std::span<const CommandFacts> commands, std::string_view version) {
  std::string text = R"(.TH FP8LAB 1 "" "fp8lab )" + std::string(version) + "\" \"User Commands\"\n.nh\n.ad l\n";
  text +=
      ".SH NAME\n"
      "fp8lab \\- compute what FP8 hardware computes, bit for bit, and measure what that costs\n"
      ".SH SYNOPSIS\n"
      "\\fBfp8lab\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n"
      ".br\n"
      "\\fBfp8lab help\\fR [\\fICOMMAND\\fR]\n"
      ".SH COMMANDS\n";
  for (const CommandFacts& command : commands) text += page_of(command);
  return text +
         ".SH ENVIRONMENT\n"
         ".TP\n\\fBCOLUMNS\\fR\nThe width of what is printed, from 20 to 1000; else that of the terminal, and 80 where "
         "there is none.\n"
         ".TP\n\\fBLC_ALL\\fR, \\fBLC_CTYPE\\fR, \\fBLANG\\fR\nWhere they name no locale of UTF\\-8, pictures are "
         "drawn in ASCII. They change no number.\n"
         ".SH EXIT STATUS\n"
         "0 done; 2 bad input or what cannot be written; 1 or 3 as the command says.\n";
}

}  // namespace fp8lab::experiments
