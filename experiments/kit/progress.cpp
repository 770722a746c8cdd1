// SPDX-License-Identifier: Apache-2.0
#include "kit/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "kit/picture.hpp"

namespace fp8lab::experiments {

std::string words_of(const BytesDone& bytes, double seconds) {
  const double now = bytes.done - bytes.before;
  std::string words = fmt::format("{:.2f} of {:.2f} GB", bytes.done / 1e9, bytes.all / 1e9);
  if (!(now > 0) || !(seconds > 0)) return words;
  words += fmt::format(", {:.0f} MB/s", now / seconds / 1e6);
  const auto left = static_cast<long long>(std::ceil((bytes.all - bytes.done) / now * seconds));
  if (left < 60) return words + fmt::format(", {} s left", left);
  if (left < 3600) return words + fmt::format(", {}:{:02} min left", left / 60, left % 60);
  return words + fmt::format(", {}:{:02} h left", left / 3600, left / 60 % 60);
}

void ProgressBar::operator()(double share) { draw(share, ""); }

void ProgressBar::operator()(const BytesDone& bytes) {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  draw(bytes.all > 0 ? bytes.done / bytes.all : 1, "  " + words_of(bytes, seconds.count()));
}

void ProgressBar::draw(double share, const std::string& words) {
  const auto now = std::chrono::steady_clock::now();
  const bool was_just_drawn = shown_ && now - drawn_ < std::chrono::milliseconds(100);
  if (isatty(STDERR_FILENO) == 0 || now - start_ < std::chrono::seconds(1) || was_just_drawn) return;
  drawn_ = now;
  const int width = words.empty() ? 40 : 20;
  std::fprintf(stderr, "\r[%s] %3.0f %%%s\x1b[K", bar(share, 1, width, {.unicode = false}).c_str(), 100 * share,
               words.c_str());
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
