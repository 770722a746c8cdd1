// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "from_python.hpp"
#include "record.hpp"

namespace fp8lab::bindings {
namespace {

/// The model with other answers to what is unverified.
MmaModel replaced(MmaModel model, std::optional<int> fraction_bits, std::optional<int> zero_exponent,
                  std::optional<bool> keeps_sign) {
  if (fraction_bits) model.fraction_bits = *fraction_bits;
  if (zero_exponent) model.zero_exponent = *zero_exponent;
  if (keeps_sign) model.underflow = *keeps_sign ? UnderflowSign::kept : UnderflowSign::positive;
  return model;
}

std::vector<std::string> operand_names(const MmaModel& model) {
  std::vector<std::string> names;
  for (const Format& format : model.operands) names.push_back(format_name(format));
  return names;
}

std::optional<std::string> scale_format(const MmaModel& model) {
  return model.scales ? std::optional(format_name(model.scales->format)) : std::nullopt;
}

}  // namespace

void bind_models(py::module_& module) {
  py::class_<MmaModel> bound(module, "MmaModel");
  bind_record<MmaModel>(bound);
  // Facts that follow from the fields, and fields in other words.
  bound.def_property_readonly("description", [](const MmaModel& m) { return describe(m); })
      .def_property_readonly("maker", [](const MmaModel& m) { return std::string(m.chip.maker); })
      .def_property_readonly("chip", [](const MmaModel& m) { return std::string(m.chip.name); })
      .def_property_readonly("k", [](const MmaModel& m) { return m.k() == 0 ? std::nullopt : std::optional(m.k()); })
      .def_property_readonly("result_bits", [](const MmaModel& m) { return m.output.mantissa_bits; })
      .def_property_readonly("zero_exponent",
                             [](const MmaModel& m) {
                               return m.zero_exponent == no_zero_exponent ? std::nullopt
                                                                          : std::optional(m.zero_exponent);
                             })
      .def_property_readonly("keeps_sign", [](const MmaModel& m) { return m.underflow == UnderflowSign::kept; })
      .def("_replace", &replaced, py::arg("fraction_bits"), py::arg("zero_exponent"), py::arg("keeps_sign"))
      .def_property_readonly("accumulator", [](const MmaModel& m) { return format_name(m.accumulator()); })
      .def_property_readonly("operands", &operand_names)
      .def_property_readonly("scale_format", &scale_format)
      .def(
          "_takes", [](const MmaModel& m, const Quantized& q) { return takes(m, q); }, py::arg("q"))
      .def_property_readonly("scale_block",
                             [](const MmaModel& m) { return m.scales ? std::optional(m.scales->block) : std::nullopt; })
      .def("__str__",
           [](const MmaModel& m) {
             return std::string(m.name) + ": " + describe(m) + " [" + std::string(m.source) + "; " + evidence_of(m) +
                    "]";
           })
      .def(
          "__eq__",
          [](const MmaModel& m, const MmaModel& n) {
            return m.name == n.name && m.fraction_bits == n.fraction_bits && m.zero_exponent == n.zero_exponent &&
                   m.underflow == n.underflow;
          },
          py::is_operator())
      .def("__hash__", [](const MmaModel& m) { return py::hash(py::make_tuple(m.name, m.fraction_bits)); })
      .def("_repr_html_", &html_by_python)
      .def("__repr__", [](const MmaModel& m) { return "<fp8lab.MmaModel " + std::string(m.name) + ">"; });
  module.def("models", [] { return std::vector<MmaModel>(models.begin(), models.end()); });
  module.def("find_model", [](const std::string& name) { return find_model(name); });
}

}  // namespace fp8lab::bindings
