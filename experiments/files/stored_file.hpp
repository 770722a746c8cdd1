// SPDX-License-Identifier: Apache-2.0
// The one way in which files of users are opened.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <span>
#include <streambuf>
#include <string>
#include <string_view>

namespace fp8lab::experiments {

/// How a path is called in messages: as it is, but in one line.
[[nodiscard]] std::string in_one_line(std::string_view path);

/// "cannot read FILE: reason"; `file` is one line.
[[nodiscard]] std::string cannot_read(std::string_view file, std::string_view reason);

/// A regular file, open for reading. It is read in the pieces that are asked for and never mapped: a mapped file that
/// another process makes shorter kills its reader.
///
/// All messages begin with cannot_read(name()).
class StoredFile {
 public:
  /// Throws std::runtime_error where it cannot be opened or is no regular file. What would block, or never end (a FIFO,
  /// a device, a socket), and a directory are refused at once: the file that was opened is asked, not its path.
  explicit StoredFile(const std::filesystem::path& path);
  StoredFile(const StoredFile&) = delete;
  StoredFile& operator=(const StoredFile&) = delete;
  ~StoredFile();

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// In bytes, now. Throws std::runtime_error where that cannot be found out.
  [[nodiscard]] std::uint64_t size() const;
  /// Reads from byte `at` on; gives how many bytes there were. Throws std::runtime_error where reading fails.
  [[nodiscard]] std::size_t read(std::uint64_t at, std::span<char> out) const;

  /// Throws std::runtime_error.
  [[noreturn]] void fail(std::string_view reason) const;

 private:
  std::string name_;
  int descriptor_ = -1;
};

/// A stored file as a stream that can seek; 64 KiB of it are in memory. Reading throws as StoredFile does, and
/// std::bad_alloc, where other streams would only stop.
class FileStream final : public std::istream {
 public:
  explicit FileStream(const std::filesystem::path& path) : std::istream(nullptr), buffer_(path) {
    rdbuf(&buffer_);
    exceptions(std::ios_base::badbit);
  }

 private:
  class Buffer final : public std::streambuf {
   public:
    explicit Buffer(const std::filesystem::path& path) : file_(path) {}

   protected:
    int_type underflow() override;
    std::streamsize xsgetn(char* out, std::streamsize count) override;
    pos_type seekoff(off_type offset, std::ios_base::seekdir from, std::ios_base::openmode which) override;
    pos_type seekpos(pos_type position, std::ios_base::openmode which) override;

   private:
    StoredFile file_;
    std::uint64_t next_ = 0;  // byte of the file behind those in room_
    std::array<char, std::size_t{1} << 16> room_;
  };

  Buffer buffer_;
};

}  // namespace fp8lab::experiments
