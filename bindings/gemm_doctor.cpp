// SPDX-License-Identifier: Apache-2.0
// How a foreign GEMM accumulated, scaled and rounded.
#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fp8lab/doctor/diagnose_gemm.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

using doctor::GemmDiagnosis;

/// Departures: the name, the depth, the factors and the blocks of each.
using Departures = std::vector<std::tuple<std::string, std::size_t, std::vector<float>, std::vector<std::size_t>>>;

py::dict gemm_fields(const doctor::GemmExplanation& one) {
  py::list departures;
  for (const doctor::FoundDeparture& departure : one.departures) {
    departures.append(py::make_tuple(std::string(departure.row->name), std::string(departure.row->words),
                                     departure.depth, py::tuple(py::cast(departure.factors)),
                                     py::tuple(py::cast(departure.blocks))));
  }
  py::dict all;
  all["recipe"] = one.recipe;
  all["departures"] = departures;
  all["description"] = describe(one);
  all["models"] = py::tuple(py::cast(one.models));
  all["checked"] = one.checked;
  all["unexplained"] = one.unexplained;
  return all;
}

py::tuple gemm_fields(const doctor::GemmElement& one) {
  return py::make_tuple(one.row, one.column, one.word, one.first, one.second);
}

template <typename Values>
py::list all_gemm_fields(const Values& values) {
  py::list all;
  for (const auto& value : values) all.append(gemm_fields(value));
  return all;
}

GemmDiagnosis diagnosed_gemm(const Operand& a, const Operand& b, const Array<std::uint8_t>& words,
                             const std::optional<NamedOrOwnFormat>& format, std::vector<std::size_t> indices,
                             const Array<float>& c, const Array<float>& bias, float scale_out,
                             std::size_t most_products, const std::optional<GemmRecipe>& expected,
                             const std::vector<std::pair<std::size_t, Array<std::uint8_t>>>& prefixes,
                             std::vector<std::string> without, int threads) {
  doctor::GemmOutput out{.format = format ? format->format : binary32,
                         .words = std::as_bytes(view(words)),
                         .indices = std::move(indices),
                         .c = view(c),
                         .bias = view(bias),
                         .scale_out = scale_out};
  for (const auto& [depth, own] : prefixes) out.prefixes.push_back({depth, std::as_bytes(view(own))});
  const py::gil_scoped_release release;
  return diagnose_gemm(
      a, b, out,
      {.most_products = most_products, .expected = expected, .without = std::move(without), .threads = threads});
}

/// The words of the output by an explanation.
std::vector<std::uint64_t> words_by(const GemmRecipe& recipe, const Departures& departures, const Operand& a,
                                    const Operand& b, const std::optional<NamedOrOwnFormat>& format,
                                    const Array<float>& c, const Array<float>& bias, float scale_out) {
  doctor::GemmExplanation explanation{.recipe = recipe};
  for (const auto& [name, depth, factors, blocks] : departures) {
    explanation.departures.push_back({&doctor::find_gemm_departure(name), depth, factors, blocks});
  }
  const doctor::GemmOutput out{
      .format = format ? format->format : binary32, .c = view(c), .bias = view(bias), .scale_out = scale_out};
  const py::gil_scoped_release release;
  return gemm_words(explanation, a, b, out);
}

/// What parts the explanations; where there is none, what tells where along K the first difference enters.
py::dict gemm_probe_of(const GemmDiagnosis& found, std::size_t most, std::size_t depth) {
  const auto some = std::span(found.explanations).first(std::min(most, found.explanations.size()));
  const doctor::GemmInputs& inputs = found.inputs;
  const doctor::GemmProbe probe = [&] {
    const py::gil_scoped_release release;
    return found.explained() ? probe_gemm(some, inputs, depth) : prefix_probe(inputs, depth);
  }();
  const auto matrix = [](const auto& values, std::size_t rows) {
    using Value = std::remove_cvref_t<decltype(values)>::value_type;
    return py::array_t<Value>({rows, values.size() / rows}, values.data());
  };
  // As gemm() takes them.
  const auto scales = [&](const std::vector<std::uint8_t>& blocks, const std::vector<float>& tiles,
                          const std::vector<float>& rows, std::size_t count, std::size_t tile_rows,
                          float of_tensor) -> py::object {
    py::object array = py::none();
    if (!blocks.empty()) array = matrix(blocks, count);
    if (!tiles.empty()) array = matrix(tiles, (count + tile_rows - 1) / tile_rows);
    if (!rows.empty()) array = matrix(rows, count);
    if (array.is_none()) return py::float_(of_tensor);
    return of_tensor == 1 ? array : py::make_tuple(array, of_tensor);
  };
  py::dict all;
  all["a"] = matrix(probe.a, probe.rows);
  all["b"] = matrix(probe.b, probe.columns);
  all["scale_a"] = scales(probe.blocks_a, probe.tiles_a, probe.rows_a, probe.rows, inputs.tile_rows_a, probe.scale_a);
  all["scale_b"] =
      scales(probe.blocks_b, probe.tiles_b, probe.rows_b, probe.columns, inputs.tile_rows_b, probe.scale_b);
  all["c"] = probe.c.empty() ? py::object(py::none()) : matrix(probe.c, probe.rows);
  all["bias"] = probe.bias.empty()
                    ? py::object(py::none())
                    : py::object(py::array_t<float>(static_cast<py::ssize_t>(probe.bias.size()), probe.bias.data()));
  all["scale_out"] = probe.scale_out;
  all["pairs"] = probe.pairs;
  all["unparted"] = py::tuple(py::cast(probe.alike));
  return all;
}

}  // namespace

