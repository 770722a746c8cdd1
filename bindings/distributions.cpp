// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/measure/distributions.hpp"

#include "fp8lab/reference/measure/exact_sqnr.hpp"
#include "module.hpp"

namespace fp8lab::bindings {

void bind_distributions(py::module_& module) {
  py::class_<Distribution>(module, "Distribution")
      .def_property_readonly("name", [](const Distribution& d) { return std::string(d.name); })
      .def_property_readonly("description", [](const Distribution& d) { return std::string(d.description); })
      .def_property_readonly("second_moment", &second_moment)
      .def("__str__", [](const Distribution& d) { return std::string(d.name) + ": " + std::string(d.description); })
      .def(
          "__eq__", [](const Distribution& d, const Distribution& e) { return d.name == e.name; }, py::is_operator())
      .def("__hash__", [](const Distribution& d) { return py::hash(py::str(std::string(d.name))); })
      .def("__repr__", [](const Distribution& d) { return "<fp8lab.Distribution " + std::string(d.name) + ">"; });
  module.def("distributions",
             [] { return std::vector<Distribution>(fp8lab::distributions.begin(), fp8lab::distributions.end()); });
  module.def("find_distribution", [](const std::string& name) { return find_distribution(name); }, py::arg("name"));
  module.def(
      "sample",
      [](Array<float> out, const Distribution& distribution, std::uint64_t seed) {
        const auto values = mutable_view(out);
        const py::gil_scoped_release release;
        sample(distribution, seed, 0, values);
      },
      py::arg("out").noconvert(), py::arg("distribution"), py::arg("seed"));
  module.def(
      "normal_grid",
      [](Array<float> out) {
        const auto values = mutable_view(out);
        const py::gil_scoped_release release;
        normal_grid(values);
      },
      py::arg("out").noconvert());
  module.def(
      "exact_sqnr_db",
      [](const NamedOrOwnFormat& format, const Distribution& distribution, double scale) {
        const py::gil_scoped_release release;
        return exact_sqnr_db(format.format, distribution, scale);
      },
      py::arg("format"), py::arg("distribution"), py::arg("scale"));
  module.def(
      "best_scale",
      [](const NamedOrOwnFormat& format, const Distribution& distribution) {
        const py::gil_scoped_release release;
        const BestScale best = best_scale(format.format, distribution);
        return std::pair(best.scale, best.sqnr_db);
      },
      py::arg("format"), py::arg("distribution"));
}

}  // namespace fp8lab::bindings
