// SPDX-License-Identifier: Apache-2.0
#include "kit/progress.hpp"

#include <unistd.h>

#include <cstdio>

#include "kit/picture.hpp"

namespace fp8lab::experiments {

void ProgressBar::operator()(double share) {
  if (isatty(STDERR_FILENO) == 0 || std::chrono::steady_clock::now() - start_ < std::chrono::seconds(1)) return;
  std::fprintf(stderr, "\r[%s] %3.0f %%", bar(share, 1, 40, {.unicode = false}).c_str(), 100 * share);
  shown_ = true;
}

void ProgressBar::clear() {
  if (shown_) std::fprintf(stderr, "\r\x1b[K");
  shown_ = false;
}

void ProgressBar::note(const std::string& line) {
  if (isatty(STDERR_FILENO) == 0) return;
  clear();
  std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace fp8lab::experiments
