// SPDX-License-Identifier: Apache-2.0
#include "kit/output.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "scratch.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

namespace fs = std::filesystem;
using experiments::check_writable;
using experiments::Files;
using experiments::write_files;

std::string content(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void put(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

/// The names of the files in a directory, hidden ones too.
std::size_t entries(const fs::path& path) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
}

/// While it lives, no file can be larger than that: a full disk, half-way through a file.
struct SmallDisk {
  rlimit before{};
  explicit SmallDisk(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{bytes, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() { setrlimit(RLIMIT_FSIZE, &before); }
  SmallDisk(SmallDisk&&) = delete;
};

}  // namespace

TEST_CASE("files are written, replaced, and nothing else is left") {
  const Scratch scratch;
  const fs::path directory = scratch.path / "a" / "b";
  write_files(directory, {{"x.json", "1"}, {"y.csv", "2"}});
  write_files(directory, {{"x.json", "3"}});
  CHECK(content(directory / "x.json") == "3");
  CHECK(content(directory / "y.csv") == "2");
  CHECK(entries(directory) == 2);
  CHECK(entries(scratch.path / "a") == 1);
}

TEST_CASE("a result directory is replaced in one step, with its mode and others' files in it") {
  const Scratch scratch;
  const fs::path directory = scratch.path / "result";
  write_files(directory, {{"x.json", "old"}, {"y.csv", "old"}});
  put(directory / "notes.txt", "mine");
  fs::create_symlink("nowhere", directory / "link");
  fs::permissions(directory, fs::perms::owner_all | fs::perms::group_read);
  const int opened = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY);
  write_files(directory, {{"x.json", "new"}, {"z.csv", "new"}});
  // Who had the directory open has the old one, in which the old files are gone, and no new ones.
  CHECK(::faccessat(opened, "x.json", F_OK, 0) != 0);
  ::close(opened);
  CHECK(content(directory / "x.json") + content(directory / "y.csv") + content(directory / "z.csv") == "newoldnew");
  CHECK(content(directory / "notes.txt") == "mine");
  CHECK(fs::hard_link_count(directory / "notes.txt") == 1);
  CHECK(fs::read_symlink(directory / "link") == "nowhere");
  CHECK(fs::status(directory).permissions() == (fs::perms::owner_all | fs::perms::group_read));
  CHECK(entries(directory) == 5);
  CHECK(entries(scratch.path) == 1);
}

TEST_CASE("a directory that cannot be replaced gets its files one by one") {
  const Scratch scratch;
  const fs::path directory = scratch.path / "result";
  fs::create_directory(directory);
  SECTION("it holds a directory") { fs::create_directories(directory / "others" / "own"); }
  SECTION("it is where this process works") {
    fs::create_directory(directory / "others");
    const fs::path before = fs::current_path();
    fs::current_path(directory);
    write_files(".", {{"x.json", "0"}, {"y.csv", "0"}});
    fs::remove(directory / "others");
    write_files(".", {{"x.json", "1"}, {"y.csv", "2"}});
    CHECK(content("x.json") == "1");
    fs::current_path(before);
    fs::create_directory(directory / "others");
  }
  SECTION("its parent is read-only") {
    fs::create_directory(directory / "others");
    fs::permissions(scratch.path, fs::perms::owner_read | fs::perms::owner_exec);
  }
  SECTION("its name is as long as a name can be") {
    const fs::path longest = scratch.path / std::string(255, 'x');
    write_files(longest, {{"x.json", "1"}});
    CHECK(content(longest / "x.json") == "1");
    CHECK(entries(longest) == 1);
    fs::remove_all(longest);
    fs::create_directory(directory / "others");
  }
  const int opened = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY);
  write_files(directory, {{"x.json", "1"}, {"y.csv", "2"}});
  CHECK(::faccessat(opened, "x.json", F_OK, 0) == 0);
  ::close(opened);
  write_files(directory, {{"x.json", "3"}, {"z.csv", "4"}});
  CHECK(content(directory / "x.json") + content(directory / "y.csv") + content(directory / "z.csv") == "324");
  CHECK(entries(directory) == 4);
  CHECK(entries(scratch.path) == 1);
}

