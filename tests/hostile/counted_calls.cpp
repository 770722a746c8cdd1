// SPDX-License-Identifier: Apache-2.0
#include "counted_calls.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>

namespace fp8lab::tests {

long calls_until_end = -1;
End end = End::kill;

}  // namespace fp8lab::tests

namespace {

using fp8lab::tests::calls_until_end;
using fp8lab::tests::end;
using fp8lab::tests::End;

/// Counts a call, and ends the process or raises SIGTERM where its turn has come. Whether the call has to fail.
bool counted_call() {
  if (calls_until_end == 0 && end == End::kill) ::kill(::getpid(), SIGKILL);
  if (calls_until_end == 0 && end == End::interrupt) ::raise(SIGTERM);
  const bool fails = calls_until_end == 0 && end == End::error;
  if (calls_until_end >= 0) --calls_until_end;
  if (fails) errno = ENOSPC;
  return fails;
}

/// Calls the C library's function of this name.
template <typename... Arguments>
auto real(const char* name, Arguments... arguments) {
  using Function = int (*)(Arguments...);
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name))(arguments...);
}

template <typename... Arguments>
int counted(const char* name, Arguments... arguments) {
  return counted_call() ? -1 : real(name, arguments...);
}

}  // namespace

// These stand in for the C library's functions, here and in all shared libraries of this program.
#define INSTEAD_OF(name) __asm__(#name)
extern "C" {
int counted_mkdir(const char* path, mode_t mode) INSTEAD_OF(mkdir);
int counted_mkdirat(int at, const char* path, mode_t mode) INSTEAD_OF(mkdirat);
int counted_open(const char* path, int flags, ...) INSTEAD_OF(open);
int counted_openat(int at, const char* path, int flags, ...) INSTEAD_OF(openat);
ssize_t counted_write(int file, const void* bytes, size_t size) INSTEAD_OF(write);
int counted_fsync(int file) INSTEAD_OF(fsync);
int counted_fchmod(int file, mode_t mode) INSTEAD_OF(fchmod);
int counted_fchown(int file, uid_t user, gid_t group) INSTEAD_OF(fchown);
int counted_link(const char* from, const char* to) INSTEAD_OF(link);
int counted_linkat(int from_at, const char* from, int to_at, const char* to, int flags) INSTEAD_OF(linkat);
int counted_rename(const char* from, const char* to) INSTEAD_OF(rename);
int counted_renameat(int from_at, const char* from, int to_at, const char* to) INSTEAD_OF(renameat);
int counted_renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) INSTEAD_OF(renameat2);
int counted_unlink(const char* path) INSTEAD_OF(unlink);
int counted_unlinkat(int at, const char* path, int flags) INSTEAD_OF(unlinkat);
int counted_rmdir(const char* path) INSTEAD_OF(rmdir);
int counted_remove(const char* path) INSTEAD_OF(remove);
int counted_flock(int file, int operation) INSTEAD_OF(flock);

int counted_mkdir(const char* path, mode_t mode) { return counted("mkdir", path, mode); }
int counted_mkdirat(int at, const char* path, mode_t mode) { return counted("mkdirat", at, path, mode); }
int counted_open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return counted("open", path, flags, mode);
}
int counted_openat(int at, const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return counted("openat", at, path, flags, mode);
}
ssize_t counted_write(int file, const void* bytes, size_t size) {
  using Function = ssize_t (*)(int, const void*, size_t);
  static const auto real_write = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "write"));
  if (counted_call()) return -1;
  if (calls_until_end == 0 && size > 1) return real_write(file, bytes, size / 2);  // and then no more
  return real_write(file, bytes, size);
}
int counted_fsync(int file) { return counted("fsync", file); }
int counted_fchmod(int file, mode_t mode) { return counted("fchmod", file, mode); }
int counted_fchown(int file, uid_t user, gid_t group) { return counted("fchown", file, user, group); }
int counted_link(const char* from, const char* to) { return counted("link", from, to); }
int counted_linkat(int from_at, const char* from, int to_at, const char* to, int flags) {
  return counted("linkat", from_at, from, to_at, to, flags);
}
int counted_rename(const char* from, const char* to) { return counted("rename", from, to); }
int counted_renameat(int from_at, const char* from, int to_at, const char* to) {
  return counted("renameat", from_at, from, to_at, to);
}
int counted_renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) {
  return counted("renameat2", from_at, from, to_at, to, flags);
}
int counted_unlink(const char* path) { return counted("unlink", path); }
int counted_unlinkat(int at, const char* path, int flags) { return counted("unlinkat", at, path, flags); }
int counted_rmdir(const char* path) { return counted("rmdir", path); }
int counted_remove(const char* path) { return counted("remove", path); }
int counted_flock(int file, int operation) { return counted("flock", file, operation); }
}
