// SPDX-License-Identifier: Apache-2.0
#include "files/stored_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace fp8lab::experiments {

std::string in_one_line(std::string_view path) {
  const std::string text = nlohmann::json(path).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.substr(1, text.size() - 2);
}

std::string cannot_read(std::string_view file, std::string_view reason) {
  return std::string("cannot read ").append(file).append(": ").append(reason);
}

StoredFile::StoredFile(const std::filesystem::path& path) : name_(in_one_line(path.native())) {
  constexpr std::string_view not_regular = "it is not a regular file; pipes, devices and sockets are not read";
  if (path.native().find('\0') != std::string::npos) fail("its name has a zero byte");
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0 && (errno == ENOENT || errno == ENOTDIR)) fail("there is no such file");
  if (descriptor_ < 0 && errno == ELOOP) fail("it is a link that leads back to itself");
  if (descriptor_ < 0) fail(errno == ENXIO ? not_regular : std::strerror(errno));
  struct stat status{};
  const int error = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(status.st_mode)) return;
  ::close(descriptor_);  // for no destructor will
  if (error != 0) fail(std::strerror(error));
  fail(S_ISDIR(status.st_mode) ? "it is a directory" : not_regular);
}

StoredFile::~StoredFile() { ::close(descriptor_); }

std::uint64_t StoredFile::size() const {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) fail(std::strerror(errno));
  return static_cast<std::uint64_t>(status.st_size);
}

std::size_t StoredFile::read(std::uint64_t at, std::span<char> out) const {
  constexpr auto farthest = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  std::size_t done = 0;
  while (done < out.size() && at + done < farthest) {
    const ssize_t count = ::pread(descriptor_, out.data() + done, out.size() - done, static_cast<off_t>(at + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(std::strerror(errno));
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

void StoredFile::fail(std::string_view reason) const { throw std::runtime_error(cannot_read(name_, reason)); }

FileStream::Buffer::int_type FileStream::Buffer::underflow() {
  const std::size_t count = file_.read(next_, room_);
  next_ += count;
  setg(room_.data(), room_.data(), room_.data() + count);
  return count == 0 ? traits_type::eof() : traits_type::to_int_type(*gptr());
}

std::streamsize FileStream::Buffer::xsgetn(char* out, std::streamsize count) {
  const std::streamsize here = std::min<std::streamsize>(egptr() - gptr(), count);
  std::copy_n(gptr(), here, out);
  setg(eback(), gptr() + here, egptr());
  if (here == count) return count;
  const std::size_t read = file_.read(next_, {out + here, static_cast<std::size_t>(count - here)});
  next_ += read;
  return here + static_cast<std::streamsize>(read);
}

FileStream::Buffer::pos_type FileStream::Buffer::seekoff(off_type offset, std::ios_base::seekdir from,
                                                         std::ios_base::openmode /*which*/) {
  off_type base = 0;
  if (from == std::ios_base::cur) base = static_cast<off_type>(next_) - (egptr() - gptr());
  if (from == std::ios_base::end) base = static_cast<off_type>(file_.size());
  off_type target = 0;
  if (__builtin_add_overflow(base, offset, &target) || target < 0) return {off_type{-1}};
  setg(nullptr, nullptr, nullptr);
  next_ = static_cast<std::uint64_t>(target);
  return {target};
}
FileStream::Buffer::pos_type FileStream::Buffer::seekpos(pos_type position, std::ios_base::openmode which) {
  return seekoff(position, std::ios_base::beg, which);
}

}  // namespace fp8lab::experiments
