// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <stdexcept>
#include <tuple>

#include "fp8lab/reference/scaling/delayed_scaling.hpp"
#include "history.hpp"
#include "record.hpp"

namespace fp8lab::bindings {

template <>
struct PythonField<LinearPrecision> {
  using Type = std::tuple<bool, bool, bool>;
  static constexpr const char* type = "tuple[bool, bool, bool]";
  static constexpr const char* words = "three bools, (fprop, dgrad, wgrad)";
  static bool is(const py::handle& value) { return py::isinstance<py::tuple>(value); }
  static Type told(const LinearPrecision& field) { return {field.fprop, field.dgrad, field.wgrad}; }
  static LinearPrecision made(const char* /*name*/, const Type& value) {
    return std::make_from_tuple<LinearPrecision>(value);
  }
  static std::string text(const LinearPrecision& /*field*/) { return "(False, False, False)"; }
};
template <>
struct PythonField<DelayedVersion> {
  using Type = std::string;
  static constexpr const char* type = "str";
  static constexpr const char* words = "a name (str)";
  static bool is(const py::handle& value) { return py::isinstance<py::str>(value); }
  static std::string told(const DelayedVersion& field) { return std::string(field.name); }
  static DelayedVersion made(const char* /*name*/, const std::string& value) { return find_delayed_version(value); }
  static std::string text(const DelayedVersion& field) { return "'" + told(field) + "'"; }
};
/// None is a function, which Python calls itself: a history that had one would be part of cycles which Python's garbage
/// collector does not see.
template <>
struct PythonField<decltype(Delayed::amax_compute_algo)> {
  using Field = decltype(Delayed::amax_compute_algo);
  using Type = std::optional<std::string>;
  static constexpr const char* type = "str | None";
  static constexpr const char* words = "a name (str) or None";
  static bool is(const py::handle& value) { return value.is_none() || py::isinstance<py::str>(value); }
  static Type told(const Field& field) {
    const auto* algo = std::get_if<AmaxComputeAlgo>(&field);
    return algo == nullptr ? std::nullopt : Type(name_of(*algo));
  }
  static Field made(const char* name, const Type& value) {
    if (value) return find_value<AmaxComputeAlgo>(name, *value);
    return [](std::span<const float> /*amaxes*/) -> std::variant<float, AmaxRow> {
      throw std::logic_error("the function for the amax is Python's to call");
    };
  }
  static std::string text(const Field& field) { return "'" + told(field).value_or("") + "'"; }
};

namespace {

/// The result of the recipe's function for the amax: the row that the amax is in, or the amax.
using ChosenAmax = std::variant<std::size_t, float>;

/// The end of a step, with what the recipe's function returned where it has one.
void update_with(OwnedHistory& history, const std::optional<ChosenAmax>& chosen) {
  if (!chosen) return update_scale(history.recipe, history.pass, history.state);
  Delayed recipe = history.recipe;
  recipe.amax_compute_algo = [&](std::span<const float> /*amaxes*/) -> std::variant<float, AmaxRow> {
    if (const auto* row = std::get_if<std::size_t>(&*chosen)) return AmaxRow{*row};
    return std::get<float>(*chosen);
  };
  update_scale(recipe, history.pass, history.state);
}

void bind_history(py::module_& module) {
  py::class_<OwnedHistory>(module, "AmaxHistory")
      .def(py::init([](const Delayed& recipe, bool backward) {
             return OwnedHistory{recipe, backward ? Pass::backward : Pass::forward, start_history(recipe)};
           }),
           py::arg("recipe"), py::arg("backward"))
      .def(py::init<const OwnedHistory&>(), py::arg("other"))
      .def(
          "record_amax", [](OwnedHistory& h, float amax) { record_amax(h.recipe, h.pass, h.state, amax); },
          py::arg("amax"))
      .def("update_scale", &update_with, py::arg("chosen"))
      .def(
          "resize_history",
          [](OwnedHistory& h, std::size_t length) {
            resize_history(h.state, length);
            h.recipe.amax_history_len = length;
          },
          py::arg("amax_history_len"))
      .def_property(
          "amaxes",
          [](const OwnedHistory& h) {
            return py::array_t<float>(static_cast<py::ssize_t>(h.state.amaxes.size()), h.state.amaxes.data());
          },
          [](OwnedHistory& h, const Array<float>& amaxes) {
            const auto values = view(amaxes);
            h.state.amaxes.assign(values.begin(), values.end());
          })
      .def_property(
          "scale", [](const OwnedHistory& h) { return h.state.scale; },
          [](OwnedHistory& h, float scale) { h.state.scale = scale; })
      .def_property(
          "scale_inv", [](const OwnedHistory& h) { return h.state.scale_inv; },
          [](OwnedHistory& h, float scale_inv) { h.state.scale_inv = scale_inv; })
      .def_property(
          "position", [](const OwnedHistory& h) { return h.state.position; },
          [](OwnedHistory& h, std::uint64_t position) { h.state.position = position; });
}

}  // namespace

void bind_delayed(py::module_& module) {
  py::class_<DelayedVersion>(module, "DelayedVersion")
      .def_property_readonly("name", [](const DelayedVersion& v) { return std::string(v.name); })
      .def_property_readonly("description", [](const DelayedVersion& v) { return std::string(v.description); })
      .def_property_readonly("source", [](const DelayedVersion& v) { return std::string(v.source); })
      .def("__str__",
           [](const DelayedVersion& v) {
             return std::string(v.name) + ": " + std::string(v.description) + " [" + std::string(v.source) + "]";
           })
      .def(
          "__eq__", [](const DelayedVersion& v, const DelayedVersion& w) { return v.name == w.name; },
          py::is_operator())
      .def("__hash__", [](const DelayedVersion& v) { return py::hash(py::str(std::string(v.name))); })
      .def("__repr__", [](const DelayedVersion& v) { return "<fp8lab.DelayedVersion " + std::string(v.name) + ">"; });
  module.def("delayed_versions",
             [] { return std::vector<DelayedVersion>(delayed_versions.begin(), delayed_versions.end()); });
  py::class_<Delayed> recipe(module, "DelayedRecipe");
  {
    py::options options;
    options.disable_function_signatures();
    recipe.def(py::init([](const py::kwargs& fields) {
                 Delayed made = record_of<Delayed>(fields);
                 check(made);
                 return made;
               }),
               signature_of<Delayed>("DelayedRecipe").c_str());
  }
  bind_record<Delayed>(recipe);
  recipe.def("describe", [](const Delayed& one) { return describe(one); });
  bind_history(module);
  module.def(
      "reduced_amax", [](const Array<float>& of_ranks) { return reduced_amax(view(of_ranks)); },
      py::arg("of_ranks").noconvert());
}

}  // namespace fp8lab::bindings
