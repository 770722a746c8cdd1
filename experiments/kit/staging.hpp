// SPDX-License-Identifier: Apache-2.0
// Where the files of a result lie until they are whole. output.hpp says what this is for.
#pragma once

#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "kit/output.hpp"

namespace fp8lab::experiments {

/// Throws the one line that says why `path` cannot be written.
[[noreturn]] void cannot_write(const std::filesystem::path& path, const std::string& reason);

/// While it lives, Ctrl-C and the like wait: they would leave a staging directory to the next run.
class SignalsHeld {
 public:
  SignalsHeld();
  ~SignalsHeld();
  SignalsHeld(SignalsHeld&&) = delete;  // and so no copies either

 private:
  sigset_t before_{};
};

/// An open file or directory, or none.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();
  explicit operator bool() const { return number_ >= 0; }
  [[nodiscard]] int get() const { return number_; }

 private:
  int number_;
};

/// A hidden directory in which one process at a time prepares what a result directory will hold.
///
/// It holds `lock`, which a living owner has locked, and what tells the next owner how far a killed one came:
/// - `new`: a directory that is to replace the target, and `plan`: its inode and the names of the result's files. Once
///   the target has that inode, `new` is what it replaced.
/// - `ready`: files, all of them whole, that go into the target one by one, and `old`: those that they replaced.
class Staging {
 public:
  /// Makes the directory `place`, or takes it over from a killed process and finishes or removes what that left. Waits
  /// while a living process or another user has it, calling `waiting`, for a minute at most. `target` is the real path
  /// of the result directory.
  Staging(std::filesystem::path place, std::filesystem::path target, const std::function<void()>& waiting);
  ~Staging();  // removes `place`, and what did not become part of the target
  Staging(Staging&&) = delete;

  /// Throws where `place` is something that cannot be this user's staging directory.
  static void check(const std::filesystem::path& place);

  /// Replaces the target in one step by a directory with these files and all others that it has. Where that cannot be,
  /// changes nothing and gives false. `place` is beside the target.
  [[nodiscard]] bool replace_whole(const Files& files);

  /// Renames the files into the target one by one, the first one last. `place` is in the target, which exists.
  void replace_each(const Files& files);

 private:
  [[nodiscard]] static bool is_free(const std::filesystem::path& place);  // of other users
  [[nodiscard]] bool open_and_lock();  // false where another process has it, or removed it meanwhile
  [[nodiscard]] Descriptor write_new(const Files& files) const;
  void place_each(const Files& files, const Descriptor& ready, const Descriptor& old, const Descriptor& target) const;
  void recover() const;
  void finish_ready() const;
  void remove_new() const;
  void remove_directory(const char* name) const;

  std::filesystem::path place_, target_;
  std::optional<SignalsHeld> held_;
  Descriptor directory_, lock_;
};

}  // namespace fp8lab::experiments
