// SPDX-License-Identifier: Apache-2.0
// Registers the experiment `gpu`: what the GPU of this machine computes, beside the models.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "files/tensor_file.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/gpu/device.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "gpu/gpu.hpp"
#include "kit/experiment.hpp"

namespace fp8lab::experiments {
namespace {

/// How the tasks of a part ended.
struct PartRow {
  std::string part;
  std::uint64_t done = 0, skipped = 0, failed = 0;
};

Table parts_table(const Ledger& ledger) {
  std::vector<PartRow> rows;
  for (const std::string_view part : gpu_parts) {
    PartRow row{std::string(part)};
    for (const PartNote& note : ledger.parts) {
      if (note.part != part) continue;
      if (note.status == "done") {
        ++row.done;
      } else if (note.status == "skipped" || note.status == "left out") {
        ++row.skipped;
      } else {
        ++row.failed;
      }
    }
    if (row.done + row.skipped + row.failed > 0) rows.push_back(std::move(row));
  }
  return tabulate(rows, {.name = "parts", .title = "What was asked"})
      .column({"part"}, &PartRow::part)
      .column({"done"}, &PartRow::done)
      .column({"skipped"}, &PartRow::skipped)
      .column({"failed"}, &PartRow::failed);
}

/// Tasks of a part that were not done for the same reason.
struct NotDone {
  std::string part, status, reason;
  std::vector<std::string> tasks;