TEST_CASE("a link to a result directory stays a link") {
  const Scratch scratch;
  fs::create_directories(scratch.path / "far" / "away");
  fs::create_directory_symlink(scratch.path / "far" / "away", scratch.path / "link");
  write_files(scratch.path / "link", {{"x.json", "1"}});
  write_files(scratch.path / "link" / "", {{"x.json", "2"}});
  CHECK(fs::is_symlink(scratch.path / "link"));
  CHECK(content(scratch.path / "far" / "away" / "x.json") == "2");
  CHECK(entries(scratch.path) + entries(scratch.path / "far") == 3);
}

TEST_CASE("a CSV that cannot be replaced is found before the work, whatever its name") {
  const Scratch scratch;
  const fs::path directory = scratch.path / "result";
  write_files(directory, {{"x.json", "old"}, {"table.csv", "old"}, {"notes.txt", "old"}});
  fs::permissions(directory / "notes.txt", fs::perms::owner_read);
  CHECK_NOTHROW(check_writable(directory, {"x.json"}));
  SECTION("for it is read-only") {
    fs::permissions(directory / "table.csv", fs::perms::owner_read);
    CHECK_THROWS_WITH(check_writable(directory, {"x.json"}), ContainsSubstring("table.csv: the file is read-only"));
  }
  SECTION("for it is a directory") {
    fs::create_directory(directory / "more.csv");
    CHECK_THROWS_WITH(check_writable(directory, {"x.json"}), ContainsSubstring("more.csv: it is a directory"));
  }
  SECTION("for it is a pipe") {
    REQUIRE(::mkfifo((directory / "more.csv").c_str(), 0600) == 0);
    CHECK_THROWS_WITH(check_writable(directory, {"x.json"}), ContainsSubstring("more.csv: it is a device, a pipe"));
    CHECK_THROWS_WITH(write_files(directory, {{"more.csv", "new"}}),
                      ContainsSubstring("more.csv: it is a device, a pipe"));
    CHECK(fs::is_fifo(directory / "more.csv"));
  }
}

TEST_CASE("planted links are not followed") {
  const Scratch scratch;
  const fs::path directory = scratch.path / "result", victim = scratch.path / "victim";
  put(victim, "victim");
  write_files(directory, {{"x.json", "old"}});
  SECTION("in place of a file of the result") {
    fs::remove(directory / "x.json");
    fs::create_symlink(victim, directory / "x.json");
    fs::create_symlink(victim, directory / (".x.json." + std::to_string(::getpid()) + ".part"));
    write_files(directory, {{"x.json", "new"}});
    CHECK(content(directory / "x.json") == "new");
    CHECK(!fs::is_symlink(directory / "x.json"));
  }
  SECTION("in place of a hidden directory") {
    for (const fs::path& place : {scratch.path / ".result.fp8lab-writing", directory / ".fp8lab-writing"}) {
      fs::create_directory(scratch.path / "elsewhere");
      fs::create_directory_symlink(scratch.path / "elsewhere", place);
      CHECK_THROWS_WITH(check_writable(directory, {}),
                        ContainsSubstring(place.string() + ": fp8lab makes a directory of this name"));
      CHECK_THROWS_WITH(write_files(directory, {{"x.json", "new"}}), ContainsSubstring("remove what is there"));
      CHECK(entries(scratch.path / "elsewhere") == 0);
      fs::remove(scratch.path / "elsewhere");
      fs::remove(place);
    }
    CHECK(content(directory / "x.json") == "old");
  }
  SECTION("in a hidden directory that others may write") {
    fs::create_directory(scratch.path / ".result.fp8lab-writing");
    fs::permissions(scratch.path / ".result.fp8lab-writing", fs::perms::all);
    CHECK_THROWS_WITH(write_files(directory, {{"x.json", "new"}}), ContainsSubstring("others may write into it"));
    CHECK(content(directory / "x.json") == "old");
  }
  SECTION("in place of the lock") {
    fs::create_directory(scratch.path / ".result.fp8lab-writing");
    fs::permissions(scratch.path / ".result.fp8lab-writing", fs::perms::owner_all);
    fs::create_symlink(scratch.path / "made", scratch.path / ".result.fp8lab-writing" / "lock");
    CHECK_THROWS_WITH(write_files(directory, {{"x.json", "new"}}), ContainsSubstring(".result.fp8lab-writing/lock"));
    CHECK(!fs::exists(scratch.path / "made"));
  }
  CHECK(content(victim) == "victim");
}

