// SPDX-License-Identifier: Apache-2.0
#include "kit/staging.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "files/stored_file.hpp"
#include "fp8lab/formats/text_stream.hpp"

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path) { cannot_write(path, std::strerror(errno)); }

Descriptor open_directory(int at, const char* name) {
  return Descriptor(::openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}
Descriptor open_directory(const fs::path& path) { return open_directory(AT_FDCWD, path.c_str()); }

/// The facts of a directory entry itself, not of what it links to; none where there is no such entry.
std::optional<struct stat> facts_of(int at, const std::string& name) {
  struct stat facts{};
  if (at < 0 && at != AT_FDCWD) return std::nullopt;
  if (::fstatat(at, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  return facts;
}
std::optional<struct stat> facts_of(const Descriptor& opened) {
  struct stat facts{};
  if (!opened || ::fstat(opened.get(), &facts) != 0) return std::nullopt;
  return facts;
}
std::optional<struct stat> facts_of(const fs::path& path) { return facts_of(AT_FDCWD, path.native()); }

bool same_file(const std::optional<struct stat>& a, const std::optional<struct stat>& b) {
  return a && b && a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/// Not every file system can do this to a directory: EINVAL.
void reach_disk(const Descriptor& opened, const fs::path& path) {
  if (!opened || (::fsync(opened.get()) != 0 && errno != EINVAL)) fail(path);
}

/// The names in a directory, `limit` of them at most.
std::vector<std::string> names_in(const Descriptor& directory, std::size_t limit = SIZE_MAX) {
  const int again = ::openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> list(again < 0 ? nullptr : ::fdopendir(again), ::closedir);
  std::vector<std::string> names;
  while (list && names.size() < limit) {
    errno = 0;
    const dirent* const entry = ::readdir(list.get());
    if (entry == nullptr && errno == 0) return names;
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (names.size() < limit) throw std::system_error(errno, std::generic_category(), "cannot read a directory");
  return names;
}

/// A file that was not there: nobody's link is followed.
void write_file(const Descriptor& directory, const std::string& name, std::string_view content, const fs::path& shown) {
  const Descriptor file(
      ::openat(directory.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!file) fail(shown);
  while (!content.empty()) {
    const ssize_t written = ::write(file.get(), content.data(), content.size());
    if (written < 0 && errno != EINTR) fail(shown);
    if (written > 0) content.remove_prefix(static_cast<std::size_t>(written));
  }
  reach_disk(file, shown);
}

bool has_name(const Files& files, const std::string& name) {
  return std::ranges::any_of(files, [&](const auto& file) { return file.first == name; });
}

/// Whether a directory has attributes that a new one would not have, such as access control lists.
bool has_attributes(const Descriptor& directory) {
  std::string list(4096, '\0');
  const ssize_t size = ::flistxattr(directory.get(), list.data(), list.size());
  if (size < 0) return errno != ENOTSUP;
  TextReader names(list.substr(0, static_cast<std::size_t>(size)));
  for (std::string name; std::getline(names, name, '\0');) {
    if (!name.starts_with("security.")) return true;
  }
  return false;
}

/// Whether another directory may take the place of `target`, whose parent is open, and nobody who has the right to miss
/// it does: it is no mount point, it is this user's, nothing in it is a directory, this process does not work in it.
bool is_replaceable(const Descriptor& parent, const fs::path& target) {
  constexpr std::size_t most = 1000;  // entries, each of which gets a link
  const Descriptor old = open_directory(target);
  if (!old) return errno == ENOENT;
  const auto facts = facts_of(old);
  const auto above = facts_of(parent);
  if (!facts || !above || facts->st_dev != above->st_dev || facts->st_uid != ::geteuid()) return false;
  if (same_file(facts, facts_of(AT_FDCWD, ".")) || has_attributes(old)) return false;
  const std::vector<std::string> names = names_in(old, most);
  return names.size() < most && std::ranges::none_of(
                                    names,
                                    [&](const std::string& name) {
                                      const auto entry = facts_of(old.get(), name);
                                      return entry && S_ISDIR(entry->st_mode);
                                    });
}

/// Gives `fresh` the group, the mode and the other files of `target`. False where that cannot be.
bool make_alike(const Descriptor& fresh, const fs::path& target, const Files& files) {
  const Descriptor old = open_directory(target);
  if (!old) return errno == ENOENT;
  const auto facts = facts_of(old);
  const auto own = facts_of(fresh);
  if (!facts || !own) return false;
  if (facts->st_gid != own->st_gid && ::fchown(fresh.get(), static_cast<uid_t>(-1), facts->st_gid) != 0) return false;
  if (::fchmod(fresh.get(), facts->st_mode & 07777) != 0) return false;
  return std::ranges::all_of(names_in(old), [&](const std::string& name) {
    return has_name(files, name) || ::linkat(old.get(), name.c_str(), fresh.get(), name.c_str(), 0) == 0 ||
           errno == ENOENT;  // its owner removed it just now
  });
}

bool exchange(const Descriptor& staging, const Descriptor& parent, const std::string& name) {
#ifdef RENAME_EXCHANGE
  return ::renameat2(staging.get(), "new", parent.get(), name.c_str(), RENAME_EXCHANGE) == 0;
#else
  return false;
#endif
}

/// The inode of the directory that is to be the target, and the names of the result's files.
struct Plan {
  unsigned long long inode = 0;
  Files files;
};

std::string written(const Plan& plan) {
  std::string text = std::to_string(plan.inode) + '\n';
  for (const auto& file : plan.files) text += file.first + '\n';
  return text;
}

/// Reads the plan. The plan is empty where a killed process had not written all of it: then that process had not begun
/// with the steps after it.
Plan read_plan(const Descriptor& staging) {
  const Descriptor file(::openat(staging.get(), "plan", O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  std::string text;
  char part[4096];
  for (ssize_t got = 0; file && (got = ::read(file.get(), part, sizeof part)) > 0;) {
    text.append(part, static_cast<std::size_t>(got));
  }
  Plan plan;
  TextReader lines(text);
  lines >> plan.inode >> std::ws;
  for (std::string name; std::getline(lines, name);) plan.files.emplace_back(name, "");
  return plan;
}

}  // namespace

void cannot_write(const fs::path& path, const std::string& reason) {
  throw std::runtime_error("cannot write " + in_one_line(path.native()) + ": " + reason);
}

SignalsHeld::SignalsHeld() {
  sigset_t held;
  sigemptyset(&held);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&held, signal);
  pthread_sigmask(SIG_BLOCK, &held, &before_);
}
SignalsHeld::~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

bool Staging::is_free(const fs::path& place) {
  const auto facts = facts_of(place);
  if (!facts) return true;
  if (!S_ISDIR(facts->st_mode))
    cannot_write(place, "fp8lab makes a directory of this name while it writes; remove what is there");
  if ((facts->st_mode & (S_IWGRP | S_IWOTH)) != 0) cannot_write(place, "others may write into it; remove it");
  return facts->st_uid == ::geteuid();
}

void Staging::check(const fs::path& place) {
  if (!is_free(place)) cannot_write(place, "another user is writing here; if nobody is, remove this directory");
}

Staging::Staging(fs::path place, fs::path target, const std::function<void()>& waiting)
    : place_(std::move(place)), target_(std::move(target)) {
  using std::chrono::steady_clock;
  const steady_clock::time_point end = steady_clock::now() + std::chrono::minutes(1);
  for (;;) {
    held_.emplace();
    if (open_and_lock()) break;
    held_.reset();
    if (waiting) waiting();
    if (steady_clock::now() > end) {
      check(place_);
      cannot_write(target_, "another process has been writing there for a minute");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  recover();
}

bool Staging::open_and_lock() {
  if (::mkdir(place_.c_str(), 0700) != 0 && errno != EEXIST) fail(place_);
  if (!is_free(place_)) return false;
  Descriptor directory = open_directory(place_);
  if (!directory && errno != ENOENT) fail(place_);
  if (!directory) return false;
  Descriptor lock(::openat(directory.get(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock && errno != ENOENT) fail(place_ / "lock");
  if (!lock) return false;
  // A file system without locks has one writer at a time.
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR)) return false;
  if (!same_file(facts_of(directory.get(), "lock"), facts_of(lock))) return false;
  directory_ = std::move(directory);
  lock_ = std::move(lock);
  return true;
}

Staging::~Staging() {
  try {
    recover();
    ::unlinkat(directory_.get(), "lock", 0);
    ::rmdir(place_.c_str());
  } catch (const std::exception&) {
    errno = 0;  // the next run says what is in the way
  }
  ::flock(lock_.get(), LOCK_UN);  // a fork of this process may have it open too
}

bool Staging::replace_whole(const Files& files) {
  // 1. All that can be known before.
  const Descriptor parent = open_directory(target_.parent_path());
  if (!parent || !is_replaceable(parent, target_)) return false;
  // 2. The new directory, and the plan, on disk.
  const Descriptor fresh = write_new(files);
  if (!make_alike(fresh, target_, files)) return false;
  reach_disk(fresh, target_);
  const auto own = facts_of(fresh);
  if (!own) return false;
  write_file(directory_, "plan", written({own->st_ino, files}), place_ / "plan");
  reach_disk(directory_, place_);
  // 3. One step. A rename replaces nothing and an empty directory, on every file system.
  const std::string name = target_.filename();
  if (::renameat(directory_.get(), "new", parent.get(), name.c_str()) != 0 && !exchange(directory_, parent, name)) {
    return false;
  }
  reach_disk(parent, target_);
  return true;
}

void Staging::replace_each(const Files& files) {
  const Descriptor target = open_directory(target_);
  if (!target) fail(target_);
  const Descriptor ready = write_new(files);
  reach_disk(ready, target_);
  if (::mkdirat(directory_.get(), "old", 0700) != 0) fail(target_);
  const Descriptor old = open_directory(directory_.get(), "old");
  if (!old) fail(target_);
  if (::renameat(directory_.get(), "new", directory_.get(), "ready") != 0) fail(target_);
  reach_disk(directory_, place_);
  place_each(files, ready, old, target);
  reach_disk(target, target_);
}

Descriptor Staging::write_new(const Files& files) const {
  if (::mkdirat(directory_.get(), "new", 0777) != 0) fail(target_);
  Descriptor fresh = open_directory(directory_.get(), "new");
  if (!fresh) fail(target_);
  for (const auto& [name, content] : files) write_file(fresh, name, content, target_ / name);
  return fresh;
}

void Staging::place_each(const Files& files, const Descriptor& ready, const Descriptor& old,
                         const Descriptor& target) const {
  const auto move = [](const Descriptor& from, const Descriptor& to, const std::string& name) {
    return ::renameat(from.get(), name.c_str(), to.get(), name.c_str()) == 0;
  };
  // 1. What is replaced is kept, by a link if there are links, so that a reader always finds one of both.
  for (auto file = files.rbegin(); file != files.rend(); ++file) {
    const std::string& name = file->first;
    const bool kept = ::linkat(target.get(), name.c_str(), old.get(), name.c_str(), 0) == 0 || errno == ENOENT ||
                      move(target, old, name);
    if (kept && move(ready, target, name)) continue;
    // 2. On failure all of it comes back. Killed on the way, the next run finds the rest in `ready` and goes forward.
    const int error = errno;
    for (const auto& entry : files) {
      if (!facts_of(ready.get(), entry.first)) move(target, ready, entry.first);
      if (facts_of(old.get(), entry.first)) move(old, target, entry.first);
    }
    ::renameat(directory_.get(), "ready", directory_.get(), "new");
    cannot_write(target_ / name, std::strerror(error));
  }
}

void Staging::recover() const {
  finish_ready();
  remove_new();
  remove_directory("old");
  ::unlinkat(directory_.get(), "plan", 0);
}

void Staging::finish_ready() const {
  const Descriptor ready = open_directory(directory_.get(), "ready");
  if (!ready) return;
  const Descriptor target = open_directory(target_);
  if (!target) fail(target_);
  for (const std::string& name : names_in(ready)) {
    if (::renameat(ready.get(), name.c_str(), target.get(), name.c_str()) != 0) fail(target_ / name);
  }
  reach_disk(target, target_);
  remove_directory("ready");
}

void Staging::remove_new() const {
  const Descriptor fresh = open_directory(directory_.get(), "new");
  if (!fresh) return;
  const Descriptor target = open_directory(target_);
  if (!target && errno != ENOENT) fail(target_);
  const Plan plan = read_plan(directory_);
  const auto now = facts_of(target);
  const bool is_old = now && now->st_ino == plan.inode;
  // Who still reads the old directory sees by the missing JSON that it is being removed.
  if (is_old && !plan.files.empty()) ::unlinkat(fresh.get(), plan.files.front().first.c_str(), 0);
  for (int attempt = 0; attempt < 100; ++attempt) {
    for (const std::string& name : names_in(fresh)) {
      // Others' files in the old directory are in the target too, but for those that came in between.
      const bool missed = is_old && !has_name(plan.files, name) &&
                          !same_file(facts_of(fresh.get(), name), facts_of(target.get(), name));
      const int result = missed ? ::renameat(fresh.get(), name.c_str(), target.get(), name.c_str())
                                : ::unlinkat(fresh.get(), name.c_str(), 0);
      if (result != 0 && errno != ENOENT) fail(place_ / "new" / name);
    }
    if (::unlinkat(directory_.get(), "new", AT_REMOVEDIR) == 0) return;
    if (errno != ENOTEMPTY && errno != EEXIST) break;
  }
  fail(place_ / "new");
}

void Staging::remove_directory(const char* name) const {
  const Descriptor directory = open_directory(directory_.get(), name);
  if (!directory) return;
  for (const std::string& entry : names_in(directory)) ::unlinkat(directory.get(), entry.c_str(), 0);
  if (::unlinkat(directory_.get(), name, AT_REMOVEDIR) != 0) fail(place_ / name);
}

}  // namespace fp8lab::experiments