  /// The first few by name.
  [[nodiscard]] std::string names() const {
    constexpr std::size_t most = 3;
    if (tasks.size() <= most) return fmt::format("{}", fmt::join(tasks, ", "));
    return fmt::format("{}, {} and more", tasks[0], tasks[1]);
  }
};

/// The table of tasks that were not done, and why.
Table notes_table(const Ledger& ledger) {
  std::vector<NotDone> rows;
  for (const PartNote& note : ledger.parts) {
    if (note.status == "done") continue;
    auto row = std::ranges::find_if(rows, [&](const NotDone& one) {
      return one.part == note.part && one.status == note.status && one.reason == note.note;
    });
    if (row == rows.end()) row = rows.insert(rows.end(), {note.part, note.status, note.note, {}});
    row->tasks.push_back(note.task);
  }
  return tabulate(rows, {.name = "not_done", .title = "What was not done"})
      .column({"part"}, &NotDone::part)
      .column({"status"}, &NotDone::status)
      .column({"tasks"}, [](const NotDone& one) { return one.tasks.size(); })
      .column({"reason"}, &NotDone::reason)
      .column({"names"}, &NotDone::names);
}

/// Says what supported a model before this run, and what the device says.
std::string evidence_before(const RecordedRow& row) {
  return row.part == "dots" ? std::string(name_of(find_model(row.model).evidence)) : "";
}
std::string_view verdict_of(const RecordedRow& row) {
  if (row.compared == 0) return "not compared";
  return row.wrong_chunks == 0 ? "agrees" : "DIFFERS";
}

Table instructions_table(const GpuResult& result) {
  return tabulate(result.rows, {.name = "instructions", .title = "Instructions and their models"})
      .column({"instruction"}, &RecordedRow::name)
      .column({"model"}, &RecordedRow::model)
      .column({.name = "evidence", .title = "known before"}, evidence_before)
      .column({"words"}, &RecordedRow::words)
      .column({"compared"}, &RecordedRow::compared)
      .column({.name = "wrong_chunks", .title = "wrong chunks"}, &RecordedRow::wrong_chunks)
      .column({"verdict"}, verdict_of);
}

/// An answer of the device about one or several instructions.
struct Learned {
  std::string part, question, answer;
  std::optional<bool> agrees;
  std::vector<std::string> of;
};

/// The table of findings. Those that contradict fp8lab come first, those that agree with it last.
Table findings_table(const Ledger& ledger) {
  std::vector<Learned> rows;
  for (const Finding& one : ledger.findings) {
    auto row = std::ranges::find_if(rows, [&](const Learned& other) {
      return std::tie(other.part, other.question, other.answer, other.agrees) ==
             std::tie(one.part, one.question, one.answer, one.agrees);
    });
    if (row == rows.end()) row = rows.insert(rows.end(), {one.part, one.question, one.answer, one.agrees, {}});
    // A probe is called by its instruction, and by what the question says.
    row->of.push_back(one.part == "probes" ? one.name.substr(0, one.name.rfind(": ")) : one.name);
  }
  std::ranges::stable_sort(rows, {}, [](const Learned& row) {
    if (!row.agrees) return 1;
    return *row.agrees ? 2 : 0;
  });
  return tabulate(rows, {.name = "findings", .title = "What was learned", .layout = TableLayout::records})
      .column({"question"}, &Learned::question)
      .column({"part"}, &Learned::part)
      .column({"answer"}, &Learned::answer)
      .column({.name = "agrees", .title = "as fp8lab has it"}, &Learned::agrees)
      .column({"of"}, [](const Learned& row) { return fmt::format("{}", fmt::join(row.of, ", ")); });
}

Table differences_table(const Ledger& ledger) {
  return tabulate(ledger.differences,
                  {.name = "differences", .title = "Results that are not the model's", .layout = TableLayout::records})
      .column({"record"}, &Difference::record)
      .column({"index"}, &Difference::index)
      .column({"operands"}, &Difference::operands)
      .column({"got"}, &Difference::got)
      .column({"expected"}, &Difference::expected);
}

Table speeds_table(const Ledger& ledger) {
  return tabulate(ledger.speeds,
                  {.name = "speeds", .title = "Speed, medians, beside a copy or a library in the same run"})
      .column({"name"}, &Speed::name)
      .column({"what"}, &Speed::what)
      .column({.name = "milliseconds", .unit = "ms", .digits = 4}, &Speed::milliseconds)
      .column({.name = "rate", .unit = "T/s", .notation = Notation::fixed, .digits = 2},
              [](const Speed& speed) { return speed.amount / speed.milliseconds / 1e9; })
      .column({.name = "share", .title = "of the bound", .notation = Notation::percent, .digits = 1},
              [](const Speed& speed) {
                const double share = speed.bound_milliseconds / speed.milliseconds;
                return share > 0 ? std::optional(share) : std::nullopt;
              });
}

Text verdict_text(const GpuResult& result) {
  Text text{.name = "verdict"};
  std::vector<std::string> settled;
  std::vector<std::string> contradicted;
  for (const RecordedRow& row : result.rows) {
    if (row.part != "dots" || row.compared == 0) continue;
    auto& list = row.wrong_chunks == 0 ? settled : contradicted;
    if (std::ranges::find(list, row.model) == list.end()) list.push_back(row.model);
  }
  if (!settled.empty()) text.paragraphs.push_back(fmt::format("Agree: {}", fmt::join(settled, ", ")));
  if (!contradicted.empty()) text.paragraphs.push_back(fmt::format("DIFFER: {}", fmt::join(contradicted, ", ")));
  const bool is_asked =
      std::ranges::any_of(result.ledger.parts, [](const PartNote& note) { return note.status == "done"; });
  if (!result.passed()) {
    text.paragraphs.emplace_back("Something failed or differs; see the tables above.");
  } else if (!is_asked) {
    text.paragraphs.emplace_back("Nothing was computed: every task was skipped.");
  } else {
    text.paragraphs.push_back(fmt::format("The {} computes what fp8lab's models compute, as far as it was asked.",
                                          result.arguments.host_team ? "host team" : "device"));
  }
  return text;
}

Text intro_of(const GpuResult& result) {
  const gpu::RecordedDevice& device = result.ledger.device;
  const std::string where =
      device.is_host_team
          ? fmt::format(
                "The host team, with the models of compute capability {}.{}: this is no device, and no evidence",
                device.capability / 10, device.capability % 10)
          : fmt::format("{}, compute capability {}.{}, {} multiprocessors; driver for CUDA {}, built with CUDA {}",
                        device.name, device.capability / 10, device.capability % 10, device.multiprocessors,
                        device.driver, device.runtime);
  Text text{"intro", "", {where}};
  if (result.arguments.ledger) text.paragraphs.push_back("Ledger: " + printable(result.arguments.ledger->native()));
  return text;
}

std::string part_name(const std::string& name) { return name; }

void describe(GpuArguments& arguments, ArgumentList& list) {
  list.add_named("parts", arguments.parts, fmt::format("what to ask: {}", fmt::join(gpu_parts, ", ")), part_name,
                 part_name)
      .by_default("all");
  list.add("inputs", arguments.inputs, "the most inputs of each conversion instruction and function");
  list.add("dots", arguments.dots,
           "the least number of dot products of each matrix instruction, and of pairs of each division");
  list.add("seed", arguments.seed, "the seed of their operands");
  list.add("seconds", arguments.seconds, "the time after which a task is killed, in seconds");
  list.add("budget", arguments.budget, "the time for all tasks, in seconds; those that it leaves out are named");
  list.add("host_team", arguments.host_team,
           "ask the kernels on the host in place of a device, to try the command out");
  list.add("capability", arguments.capability,
           "with --host-team: the compute capability that it stands for, 90 for 9.0; 80 to 121");
  list.add("python", arguments.python, "a Python interpreter, which may have PyTorch with CUDA");
  list.add(
      "cublaslt", arguments.cublaslt,
      "libcublasLt.so.13 or .12; it is looked for in the folders of CUDA, FP8LAB_THIRD_PARTY and Python's packages");
  list.add("ledger", arguments.ledger, "the file to write all answers and digests to, as JSON");
  list.add("words", arguments.words,
           "the folder to write the words of special function units, reductions and library calls to");
  list.add_threads(arguments.threads);
}

Document run(const GpuArguments& arguments, const Context& context) {
  return document_of(run_gpu(arguments, context.progress, context.note));
}

}  // namespace

Document document_of(const GpuResult& result) {
  const DefaultEnvironment environment;
  Document document{.passed = result.passed()};
  document.sections = sections_of(intro_of(result), parts_table(result.ledger));
  if (Table notes = notes_table(result.ledger); notes.rows() > 0) document.sections.emplace_back(std::move(notes));
  document.sections.emplace_back(instructions_table(result));
  document.sections.emplace_back(findings_table(result.ledger));
  if (!result.ledger.differences.empty()) document.sections.emplace_back(differences_table(result.ledger));
  if (!result.ledger.speeds.empty()) document.sections.emplace_back(speeds_table(result.ledger));
  document.sections.emplace_back(verdict_text(result));
  return document;
}

std::vector<Experiment> gpu_experiments() {
  return {experiment<GpuArguments>(
      {.name = "gpu",
       .summary = "Ask the GPU of this machine for its every bit, compare with the models, and write a ledger",
       .description =
           "Runs every kernel, sweeps the conversion instructions over all their inputs, multiplies seeded operands by "
           "every matrix instruction, and asks what no published row decides; then it sweeps the special function "
           "unit's "
           "instructions and CUDA's functions, and asks PyTorch and Triton for reductions, products and casts. Each "
           "task is a process of its own, which "
           "is killed where it hangs. The ledger has a digest of each chunk, so that tests on machines without a GPU "
           "compute them again (docs/gpu.md). Without a device it ends with status 1.",
       .result =
           "tables `parts`, `instructions` and `findings`; `not_done`, `differences` and `speeds` where there are "
           "some; `passed` tells whether the device computes what the models compute",
       .not_passed = "a task failed, or the device's results differ from the models",
       .examples = {{"gpu --ledger results/gpu/ledger.json", "everything, in some minutes"},
                    {"gpu --parts dots --dots 1e6", "a million dot products of every matrix instruction"},
                    {"gpu --host-team --inputs 65536 --dots 10000", "without a GPU: how it works, and no evidence"}},
       .small = R"({"host_team": true, "parts": ["casts", "dots"], "inputs": 512, "dots": 100})"},
      describe, run)};
}

}  // namespace fp8lab::experiments
