// SPDX-License-Identifier: Apache-2.0
// A recipe's record in Python: a dict of its fields by name.
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/scaling/recipe_names.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "record.hpp"

namespace fp8lab::bindings {
namespace {

using OwnFormat = NamedOrOwnFormat;

Recipe recipe_of(const py::dict& fields) {
  const Recipe recipe = record_of<Recipe>(fields);
  check_recipe(recipe);
  return recipe;
}

Recipe checked(const Recipe& recipe) {
  check_recipe(recipe);
  return recipe;
}

void bind_constructors(py::module_& module) {
  module.def(
      "given_scale", [](const OwnFormat& format, float scale) { return checked(GivenScale{format.format, scale}); },
      py::arg("format"), py::arg("scale"));
  module.def(
      "just_in_time",
      [](const OwnFormat& format, const std::string& rule, const std::string& axis, float amax_epsilon,
         std::optional<bool> power) {
        return checked(JustInTime{format.format, find_value<JustInTimeRule>("rule", rule),
                                  find_value<Axis>("axis", axis), amax_epsilon, power});
      },
      py::arg("format"), py::arg("rule"), py::arg("axis"), py::arg("amax_epsilon"), py::arg("force_pow_2_scales"));
  module.def(
      "mx_block",
      [](const OwnFormat& format, const std::string& rule, bool two_d, const std::optional<std::string>& nan, bool drop,
         const std::string& edges) {
        MxBlock one{.format = format.format,
                    .rule = find_value<MxRule>("rule", rule),
                    .enable_2d_quantization = two_d,
                    .drop_negative_zero = drop,
                    .edges = find_value<E8m0Edges>("edges", edges)};
        if (nan) one.nan = find_value<NanInAmax>("nan", *nan);
        return checked(one);
      },
      py::arg("format"), py::arg("rule"), py::arg("enable_2d_quantization"), py::arg("nan"),
      py::arg("drop_negative_zero"), py::arg("edges"));
  module.def(
      "block",
      [](const OwnFormat& format, const std::string& rule, std::size_t rows, std::size_t columns, float amax_epsilon,
         std::optional<bool> power) {
        return checked(Block{format.format, find_value<BlockRule>("rule", rule), rows, columns, amax_epsilon, power});
      },
      py::arg("format"), py::arg("rule"), py::arg("rows"), py::arg("columns"), py::arg("amax_epsilon"),
      py::arg("force_pow_2_scales"));
  module.def(
      "nvfp4",
      [](bool two_d, bool stochastic, bool rht, bool round_rht, const std::string& nan) {
        return checked(NvFp4{two_d, stochastic, rht, round_rht, find_value<NanInAmax>("nan", nan)});
      },
      py::arg("with_2d_quantization"), py::arg("stochastic_rounding"), py::arg("with_rht"), py::arg("round_rht"),
      py::arg("nan"));
}

}  // namespace

void bind_recipes(py::module_& module) {
  py::class_<Recipe>(module, "Recipe")
      .def(py::init(&recipe_of), py::arg("fields"))
      .def_property_readonly("description", [](const Recipe& recipe) { return describe(recipe); })
      .def_property_readonly("scale_format", [](const Recipe& recipe) { return format_name(scale_format_of(recipe)); })
      .def("tile_shape",
           [](const Recipe& recipe, const std::string& direction, std::size_t rows, std::size_t columns) {
             const TileShape tile = tile_shape(recipe, find_value<Direction>("direction", direction), rows, columns);
             return std::pair(tile.rows, tile.columns);
           })
      .def("tile_scale",
           [](const Recipe& recipe, float amax, float tensor_amax, const std::optional<OwnFormat>& input_type) {
             const Format type = input_type ? input_type->format : binary32;
             const TileScale scale = tile_scale(recipe, amax, {.amax = tensor_amax, .input_type = type});
             return std::tuple(scale.factor, scale.scale_inv, scale.code);
           })
      .def_property_readonly("fields", &fields_of<Recipe>);
  bind_constructors(module);
  module.def("recipe_choices", &choices_of<Recipe>);
  module.def("recipes", [] {
    std::vector<std::tuple<std::string, Recipe, std::string>> all;
    for (const NamedRecipe& one : recipes()) all.emplace_back(one.name, one.recipe, one.source);
    return all;
  });
  module.def("find_recipe", [](const std::string& name) { return std::string(find_recipe(name).name); });
}

}  // namespace fp8lab::bindings
