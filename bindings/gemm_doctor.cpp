// SPDX-License-Identifier: Apache-2.0
// How a foreign GEMM accumulated, scaled and rounded.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/doctor/diagnose_gemm.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

using doctor::GemmDiagnosis;
using doctor::GemmHypothesis;

py::dict gemm_fields(const doctor::GemmExplanation& one) {
  const GemmHypothesis& h = one.hypothesis;
  py::dict all;
  all["description"] = describe(h);
  all["models"] = py::tuple(py::cast(one.models));
  all["dequantized"] = std::string(name_of(h.dequantized));
  all["promote_k"] = h.promote_k;
  all["split_k"] = h.split_k;
  all["ranges"] = py::tuple(py::cast(h.ranges));
  all["range_order"] = py::tuple(py::cast(h.range_order));
  all["order"] = std::string(name_of(h.order));
  all["scale_use"] = std::string(name_of(h.scale_use));
  all["partial_type"] = std::string(name_of(h.partial_type));
  all["total_type"] = std::string(name_of(h.total_type));
  all["sum_type"] = std::string(name_of(h.sum_type));
  all["divided"] = h.divided;
  all["fused"] = h.fused;
  all["addend_use"] = std::string(name_of(h.addend_use));
  all["addend_type"] = std::string(name_of(h.addend_type));
  all["bias_first"] = h.bias_first;
  all["scale_out_first"] = h.scale_out_first;
  all["output"] = std::string(name_of(h.output));
  all["saturated"] = h.saturated;
  all["k_order"] = h.k_order.ways == 1 ? py::object(py::none())
                                       : py::make_tuple(h.k_order.ways, h.k_order.granule, h.k_order.window);
  all["zero_rule"] = std::string(name_of(h.zero_rule));
  all["defect"] = std::string(name_of(h.defect));
  all["depth"] = h.depth;
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
                             std::size_t most_products, const std::optional<doctor::ExpectedGemm>& expected) {
  const doctor::GemmOutput out{.format = format ? format->format : binary32,
                               .words = std::as_bytes(view(words)),
                               .indices = std::move(indices),
                               .c = view(c),
                               .bias = view(bias),
                               .scale_out = scale_out};
  const py::gil_scoped_release release;
  return diagnose_gemm(a, b, out, {.most_products = most_products, .expected = expected});
}

py::dict gemm_probe_of(const GemmDiagnosis& found, std::size_t most, std::size_t depth) {
  const auto some = std::span(found.explanations).first(std::min(most, found.explanations.size()));
  doctor::GemmInputs inputs = found.inputs;
  inputs.depth = depth;
  const doctor::GemmProbe probe = [&] {
    const py::gil_scoped_release release;
    return probe_gemm(some, inputs);
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
  all["unparted"] = py::tuple(py::cast(probe.unparted));
  return all;
}

}  // namespace

void bind_gemm_doctor(py::module_& module) {
  py::class_<doctor::ExpectedGemm>(module, "ExpectedGemm")
      .def(py::init([](std::string model, std::size_t promote_k, std::vector<std::size_t> split_k,
                       std::vector<std::size_t> split_order, const std::optional<std::string>& scale_order,
                       const std::string& c_enters, const std::string& zero_rule,
                       const std::optional<NamedOrOwnProfile>& profile) {
             doctor::ExpectedGemm expected{.model = std::move(model),
                                           .promote_k = promote_k,
                                           .split_k = std::move(split_k),
                                           .split_order = std::move(split_order),
                                           .c_enters = find_c_entry(c_enters),
                                           .zero_rule = find_zero_rule(zero_rule)};
             if (scale_order) expected.scale_order = find_scale_order(*scale_order);
             if (profile) expected.policy = profile->policy;
             return expected;
           }),
           py::arg("model"), py::arg("promote_k"), py::arg("split_k"), py::arg("split_order"), py::arg("scale_order"),
           py::arg("c_enters"), py::arg("zero_rule"), py::arg("profile"));
  py::class_<GemmDiagnosis>(module, "GemmDiagnosis")
      .def_readonly("elements", &GemmDiagnosis::elements)
      .def_readonly("searched", &GemmDiagnosis::searched)
      .def_readonly("tied", &GemmDiagnosis::tied)
      .def_readonly("verdict", &GemmDiagnosis::verdict)
      .def_readonly("rest", &GemmDiagnosis::rest)
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
             py::arg("scale_out"), py::arg("most_products"), py::arg("expected"));
  module.def("operand_of", [](const Quantized& q) { return operand_of(q); }, py::arg("q"), py::keep_alive<0, 1>());
}

}  // namespace fp8lab::bindings
