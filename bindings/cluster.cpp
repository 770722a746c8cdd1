// SPDX-License-Identifier: Apache-2.0
// A check that other processes measure: what each of them is told, what comes back, and how this process waits for it.
#include "cluster.hpp"

#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "check/check.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "record.hpp"

namespace fp8lab::bindings {
namespace {

using experiments::CheckArguments;
using experiments::CheckRun;
using experiments::StoredTensors;

/// What another process needs, as values that a pickle holds.
py::dict order_of(const CheckRun& run) {
  const auto& stored = std::get<StoredTensors>(run.arguments().source);
  py::list paths;
  for (const std::filesystem::path& path : stored.paths) {
    paths.append(py::bytes(std::filesystem::absolute(path).native()));
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

/// Measures these tensors of a run, on one thread: as many tasks run at a time as the worker has threads.
std::string check_lines(const py::dict& order, const std::vector<std::size_t>& tensors) {
  const CheckArguments arguments = arguments_of(order);
  const py::gil_scoped_release release;
  try {
    const CheckRun run(arguments);
    std::string lines;
    for (const std::size_t tensor : tensors) {
      if (tensor >= run.stream().count()) {
        throw std::invalid_argument("there are " + std::to_string(run.stream().count()) +
                                    " tensors here, and more where the run began");
      }
      lines += run.line_of(tensor);
    }
    return lines;
  } catch (const std::runtime_error& error) {
    const py::gil_scoped_acquire gil;
    PyErr_SetString(PyExc_OSError, error.what());
    throw py::error_already_set();
  }
}

/// The sizes of the tensors that are missing, by their numbers.
std::vector<std::pair<std::size_t, std::uint64_t>> sizes_of(const CheckRun& run) {
  std::vector<std::pair<std::size_t, std::uint64_t>> sizes;
  for (const std::size_t i : run.missing()) sizes.emplace_back(i, run.stream().facts(i).size());
  return sizes;
}

void take_all(const py::object& work, CheckRun& run) {
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
void measure_elsewhere(CheckRun& run) {
  const auto sizes = sizes_of(run);
  if (sizes.empty()) return;
  const py::object connect = py::module_::import("fp8lab._cluster").attr("connect");
  const py::object work = connect(*run.arguments().scheduler, order_of(run), sizes);
  try {
    take_all(work, run);
  } catch (...) {
    work.attr("close")();
    throw;
  }
  work.attr("close")();
}

void measure_by_python(CheckRun& run) {
  const py::gil_scoped_acquire gil;
  try {
    measure_elsewhere(run);
  } catch (const py::error_already_set& error) {
    const std::string reason = py::str(error.value());
    if (error.matches(PyExc_OSError)) throw std::runtime_error(reason);
    if (error.matches(PyExc_Exception)) throw std::invalid_argument(reason);
    throw;  // KeyboardInterrupt
  }
}

}  // namespace

void bind_cluster(py::module_& module) {
  experiments::set_cluster(measure_by_python);
  module.def("check_lines", &check_lines, py::arg("order"), py::arg("tensors"));
}

}  // namespace fp8lab::bindings
