// SPDX-License-Identifier: Apache-2.0
#include "kit/output.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <optional>
#include <system_error>

#include "kit/staging.hpp"

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

/// Whether the mode lets anybody write: root may write regardless, but a read-only file is somebody's wish.
bool mode_allows_writing(const fs::path& path) {
  constexpr auto any = fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write;
  std::error_code error;
  return (fs::status(path, error).permissions() & any) != fs::perms::none && ::access(path.c_str(), W_OK) == 0;
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

/// Makes directories, and removes them again unless they are kept. Ctrl-C waits where there are any.
class MadeDirectories {
 public:
  MadeDirectories() = default;
  MadeDirectories(MadeDirectories&&) = delete;  // and so no copies either
  ~MadeDirectories() {
    std::error_code error;  // those that are not empty stay
    for (; !kept_ && !made_.empty(); made_.pop_back()) fs::remove(made_.back(), error);
  }
  void keep() { kept_ = true; }

  /// Makes it and those above it, where they are missing.
  void make(const fs::path& directory) {
    std::error_code error;
    if (fs::exists(directory, error)) return;
    make(directory.parent_path());
    if (!held_) held_.emplace();  // until the directories have what they are for, or are gone
    // Another process may make it, too.
    if (::mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST) cannot_write(directory, std::strerror(errno));
    made_.push_back(directory);
    const Descriptor parent(::open(directory.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (parent) ::fsync(parent.get());
  }

 private:
  std::optional<SignalsHeld> held_;
  std::vector<fs::path> made_;
  bool kept_ = false;
};

/// The result directory without links, existing or not.
fs::path real_path(const fs::path& directory) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical(fs::absolute(directory), error).lexically_normal();
  if (error) cannot_write(directory, error.message());
  return path.has_filename() ? path : path.parent_path();
}

// The staging directories of a result directory.
fs::path beside(const fs::path& target) {
  std::string name = target.filename().string() + ".fp8lab-writing";
  return target.parent_path() / name.insert(0, 1, '.');
}
fs::path inside(const fs::path& target) { return target / ".fp8lab-writing"; }

/// Throws where a file cannot be replaced.
void check_file(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) cannot_write(path, "it is a directory");
  const fs::file_status status = fs::symlink_status(path, error);
  if (fs::is_other(status)) cannot_write(path, "it is a device, a pipe or a socket, and a file would take its place");
  if (fs::exists(path, error) && !mode_allows_writing(path)) cannot_write(path, "the file is read-only");
}

/// Throws where these cannot be written, whoever else writes there.
void check_files(const fs::path& directory, const std::vector<std::string>& names) {
  if (directory.empty()) cannot_write("''", "the name of the directory is empty");
  std::error_code error;
  const fs::path nearest = nearest_existing(directory);
  if (!fs::exists(nearest, error)) cannot_write(directory, nearest.string() + " is a link that leads nowhere");
  if (!fs::is_directory(nearest, error)) cannot_write(directory, nearest.string() + " is not a directory");
  if (!mode_allows_writing(nearest)) cannot_write(directory, "the directory " + nearest.string() + " is not writable");
  for (const std::string& name : names) check_file(directory / name);
}

}  // namespace

void check_writable(const fs::path& directory, const std::vector<std::string>& names) {
  check_files(directory, names);
  const fs::path target = real_path(directory);
  // The names of the tables depend on the result: any CSV that is there may have to be replaced.
  std::error_code error;
  for (fs::directory_iterator entry(target, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (entry->path().extension() == ".csv") check_file(entry->path());
  }
  Staging::check(beside(target));
  Staging::check(inside(target));
}

void check_file_writable(const fs::path& path) {
  if (!path.has_filename()) cannot_write(path.empty() ? "''" : path, "the name of the file is empty");
  std::error_code error;
  const fs::path directory = path.has_parent_path() ? path.parent_path() : ".";
  if (!fs::exists(directory, error)) cannot_write(path, "there is no directory " + directory.string());
  check_files(directory, {path.filename().string()});
}

void write_file(const fs::path& path, const std::string& content) {
  check_file_writable(path);
  const SignalsHeld held;
  const fs::path directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::string place;
  const auto failed = [&](int error) {
    ::unlink(place.c_str());
    cannot_write(path, std::strerror(error));
  };
  // 1. Beside it, under a name that nobody has, by the mode of the old file where there is one.
  const auto create = [&] {
    for (int i = 0; i < 1000; ++i) {
      place = directory / (".fp8lab-page-" + std::to_string(::getpid()) + "-" + std::to_string(i));
      const int made = ::open(place.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
      if (made >= 0 || errno != EEXIST) return made;
    }
    return -1;
  };
  const Descriptor opened(create());
  if (!opened) cannot_write(path, std::strerror(errno));
  struct stat before{};
  if (::stat(path.c_str(), &before) == 0 && ::fchmod(opened.get(), before.st_mode & 0777U) != 0) failed(errno);
  for (std::size_t done = 0; done < content.size();) {
    const ssize_t written = ::write(opened.get(), content.data() + done, content.size() - done);
    if (written < 0 && errno != EINTR) failed(errno);
    if (written > 0) done += static_cast<std::size_t>(written);
  }
  if (::fsync(opened.get()) != 0 && errno != EINVAL) failed(errno);
  // 2. In its place.
  if (std::rename(place.c_str(), path.c_str()) != 0) failed(errno);
}

void write_files(const fs::path& directory, const Files& files, const std::function<void()>& waiting) {
  std::vector<std::string> names;
  for (const auto& [name, content] : files) names.push_back(name);
  check_files(directory, names);
  const fs::path target = real_path(directory);
  MadeDirectories made;
  made.make(target.parent_path());
  std::error_code error;
  // 1. Beside the target: whoever may write there waits for whoever writes there now.
  std::optional<Staging> staging;
  if (mode_allows_writing(target.parent_path()) && beside(target).filename().string().size() <= NAME_MAX) {
    staging.emplace(beside(target), target, waiting);
  }
  // 2. In the target: only what a killed process left, so far.
  if (fs::exists(fs::symlink_status(inside(target), error))) Staging(inside(target), target, waiting);
  // 3. In one step, or else file by file.
  if (!staging || !staging->replace_whole(files)) {
    made.make(target);
    Staging(inside(target), target, waiting).replace_each(files);
  }
  made.keep();
}

}  // namespace fp8lab::experiments
