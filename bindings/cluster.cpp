// SPDX-License-Identifier: Apache-2.0
// A check or an audit whose parts other processes do: what each of them is told, what comes back, and how this process
// waits for it.
#include "cluster.hpp"

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "check/check.hpp"
#include "checkpoints/audit.hpp"
#include "checkpoints/checkpoint.hpp"
#include "checkpoints/recognize.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "record.hpp"

namespace fp8lab::bindings {
namespace {

using experiments::AuditRun;
using experiments::CheckArguments;
using experiments::Checkpoint;
using experiments::CheckRun;
using experiments::PartedRun;
using experiments::StoredTensors;

py::bytes absolute_bytes(const std::filesystem::path& path) {
  return py::bytes(std::filesystem::absolute(path).native());
}

/// What another process needs of an audit, as values that a pickle holds.
py::dict order_of_audit(const AuditRun& run) {
  using namespace py::literals;
  py::object original = py::none();
  if (run.original() != nullptr) original = absolute_bytes(run.original()->path());
  return py::dict("quantized"_a = absolute_bytes(run.quantized().path()), "original"_a = original);
}

py::dict order_of_check(const CheckRun& run) {
  const auto& stored = std::get<StoredTensors>(run.arguments().source);
  py::list paths;
  for (const std::filesystem::path& path : stored.paths) {
    paths.append(absolute_bytes(path));
  }
  py::list recipes;
  for (const experiments::ChosenRecipe& one : run.arguments().recipes) {
    recipes.append(py::make_tuple(one.name, fields_of(one.recipe)));
  }
  using namespace py::literals;
  return py::dict("paths"_a = paths, "names"_a = stored.names, "ignore"_a = run.arguments().ignore,
                  "recipes"_a = recipes);
}

CheckArguments arguments_of(const py::dict& order) {
  CheckArguments arguments;
  StoredTensors stored{.paths = {}, .names = order["names"].cast<std::vector<std::string>>()};
  for (const py::handle& path : order["paths"]) stored.paths.emplace_back(path.cast<std::string>());
  arguments.source = std::move(stored);
  arguments.ignore = order["ignore"].cast<std::vector<std::string>>();
  arguments.recipes.clear();
  for (const py::handle& one : order["recipes"]) {
    const auto [name, fields] = one.cast<std::pair<std::string, py::dict>>();
    arguments.recipes.push_back({name, record_of<Recipe>(fields)});
  }
  return arguments;
}

py::dict order_of(const PartedRun& run) {
  if (const auto* const audit = dynamic_cast<const AuditRun*>(&run)) return order_of_audit(*audit);
  return order_of_check(dynamic_cast<const CheckRun&>(run));
}

std::string lines_of(const PartedRun& run, const std::vector<std::size_t>& parts) {
  std::string lines;
  for (const std::size_t part : parts) lines += run.line_of(part);
  return lines;
}

std::string lines_of_audit(const std::string& quantized, const std::optional<std::string>& original,
                           const std::vector<std::size_t>& parts) {
  const Checkpoint given(quantized);
  std::optional<Checkpoint> beside;
  if (original) beside.emplace(*original);
  const experiments::Recognition recognition = recognize(given);
  return lines_of(AuditRun(given, recognition, beside ? &*beside : nullptr), parts);
}

/// Does these parts of a run, on one thread: as many tasks run at a time as the worker has threads.
std::string check_lines(const py::dict& order, const std::vector<std::size_t>& parts) {
  const bool is_audit = order.contains("quantized");
  std::string quantized;
  std::optional<std::string> original;
  CheckArguments arguments;
  if (is_audit) {
    quantized = order["quantized"].cast<std::string>();
    original = order["original"].cast<std::optional<std::string>>();
  } else {
    arguments = arguments_of(order);
  }
  const py::gil_scoped_release release;
  try {
    return is_audit ? lines_of_audit(quantized, original, parts) : lines_of(CheckRun(arguments), parts);
  } catch (const std::runtime_error& error) {
    const py::gil_scoped_acquire gil;
    PyErr_SetString(PyExc_OSError, error.what());
    throw py::error_already_set();
  }
}

void take_all(const py::object& work, PartedRun& run) {
  for (;;) {
    checkpoint();
    const py::object some = work.attr("next")();
    if (some.is_none()) return;
    for (const py::handle& one : some) {
      const auto [whose, lines] = one.cast<std::pair<std::string, std::string>>();
      run.take(lines, whose);
    }
  }
}

/// The cluster of fp8lab._cluster, whose connect() gives an object: its next() gives the lines that have come, with who
/// measured them, and None at the end, and its close() ends what still runs.
void take_from(const std::string& scheduler, PartedRun& run) {
  std::vector<std::pair<std::size_t, std::uint64_t>> sizes;
  for (const PartedRun::Part& part : run.missing()) sizes.emplace_back(part.number, part.elements);
  if (sizes.empty()) return;
  const py::object connect = py::module_::import("fp8lab._cluster").attr("connect");
  const py::object work = connect(scheduler, order_of(run), sizes);
  try {
    take_all(work, run);
  } catch (...) {
    work.attr("close")();
    throw;
  }
  work.attr("close")();
}

}  // namespace

void do_elsewhere(const std::string& scheduler, PartedRun& run) {
  const py::gil_scoped_acquire gil;
  try {
    take_from(scheduler, run);
  } catch (const py::error_already_set& error) {
    const std::string reason = py::str(error.value());
    if (error.matches(PyExc_OSError)) throw std::runtime_error(reason);
    if (error.matches(PyExc_Exception)) throw std::invalid_argument(reason);
    throw;  // KeyboardInterrupt
  }
}

void bind_cluster(py::module_& module) { module.def("check_lines", &check_lines, py::arg("order"), py::arg("parts")); }

}  // namespace fp8lab::bindings
