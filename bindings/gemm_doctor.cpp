// SPDX-License-Identifier: Apache-2.0
// How a foreign GEMM accumulated, scaled and rounded.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/reference/forensics/diagnose_gemm.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

using forensics::GemmDiagnosis;
using forensics::GemmHypothesis;

py::dict gemm_fields(const forensics::GemmExplanation& one) {
  const GemmHypothesis& h = one.hypothesis;
  py::dict all;
  all["description"] = describe(h);
  all["models"] = py::tuple(py::cast(one.models));
  all["promote_k"] = h.promote_k;
  all["split_k"] = h.split_k;
  all["order"] = std::string(name_of(h.order));
  all["scale_use"] = std::string(name_of(h.scale_use));
  all["fused"] = h.fused;
  all["output"] = std::string(name_of(h.output));
  all["defect"] = std::string(name_of(h.defect));
  all["depth"] = h.depth;
  all["checked"] = one.checked;
  all["unexplained"] = one.unexplained;
  return all;
}

py::tuple gemm_fields(const forensics::GemmElement& one) {
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
                             std::size_t most_products) {
  const forensics::GemmOutput out{
      .format = format ? format->format : binary32, .words = std::as_bytes(view(words)), .indices = std::move(indices)};
  const py::gil_scoped_release release;
  return diagnose_gemm(a, b, out, {.most_products = most_products});
}

py::dict gemm_probe_of(const GemmDiagnosis& found, std::size_t most, const NamedOrOwnFormat& format_a,
                       const NamedOrOwnFormat& format_b, const std::optional<NamedOrOwnFormat>& format,
                       std::size_t depth) {
  const auto some = std::span(found.explanations).first(std::min(most, found.explanations.size()));
  const forensics::GemmProbe probe = [&] {
    const py::gil_scoped_release release;
    return probe_gemm(some, format_a.format, format_b.format, format ? format->format : binary32, depth);
  }();
  const auto matrix = [&](const std::vector<std::uint8_t>& codes, std::size_t rows) {
    return py::array_t<std::uint8_t>({rows, probe.depth}, codes.data());
  };
  py::dict all;
  all["a"] = matrix(probe.a, probe.rows);
  all["b"] = matrix(probe.b, probe.columns);
  all["scale_a"] = probe.scale_a;
  all["scale_b"] = probe.scale_b;
  all["parted"] = probe.parted;
  all["pairs"] = probe.pairs;
  return all;
}

}  // namespace

void bind_gemm_doctor(py::module_& module) {
  py::class_<GemmDiagnosis>(module, "GemmDiagnosis")
      .def_readonly("elements", &GemmDiagnosis::elements)
      .def_readonly("searched", &GemmDiagnosis::searched)
      .def_readonly("tied", &GemmDiagnosis::tied)
      .def_readonly("verdict", &GemmDiagnosis::verdict)
      .def_property_readonly("explanations",
                             [](const GemmDiagnosis& found) { return all_gemm_fields(found.explanations); })
      .def_property_readonly("shown", [](const GemmDiagnosis& found) { return all_gemm_fields(found.shown); })
      .def("probe", &gemm_probe_of, py::arg("most"), py::arg("format_a"), py::arg("format_b"), py::arg("format"),
           py::arg("depth"));
  module.def("diagnose_gemm", &diagnosed_gemm, py::arg("a"), py::arg("b"), py::arg("words").noconvert(),
             py::arg("format"), py::arg("indices"), py::arg("most_products"));
  module.def("operand_of", [](const Quantized& q) { return operand_of(q); }, py::arg("q"), py::keep_alive<0, 1>());
}

}  // namespace fp8lab::bindings
