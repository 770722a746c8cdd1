// SPDX-License-Identifier: Apache-2.0
// diagnose() in Python: what a foreign kernel did to a tensor.
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/doctor/diagnose.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

using doctor::Diagnosis;
using doctor::Hypothesis;

std::vector<std::string> departures_of(const Hypothesis& hypothesis) {
  std::vector<std::string> names;
  for (const doctor::Deviation& one : hypothesis.deviations) names.emplace_back(one.name());
  return names;
}

py::dict told(const Diagnosis& found) {
  py::list explanations;
  for (const doctor::Explanation& one : found.explanations) {
    explanations.append(py::make_tuple(one.hypothesis, one.codes, one.scales));
  }
  py::list discriminators;
  for (const doctor::Discriminator& one : found.discriminators) {
    discriminators.append(py::make_tuple(one.index, one.x, one.code, one.first, one.second));
  }
  py::dict all;
  all["elements"] = found.elements;
  all["scales"] = found.scales;
  all["searched"] = found.searched;
  all["explanations"] = explanations;
  all["tied"] = found.tied;
  all["discriminators"] = discriminators;
  all["format"] = format_name(found.format);
  all["factor"] = found.factor ? py::make_tuple(found.factor->lowest, found.factor->highest) : py::object(py::none());
  all["rest"] = found.rest;
  all["notes"] = found.notes;
  all["verdict"] = found.verdict;
  all["explained"] = found.explained();
  all["correct"] = found.correct();
  all["in_order"] = found.is_in_order;
  all["telling"] = found.is_telling;
  py::dict exercised;
  for (const doctor::Exercised& one : found.exercised) exercised[py::str(std::string(name_of(one.kind)))] = one.count;
  all["exercised"] = exercised;
  all["unexercised"] = found.unexercised();
  return all;
}

}  // namespace

void bind_diagnose(py::module_& module) {
  py::class_<Hypothesis>(module, "Hypothesis")
      .def_property_readonly("description", [](const Hypothesis& one) { return describe(one); })
      .def_readonly("base", &Hypothesis::base)
      .def_readonly("also", &Hypothesis::also)
      .def_readonly("recipe", &Hypothesis::recipe)
      .def_readonly("changes", &Hypothesis::changes)
      .def_property_readonly("departures", &departures_of)
      .def_property_readonly("columnwise",
                             [](const Hypothesis& one) { return one.direction == Direction::columnwise; });
  module.def(
      "diagnose",
      [](const py::array& x, const std::string& source, const Array<std::uint8_t>& codes,
         const std::optional<NamedOrOwnFormat>& format, const std::optional<Array<std::uint8_t>>& scales,
         const std::optional<std::string>& scale_format, std::optional<float> tensor_scale,
         const std::optional<Recipe>& expected, const std::string& expected_name,
         const std::optional<std::string>& direction, std::size_t shown, int threads) {
        doctor::Dump dump{.codes = view(codes)};
        if (format) dump.format = format->format;
        if (scales) dump.scales.bytes = std::as_bytes(view(*scales));
        if (scale_format) {
          dump.scales.format = *scale_format == "float32" ? binary32 : find_format(*scale_format).format;
        }
        dump.scales.of_tensor = tensor_scale;
        doctor::DiagnoseOptions options{.expected = expected};
        if (expected) options.expected_name = expected_name;
        if (direction) options.direction = find_value<Direction>("direction", *direction);
        options.most_shown = shown;
        options.threads = threads;
        const MatrixView matrix = matrix_of(x, source);
        const Diagnosis found = [&] {
          const py::gil_scoped_release release;
          return doctor::diagnose(matrix, dump, options);
        }();
        return told(found);
      },
      py::arg("x"), py::arg("source"), py::arg("codes"), py::arg("format"), py::arg("scales"), py::arg("scale_format"),
      py::arg("tensor_scale"), py::arg("expected"), py::arg("expected_name"), py::arg("direction"), py::arg("shown"),
      py::arg("threads"));
  module.def(
      "exercise",
      [](const Recipe& recipe, bool columnwise, const std::string& input_type) {
        const Format type = input_type == "float32" ? binary32 : find_format(input_type).format;
        const Direction direction = columnwise ? Direction::columnwise : Direction::rowwise;
        const doctor::ExerciseInput made = doctor::exercise(recipe, direction, type);
        return py::array_t<float>({made.rows, made.columns}, made.values.data());
      },
      py::arg("recipe"), py::arg("columnwise"), py::arg("input_type"));
  module.def(
      "kinds_of_elements",
      [](const py::array& x, const std::string& source, const Recipe& recipe, bool columnwise) {
        const MatrixView matrix = matrix_of(x, source);
        const Direction direction = columnwise ? Direction::columnwise : Direction::rowwise;
        const std::vector<std::uint16_t> kinds = [&] {
          const py::gil_scoped_release release;
          return doctor::kinds_of_elements(matrix, recipe, direction);
        }();
        return py::array_t<std::uint16_t>(static_cast<py::ssize_t>(kinds.size()), kinds.data());
      },
      py::arg("x"), py::arg("source"), py::arg("recipe"), py::arg("columnwise"));
  module.def(
      "findings_by_kind",
      [](const Array<std::uint16_t>& kinds, const Array<std::uint8_t>& differs) {
        return doctor::findings_by_kind(view(kinds), view(differs));
      },
      py::arg("kinds").noconvert(), py::arg("differs").noconvert());
  module.def(
      "note_on_pairs",
      [](const std::vector<std::uint64_t>& shape_of_x, const std::vector<std::uint64_t>& shape_of_codes) {
        return doctor::note_on_pairs(shape_of_x, shape_of_codes);
      },
      py::arg("shape_of_x"), py::arg("shape_of_codes"));
  module.def(
      "probe",
      [](const std::vector<Hypothesis>& hypotheses, const std::string& input_type) {
        const Format type = input_type == "float32" ? binary32 : find_format(input_type).format;
        const doctor::Probe found = [&] {
          const py::gil_scoped_release release;
          return doctor::probe(hypotheses, type);
        }();
        const py::array_t<float> values({found.rows, found.columns}, found.values.data());
        py::list alike;
        for (const auto& [first, second] : found.alike) alike.append(py::make_tuple(first, second));
        return py::make_tuple(values, found.digests, alike);
      },
      py::arg("hypotheses"), py::arg("input_type"));
}

}  // namespace fp8lab::bindings
