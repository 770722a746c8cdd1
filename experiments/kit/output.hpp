// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace fp8lab::experiments {

/// Files to be written: (name, content).
using Files = std::vector<std::pair<std::string, std::string>>;

/// Throws std::runtime_error with a one-line reason where `names` could not be written into `directory`: it, or the
/// nearest parent that exists, is no directory or is not writable, a file of that name is a directory or read-only, or
/// something that is not this user's lies where the files are prepared. The names of a document's CSV files are known
/// only after the run, so that every .csv in `directory` is checked, too.
void check_writable(const std::filesystem::path& directory, const std::vector<std::string>& names);

/// Writes a result, all files of it, into `directory`, creating it. Other files in there stay.
///
/// Whoever reads `directory` finds the old result or the new one, whole and on disk, at any time and whatever is killed
/// when; several processes and threads may write into it at once, one after the other, and the last one wins whole.
/// For a reader who knows nothing of fp8lab, only one thing does that: a new directory that takes the place of the old
/// one in one step. So the files are written into `.NAME.fp8lab-writing/` beside `directory`, others' files in
/// `directory` get a second link there, and the two directories are exchanged. Then the old one is removed, its JSON
/// (the first file) first: what opened it, such as a shell that works in it, has to open `directory` again.
///
/// Some directories cannot be replaced so: a mount point, one that holds directories, belongs to another user, has
/// access control lists, is this process's working directory or lies in a directory that is not writable; and some file
/// systems cannot exchange directories (NFS). There the files are written into `.fp8lab-writing/` in `directory` and
/// then renamed into place one by one, the first one (the JSON) last. Killed among these renames, a process leaves
/// `.fp8lab-writing/ready/` with the files that are still to come; the next one that writes into `directory` completes
/// them.
///
/// A hidden directory is locked (flock) while its process lives. What a killed one left, the next one that writes into
/// `directory` removes. Nothing is written through a link, and a hidden directory of another user is refused.
///
/// Where another process writes there, calls `waiting`, which may throw, until that is done, for a minute at most.
/// On failure the old result stays, and nothing of the new; throws std::runtime_error with a one-line reason. SIGINT,
/// SIGTERM and SIGHUP wait until all is done.
void write_files(const std::filesystem::path& directory, const Files& files, const std::function<void()>& waiting = {});

/// Writes one file so that it is there whole or not at all: beside it under another name first, and renamed when it is
/// on disk. Throws std::runtime_error with a one-line reason; the old file stays then.
void write_file(const std::filesystem::path& path, const std::string& content);
/// Throws std::runtime_error where write_file() could not write there: it is a directory or a device, read-only, or in
/// a directory that is not there or not writable.
void check_file_writable(const std::filesystem::path& path);

}  // namespace fp8lab::experiments
