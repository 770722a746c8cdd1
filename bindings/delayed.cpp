// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <stdexcept>

#include "fp8lab/reference/scaling/delayed_scaling.hpp"
#include "history.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

/// In place of a function, which Python calls itself: a history that had one would be part of cycles which Python's
/// garbage collector does not see.
std::variant<float, AmaxRow> called_by_python(std::span<const float> /*amaxes*/) {
  throw std::logic_error("the function for the amax is Python's to call");
}

Delayed recipe_of(int margin, int interval, const std::string& fp8_format, std::size_t amax_history_len,
                  const std::optional<std::string>& amax_compute_algo, bool reduce_amax,
                  const std::array<bool, 3>& override_linear_precision, const std::string& version) {
  Delayed recipe;
  recipe.margin = margin;
  recipe.interval = interval;
  recipe.fp8_format = find_fp8_format(fp8_format);
  recipe.amax_history_len = amax_history_len;
  if (amax_compute_algo) {
    recipe.amax_compute_algo = find_amax_compute_algo(*amax_compute_algo);
  } else {
    recipe.amax_compute_algo = called_by_python;
  }
  recipe.reduce_amax = reduce_amax;
  const auto& [fprop, dgrad, wgrad] = override_linear_precision;
  recipe.override_linear_precision = {fprop, dgrad, wgrad};
  recipe.version = find_delayed_version(version);
  check(recipe);
  return recipe;
}

/// What the recipe's function returned: the row that the amax is in, or the amax.
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
  py::class_<Delayed>(module, "DelayedRecipe")
      .def(py::init(&recipe_of), py::arg("margin"), py::arg("interval"), py::arg("fp8_format"),
           py::arg("amax_history_len"), py::arg("amax_compute_algo"), py::arg("reduce_amax"),
           py::arg("override_linear_precision"), py::arg("version"))
      .def("describe", [](const Delayed& recipe) { return describe(recipe); });
  bind_history(module);
  module.def(
      "reduced_amax", [](const Array<float>& of_ranks) { return reduced_amax(view(of_ranks)); },
      py::arg("of_ranks").noconvert());
}

}  // namespace fp8lab::bindings
