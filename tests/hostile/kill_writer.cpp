// SPDX-License-Identifier: Apache-2.0
// Kills the writer of a result directory at every call that changes files, lets every such call fail or be interrupted,
// and lets several write at once. kill_writer DIRECTORY [KILLS ROUNDS SEED]: KILLS kills or more, then ROUNDS rounds of
// two writers, a reader and a stranger, below DIRECTORY. Without these numbers a quarter of the calls, which SEED
// chooses, or with FP8LAB_EXHAUSTIVE in the environment 2000 kills and 400 rounds. Prints counts; exit status 1 where a
// reader could see old and new files mixed, a stranger's file is lost, or something is left after the next run.
#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "counted_calls.hpp"
#include "exhaustive.hpp"
#include "kit/output.hpp"

namespace {

namespace fs = std::filesystem;
using fp8lab::experiments::Files;
using fp8lab::experiments::write_files;
using fp8lab::tests::calls_until_end;
using fp8lab::tests::end;
using fp8lab::tests::End;
using Contents = std::map<std::string, std::string>;

/// What a directory holds, read through one open directory: hidden names apart. Throws where a file vanishes.
Contents contents(const fs::path& directory) {
  Contents found;
  const int at = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY);
  if (at < 0) return found;
  DIR* const list = ::fdopendir(at);
  bool vanished = false;
  while (const dirent* const entry = ::readdir(list)) {
    const std::string name = entry->d_name;
    if (name.front() == '.') continue;
    const int file = ::openat(at, name.c_str(), O_RDONLY);
    vanished = vanished || file < 0;
    if (file < 0) break;
    std::string text;
    char bytes[4096];
    for (ssize_t got = 0; (got = ::read(file, bytes, sizeof bytes)) > 0;) text.append(bytes, static_cast<size_t>(got));
    ::close(file);
    found[name] = text;
  }
  ::closedir(list);
  if (vanished) throw std::runtime_error("a file vanished");
  return found;
}

/// A result that says which one it is in every file. With `own` it has files whose names the others have not.
Files result(int number, bool own) {
  const std::string mark = "result " + std::to_string(number) + '\n';
  Files files{{"cast.json", mark + std::string(3000, 'j')}, {"summary.csv", mark}};
  for (const char* const name : {"01_codes", "01_error", "02_codes"}) {
    std::string file = name;
    if (own) file.append("_").append(std::to_string(number));
    files.emplace_back(file + ".csv", mark);
  }
  return files;
}

Contents with(Contents old, const Files& files) {
  for (const auto& [name, text] : files) old[name] = text;
  return old;
}

/// What write(), in a process that is killed at its nth call, or never, ends with.
int in_child(long calls, const std::function<void()>& write) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      calls_until_end = calls;
      write();
    } catch (const std::exception&) {
      ::_exit(1);
    }
    ::_exit(calls < 0 || calls_until_end >= 0 ? 0 : 2);  // 2: a call failed, and nobody had to know
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

bool killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

std::size_t entries(const fs::path& path) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
}

struct Counts {
  long kills = 0, between = 0, mixed = 0, lost = 0, leftovers = 0, failed = 0;
  Counts& operator+=(const Counts& more) {
    kills += more.kills, between += more.between, mixed += more.mixed, lost += more.lost;
    leftovers += more.leftovers, failed += more.failed;
    return *this;
  }
  [[nodiscard]] bool wrong() const { return mixed + lost + leftovers + failed > 0; }
};

void print(const char* what, const Counts& counts) {
  std::printf("%-52s %5ld kills: %ld mixed, %ld mixed until the next run, %ld after it, %ld leftovers, %ld failed\n",
              what, counts.kills, counts.mixed, counts.between, counts.lost, counts.leftovers, counts.failed);
}

/// Where the writer is killed: `make` makes what is there before in an empty directory, and gives where to write.
struct Scene {
  const char* name;
  bool one_step;  // replaced in one step, or file by file and completed by the next run
  std::function<fs::path(const fs::path& root)> make;
};

