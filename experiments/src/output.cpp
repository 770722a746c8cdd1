// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/experiments/output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

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

}  // namespace

void check_writable(const fs::path& directory, const std::vector<std::string>& names) {
  std::error_code error;
  fs::path nearest = fs::absolute(directory);
  if (!nearest.has_filename()) nearest = nearest.parent_path();
  const bool exists = fs::exists(nearest, error);
  while (!fs::exists(nearest, error) && nearest.has_relative_path()) nearest = nearest.parent_path();
  if (!fs::is_directory(nearest, error)) fail(directory, nearest.string() + " is not a directory");
  if (!mode_allows_writing(nearest)) fail(directory, "the directory " + nearest.string() + " is not writable");
  if (!exists) return;
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
  std::error_code error;
  const bool created = fs::create_directories(directory, error);
  if (error) fail(directory, error.message());
  const auto aside = [&](const std::string& name) {
    return directory / ("." + name + "." + std::to_string(::getpid()) + ".part");
  };
  try {
    for (const auto& [name, content] : files) write_one(aside(name), content);
    for (const auto& [name, content] : files) {
      fs::rename(aside(name), directory / name, error);
      if (error) fail(directory / name, error.message());
    }
  } catch (...) {
    for (const auto& [name, content] : files) fs::remove(aside(name), error);
    if (created) fs::remove(directory, error);
    throw;
  }
}

}  // namespace fp8lab::experiments
