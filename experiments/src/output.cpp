// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/experiments/output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& reason) {
  throw std::runtime_error("cannot write " + path.string() + ": " + reason);
}

/// Whether the mode lets anybody write: root may write regardless, but a read-only file is somebody's wish.
bool mode_allows_writing(const fs::path& path) {
  constexpr auto any = fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write;
  std::error_code error;
  return (fs::status(path, error).permissions() & any) != fs::perms::none && ::access(path.c_str(), W_OK) == 0;
}

void write_one(const fs::path& path, const std::string& content) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) fail(path, std::strerror(errno));
  int error = 0;
  for (std::size_t done = 0; done < content.size() && error == 0;) {
    const ssize_t written = ::write(file, content.data() + done, content.size() - done);
    if (written < 0 && errno != EINTR) error = errno;
    if (written > 0) done += static_cast<std::size_t>(written);
  }
  if (error == 0 && ::fsync(file) != 0 && errno != EINVAL) error = errno;
  if (::close(file) != 0 && error == 0) error = errno;
  if (error != 0) fail(path, std::strerror(error));
}

/// The deepest directory of `path` that exists.
fs::path nearest_existing(const fs::path& path) {
  std::error_code error;
  fs::path nearest = fs::absolute(path).lexically_normal();
  if (!nearest.has_filename()) nearest = nearest.parent_path();
  while (!fs::exists(fs::symlink_status(nearest, error)) && nearest.has_relative_path())
    nearest = nearest.parent_path();
  return nearest;
}

/// Renames files into place, all or none: what was there is kept aside until every rename has worked.
class Replacement {
 public:
  explicit Replacement(fs::path directory) : directory_(std::move(directory)) {}
  Replacement(Replacement&&) = delete;  // and so no copies either
  ~Replacement() {
    std::error_code error;
    for (const std::string& name : placed_) {
      if (committed_) {
        fs::remove(old(name), error);
      } else {
        fs::remove(directory_ / name, error);
        if (fs::exists(old(name), error)) fs::rename(old(name), directory_ / name, error);
      }
    }
    for (const std::string& name : written_) fs::remove(aside(name), error);
  }

  void write(const std::string& name, const std::string& content) {
    written_.push_back(name);
    write_one(aside(name), content);
  }
  void place(const std::string& name) {
    std::error_code error;
    if (fs::exists(directory_ / name, error)) fs::rename(directory_ / name, old(name), error);
    if (error) fail(directory_ / name, error.message());
    placed_.push_back(name);
    fs::rename(aside(name), directory_ / name, error);
    if (error) fail(directory_ / name, error.message());
  }
  void commit() { committed_ = true; }

 private:
  [[nodiscard]] fs::path hidden(const std::string& name, const char* ending) const {
    return directory_ / ("." + name + "." + std::to_string(::getpid()) + ending);
  }
  [[nodiscard]] fs::path aside(const std::string& name) const { return hidden(name, ".part"); }
  [[nodiscard]] fs::path old(const std::string& name) const { return hidden(name, ".old"); }

  fs::path directory_;
  std::vector<std::string> written_, placed_;
  bool committed_ = false;
};

}  // namespace

void check_writable(const fs::path& directory, const std::vector<std::string>& names) {
  if (directory.empty()) fail("''", "a directory's name is not empty");
  std::error_code error;
  const fs::path nearest = nearest_existing(directory);
  if (!fs::exists(nearest, error)) fail(directory, nearest.string() + " is a link that leads nowhere");
  if (!fs::is_directory(nearest, error)) fail(directory, nearest.string() + " is not a directory");
  if (!mode_allows_writing(nearest)) fail(directory, "the directory " + nearest.string() + " is not writable");
  for (const std::string& name : names) {
    const fs::path path = directory / name;
    if (fs::is_directory(path, error)) fail(path, "it is a directory");
    if (fs::exists(path, error) && !mode_allows_writing(path)) fail(path, "the file is read-only");
  }
}

void write_files(const fs::path& directory, const Files& files) {
  std::vector<std::string> names;
  for (const auto& [name, content] : files) names.push_back(name);
  check_writable(directory, names);
  const fs::path existing = nearest_existing(directory);
  std::error_code error;
  try {
    fs::create_directories(directory, error);
    if (error) fail(directory, error.message());
    Replacement replacement(directory);
    for (const auto& [name, content] : files) replacement.write(name, content);
    for (const std::string& name : names) replacement.place(name);
    replacement.commit();
  } catch (...) {
    // Directories made for nothing go, as far up as this made them; remove() leaves those that are not empty.
    for (fs::path made = fs::absolute(directory).lexically_normal();
         made.has_relative_path() && made != existing && made.native().size() > existing.native().size();
         made = made.parent_path()) {
      fs::remove(made, error);
    }
    throw;
  }
}

}  // namespace fp8lab::experiments