void put(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

const std::vector<Scene> scenes{
    {"no directory", true, [](const fs::path& root) { return root / "new" / "result"; }},
    {"an empty directory", true,
     [](const fs::path& root) {
       fs::create_directory(root / "result");
       return root / "result";
     }},
    {"an old result", true,
     [](const fs::path& root) {
       write_files(root / "result", result(0, false));
       return root / "result";
     }},
    {"an old result of other names, and others' files", true,
     [](const fs::path& root) {
       write_files(root / "result", result(0, true));
       put(root / "result" / "notes.txt", "mine");
       put(root / "result" / "plot.png", "a plot");
       return root / "result";
     }},
    {"a link to an old result", true,
     [](const fs::path& root) {
       fs::create_directories(root / "far" / "away");
       write_files(root / "far" / "away", result(0, false));
       fs::create_symlink(root / "far" / "away", root / "result");
       return root / "result";
     }},
    {"file by file: a directory with a directory in it", false,
     [](const fs::path& root) {
       fs::create_directories(root / "result" / ".others");
       write_files(root / "result", result(0, false));
       return root / "result";
     }},
    {"file by file: the parent is read-only", false,
     [](const fs::path& root) {
       fs::create_directories(root / "parent" / "result");
       fs::permissions(root / "parent", fs::perms::owner_read | fs::perms::owner_exec);
       write_files(root / "parent" / "result", result(0, false));
       return root / "parent" / "result";
     }},
};

const Scene* const other_names = &scenes[3];

/// Entries that are no part of what the scene made, in the directory or anywhere about it.
std::size_t hidden(const fs::path& root) {
  std::size_t count = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    const std::string name = entry.path().filename();
    count += name.front() == '.' && name != ".others" ? 1 : 0;
  }
  return count;
}

/// A writer is killed at its nth call, and then another one at its mth. What a reader sees each time, and after the
/// next run into the same directory. False where the first one ended before its nth call.
bool kill_two(const Scene& scene, const fs::path& root, int number, long n, long m, Counts& counts) {
  const fs::path directory = scene.make(root);
  const bool own_names = &scene == other_names;
  const Files first = result(number, own_names), second = result(number + 1, own_names);
  std::vector<Contents> allowed{contents(directory)};
  const auto see = [&] {
    const Contents seen = contents(directory);
    const auto found = std::ranges::find(allowed, seen);
    if (found == allowed.end()) ++(scene.one_step ? counts.mixed : counts.between);
    // What was once seen whole does not go back.
    if (found != allowed.end()) allowed.erase(allowed.begin(), found);
  };
  const auto write = [&](const Files& files, long calls) {
    const std::vector<Contents> before = allowed;
    for (const Contents& old : before) {
      if (const Contents next = with(old, files); std::ranges::count(allowed, next) == 0) allowed.push_back(next);
    }
    const int status = in_child(calls, [&] { write_files(directory, files); });
    if (killed(status)) ++counts.kills;
    if (!killed(status) && status != 0) ++counts.failed;
    if (!killed(status)) allowed.erase(allowed.begin(), allowed.begin() + static_cast<std::ptrdiff_t>(before.size()));
    see();
    return killed(status);
  };
  const bool more = write(first, n);
  if (more) write(second, m);
  // The next run writes another result; those before are whole then, and nothing is left of the killed ones.
  const std::vector<Contents> before = allowed;
  const Files other{{"other.json", "other"}};
  if (in_child(-1, [&] { write_files(directory, other); }) != 0) ++counts.failed;
  const Contents after = contents(directory);
  if (std::ranges::none_of(before, [&](const Contents& old) { return after == with(old, other); })) ++counts.lost;
  if (hidden(root) > 0) ++counts.leftovers;
  return more;
}

/// The nth call of a writer fails, or a SIGTERM comes there. False where it has no nth call.
bool fail_one(const Scene& scene, const fs::path& root, long n, End how, Counts& counts) {
  const fs::path directory = scene.make(root);
  const auto size = [&] { return std::distance(fs::recursive_directory_iterator(root), {}); };
  const std::ptrdiff_t before = size();
  const Contents old = contents(directory), next = with(old, result(1, &scene == other_names));
  end = how;
  const int status = in_child(n, [&] { write_files(directory, result(1, &scene == other_names)); });
  end = End::kill;
  const Contents seen = contents(directory);
  // What is told to have failed is the old result still, or it failed after the step: on its way to the disk.
  const bool stopped = WIFSIGNALED(status) || WEXITSTATUS(status) == 1;
  if (seen != next && (!stopped || seen != old)) ++counts.mixed;
  if (how == End::interrupt && (hidden(root) > 0 || (seen == old && size() != before))) ++counts.leftovers;
  if (in_child(-1, [&] { write_files(directory, {{"other.json", "other"}}); }) != 0) ++counts.failed;
  if (contents(directory) != with(seen, {{"other.json", "other"}})) ++counts.lost;
  if (hidden(root) > 0) ++counts.leftovers;
  return status != 0;
}

void clear(const fs::path& root) {
  if (fs::exists(root / "parent")) fs::permissions(root / "parent", fs::perms::owner_all);
  fs::remove_all(root);
  fs::create_directories(root);
}

/// Every `step`th call, from one that chance chooses.
Counts kill_everywhere(const Scene& scene, const fs::path& root, long step, std::mt19937& random) {
  Counts counts;
  bool more = true;
  for (long n = static_cast<long>(random()) % step; more; n += step) {
    clear(root);
    more =
        kill_two(scene, root, static_cast<int>(random() % 1000000) + 1, n, static_cast<long>(random() % 100), counts);
  }
  return counts;
}

