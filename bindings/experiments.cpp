// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include "cluster.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/formats/text.hpp"
#include "fp8lab/reference/linear/linear_recipe.hpp"
#include "kit/command_line.hpp"
#include "kit/experiment.hpp"
#include "kit/output.hpp"
#include "kit/progress.hpp"
#include "kit/render.hpp"
#include "kit/report.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

using namespace fp8lab::experiments;

/// Turns failures to write, with the GIL, into OSError.
template <typename Write>
void writing(const Write& write) {
  try {
    write();
  } catch (const std::runtime_error& error) {
    PyErr_SetString(PyExc_OSError, one_line(error.what()).c_str());
    throw py::error_already_set();
  }
}

/// A directory, where files are wanted.
using Out = std::optional<py::bytes>;

/// Turns failures to read, in a run without the GIL, into OSError.
template <typename Run>
auto reading(const Run& run) {
  try {
    return run();
  } catch (const std::runtime_error& error) {
    const py::gil_scoped_acquire gil;
    PyErr_SetString(PyExc_OSError, one_line(error.what()).c_str());
    throw py::error_already_set();
  }
}

/// The values of an array as a tensor of its shape.
template <typename T>
HeldTensor held(std::span<const T> values, const py::array& x) {
  std::vector<std::uint64_t> shape;
  shape.reserve(static_cast<std::size_t>(x.ndim()));
  for (py::ssize_t i = 0; i < x.ndim(); ++i) shape.push_back(static_cast<std::uint64_t>(x.shape(i)));
  const std::size_t columns = shape.empty() ? 1 : static_cast<std::size_t>(shape.back());
  return {MatrixView(values, columns == 0 ? 0 : values.size() / columns, columns), shape};
}

// The functions below list the registered experiments.

/// A pair: (array, type of its elements), perhaps with a name behind them; (name, a recipe of any kind) or (count,
/// factor).
Entry entry_of_pair(const py::tuple& pair) {
  if (py::isinstance<py::array>(pair[0])) {
    const auto x = pair[0].cast<py::array>();
    HeldTensor tensor{{std::span<const float>(), 0, 0}};
    with_source(x, pair[1].cast<std::string>(), [&](auto values) { tensor = held(values, x); });
    if (pair.size() > 2) tensor.name = pair[2].cast<std::string>();
    return tensor;
  }
  if (py::isinstance<Recipe>(pair[1])) {
    return ChosenRecipe{pair[0].cast<std::string>(), pair[1].cast<const Recipe&>()};
  }
  if (py::isinstance<LinearRecipe>(pair[1])) {
    return ChosenLinearRecipe{pair[0].cast<std::string>(), pair[1].cast<const LinearRecipe&>()};
  }
  if (py::isinstance<GemmRecipe>(pair[1])) {
    return ChosenGemmRecipe{pair[0].cast<std::string>(), pair[1].cast<const GemmRecipe&>()};
  }
  return OutlierLines{pair[0].cast<long long>(), pair[1].cast<double>()};
}

/// A value of the package's, checked there. Arrays must outlive the entry.
Entry entry_of(const py::handle& value) {
  if (py::isinstance<py::tuple>(value)) return entry_of_pair(value.cast<py::tuple>());
  if (py::isinstance<NamedOrOwnFormat>(value)) {
    const auto& format = value.cast<const NamedOrOwnFormat&>();
    return ChosenFormat{format.name, format.format};
  }
  if (py::isinstance<NamedOrOwnProfile>(value)) {
    const auto& profile = value.cast<const NamedOrOwnProfile&>();
    return ChosenProfile{profile.name, profile.policy};
  }
  if (py::isinstance<MmaModel>(value)) return value.cast<MmaModel>();
  if (py::isinstance<Distribution>(value)) return value.cast<Distribution>();
  if (py::isinstance<DelayedVersion>(value)) return value.cast<DelayedVersion>();
  if (py::isinstance<AmaxTrace>(value)) return value.cast<AmaxTrace>();
  if (py::isinstance<Delayed>(value)) return value.cast<const Delayed&>();
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::float_>(value)) return value.cast<double>();
  if (!py::isinstance<py::int_>(value)) return value.cast<std::string>();  // bytes, too: a path
  const bool is_large = py::cast<bool>(value.attr("__gt__")(std::numeric_limits<std::int64_t>::max()));
  return is_large ? Entry(value.cast<std::uint64_t>()) : Entry(value.cast<std::int64_t>());
}

/// The names that the caller gave to arguments, by their names here where these differ.
using Called = std::map<std::string, std::string, std::less<>>;

/// Sets the arguments of a call: a list of entries for each name.
void set_arguments(ArgumentList& list, const py::dict& arguments, const Called& called) {
  const auto spelled = [&](const std::string& name) {
    const auto other = called.find(name);
    return other == called.end() ? name : other->second;
  };
  std::vector<std::string> given;
  for (const auto& [key, values] : arguments) {
    const auto name = key.cast<std::string>();
    std::vector<Entry> entries;
    for (const py::handle& value : values) entries.push_back(entry_of(value));
    try {
      list.find(name).set(entries);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(spelled(name) + ": " + error.what());
    }
    const auto* flag = entries.empty() ? nullptr : std::get_if<bool>(&entries.front());
    if (flag == nullptr || *flag) given.push_back(name);  // an option that is a flag cannot be given as false
  }
  list.check_given(given, spelled);
}

