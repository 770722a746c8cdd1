// SPDX-License-Identifier: Apache-2.0
#include "gpu/tasks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "fp8lab/gpu/device.hpp"
#include "fp8lab/gpu/recorder/kernel_cases.hpp"
#include "fp8lab/gpu/recorder/speeds.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "gpu/libraries.hpp"
#include "gpu/primer_record.hpp"
#include "gpu/probes.hpp"
#include "gpu/recording.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::string_view not_on_host = "the host team is no device";

bool is_wanted(const GpuArguments& arguments, std::string_view part) {
  return arguments.parts.empty() || std::ranges::find(arguments.parts, part) != arguments.parts.end();
}

/// Half of the budget is for comparing what is recorded with the models; tests compare the rest of a ledger.
RecordingLimits limits_of(const GpuArguments& arguments, int capability) {
  const auto is_for = [&](const auto& one) { return one.is_for(capability); };
  const auto records = static_cast<double>(std::ranges::count_if(gpu::cast_sweeps(), is_for) +
                                           std::ranges::count_if(gpu::instructions(), is_for));
  return {.inputs = arguments.inputs,
          .dots = arguments.dots,
          .seed = arguments.seed,
          .compare_seconds = std::min(arguments.seconds / 6, arguments.budget / 2 / records),
          .threads = arguments.threads};
}

/// The recorder of this process: one, so that CUDA starts once.
gpu::Recorder& own_recorder(const GpuArguments& arguments) {
  static const std::unique_ptr<gpu::Recorder> recorder = recorder_of(arguments);
  return *recorder;
}

TaskResult result_of(Recording recording, std::string part, std::string name, std::string model, std::uint64_t words) {
  RecordedRow row{std::move(part), std::move(name),          std::move(model),
                  words,           recording.compared.words, recording.compared.mismatches.size()};
  return {std::move(recording.ledger), {std::move(row)}};
}

/// Throws MissingError where this build has no machine code for the device's own instructions. For a child: it asks
/// CUDA.
void require_code(const GpuArguments& arguments) {
  if (arguments.host_team) return;
  const std::string chip = std::to_string(own_recorder(arguments).device().capability);
  const std::string built = gpu::device_status().architectures;
  if (built.find(chip + "a") != std::string::npos || built.find(chip + "f") != std::string::npos) return;
  throw MissingError(fmt::format("this build has no code for sm_{0}a: CMAKE_CUDA_ARCHITECTURES={0}a", chip));
}
void require_code(const GpuArguments& arguments, const gpu::Instruction& instruction) {
  if (instruction.family != gpu::Instruction::Family::mma_sync) require_code(arguments);
}

TaskResult run_casts(const GpuArguments& arguments, std::size_t sweep) {
  if (gpu::cast_sweeps()[sweep].is_of_family()) require_code(arguments);
  Recording recording =
      record_casts(own_recorder(arguments), sweep, limits_of(arguments, own_recorder(arguments).device().capability));
  const CastRecord& record = recording.ledger.casts.front();
  const std::string name = record.sweep;
  return result_of(std::move(recording), "casts", name, "encode", record.inputs_per_chunk * record.digests.size());
}

TaskResult run_dots(const GpuArguments& arguments, std::size_t instruction) {
  require_code(arguments, gpu::instructions().at(instruction));
  Recording recording = record_dots(own_recorder(arguments), instruction,
                                    limits_of(arguments, own_recorder(arguments).device().capability));
  const gpu::Instruction& facts = gpu::instructions()[instruction];
  std::uint64_t words = 0;
  for (const DotRecord& record : recording.ledger.dots) {
    words += record.tiles_per_chunk * facts.m * facts.n * record.digests.size();
  }
  const std::string model = recording.ledger.dots.front().model;
  return result_of(std::move(recording), "dots", facts.name(), model, words);
}

TaskResult run_kernel(const gpu::KernelCase& one) {
  const gpu::KernelCheck check = gpu::check_on_device(one);
  Finding finding{.part = "kernels",
                  .name = one.name,
                  .question = "Is every byte the model's?",
                  .answer = check.wrong == 0 ? fmt::format("yes, all {}", check.compared)
                                             : fmt::format("{} of {} differ", check.wrong, check.compared),
                  .agrees = check.wrong == 0,
                  .words = {}};
  if (check.wrong > 0) finding.words.push_back(check.first);
  return {.ledger = {.findings = {std::move(finding)}}};
}