Counts fail_everywhere(const fs::path& root, End how, long step, std::mt19937& random) {
  Counts counts;
  long failures = 0;
  for (const Scene& scene : scenes) {
    bool more = true;
    for (long n = static_cast<long>(random()) % step; more; n += step) {
      clear(root);
      more = fail_one(scene, root, n, how, counts);
      failures += more ? 1 : 0;
    }
  }
  std::printf("%ld calls %s: %ld mixed, %ld not whole after the next run, %ld leftovers, %ld failed after that\n",
              failures, how == End::error ? "that fail" : "with a SIGTERM", counts.mixed, counts.lost, counts.leftovers,
              counts.failed);
  return counts;
}

/// Two write at once, in every third round one of them is killed; one reads; one adds files of its own.
Counts several_writers(const fs::path& root, int rounds, std::mt19937& random) {
  Counts counts;
  clear(root);
  const fs::path directory = root / "result";
  write_files(directory, result(0, false));
  const auto start = [](const std::function<int()>& work) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(work());
    return child;
  };
  const auto mixed = [&] {
    Contents seen = contents(directory);
    if (!seen.contains("cast.json")) throw std::runtime_error("the directory is being removed");
    for (const auto& entry : seen) {
      if (entry.first.starts_with("own_")) continue;
      if (entry.second.substr(0, entry.second.find('\n')) !=
          seen["cast.json"].substr(0, seen["cast.json"].find('\n'))) {
        return true;
      }
    }
    return false;
  };
  long own = 0, reads = 0, refused = 0, all_refused = 0;
  for (int round = 0; round < rounds; ++round) {
    const long fatal = round % 3 == 2 ? static_cast<long>(random() % 60) : -1;
    const pid_t writers[2] = {start([&] {
                                calls_until_end = fatal;
                                write_files(directory, result(2 * round + 1, false));
                                return 0;
                              }),
                              start([&] {
                                write_files(directory, result(2 * round + 2, false));
                                return 0;
                              })};
    const pid_t stranger = start([&] {
      // A file that it makes in a directory that is just being removed is refused, and it tries again.
      for (int i = 0; i < 20; ++i) {
        const fs::path path = directory / ("own_" + std::to_string(round) + "_" + std::to_string(i));
        while (!(std::ofstream(path) << "own")) ++refused;
      }
      return static_cast<int>(std::min(refused, 255L));
    });
    for (int living = 2, status = 0; living > 0;) {
      for (const pid_t writer : writers) {
        if (::waitpid(writer, &status, WNOHANG) != writer) continue;
        --living;
        if (killed(status)) ++counts.kills;
        if (!killed(status) && status != 0) ++counts.failed;
      }
      try {
        ++reads;
        if (mixed()) ++counts.mixed;
      } catch (const std::runtime_error&) {  // the directory was replaced under the reader, who starts again
      }
    }
    int status = 0;
    ::waitpid(stranger, &status, 0);
    all_refused += WEXITSTATUS(status);
    write_files(directory, {{"own_last", "own"}});
    own += 20;
    for (int i = 0; i < 20; ++i) {
      if (!fs::remove(directory / ("own_" + std::to_string(round) + "_" + std::to_string(i)))) ++counts.lost;
    }
    if (hidden(root) > 0 || entries(root) != 1) ++counts.leftovers;
  }
  std::printf(
      "two writers at once, %d rounds, %ld killed, %ld reads: %ld mixed, %ld of %ld files of others lost (%ld "
      "refused and tried again), %ld leftovers, %ld failed\n",
      rounds, counts.kills, reads, counts.mixed, counts.lost, own, all_refused, counts.leftovers, counts.failed);
  return counts;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return 2;
  const fs::path root = fs::absolute(arguments[1]) / ("kill_writer-" + std::to_string(::getpid()));
  const bool all = count > 2 || fp8lab::tests::exhaustive();
  const long kills = count > 2 ? std::atol(arguments[2]) : all ? 2000 : 1, step = all ? 1 : 4;
  const int rounds = count > 3 ? std::atoi(arguments[3]) : all ? 400 : 10;
  const unsigned seed = count > 4 ? static_cast<unsigned>(std::atol(arguments[4])) : std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  std::vector<Counts> of_scene(scenes.size());
  Counts counts;
  while (counts.kills < kills) {
    for (std::size_t i = 0; i < scenes.size(); ++i) {
      const Counts more = kill_everywhere(scenes[i], root, step, random);
      of_scene[i] += more;
      counts += more;
    }
  }
  for (std::size_t i = 0; i < scenes.size(); ++i) print(scenes[i].name, of_scene[i]);
  print("killed in all", counts);
  for (const End how : {End::error, End::interrupt}) counts += fail_everywhere(root, how, step, random);
  counts += several_writers(root, rounds, random);
  clear(root);
  fs::remove(root);
  return counts.wrong() ? 1 : 0;
}
