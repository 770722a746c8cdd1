// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/gpu/device.hpp"
#include "gpu/child.hpp"
#include "gpu/libraries.hpp"
#include "gpu/tasks.hpp"
#include "kit/lists.hpp"
#include "kit/output.hpp"
#include "kit/provenance.hpp"

namespace fp8lab::experiments {
namespace {

void check(const GpuArguments& arguments) {
  check_list("parts", arguments.parts);
  for (const std::string& part : arguments.parts) {
    if (std::ranges::find(gpu_parts, part) != gpu_parts.end()) continue;
    refuse("unknown part '", part, "'; known: ", fmt::format("{}", fmt::join(gpu_parts, ", ")));
  }
  if (arguments.inputs < 4 || arguments.inputs > std::uint64_t{1} << 32) {
    refuse("inputs must be from 4 to 2^32, not ", arguments.inputs);
  }
  if (arguments.dots < 1 || arguments.dots > 1'000'000'000'000) {
    refuse("dots must be from 1 to 10^12, not ", arguments.dots);
  }
  if (!(arguments.seconds > 0) || arguments.seconds > 86400) {
    refuse("seconds must be above 0 and at most 86400, not ", arguments.seconds);
  }
  if (!(arguments.budget > 0) || arguments.budget > 86400) {
    refuse("budget must be above 0 and at most 86400, not ", arguments.budget);
  }
  if (arguments.capability != 90 && !arguments.host_team) {
    refuse("capability goes with host_team: a device has its own");
  }
  static_cast<void>(gpu::chip_of(arguments.capability));
  check_threads(arguments.threads);
}

// A child process reports the rows of its task as notes of parts, since a ledger has no place for them.

constexpr char skipped_mark = '-';  // before the reason

std::string text_of(TaskResult result) {
  for (const RecordedRow& row : result.rows) {
    result.ledger.parts.push_back(
        {row.part, row.name, "", fmt::format("{} {} {} {}", row.model, row.words, row.compared, row.wrong_chunks), 0});
  }
  return json_of(result.ledger).text();
}

TaskResult result_of(const std::string& text) {
  TaskResult result{.ledger = parse_ledger(text), .rows = {}};
  for (const PartNote& note : result.ledger.parts) {
    RecordedRow row{.part = note.part, .name = note.task};
    TextReader numbers(note.note);
    if (numbers >> row.model >> row.words >> row.compared >> row.wrong_chunks) result.rows.push_back(std::move(row));
  }
  result.ledger.parts.clear();
  return result;
}

/// The device, as a child sees it: CUDA does not work in a child of a process that has used it.
gpu::RecordedDevice device_of(const GpuArguments& arguments) {
  if (arguments.host_team) return recorder_of(arguments)->device();
  TaskEnd told;
  bool is_none = false;
  const auto ask = [&arguments] {
    try {
      return json_of(Ledger{.device = recorder_of(arguments)->device()}).text();
    } catch (const gpu::NoDeviceError& error) {
      return skipped_mark + std::string(error.what());
    }
  };
  run_in_children({ask}, {.seconds = arguments.seconds}, [&](std::size_t, const TaskEnd& end) { told = end; });
  if (told.status != TaskEnd::Status::done) throw std::runtime_error("the device gives no answer: " + told.text);
  is_none = told.text.starts_with(skipped_mark);
  if (is_none) throw gpu::NoDeviceError(told.text.substr(1));
  return parse_ledger(told.text).device;
}

void add_note(std::vector<PartNote>& notes, const GpuTask& task, std::string_view status, const std::string& why,
              double seconds) {
  notes.push_back({task.part, task.name, std::string(status), why, seconds});
}

constexpr std::string_view status_of(TaskEnd::Status status) {
  switch (status) {
    case TaskEnd::Status::done: return "done";
    case TaskEnd::Status::failed: return "failed";
    case TaskEnd::Status::timed_out: return "timed out";
    case TaskEnd::Status::left_out: return "left out";
  }
  return {};
}

/// Runs the tasks that are not skipped, and puts what they gave into the result.
void run_tasks(const std::vector<GpuTask>& tasks, GpuResult& result, const Progress& progress,
               const std::function<void(const std::string&)>& note) {
  std::vector<std::function<std::string()>> work;
  std::vector<const GpuTask*> of_work;
  for (const GpuTask& task : tasks) {
    if (!task.skipped.empty()) {
      add_note(result.ledger.parts, task, "skipped", task.skipped, 0);
      continue;
    }
    work.emplace_back([&task] {
      try {
        return text_of(task.run());
      } catch (const MissingError& error) {
        return skipped_mark + std::string(error.what());
      }
    });
    of_work.push_back(&task);
  }
  const auto ended = [&](std::size_t i, const TaskEnd& end) {
    const GpuTask& task = *of_work[i];
    const bool is_skipped = end.text.starts_with(skipped_mark);
    const bool is_done = end.status == TaskEnd::Status::done && !is_skipped;
    const std::string_view status = is_skipped ? "skipped" : status_of(end.status);
    if (is_done) {
      TaskResult one = result_of(end.text);
      result.ledger.merge(std::move(one.ledger));
      result.rows.insert(result.rows.end(), one.rows.begin(), one.rows.end());
    }
    add_note(result.ledger.parts, task, status, is_done ? "" : end.text.substr(is_skipped ? 1 : 0), end.seconds);
    if (note) note(fmt::format("{} {}: {} in {:.1f} s", task.part, task.name, status, end.seconds));
    if (progress) progress(static_cast<double>(i + 1) / static_cast<double>(work.size()));
  };
  run_in_children(work, {result.arguments.seconds, result.arguments.budget}, ended, [] { checkpoint(); });
}

}  // namespace

bool GpuResult::passed() const {
  const auto is_bad = [](const PartNote& note) { return note.status == "failed" || note.status == "timed out"; };
  const auto is_wrong = [](const RecordedRow& row) { return row.wrong_chunks > 0; };
  const auto differs = [](const Finding& finding) { return finding.agrees == false; };
  return std::ranges::none_of(ledger.parts, is_bad) && std::ranges::none_of(rows, is_wrong) &&
         std::ranges::none_of(ledger.findings, differs);
}

GpuResult run_gpu(const GpuArguments& arguments, const Progress& progress,
                  const std::function<void(const std::string&)>& note) {
  const DefaultEnvironment environment;
  check(arguments);
  if (arguments.ledger) {
    const auto folder = std::filesystem::absolute(*arguments.ledger).parent_path();
    check_writable(folder, {arguments.ledger->filename().string()});
  }
  if (arguments.words) check_writable(std::filesystem::absolute(*arguments.words), {});
  const Provenance made = provenance();
  GpuResult result{.arguments = arguments, .ledger = {}, .rows = {}};
  result.ledger.device = device_of(arguments);
  result.ledger.version = made.version;
  result.ledger.commit = made.commit;
  result.ledger.date = made.date;
  run_tasks(tasks_of(arguments, result.ledger.device), result, progress, note);
  if (arguments.ledger) {
    const auto folder = std::filesystem::absolute(*arguments.ledger).parent_path();
    write_files(folder, {{arguments.ledger->filename().string(), json_of(result.ledger).text()}});
  }
  return result;
}

}  // namespace fp8lab::experiments