TaskResult speed_result(const std::string& name, const char* unit, const gpu::MeasuredSpeed& speed) {
  return {.ledger = {.speeds = {{.name = name,
                                 .what = speed.what,
                                 .amount = speed.amount,
                                 .unit = unit,
                                 .milliseconds = speed.milliseconds,
                                 .bound_milliseconds = speed.other_milliseconds}}},
          .rows = {}};
}

/// A GEMM kernel beside cuBLASLt, where that is.
TaskResult run_gemm_speed(const GpuArguments& arguments, const std::string& name, gpu::GemmKernel kernel) {
  std::optional<gpu::CublasLt> library;
  try {
    library.emplace(arguments.cublaslt ? *arguments.cublaslt : cublaslt_of(arguments.python));
  } catch (const std::runtime_error& error) {
    TaskResult alone = speed_result(name, "FLOP", gpu::measure_gemm_speed(kernel, nullptr));
    alone.ledger.speeds[0].what += std::string("; ") + error.what();
    return alone;
  }
  return speed_result(name, "FLOP", gpu::measure_gemm_speed(kernel, &*library));
}

/// Adds tasks that time PyTorch and Transformer Engine at the same operations, in processes of their own.
void add_torch_speeds(const GpuArguments& arguments, std::string_view skipped, std::vector<GpuTask>& tasks) {
  for (const auto& [name, what, size] :
       {std::tuple{"PyTorch's fused cast and amax", TorchSpeed::cast, std::size_t{16384}},
        {"torch._scaled_mm", TorchSpeed::scaled_mm, std::size_t{8192}},
        {"Transformer Engine's quantizers", TorchSpeed::te, std::size_t{16384}}}) {
    tasks.push_back({"speeds", name, std::string(skipped),
                     [python = arguments.python, what, size] { return ask_torch_speed(python, what, "cuda", size); }});
  }
}

void add_speeds(const GpuArguments& arguments, const gpu::RecordedDevice& device, std::vector<GpuTask>& tasks) {
  if (!is_wanted(arguments, "speeds")) return;
  const std::string skipped(device.is_host_team ? not_on_host : "");
  for (std::size_t i = 0; i < gpu::speed_names().size(); ++i) {
    const std::string name = gpu::speed_names()[i];
    tasks.push_back({"speeds", name, skipped, [i, name] { return speed_result(name, "B", gpu::measure_speed(i)); }});
  }
  add_torch_speeds(arguments, skipped, tasks);
  std::vector<gpu::GemmKernel> kernels{gpu::GemmKernel::mma_sync};
  if (device.capability == 100) kernels = {gpu::GemmKernel::blackwell_f8f6f4};
  if (device.capability == 90) kernels = {gpu::GemmKernel::wgmma_fast, gpu::GemmKernel::wgmma_promoted};
  for (const gpu::GemmKernel kernel : kernels) {
    const std::string name = fmt::format("gemm {} beside cuBLASLt", name_of(kernel));
    const std::string why_not = device.capability < 89 ? "this chip has no FP8" : "";
    tasks.push_back({"speeds", name, skipped.empty() ? why_not : skipped,
                     [arguments, name, kernel] { return run_gemm_speed(arguments, name, kernel); }});
  }
}

/// The model of the instructions that a library multiplies E4M3 by; empty where fp8lab knows none.
std::string_view library_model(int capability) {
  switch (capability) {
    case 89: return "ada_mma_fp8";
    case 90: return "hopper_wgmma_fp8";
    case 100:
    case 103: return "blackwell_tcgen05_fp8";
    case 120:
    case 121: return "rtx_blackwell_mma_fp8";
    default: return {};
  }
}

