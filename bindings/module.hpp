// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <span>
#include <stdexcept>
#include <string>

#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/formats/unpack.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"
#include "fp8lab/reference/tensor_core/mma.hpp"

// The extension module fp8lab._core. The package's Python files turn what users pass into contiguous NumPy arrays of
// known types, name wrong arguments, and carry the documentation; here arrays become spans and the GIL is released.

namespace fp8lab::bindings {

namespace py = pybind11;

/// C-contiguous arrays only: a copy here would hide what the package promises not to do.
template <typename T>
using Array = py::array_t<T, py::array::c_style>;

template <typename T>
std::span<const T> view(const Array<T>& array) {
  return {array.data(), static_cast<std::size_t>(array.size())};
}
template <typename T>
std::span<T> mutable_view(Array<T>& array) {
  return {array.mutable_data(), static_cast<std::size_t>(array.size())};
}

/// An array of 16-bit words as halves or bfloat16s, which have the same layout.
template <typename T>
std::span<const T> view_as(const Array<std::uint16_t>& array) {
  static_assert(sizeof(T) == sizeof(std::uint16_t));
  return {reinterpret_cast<const T*>(array.data()), static_cast<std::size_t>(array.size())};
}
template <typename T>
std::span<T> mutable_view_as(Array<std::uint16_t>& array) {
  static_assert(sizeof(T) == sizeof(std::uint16_t));
  return {reinterpret_cast<T*>(array.mutable_data()), static_cast<std::size_t>(array.size())};
}

/// A format or a profile as Python knows it: one of the named ones, or one that the user made up.
struct NamedOrOwnFormat {
  std::string name;
  std::string description;
  Format format;
};
struct NamedOrOwnProfile {
  std::string name;
  std::string source;
  CastPolicy policy;
};

/// A format or a policy with its name and description or source, where it has one.
NamedOrOwnFormat named_or_own(const Format& format);
NamedOrOwnProfile named_or_own(const CastPolicy& policy);

/// The elements of an array that Python's files have made C-contiguous, of a type of that size. To ask NumPy for its
/// type again takes a tenth of a small call.
template <typename T>
std::span<const T> elements_of(const py::array& array) {
  if (array.itemsize() != sizeof(T)) throw std::invalid_argument("an array has elements of another size");
  if ((array.flags() & py::array::c_style) == 0) throw std::invalid_argument("an array is not C-contiguous");
  return {static_cast<const T*>(array.data()), static_cast<std::size_t>(array.size())};
}
template <typename T>
std::span<T> mutable_elements_of(py::array& array) {
  const auto elements = elements_of<T>(array);
  return {static_cast<T*>(array.mutable_data()), elements.size()};
}

/// Calls run(span) for an array of `source` elements: 16-bit words may be halves or bfloat16s.
template <typename Run>
void with_source(const py::array& x, const std::string& source, const Run& run) {
  if (source == "float32") return run(elements_of<float>(x));
  if (source == "float64") return run(elements_of<double>(x));
  if (source == "float16") return run(elements_of<Half>(x));
  run(elements_of<BFloat16>(x));
}

/// A view of a C-contiguous array of two dimensions, which must outlive it.
MatrixView matrix_of(const py::array& x, const std::string& source);

void bind_casts(py::module_& module);
void bind_random(py::module_& module);
void bind_delayed(py::module_& module);
void bind_diagnose(py::module_& module);
void bind_distributions(py::module_& module);
void bind_gpu(py::module_& module);
void bind_gpu_kernels(py::module_& module);
void bind_gpu_gemm(py::module_& module);
void bind_linear(py::module_& module);
void bind_models(py::module_& module);
void bind_operators(py::module_& module);
void bind_parallel(py::module_& module);
void bind_compare(py::module_& module);
void bind_gemm_doctor(py::module_& module);
void bind_gemm_recipes(py::module_& module);
void bind_fp8_state(py::module_& module);
void bind_products(py::module_& module);
void bind_measures(py::module_& module);
void bind_recipes(py::module_& module);
void bind_scaling(py::module_& module);
void bind_experiments(py::module_& module);

}  // namespace fp8lab::bindings
