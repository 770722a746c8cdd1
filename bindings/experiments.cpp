// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "fp8lab/experiments/output.hpp"
#include "fp8lab/experiments/primer.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

using namespace fp8lab::experiments;

/// Turns failures to write into OSError.
template <typename Write>
void writing(const Write& write) {
  try {
    write();
  } catch (const std::runtime_error& error) {
    PyErr_SetString(PyExc_OSError, error.what());
    throw py::error_already_set();
  }
}

/// (JSON, terminal report)
std::pair<std::string, std::string> primer(const PrimerArguments& arguments, const std::optional<std::string>& out) {
  if (out) writing([&] { check_writable(*out, {"primer.json"}); });
  std::optional<PrimerResult> result;
  {
    const py::gil_scoped_release release;
    result = run_primer(arguments, [](double /*share*/) { check_signals(); });
  }
  if (out) writing([&] { write_files(*out, files_of(*result)); });
  return {to_json(*result), report_of(*result, {})};
}

}  // namespace

void bind_experiments(py::module_& module) {
  module.def(
      "primer",
      [](std::uint64_t seed, int sms, const std::string& mma, long long in_features, long long out_features,
         long long rows, float scale_x, float scale_w, int threads, const std::optional<std::string>& out) {
        return primer({seed, sms, find_primer_model(mma), in_features, out_features, rows, scale_x, scale_w, threads},
                      out);
      },
      py::arg("seed"), py::arg("sms"), py::arg("mma"), py::arg("in_features"), py::arg("out_features"), py::arg("rows"),
      py::arg("scale_x"), py::arg("scale_w"), py::arg("threads"), py::arg("out"));
}

}  // namespace fp8lab::bindings