/// Products of cuBLASLt, by itself and by PyTorch.
void add_products(const GpuArguments& arguments, const gpu::RecordedDevice& device, std::vector<GpuTask>& tasks) {
  if (!is_wanted(arguments, "products")) return;
  const std::string_view model = library_model(device.capability);
  const std::string no_model = model.empty() ? "fp8lab knows no model of this chip's products" : "";
  const std::string not_asked = no_model.empty() && device.is_host_team ? std::string(not_on_host) : no_model;
  const bool on_device = !device.is_host_team;
  for (const std::size_t depth : {768U, 4096U, 16384U}) {
    for (const bool fast : {true, false}) {
      const auto question = [arguments, model, depth, fast] {
        return ProductQuestion{find_model(model), depth, fast, arguments.seed, arguments.threads};
      };
      const std::string what = fmt::format("K = {}, {}", depth, fast ? "fast" : "split");
      tasks.push_back({"products", "cuBLASLt, " + what, arguments.cublaslt ? no_model : not_asked,
                       [arguments, on_device, question] {
                         return ask_cublaslt(arguments.cublaslt ? *arguments.cublaslt : cublaslt_of(arguments.python),
                                             on_device, question());
                       }});
      tasks.push_back({"products", "torch._scaled_mm, " + what, not_asked,
                       [arguments, question] { return ask_scaled_mm(arguments.python, question()); }});
    }
  }
}

/// Speeds of kernels, and what libraries compute: for devices alone.
void add_device_tasks(const GpuArguments& arguments, const gpu::RecordedDevice& device, std::vector<GpuTask>& tasks) {
  const std::string skipped(device.is_host_team ? not_on_host : "");
  add_speeds(arguments, device, tasks);
  for (const bool is_normal : {false, true}) {
    if (!is_wanted(arguments, "streams")) break;
    tasks.push_back({"streams", is_normal ? "torch.randn" : "torch.rand", skipped, [arguments, is_normal] {
                       return TaskResult{.ledger = {.findings = {ask_stream(arguments.python, is_normal, 1234)}}};
                     }});
  }
  add_products(arguments, device, tasks);
}

/// As limits_of(), for functions, which come last: an eighth of the budget is for comparing.
RecordingLimits function_limits(const GpuArguments& arguments) {
  const auto records = static_cast<double>(gpu::recorded_functions().size());
  return {.inputs = arguments.inputs,
          .dots = arguments.dots,
          .seed = arguments.seed,
          .compare_seconds = std::min(arguments.seconds / 6, arguments.budget / 8 / records),
          .threads = arguments.threads};
}

TaskResult run_function(const GpuArguments& arguments, std::size_t number, std::string_view part) {
  Recording recording = record_function(own_recorder(arguments), number, function_limits(arguments));
  const FunctionRecord& record = recording.ledger.functions.front();
  const std::string name = part == "units" ? record.function : record.variant + ": " + record.function;
  const std::string units(record.units ? name_of(*record.units) : "none");
  return result_of(std::move(recording), std::string(part), name, units, record.chunk * record.digests.size());
}

/// Special function units, and functions over them.
void add_functions(const GpuArguments& arguments, const gpu::RecordedDevice& device, std::vector<GpuTask>& tasks) {
  for (std::size_t i = 0; i < gpu::recorded_functions().size(); ++i) {
    const gpu::RecordedFunction& function = gpu::recorded_functions()[i];
    const bool is_unit = function.variant == gpu::FunctionVariant::units;
    const std::string_view part = is_unit ? "units" : "functions";
    if (!is_wanted(arguments, part)) continue;
    const std::string name =
        is_unit ? function.name() : fmt::format("{}: {}", name_of(function.variant), function.name());
    const std::string_view skipped = function.is_for(device.capability) ? "" : "this chip has no such instruction";
    tasks.push_back({std::string(part), name, std::string(skipped),
                     [arguments, i, part] { return run_function(arguments, i, part); }});
    const auto is_own = [&](const gpu::WordRange& range) {
      return static_cast<std::size_t>(range.instruction) == function.number;
    };
    if (!is_unit || !skipped.empty() || std::ranges::none_of(gpu::word_ranges(), is_own)) continue;
    tasks.push_back({"units", "words of " + name, arguments.words ? "" : "--words names no folder", [arguments, i] {
                       return TaskResult{.ledger = record_words(own_recorder(arguments), i, function_limits(arguments),
                                                                std::filesystem::absolute(*arguments.words))};
                     }});
  }
}

/// What PyTorch and Triton compute, in processes of an interpreter; in place of a device, on the processor.
void add_calls(const GpuArguments& arguments, const gpu::RecordedDevice& device, std::vector<GpuTask>& tasks) {
  const CallQuestion question{.python = arguments.python,
                              .device = device.is_host_team ? "cpu" : "cuda",
                              .is_small = device.is_host_team,
                              .seconds = arguments.seconds * 0.8,
                              .folder = arguments.words};
  for (const auto& [part, what] : recorded_calls) {
    if (!is_wanted(arguments, part)) continue;
    tasks.push_back({std::string(part), std::string(what), "",
                     [question, part = part, what = what] { return ask_calls(question, part, what); }});
  }
}

