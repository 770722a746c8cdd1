// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "fp8lab/formats/text.hpp"
#include "fp8lab/reference/measure/errors.hpp"
#include "fp8lab/reference/measure/histogram.hpp"
#include "fp8lab/reference/measure/outcome.hpp"
#include "from_python.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

using OwnFormat = NamedOrOwnFormat;

/// A power of two's exponent; converting what an int does not hold is undefined.
int binade_of(double exponent) {
  if (exponent >= -1074 && exponent <= 1023 && exponent == std::trunc(exponent)) return static_cast<int>(exponent);
  throw std::invalid_argument("low and high of binade bins must be whole numbers from -1074 to 1023, not " +
                              std::to_string(exponent));
}

Bins bins_of(const std::string& kind, double low, double high, int count, const OwnFormat& format) {
  if (kind == "linear") return LinearBins{low, high, count};
  if (kind == "log") return LogBins{low, high, count};
  if (kind == "binade") return BinadeBins{binade_of(low), binade_of(high)};
  if (kind == "code") return CodeBins{format.format};
  throw std::invalid_argument("unknown bins " + in_quotes(kind) + "; known: linear, log, binade, code");
}

/// Adds values, which are float32 or float64.
template <typename T>
void add_values(Histogram& histogram, const Array<T>& values) {
  const auto all = view(values);
  const py::gil_scoped_release release;
  histogram.add(all);
}

/// The same; the casts of `input` to `format` decide what is counted as underflow or saturation.
void add_cast_values(Histogram& histogram, const Array<double>& values, const Array<float>& input,
                     const OwnFormat& format, const std::string& rounding) {
  const auto all = view(values);
  const auto sources = view(input);
  const Format target = format.format;
  const Rounding mode = find_value<Rounding>("rounding", rounding);
  const py::gil_scoped_release release;
  constexpr std::size_t most = std::size_t{1} << 16;
  std::vector<double> wide(std::min(most, all.size()));
  std::vector<Outcome> outcomes(wide.size());
  for (std::size_t first = 0; first < all.size(); first += most) {
    const std::size_t count = std::min(most, all.size() - first);
    widen(sources.subspan(first, count), std::span(wide).first(count));
    cast_outcome(target, mode, std::span(wide).first(count), std::span(outcomes).first(count));
    histogram.add(all.subspan(first, count), std::span(outcomes).first(count));
  }
}

/// Adds pairs of float32 or of float64.
template <typename T>
void add_pairs(ErrorTotals& totals, const Array<T>& actual, const Array<T>& reference) {
  const auto a = view(actual);
  const auto r = view(reference);
  const py::gil_scoped_release release;
  totals.add(a, r);
}

/// error(actual, reference) of every pair, as an array of their shape; of two numbers as one.
template <typename One, typename All>
py::object errors_of(const Array<double>& actual, const Array<double>& reference, const One& one, const All& all) {
  const auto a = view(actual);
  const auto r = view(reference);
  if (actual.ndim() == 0) return py::float_(one(a[0], r[0]));
  Array<double> out(std::vector<py::ssize_t>(actual.shape(), actual.shape() + actual.ndim()));
  const auto results = mutable_view(out);
  {
    const py::gil_scoped_release release;
    all(a, r, results);
  }
  return out;
}

/// The state from which a Histogram is made again: the arguments of its constructor, and its counts.
py::dict state_of(const Histogram& histogram) {
  using py::literals::operator""_a;
  const auto state = [&](const char* kind, double low, double high, int count, const std::optional<OwnFormat>& format) {
    return py::dict("kind"_a = kind, "low"_a = low, "high"_a = high, "count"_a = count, "format"_a = format,
                    "counts"_a = py::array_t<std::uint64_t>(static_cast<py::ssize_t>(histogram.counts().size()),
                                                            histogram.counts().data()),
                    "zeros"_a = histogram.zeros, "infinities"_a = histogram.infinities, "nans"_a = histogram.nans,
                    "below"_a = histogram.below, "above"_a = histogram.above, "underflows"_a = histogram.underflows,
                    "saturations"_a = histogram.saturations);
  };
  struct State {
    const decltype(state)& of;
    py::dict operator()(const LinearBins& bins) const { return of("linear", bins.low, bins.high, bins.count, {}); }
    py::dict operator()(const LogBins& bins) const { return of("log", bins.low, bins.high, bins.count, {}); }
    py::dict operator()(const BinadeBins& bins) const { return of("binade", bins.lowest, bins.highest, 0, {}); }
    py::dict operator()(const CodeBins& bins) const { return of("code", 0, 0, 0, named_or_own(bins.format)); }
  };
  return std::visit(State{state}, histogram.bins());
}

