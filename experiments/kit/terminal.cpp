// SPDX-License-Identifier: Apache-2.0
#include "kit/terminal.hpp"

#include <langinfo.h>
#include <locale.h>  // NOLINT(modernize-deprecated-headers): locale_t is POSIX
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <system_error>

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

/// What the variable COLUMNS says, or else the terminal on stdout; 80 where there is none.
int columns_of_terminal() {
  constexpr int least = 20;  // narrower ones show lines of 20 columns
  constexpr int most = 1000;
  int columns = 80;
  const char* variable = std::getenv("COLUMNS");
  const std::string_view given = variable == nullptr ? "" : variable;
  winsize size{};
  int wanted = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), wanted);
  if (error == std::errc{} && end == given.data() + given.size() && wanted > 0) {
    columns = wanted;
  } else if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    columns = size.ws_col;
  }
  return std::clamp(columns, least, most);
}

}  // namespace

TextStyle style_of_terminal() {
  TextStyle style;
  style.unicode = is_terminal_of_utf8();
  style.width = columns_of_terminal();
  if (isatty(STDOUT_FILENO) != 0) {
    const char* no_color = std::getenv("NO_COLOR");
    style.color = no_color == nullptr || *no_color == '\0';
  }
  return style;
}

void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) == EOF || std::fflush(stdout) != 0) {
    if (errno == EPIPE) {  // the reader has what it wants: where SIGPIPE was ignored, it ends the process as usual
      std::signal(SIGPIPE, SIG_DFL);
      std::raise(SIGPIPE);
    }
    throw std::runtime_error(std::string("cannot write to stdout: ") + std::strerror(errno));
  }
}

}  // namespace fp8lab::experiments