/// Why an instruction is not asked; empty where it is.
std::string_view why_not(const gpu::Instruction& instruction, const gpu::RecordedDevice& device) {
  return instruction.is_for(device.capability) ? "" : "this chip has no such instruction";
}

/// Zero operands with every small c, and by name what this chip cannot be asked.
void add_zero_probes(const GpuArguments& arguments, const gpu::RecordedDevice& device, std::vector<GpuTask>& tasks) {
  for (std::size_t i = 0; i < gpu::instructions().size(); ++i) {
    const gpu::Instruction& instruction = gpu::instructions()[i];
    if (instruction.accumulator != gpu::MmaAccumulator::float32 || instruction.type_a != instruction.type_b) continue;
    tasks.push_back(
        {"probes", instruction.name() + ": small c, zero operands", std::string(why_not(instruction, device)),
         [arguments, i] {
           require_code(arguments, gpu::instructions()[i]);
           const auto last = static_cast<std::uint32_t>(std::min<std::uint64_t>(arguments.dots, 0x00FFFFFF));
           return TaskResult{
               .ledger = {.findings = {ask_zero_products(own_recorder(arguments), i, last, arguments.threads)}}};
         }});
  }
}

void add_recordings(const GpuArguments& arguments, const gpu::RecordedDevice& device, std::vector<GpuTask>& tasks) {
  for (std::size_t i = 0; is_wanted(arguments, "casts") && i < gpu::cast_sweeps().size(); ++i) {
    const gpu::CastSweep& sweep = gpu::cast_sweeps()[i];
    tasks.push_back({"casts", std::string(sweep.name),
                     sweep.is_for(device.capability) ? "" : "this chip has no such instruction",
                     [arguments, i] { return run_casts(arguments, i); }});
  }
  for (std::size_t i = 0; is_wanted(arguments, "dots") && i < gpu::instructions().size(); ++i) {
    const gpu::Instruction& instruction = gpu::instructions()[i];
    tasks.push_back({"dots", instruction.name(), std::string(why_not(instruction, device)),
                     [arguments, i] { return run_dots(arguments, i); }});
  }
}

void add_probes(const GpuArguments& arguments, const gpu::RecordedDevice& device, std::vector<GpuTask>& tasks) {
  if (!is_wanted(arguments, "probes")) return;
  for (const Probe& probe : probes(device.capability)) {
    tasks.push_back({"probes", probe.name, "", [arguments, probe] {
                       require_code(arguments, gpu::instructions()[probe.instruction]);
                       return TaskResult{.ledger = {.findings = {ask(own_recorder(arguments), probe)}}};
                     }});
  }
  add_zero_probes(arguments, device, tasks);
}

void add_primer(const GpuArguments& arguments, const gpu::RecordedDevice& device, std::vector<GpuTask>& tasks) {
  if (!is_wanted(arguments, "primer")) return;
  tasks.push_back({"primer", "the FP8 primer", device.capability < 89 ? "this chip has no FP8" : "",
                   [arguments] { return record_primer(own_recorder(arguments)); }});
}

}  // namespace

std::unique_ptr<gpu::Recorder> recorder_of(const GpuArguments& arguments) {
  return arguments.host_team ? gpu::host_recorder(arguments.capability) : gpu::device_recorder();
}

std::vector<GpuTask> tasks_of(const GpuArguments& arguments, const gpu::RecordedDevice& device) {
  std::vector<GpuTask> tasks;
  if (is_wanted(arguments, "kernels")) {
    for (const gpu::KernelCase& one : gpu::kernel_cases()) {
      std::string skipped(device.is_host_team ? not_on_host : "");
      if (skipped.empty() && !one.runs_on(device.capability)) skipped = "this chip has not its instructions";
      tasks.push_back({"kernels", one.name, std::move(skipped), [&one] { return run_kernel(one); }});
    }
  }
  add_recordings(arguments, device, tasks);
  add_primer(arguments, device, tasks);
  add_device_tasks(arguments, device, tasks);
  add_probes(arguments, device, tasks);  // behind those for which the processor has less to do
  add_functions(arguments, device, tasks);
  add_calls(arguments, device, tasks);
  return tasks;
}

}  // namespace fp8lab::experiments
