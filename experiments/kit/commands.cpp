// SPDX-License-Identifier: Apache-2.0
#include "kit/commands.hpp"

#include <langinfo.h>
#include <locale.h>  // NOLINT(modernize-deprecated-headers): locale_t is POSIX
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "fp8lab/formats/parallel.hpp"

namespace fp8lab::experiments {
namespace {

/// Whether the user's environment says so: no locale is set, for its numbers would be in the output.
bool is_terminal_of_utf8() {
  const locale_t users = ::newlocale(LC_CTYPE_MASK, "", nullptr);
  if (users == nullptr) return false;
  const bool result = std::strcmp(::nl_langinfo_l(CODESET, users), "UTF-8") == 0;
  ::freelocale(users);
  return result;
}

}  // namespace

TextStyle style_of_terminal() {
  TextStyle style;
  style.unicode = is_terminal_of_utf8();
  winsize size{};
  if (isatty(STDOUT_FILENO) != 0) {
    style.color = std::getenv("NO_COLOR") == nullptr;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) style.width = size.ws_col;
  }
  return style;
}

int threads_of_machine() {
  return static_cast<int>(std::clamp<unsigned>(std::thread::hardware_concurrency(), 1, most_threads));
}

void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) == EOF || std::fflush(stdout) != 0) {
    throw std::runtime_error(std::string("cannot write to stdout: ") + std::strerror(errno));
  }
}

void add_output(CLI::App& app, OutputOptions& options, const std::string& files) {
  app.add_option("--out", options.out, "write " + files + " into DIR")->type_name("DIR");
  app.add_flag("--quiet", options.quiet, "print nothing; the exit status tells the result");
}

void check_output(const OutputOptions& options, const std::vector<std::string>& names) {
  if (options.out) check_writable(*options.out, names);
}

void deliver(const OutputOptions& options, const Files& files,
             const std::function<std::string(const TextStyle&)>& report, const std::string& told) {
  if (options.out) write_files(*options.out, files);
  if (options.quiet) return;
  print(report(style_of_terminal()));
  if (options.out) print("Results: " + *options.out + "/" + told + "\n");
}

std::vector<std::string> split_list(const std::string& name, const std::string& text, bool repeats) {
  const auto refuse = [&](std::initializer_list<std::string_view> why) {
    std::string reason = name;
    for (const std::string_view part : why) reason += part;
    throw std::invalid_argument(reason);
  };
  std::vector<std::string> entries;
  std::size_t first = 0;
  for (std::size_t end = 0; end != std::string::npos; first = end + 1) {
    end = text.find(',', first);
    const std::string entry = text.substr(first, end - first);
    if (entry.empty()) refuse({" must be a list without empty entries, such as a,b,c, not ", in_quotes(text)});
    if (!repeats && std::ranges::find(entries, entry) != entries.end()) {
      refuse({" must have each entry once, and has ", in_quotes(entry), " twice"});
    }
    entries.push_back(entry);
  }
  return entries;
}

}  // namespace fp8lab::experiments