void restore_histogram(Histogram& histogram, const Array<std::uint64_t>& counts,
                       const std::array<std::uint64_t, 7>& apart) {
  histogram.set_counts(view(counts));
  std::tie(histogram.zeros, histogram.infinities, histogram.nans, histogram.below, histogram.above,
           histogram.underflows, histogram.saturations) = std::tuple_cat(apart);
}

py::dict state_of(const ErrorTotals& totals) {
  using py::literals::operator""_a;
  return py::dict("count"_a = totals.count, "not_finite"_a = totals.not_finite, "sum_error"_a = totals.sum_error,
                  "sum_absolute_error"_a = totals.sum_absolute_error, "sum_squared_error"_a = totals.sum_squared_error,
                  "sum_squared_reference"_a = totals.sum_squared_reference,
                  "max_absolute_error"_a = totals.max_absolute_error,
                  "max_relative_error"_a = totals.max_relative_error);
}

void restore_totals(ErrorTotals& totals, std::uint64_t count, std::uint64_t not_finite,
                    const std::array<double, 6>& sums) {
  totals = {count, not_finite, sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]};
}

py::array copy_of(const auto& vector) { return py::array(static_cast<py::ssize_t>(vector.size()), vector.data()); }

}  // namespace

void bind_measures(py::module_& module) {
  py::class_<Histogram>(module, "Histogram")
      .def(py::init([](const std::string& kind, double low, double high, int count, const OwnFormat& format) {
             return Histogram(bins_of(kind, low, high, count, format));
           }),
           py::arg("kind"), py::arg("low"), py::arg("high"), py::arg("count"), py::arg("format"))
      .def("_add", &add_values<float>, py::arg("values").noconvert())
      .def("_add", &add_values<double>, py::arg("values").noconvert())
      .def("_add_cast", &add_cast_values, py::arg("values").noconvert(), py::arg("input").noconvert(),
           py::arg("format"), py::arg("rounding"))
      .def("_state", py::overload_cast<const Histogram&>(&state_of))
      .def("_restore", &restore_histogram, py::arg("counts").noconvert(), py::arg("apart"))
      .def(
          "__eq__", [](const Histogram& a, const Histogram& b) { return a == b; }, py::is_operator())
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
      .def(
          "to_frame",
          [](const py::object& self) {
            return py::module_::import("fp8lab._frames").attr("counts_frame")(self.attr("edges"), self.attr("counts"));
          },
          "A pandas DataFrame, or a polars one, with a row for each bin: low, high, count.")
      .def(
          "plot",
          [](const py::object& self, const py::object& axes) {
            return py::module_::import("fp8lab._frames").attr("plot_histogram")(self, axes);
          },
          py::arg("axes") = py::none(), "Draw the bins by matplotlib, on its axes or new ones, which are returned.")
      .def("_repr_html_", &html_by_python)
      .def("__repr__", [](const Histogram& h) {
        return "<fp8lab.Histogram of " + std::to_string(h.total()) + " values in " + std::to_string(h.counts().size()) +
               " bins>";
      });
  py::class_<ErrorTotals>(module, "ErrorTotals")
      .def(py::init<>())
      .def("_add", &add_pairs<float>, py::arg("actual").noconvert(), py::arg("reference").noconvert())
      .def("_add", &add_pairs<double>, py::arg("actual").noconvert(), py::arg("reference").noconvert())
      .def("_state", py::overload_cast<const ErrorTotals&>(&state_of))
      .def("_restore", &restore_totals, py::arg("count"), py::arg("not_finite"), py::arg("sums"))
      .def(
          "__eq__", [](const ErrorTotals& a, const ErrorTotals& b) { return a == b; }, py::is_operator())
      .def("merge", &ErrorTotals::merge, py::arg("other"), "Add another set of totals.")
      .def_readonly("count", &ErrorTotals::count)
      .def_readonly("not_finite", &ErrorTotals::not_finite)
      .def_readonly("max_absolute_error", &ErrorTotals::max_absolute_error)
      .def_readonly("max_relative_error", &ErrorTotals::max_relative_error)
      .def_property_readonly("mean_error", &ErrorTotals::mean_error)
      .def_property_readonly("mean_absolute_error", &ErrorTotals::mean_absolute_error)
      .def_property_readonly("rms_error", &ErrorTotals::rms_error)
      .def_property_readonly("sqnr_db", &ErrorTotals::sqnr_db)
      .def("_repr_html_", &html_by_python)
      .def("__repr__", [](const ErrorTotals& totals) {
        std::string text = "<fp8lab.ErrorTotals of " + std::to_string(totals.count) + " pairs, and " +
                           std::to_string(totals.not_finite) + " not finite";
        if (totals.count != 0) {
          text += py::str(": SQNR {:.4f} dB").format(totals.sqnr_db()).cast<std::string>();
        }
        return text + ">";
      });
  using Doubles = std::span<const double>;
  module.def(
      "absolute_error",
      [](const Array<double>& actual, const Array<double>& reference) {
        return errors_of(
            actual, reference, [](double a, double r) { return absolute_error(a, r); },
            [](Doubles a, Doubles r, std::span<double> out) { absolute_error(a, r, out); });
      },
      py::arg("actual").noconvert(), py::arg("reference").noconvert());
  module.def(
      "relative_error",
      [](const Array<double>& actual, const Array<double>& reference) {
        return errors_of(
            actual, reference, [](double a, double r) { return relative_error(a, r); },
            [](Doubles a, Doubles r, std::span<double> out) { relative_error(a, r, out); });
      },
      py::arg("actual").noconvert(), py::arg("reference").noconvert());
  module.def(
      "ulp_error",
      [](const Array<double>& actual, const Array<double>& reference, const std::optional<OwnFormat>& format) {
        const Format f = format ? format->format : binary32;
        return errors_of(
            actual, reference, [f](double a, double r) { return ulp_error(a, r, f); },
            [f](Doubles a, Doubles r, std::span<double> out) { ulp_error(a, r, f, out); });
      },
      py::arg("actual").noconvert(), py::arg("reference").noconvert(), py::arg("format"));
  using Bounds = std::pair<double, double>;
  module.def(
      "cast_bounds",
      [](const OwnFormat& format, const std::string& rounding) {
        const CastBounds bounds = cast_bounds(format.format, find_value<Rounding>("rounding", rounding));
        return std::pair(Bounds(bounds.positive.underflow, bounds.positive.saturated),
                         Bounds(bounds.negative.underflow, bounds.negative.saturated));
      },
      py::arg("format"), py::arg("rounding"));
  module.def(
      "count_outcomes",
      [](const Bounds& positive, const Bounds& negative, const Array<double>& x, const Array<double>& scaled,
         const Array<double>& result, bool finite) {
        const CastBounds bounds{{positive.first, positive.second}, {negative.first, negative.second}};
        const std::array all{view(x), view(scaled), view(result)};
        OutcomeCounts counts;
        {
          const py::gil_scoped_release release;
          count_outcomes(bounds, all[0], all[1], all[2], finite ? ScaledRange::finite : ScaledRange::all, counts);
        }
        return std::tuple(counts.zeros, counts.infinities, counts.nans, counts.underflows, counts.saturated);
      },
      py::arg("positive"), py::arg("negative"), py::arg("x").noconvert(), py::arg("scaled").noconvert(),
      py::arg("result").noconvert(), py::arg("finite"));
}

}  // namespace fp8lab::bindings
