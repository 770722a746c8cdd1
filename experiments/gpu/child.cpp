// SPDX-License-Identifier: Apache-2.0
#include "gpu/child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace fp8lab::experiments {
namespace {

using Clock = std::chrono::steady_clock;

// Each message of a child is what became of a task, its text, and an end that no JSON has.
constexpr char done_mark = 'd';
constexpr char failed_mark = 'f';
constexpr char message_end = '\x1e';

void write_all(int to, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(to, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

[[noreturn]] void be_child(const std::vector<std::function<std::string()>>& tasks, std::size_t first, int to) {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (std::size_t i = first; i < tasks.size(); ++i) {
    std::string message;
    try {
      message = done_mark + tasks[i]();
    } catch (const std::exception& error) {
      message = std::string(1, failed_mark) + error.what();
    } catch (...) {
      message = std::string(1, failed_mark) + "unknown error";
    }
    write_all(to, message + message_end);
    if (message[0] == failed_mark) break;  // an error of CUDA may stay
  }
  ::_exit(0);
}

/// A child, which ends with this.
class Child {
 public:
  Child(const std::vector<std::function<std::string()>>& tasks, std::size_t first) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error(std::string("pipe: ") + std::strerror(errno));
    id_ = ::fork();
    if (id_ == 0) {
      ::close(ends[0]);
      be_child(tasks, first, ends[1]);
    }
    ::close(ends[1]);
    from_ = ends[0];
    if (id_ < 0) {
      ::close(from_);
      throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
    }
    ::setpgid(id_, id_);  // whichever of the two is first
  }
  Child(Child&&) = delete;  // and so no copies either
  ~Child() {
    ::close(from_);
    if (!waited_) static_cast<void>(kill());
  }

  enum class Event : std::uint8_t { message, end, late };
  /// Waits for a message.
  [[nodiscard]] Event next(Clock::time_point limit, const std::function<void()>& alive, std::string& message) {
    std::array<char, 1 << 16> room{};
    while (true) {
      if (const std::size_t end = text_.find(message_end); end != std::string::npos) {
        message = text_.substr(0, end);
        text_.erase(0, end + 1);
        return Event::message;
      }
      pollfd one{from_, POLLIN, 0};
      const int ready = ::poll(&one, 1, 100);
      if (alive) alive();
      if (ready > 0) {
        const ssize_t count = ::read(from_, room.data(), room.size());
        if (count == 0) return Event::end;
        if (count > 0) text_.append(room.data(), static_cast<std::size_t>(count));
      } else if (Clock::now() > limit) {
        return Event::late;
      }
    }
  }
  /// Waits until the child has ended, and returns its status.
  [[nodiscard]] int wait() {
    int status = 0;
    while (::waitpid(id_, &status, 0) < 0 && errno == EINTR) continue;
    waited_ = true;
    return status;
  }
  /// Kills the child, and returns its status.
  [[nodiscard]] int kill() {
    ::kill(-id_, SIGKILL);
    ::kill(id_, SIGKILL);
    return wait();
  }

 private:
  pid_t id_ = -1;
  int from_ = -1;
  bool waited_ = false;
  std::string text_;
};

}  // namespace

namespace {

/// Waits for the end of a task, `limit` seconds at most. Late: the text is empty.
TaskEnd wait_for(Child& child, double limit, const std::function<void()>& alive) {
  const auto start = Clock::now();
  std::string message;
  const auto last = start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit));
  const Child::Event event = child.next(last, alive, message);
  TaskEnd end{.seconds = std::chrono::duration<double>(Clock::now() - start).count()};
  if (event == Child::Event::message) {
    end.status = message[0] == done_mark ? TaskEnd::Status::done : TaskEnd::Status::failed;
    end.text = message.substr(1);
  } else if (event == Child::Event::late) {
    static_cast<void>(child.kill());
    end.status = TaskEnd::Status::timed_out;
  } else {
    const int status = child.wait();
    end.text = WIFSIGNALED(status) ? fmt::format("signal {} ended it", WTERMSIG(status))
                                   : std::string("its process ended without a result");
  }
  return end;
}

}  // namespace

void run_in_children(const std::vector<std::function<std::string()>>& tasks, const TaskLimits& limits,
                     const std::function<void(std::size_t, const TaskEnd&)>& ended,
                     const std::function<void()>& alive) {
  const auto begin = Clock::now();
  const auto left = [&] { return limits.budget - std::chrono::duration<double>(Clock::now() - begin).count(); };
  const TaskEnd left_out{.status = TaskEnd::Status::left_out,
                         .text = fmt::format("the budget of {:.3g} s for all tasks was spent", limits.budget)};
  std::size_t task = 0;
  while (task < tasks.size() && left() > 0) {
    Child child(tasks, task);
    for (bool lives = true; lives && task < tasks.size(); ++task) {
      const double limit = std::max(0.0, std::min(limits.seconds, left()));
      TaskEnd end = wait_for(child, limit, alive);
      if (end.status == TaskEnd::Status::timed_out) {
        if (limit < limits.seconds) {
          end = left_out;
        } else {
          end.text = fmt::format("it was killed after {:.3g} s", limits.seconds);
        }
      }
      lives = end.status == TaskEnd::Status::done;
      ended(task, end);
    }
  }
  for (; task < tasks.size(); ++task) ended(task, left_out);
}

}  // namespace fp8lab::experiments
