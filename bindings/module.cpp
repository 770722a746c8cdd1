// SPDX-License-Identifier: Apache-2.0
#include "module.hpp"

#include "fp8lab/experiments/provenance.hpp"

namespace fp8lab::bindings {

void check_signals() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace fp8lab::bindings

PYBIND11_MODULE(_core, module) {
  using namespace fp8lab::bindings;
  module.attr("version") = std::string(fp8lab::experiments::version());
  bind_casts(module);
  bind_random(module);
  bind_delayed(module);
  bind_distributions(module);
  bind_products(module);
  bind_measures(module);
  bind_scaling(module);
  bind_experiments(module);
}
