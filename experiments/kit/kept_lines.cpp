// SPDX-License-Identifier: Apache-2.0
#include "kit/kept_lines.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "files/stored_file.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "kit/staging.hpp"

namespace fp8lab::experiments {

KeptLines::KeptLines(std::optional<std::filesystem::path> path, bool resume) : path_(std::move(path)) {
  if (resume && !path_) refuse("resume needs checkpoint, the file that tells what is known");
  std::error_code error;
  const auto kind = path_ ? std::filesystem::status(*path_, error).type() : std::filesystem::file_type::not_found;
  using enum std::filesystem::file_type;
  if (path_ && kind != not_found && kind != none && kind != regular) {
    refuse(in_one_line(path_->native()), " is no regular file, which a checkpoint is: name a new one");
  }
  if (path_ && !resume && kind == regular) {
    refuse(in_one_line(path_->native()), " is there already; resume goes on from it");
  }
}

void KeptLines::read(const std::function<bool(std::string_view)>& use) const {
  std::error_code error;
  if (!path_ || !std::filesystem::exists(*path_, error)) return;
  const StoredFile file(*path_);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  text.resize(file.read(0, text));
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; begin = end + 1, end = text.find('\n', begin)) {
    checkpoint();
    if (use(std::string_view(text).substr(begin, end - begin))) continue;
    file.fail("byte " + std::to_string(begin) + " begins a line that is none of a checkpoint of fp8lab check");
  }
  if (begin < text.size()) std::filesystem::resize_file(*path_, begin);
}

void KeptLines::write(std::string_view line, bool has_earlier) const {
  if (!path_) return;
  constexpr int mode = 0666;
  const Descriptor file(::open(path_->c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, mode));
  std::size_t written = 0;
  while (file.get() >= 0 && written < line.size()) {
    const ssize_t some = ::write(file.get(), line.data() + written, line.size() - written);
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) break;
    written += static_cast<std::size_t>(some);
  }
  if (written == line.size()) return;
  throw std::runtime_error("cannot write " + in_one_line(path_->native()) + ": " +
                           std::generic_category().message(errno) +
                           (has_earlier ? "; earlier results are kept in it" : ""));
}

nlohmann::json kept_number(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return x;
}
double number_kept(const nlohmann::json& x) {
  if (!x.is_string()) return x.get<double>();
  if (x == "nan") return std::numeric_limits<double>::quiet_NaN();
  return x == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

}  // namespace fp8lab::experiments
