// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "fp8lab/reference/errors.hpp"
#include "fp8lab/reference/histogram.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

using OwnFormat = NamedOrOwnFormat;

Bins bins_of(const std::string& kind, double low, double high, int count, const OwnFormat& format) {
  if (kind == "linear") return LinearBins{low, high, count};
  if (kind == "log") return LogBins{low, high, count};
  if (kind == "binade") return BinadeBins{static_cast<int>(low), static_cast<int>(high)};
  if (kind == "code") return CodeBins{format.format};
  throw std::invalid_argument("unknown bins '" + kind + "'; known: linear, log, binade, code");
}

/// Adds values; where `input` is given, its casts to `format` decide what is counted as underflow or saturation.
void add_values(Histogram& histogram, const Array<double>& values, const py::object& input, const OwnFormat& format,
                const std::string& rounding) {
  const auto all = view(values);
  const Format target = format.format;
  const Rounding mode = find_rounding(rounding);
  if (input.is_none()) {
    const py::gil_scoped_release release;
    for (const double value : all) histogram.add(value);
    return;
  }
  const auto inputs = py::cast<Array<float>>(input);
  const auto sources = view(inputs);
  const py::gil_scoped_release release;
  for (std::size_t i = 0; i < all.size(); ++i) histogram.add(all[i], cast_outcome(target, mode, sources[i]));
}

py::array copy_of(const auto& vector) { return py::array(static_cast<py::ssize_t>(vector.size()), vector.data()); }

}  // namespace

void bind_measures(py::module_& module) {
  py::class_<Histogram>(module, "Histogram")
      .def(py::init([](const std::string& kind, double low, double high, int count, const OwnFormat& format) {
             return Histogram(bins_of(kind, low, high, count, format));
           }),
           py::arg("kind"), py::arg("low"), py::arg("high"), py::arg("count"), py::arg("format"))
      .def("_add", &add_values, py::arg("values").noconvert(), py::arg("input"), py::arg("format"), py::arg("rounding"))
      .def("merge", &Histogram::merge, py::arg("other"),
           "Add the counts of a histogram with the same bins; ValueError otherwise.")
      .def("to_csv", &to_csv, "The histogram as CSV: low, high, count a bin, then the counts apart.")
      .def_property_readonly(
          "counts", [](const Histogram& h) { return copy_of(h.counts()); }, "Counts, one a bin (uint64).")
      .def_property_readonly(
          "edges", [](const Histogram& h) { return copy_of(h.edges()); }, "Bin i is [edges[i], edges[i + 1]).")
      .def_property_readonly("total", &Histogram::total, "Everything counted, in bins or apart.")
      .def_readonly("zeros", &Histogram::zeros)
      .def_readonly("infinities", &Histogram::infinities)
      .def_readonly("nans", &Histogram::nans)
      .def_readonly("below", &Histogram::below)
      .def_readonly("above", &Histogram::above)
      .def_readonly("underflows", &Histogram::underflows)
      .def_readonly("saturations", &Histogram::saturations)
      .def("__repr__", [](const Histogram& h) {
        return "<fp8lab.Histogram of " + std::to_string(h.total()) + " values in " + std::to_string(h.counts().size()) +
               " bins>";
      });
  py::class_<ErrorTotals>(module, "ErrorTotals")
      .def(py::init<>())
      .def(
          "_add",
          [](ErrorTotals& totals, const Array<double>& actual, const Array<double>& reference) {
            const auto a = view(actual);
            const auto r = view(reference);
            const py::gil_scoped_release release;
            for (std::size_t i = 0; i < a.size(); ++i) totals.add(a[i], r[i]);
          },
          py::arg("actual").noconvert(), py::arg("reference").noconvert())
      .def("merge", &ErrorTotals::merge, py::arg("other"), "Add another set of totals.")
      .def_readonly("count", &ErrorTotals::count)
      .def_readonly("not_finite", &ErrorTotals::not_finite)
      .def_readonly("max_absolute_error", &ErrorTotals::max_absolute_error)
      .def_readonly("max_relative_error", &ErrorTotals::max_relative_error)
      .def_property_readonly("mean_error", &ErrorTotals::mean_error)
      .def_property_readonly("mean_absolute_error", &ErrorTotals::mean_absolute_error)
      .def_property_readonly("rms_error", &ErrorTotals::rms_error)
      .def_property_readonly("sqnr_db", &ErrorTotals::sqnr_db);
  module.def("absolute_error", py::vectorize(&absolute_error), py::arg("actual"), py::arg("reference"));
  module.def("relative_error", py::vectorize(&relative_error), py::arg("actual"), py::arg("reference"));
  module.def(
      "ulp_error",
      [](const Array<double>& actual, const Array<double>& reference, const std::optional<OwnFormat>& format) {
        const Format f = format ? format->format : binary32;
        return py::vectorize([f](double a, double r) { return ulp_error(a, r, f); })(actual, reference);
      },
      py::arg("actual"), py::arg("reference"), py::arg("format"));
}

}  // namespace fp8lab::bindings