TEST_CASE("who writes while another one does waits for it") {
  const Scratch scratch;
  const fs::path directory = scratch.path / "result";
  write_files(directory, {{"x.json", "old"}});
  SECTION("and may stop waiting") {
    fs::create_directory(scratch.path / ".result.fp8lab-writing");
    fs::permissions(scratch.path / ".result.fp8lab-writing", fs::perms::owner_all);
    const int lock = ::open((scratch.path / ".result.fp8lab-writing" / "lock").c_str(), O_RDWR | O_CREAT, 0600);
    REQUIRE(::flock(lock, LOCK_EX) == 0);
    int calls = 0;
    const auto waiting = [&] {
      if (++calls == 5) throw std::runtime_error("enough");
    };
    CHECK_THROWS_WITH(write_files(directory, {{"x.json", "new"}}, waiting), "enough");
    CHECK(content(directory / "x.json") == "old");
    ::close(lock);
  }
  SECTION("also for another user") {
    if (::geteuid() == 0) {
      fs::create_directory(scratch.path / ".result.fp8lab-writing");
      fs::permissions(scratch.path / ".result.fp8lab-writing", fs::perms::owner_all);
      REQUIRE(::chown((scratch.path / ".result.fp8lab-writing").c_str(), 1, 1) == 0);
      CHECK_THROWS_WITH(check_writable(directory, {}),
                        ContainsSubstring(".result.fp8lab-writing: another user is writing"));
      write_files(directory, {{"x.json", "new"}}, [&] { fs::remove(scratch.path / ".result.fp8lab-writing"); });
      CHECK(content(directory / "x.json") == "new");
    }
  }
  SECTION("in threads, too") {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        for (int round = 0; round < 5; ++round) {
          write_files(directory, {{"x.json", std::to_string(i)}, {"y.csv", std::to_string(i)}});
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(content(directory / "x.json") == content(directory / "y.csv"));
  }
  write_files(directory, {{"x.json", "last"}});
  CHECK(content(directory / "x.json") == "last");
  CHECK(entries(scratch.path) == 1);
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
    CHECK_THROWS_WITH(write_files("", {{"a.csv", "1"}}), ContainsSubstring("the name of the directory is empty"));
  }
  SECTION("directories made for nothing are removed again") {
    CHECK_THROWS(write_files(scratch.path / "new" / std::string(300, 'x'), {{"a.csv", "1"}}));
    CHECK_THROWS(write_files(scratch.path / "new" / "er", {{std::string(300, 'x'), "1"}}));
    CHECK(entries(scratch.path) == 1);
  }
  SECTION("a disk that fills up") {
    fs::create_directory(scratch.path / "result");
    write_files(scratch.path / "result", {{"y.json", "old"}});
    SECTION("under a directory that is replaced") {}
    SECTION("under one that is not") { fs::create_directory(scratch.path / "result" / "others"); }
    const std::size_t before = entries(scratch.path / "result");
    {
      const SmallDisk disk(1000);
      CHECK_THROWS_WITH(
          write_files(scratch.path / "result", {{"y.json", "new"}, {"large.csv", std::string(5000, 'x')}}),
          ContainsSubstring("result/large.csv: File too large"));
    }
    CHECK(content(scratch.path / "result" / "y.json") == "old");
    CHECK(entries(scratch.path / "result") == before);
    CHECK(entries(scratch.path) == 2);
  }
  CHECK(content(scratch.path / "x.json") == "old");
}

}  // namespace fp8lab::tests
