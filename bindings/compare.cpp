// SPDX-License-Identifier: Apache-2.0
// Makes a Quantized of the arrays that a foreign kernel wrote, and compares two arrays that should be equal.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/doctor/compare.hpp"
#include "fp8lab/doctor/shared_kinds.hpp"
#include "fp8lab/reference/scaling/kernel_arrays.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

using doctor::Comparison;

/// `codes` has the shape in which they are stored.
Quantized quantized_of_arrays(const Array<std::uint8_t>& codes, const Array<float>& scale_inv,
                              const Array<std::uint8_t>& scale_codes, const Recipe& recipe,
                              const std::string& direction, std::optional<bool> transposed, const std::string& layout,
                              std::optional<float> amax, std::optional<float> tensor_scale,
                              std::optional<float> tensor_scale_inv, const Array<float>& row_amaxes,
                              bool allow_special_scales) {
  KernelArrays arrays{.direction = find_value<Direction>("direction", direction), .transposed = transposed};
  const bool pairs = recipe.format.bits() == 4;
  const bool turned =
      arrays.direction == Direction::columnwise && transposed.value_or(recipe.transposed_columnwise || pairs);
  arrays.rows = static_cast<std::size_t>(codes.shape(0));
  arrays.columns = static_cast<std::size_t>(codes.shape(1)) * (pairs ? 2 : 1);
  if (turned) std::swap(arrays.rows, arrays.columns);
  arrays.codes = view(codes);
  arrays.scale_inv = view(scale_inv);
  arrays.scale_codes = view(scale_codes);
  arrays.layout = find_value<StoredScales>("scale_layout", layout);
  arrays.amax = amax;
  arrays.tensor_scale = tensor_scale;
  arrays.tensor_scale_inv = tensor_scale_inv;
  arrays.row_amaxes = view(row_amaxes);
  arrays.allow_special_scales = allow_special_scales;
  const py::gil_scoped_release release;
  return quantized_from(arrays, recipe);
}

py::array_t<std::uint64_t> array_of(const std::vector<std::uint64_t>& values) {
  return py::array_t<std::uint64_t>(static_cast<py::ssize_t>(values.size()), values.data());
}

/// Elements are of `format`, or of the float type called `name`.
doctor::ElementType element_type(const std::optional<NamedOrOwnFormat>& format, const std::string& name, bool pairs) {
  if (format) return {format->format, pairs};
  if (name == "float32") return {binary32};
  if (name == "float64") return {binary64};
  return {find_format(name).format};
}

py::list distances_of(const doctor::Distances& distances) {
  py::list all;
  for (std::size_t i = 0; i < distances.below.size(); ++i) {
    if (distances.below[i] + distances.above[i] == 0) continue;
    all.append(py::make_tuple(doctor::Distances::first_of(i), doctor::Distances::last_of(i), distances.below[i],
                              distances.above[i]));
  }
  return all;
}

py::list first_of(const Comparison& found) {
  py::list all;
  for (const doctor::Mismatch& one : found.first) {
    all.append(py::make_tuple(one.index, one.a, one.b, value_of(found.type, one.a), value_of(found.type, one.b)));
  }
  return all;
}

py::dict compared(const Array<std::uint8_t>& a, const Array<std::uint8_t>& b,
                  const std::optional<NamedOrOwnFormat>& format, const std::string& name, bool pairs,
                  std::uint64_t columns, std::size_t shown, int threads, const Array<double>& input) {
  const doctor::ElementType type = element_type(format, name, pairs);
  const auto bytes_a = std::as_bytes(view(a));
  const auto bytes_b = std::as_bytes(view(b));
  const Comparison found = [&] {
    const py::gil_scoped_release release;
    return compare(type, bytes_a, bytes_b, {.columns = columns, .most_shown = shown, .threads = threads});
  }();
  std::vector<std::string> sentences = findings(found);
  if (!found.equal()) {
    const py::gil_scoped_release release;
    doctor::SharedKinds kinds(type);
    kinds.add(bytes_a, bytes_b, view(input));
    for (std::string& sentence : kinds.findings()) sentences.push_back(std::move(sentence));
  }
  py::dict all;
  all["bits"] = type.format.bits();
  all["elements"] = found.elements;
  all["differing"] = found.differing;
  all["zero_signs"] = found.zero_signs;
  all["nan_words"] = found.nan_words;
  all["nan_in_a"] = found.nan_in_a;
  all["nan_in_b"] = found.nan_in_b;
  all["numbers"] = found.numbers;
  all["opposite_signs"] = found.opposite_signs;
  all["opposite_values"] = found.opposite_values;
  all["became_zero"] = found.became_zero;
  all["was_zero"] = found.was_zero;
  all["largest_distance"] = found.distances.largest;
  all["distances"] = distances_of(found.distances);
  all["rows"] = array_of(found.rows.counts);
  all["columns"] = array_of(found.columns.counts);
  all["findings"] = sentences;
  all["first"] = first_of(found);
  return all;
}

}  // namespace

void bind_compare(py::module_& module) {
  module.def("quantized_from", &quantized_of_arrays, py::arg("codes").noconvert(), py::arg("scale_inv").noconvert(),
             py::arg("scale_codes").noconvert(), py::arg("recipe"), py::arg("direction"), py::arg("transposed"),
             py::arg("layout"), py::arg("amax"), py::arg("tensor_scale"), py::arg("tensor_scale_inv"),
             py::arg("row_amaxes").noconvert(), py::arg("allow_special_scales"));
  module.def("compare", &compared, py::arg("a").noconvert(), py::arg("b").noconvert(), py::arg("format"),
             py::arg("name"), py::arg("pairs"), py::arg("columns"), py::arg("shown"), py::arg("threads"),
             py::arg("input").noconvert());
}

}  // namespace fp8lab::bindings