/// Runs an experiment, writes its files where a directory is given, and gives its document as JSON.
std::string run_experiment(const std::string& name, const py::dict& arguments, const Out& path, const Called& called) {
  const std::optional<std::string> out = path;
  const std::unique_ptr<Call> call = find_experiment(name).prepare();
  set_arguments(call->arguments, arguments, called);
  if (out) writing([&] { check_writable(*out, {name + ".json"}); });
  const py::gil_scoped_release release;
  ProgressBar bar;  // as the command line draws it
  const Context context{.progress = [&](double share) { bar(share); },
                        .bytes = [&](const BytesDone& bytes) { bar(bytes); },
                        .note = [&](const std::string& line) { bar.note(line); },
                        .cluster = do_elsewhere};
  const Document document = reading([&] { return call->run(context); });
  bar.clear();
  if (!out) return json_of(document);
  Files files = files_of(document);
  try {
    write_files(*out, files, [] { checkpoint(); });
  } catch (const std::runtime_error& error) {
    const py::gil_scoped_acquire gil;
    writing([&] { throw std::runtime_error(error.what()); });
  }
  return std::move(files.front().second);  // what is returned is what is written
}

/// The facts of an experiment, of which the package makes a function.
py::dict facts_of(const Experiment& experiment) {
  py::list arguments;
  const std::unique_ptr<Call> call = experiment.prepare();
  for (const Argument& argument : call->arguments.all()) {
    if (!argument.python) continue;
    using namespace py::literals;
    arguments.append(py::dict(
        "name"_a = argument.name, "kind"_a = std::string(name_of(argument.kind)), "is_list"_a = argument.is_list,
        "is_optional"_a = argument.is_optional, "help"_a = argument.help, "default"_a = argument.value().text(),
        "takes_none"_a = argument.takes_none, "otherwise"_a = argument.otherwise,
        "conditions"_a =
            call->arguments.conditions(argument, [](const Argument& other) { return other.python ? other.name : ""; }),
        "excludes"_a = argument.excludes, "needs"_a = argument.needs, "least"_a = argument.least,
        "most"_a = argument.most, "is_positional"_a = argument.is_positional,
        "option"_a = argument.command_line ? argument.option() : "",
        "is_of_words"_a = argument.words || argument.kind == experiments::Kind::path));
  }
  using namespace py::literals;
  return py::dict("name"_a = experiment.identifier(), "command"_a = experiment.name, "summary"_a = experiment.summary,
                  "description"_a = experiment.description, "result"_a = experiment.result,
                  "is_public"_a = experiment.python, "small"_a = experiment.small,
                  "status_not_passed"_a = experiment.not_passed.empty() ? 0 : experiment.status_not_passed,
                  "arguments"_a = arguments);
}

/// The exit status of the command line of these words, `fp8lab` not among them.
int run_words(const std::vector<std::string>& words) {
  std::vector<const char*> arguments{"fp8lab"};
  for (const std::string& word : words) arguments.push_back(word.c_str());
  return experiments::run_command_line(static_cast<int>(arguments.size()), arguments.data(), do_elsewhere);
}

/// The amaxes of arrays, one a step, by their names.
AmaxTrace trace_of_arrays(const std::vector<std::string>& names, const std::vector<Array<float>>& columns) {
  std::vector<std::vector<float>> amaxes;
  for (const Array<float>& column : columns) {
    const auto values = view(column);
    amaxes.emplace_back(values.begin(), values.end());
  }
  std::vector<std::uint64_t> steps(amaxes.empty() ? 0 : amaxes.front().size());
  std::iota(steps.begin(), steps.end(), 1);
  return trace_of_columns("arrays", steps, names, amaxes);
}

}  // namespace

void bind_experiments(py::module_& module) {
  py::class_<AmaxTrace>(module, "AmaxTrace").def(py::init(&trace_of_arrays), py::arg("names"), py::arg("columns"));
  module.def("experiments", [] {
    py::list all;
    for (const Experiment& experiment : fp8lab::experiments::experiments()) all.append(facts_of(experiment));
    return all;
  });
  module.def("command_line", &run_words, py::arg("words"), py::call_guard<py::gil_scoped_release>());
  module.def("python_commands", [] {
    std::vector<std::pair<std::string, std::string>> commands;
    for (const PythonCommand& command : python_commands()) commands.emplace_back(command.name, command.summary);
    return commands;
  });
  module.def("names_tensor", &names_tensor, py::arg("pattern"), py::arg("name"));
  module.def("run_experiment", &run_experiment, py::arg("name"), py::arg("arguments"), py::arg("out"),
             py::arg("called") = Called());
  module.def(
      "document_text",
      [](const std::string& json, int width, bool unicode) {
        return text_of(read_document(json), {.unicode = unicode, .width = width});
      },
      py::arg("json"), py::arg("width"), py::arg("unicode"));
  module.def("document_page", [](const std::string& json) { return page_of(read_document(json)); }, py::arg("json"));
  module.def(
      "document_fragment", [](const std::string& json) { return fragment_of(read_document(json)); }, py::arg("json"));
  module.def(
      "save_page",
      [](const std::string& json, const py::bytes& path) {
        const std::string page = page_of(read_document(json));
        writing([&] { write_file(std::string(path), page); });
      },
      py::arg("json"), py::arg("path"));
  module.def(
      "write_report",
      [](const py::bytes& directory, const py::bytes& page) {
        ReportFacts facts;
        writing([&] { facts = write_report(std::string(directory), std::string(page)); });
        return py::make_tuple(py::bytes(facts.page.native()), facts.documents, facts.others);
      },
      py::arg("directory"), py::arg("page"));
  module.def(
      "save_document",
      [](const std::string& json, const py::bytes& out) {
        Files files = files_of(read_document(json));
        files.front().second = json;
        writing([&] { write_files(std::string(out), files, [] { checkpoint(); }); });
      },
      py::arg("json"), py::arg("out"));
}

}  // namespace fp8lab::bindings
