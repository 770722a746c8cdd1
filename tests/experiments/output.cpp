// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/experiments/output.hpp"

#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "scratch.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

namespace fs = std::filesystem;
using experiments::write_files;

std::string content(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::size_t entries(const fs::path& path) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("files are written, replaced, and nothing else is left") {
  const Scratch scratch;
  write_files(scratch.path / "a" / "b", {{"x.json", "1"}, {"y.csv", "2"}});
  write_files(scratch.path / "a" / "b", {{"x.json", "3"}});
  CHECK(content(scratch.path / "a" / "b" / "x.json") == "3");
  CHECK(content(scratch.path / "a" / "b" / "y.csv") == "2");
  CHECK(entries(scratch.path / "a" / "b") == 2);
}

TEST_CASE("what cannot be written says why, and leaves what was there") {
  const Scratch scratch;
  write_files(scratch.path, {{"x.json", "old"}});
  SECTION("a read-only file") {
    fs::permissions(scratch.path / "x.json", fs::perms::owner_read);
    CHECK_THROWS_WITH(write_files(scratch.path, {{"a.csv", "1"}, {"x.json", "new"}}),
                      ContainsSubstring("x.json: the file is read-only"));
    CHECK(entries(scratch.path) == 1);
  }
  SECTION("a read-only directory") {
    fs::permissions(scratch.path, fs::perms::owner_read | fs::perms::owner_exec);
    CHECK_THROWS_WITH(write_files(scratch.path, {{"a.csv", "1"}}), ContainsSubstring("is not writable"));
    CHECK_THROWS_WITH(write_files(scratch.path / "new" / "er", {{"a.csv", "1"}}), ContainsSubstring("is not writable"));
  }
  SECTION("a directory of that name") {
    fs::create_directory(scratch.path / "a.csv");
    CHECK_THROWS_WITH(write_files(scratch.path, {{"x.json", "new"}, {"a.csv", "1"}}),
                      ContainsSubstring("a.csv: it is a directory"));
  }
  SECTION("a file where the directory should be") {
    CHECK_THROWS_WITH(write_files(scratch.path / "x.json", {{"a.csv", "1"}}), ContainsSubstring("is not a directory"));
    CHECK_THROWS_WITH(write_files(scratch.path / "x.json" / "deeper", {{"a.csv", "1"}}),
                      ContainsSubstring("is not a directory"));
  }
  SECTION("a link that leads nowhere, and no name at all") {
    fs::create_symlink(scratch.path / "nothing", scratch.path / "link");
    CHECK_THROWS_WITH(write_files(scratch.path / "link", {{"a.csv", "1"}}), ContainsSubstring("leads nowhere"));
    CHECK_THROWS_WITH(write_files("", {{"a.csv", "1"}}), ContainsSubstring("is not empty"));
  }
  SECTION("directories made for nothing are removed again") {
    CHECK_THROWS(write_files(scratch.path / "new" / std::string(300, 'x'), {{"a.csv", "1"}}));
    CHECK_THROWS(write_files(scratch.path / "new" / "er", {{std::string(300, 'x'), "1"}}));
    CHECK(entries(scratch.path) == 1);
  }
  SECTION("a disk that fills up") {
    // A file size limit stands in for a full disk: the write of the second file fails half-way.
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{1000, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    const std::string large(5000, 'x');
    std::string reason;
    try {
      write_files(scratch.path, {{"x.json", "new"}, {"large.csv", large}});
    } catch (const std::runtime_error& error) {
      reason = error.what();
    }
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(reason.find("File too large") != std::string::npos);
    CHECK(entries(scratch.path) == 1);
  }
  CHECK(content(scratch.path / "x.json") == "old");
}

}  // namespace fp8lab::tests
