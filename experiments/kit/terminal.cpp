// SPDX-License-Identifier: Apache-2.0
#include "kit/terminal.hpp"

#include <langinfo.h>
#include <locale.h>  // NOLINT(modernize-deprecated-headers): locale_t is POSIX
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

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

void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) == EOF || std::fflush(stdout) != 0) {
    throw std::runtime_error(std::string("cannot write to stdout: ") + std::strerror(errno));
  }
}

}  // namespace fp8lab::experiments