void bind_gemm_doctor(py::module_& module) {
  py::class_<GemmDiagnosis>(module, "GemmDiagnosis")
      .def_readonly("elements", &GemmDiagnosis::elements)
      .def_readonly("searched", &GemmDiagnosis::searched)
      .def_readonly("tied", &GemmDiagnosis::tied)
      .def_readonly("verdict", &GemmDiagnosis::verdict)
      .def_readonly("rest", &GemmDiagnosis::rest)
      .def_property_readonly("first_difference",
                             [](const GemmDiagnosis& found) -> std::optional<std::pair<std::size_t, std::size_t>> {
                               if (!found.first_difference) return std::nullopt;
                               return std::pair(found.first_difference->from, found.first_difference->to);
                             })
      .def_readonly("expected", &GemmDiagnosis::expected)
      .def_readonly("expected_checked", &GemmDiagnosis::expected_checked)
      .def_readonly("expected_unexplained", &GemmDiagnosis::expected_unexplained)
      .def_readonly("telling", &GemmDiagnosis::is_telling)
      .def_property_readonly("explained", &GemmDiagnosis::explained)
      .def_property_readonly("correct", &GemmDiagnosis::correct)
      .def_property_readonly("explanations",
                             [](const GemmDiagnosis& found) { return all_gemm_fields(found.explanations); })
      .def_property_readonly("shown", [](const GemmDiagnosis& found) { return all_gemm_fields(found.shown); })
      .def("probe", &gemm_probe_of, py::arg("most"), py::arg("depth"));
  module.def("diagnose_gemm", &diagnosed_gemm, py::arg("a"), py::arg("b"), py::arg("words").noconvert(),
             py::arg("format"), py::arg("indices"), py::arg("c").noconvert(), py::arg("bias").noconvert(),
             py::arg("scale_out"), py::arg("most_products"), py::arg("expected"), py::arg("prefixes"),
             py::arg("without"), py::arg("threads"));
  module.def(
      "gemm_words",
      [](const GemmRecipe& recipe, const Departures& departures, const Operand& a, const Operand& b,
         const std::optional<NamedOrOwnFormat>& format, const Array<float>& c, const Array<float>& bias,
         float scale_out) {
        const auto words = words_by(recipe, departures, a, b, format, c, bias, scale_out);
        return py::array_t<std::uint64_t>(static_cast<py::ssize_t>(words.size()), words.data());
      },
      py::arg("recipe"), py::arg("departures"), py::arg("a"), py::arg("b"), py::arg("format"), py::arg("c").noconvert(),
      py::arg("bias").noconvert(), py::arg("scale_out"));
  module.def(
      "expected_with_profile",
      [](GemmRecipe recipe, const NamedOrOwnProfile& profile) {
        recipe.cast = profile.policy;
        return recipe;
      },
      py::arg("recipe"), py::arg("profile"));
  module.def("gemm_departures", [] {
    std::vector<std::pair<std::string, std::string>> all;
    for (const doctor::GemmDeparture& one : doctor::gemm_departures()) all.emplace_back(one.name, one.words);
    return all;
  });
  module.def("operand_of", [](const Quantized& q) { return operand_of(q); }, py::arg("q"), py::keep_alive<0, 1>());
}

}  // namespace fp8lab::bindings
