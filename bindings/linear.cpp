// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/linear/linear.hpp"

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "parallel.hpp"

namespace fp8lab::bindings {
namespace {

/// The format of that name; binary32 is called float32.
Format high_precision_of(const std::string& name) { return name == "float32" ? binary32 : find_format(name).format; }

/// A Recipe, or the name of the type that is left unquantized.
LinearCast linear_cast_of(const py::object& cast) {
  if (py::isinstance<Recipe>(cast)) return cast.cast<Recipe>();
  return high_precision_of(cast.cast<std::string>());
}
py::object object_of_cast(const LinearCast& cast) {
  if (const auto* recipe = std::get_if<Recipe>(&cast)) return py::cast(*recipe);
  return py::cast(format_name(std::get<Format>(cast)));
}

LinearGemm linear_gemm(const GemmRecipe& recipe, const py::object& a, const py::object& b) {
  return {.recipe = recipe, .a = linear_cast_of(a), .b = linear_cast_of(b)};
}

py::dict fields_of_gemm(const LinearGemm& gemm) {
  py::dict fields;
  fields["recipe"] = gemm.recipe;
  fields["a"] = object_of_cast(gemm.a);
  fields["b"] = object_of_cast(gemm.b);
  return fields;
}

LinearRecipe linear_recipe(const LinearGemm& fprop, const LinearGemm& dgrad, const LinearGemm& wgrad,
                           const std::string& system) {
  const LinearRecipe recipe{fprop, dgrad, wgrad, find_linear_system(system)};
  check_linear_recipe(recipe);
  return recipe;
}

/// A Quantized, or an array of two dimensions and the name of its source type.
LinearInput input_of(const py::object& input) {
  if (py::isinstance<Quantized>(input)) return std::cref(input.cast<const Quantized&>());
  const auto pair = input.cast<py::tuple>();
  return matrix_of(pair[0].cast<py::array>(), pair[1].cast<std::string>());
}

/// Runs a pass into an array of float32, or of 16-bit codes.
template <typename Value>
void linear_pass(const std::string& name, const LinearRecipe& recipe, const py::object& a, const py::object& b,
                 Array<Value> out, const Array<float>& bias, bool accumulate,
                 const std::optional<Array<std::uint8_t>>& random_bits, const std::string& zero_rule, int threads,
                 bool check_shapes, const ParallelFields& parallel) {
  const LinearInput left = input_of(a);
  const LinearInput right = input_of(b);
  LinearOptions options{.bias = view(bias),
                        .accumulate = accumulate,
                        .zero_rule = find_zero_rule(zero_rule),
                        .threads = threads,
                        .parallel = parallel_of(parallel),
                        .check_shapes = check_shapes};
  if (random_bits) options.random = RandomSource{view(*random_bits), 8};
  const auto results = mutable_view(out);
  const py::gil_scoped_release release;
  if (name == "fprop") return linear(recipe, left, right, results, options);
  if (name == "dgrad") return linear_dgrad(recipe, left, right, results, options);
  linear_wgrad(recipe, left, right, results, options);
}

/// The same of fprop or dgrad into a Quantized.
Quantized linear_pass_fp8(const std::string& name, const LinearRecipe& recipe, const py::object& a, const py::object& b,
                          const Array<float>& bias, const std::optional<Array<std::uint8_t>>& random_bits,
                          const std::string& zero_rule, int threads, bool check_shapes, float output_scale) {
  const LinearInput left = input_of(a);
  const LinearInput right = input_of(b);
  LinearOptions options{.bias = view(bias),
                        .zero_rule = find_zero_rule(zero_rule),
                        .threads = threads,
                        .output_scale = output_scale,
                        .check_shapes = check_shapes};
  if (random_bits) options.random = RandomSource{view(*random_bits), 8};
  Quantized out;
  const py::gil_scoped_release release;
  if (name == "fprop") {
    linear(recipe, left, right, out, options);
  } else {
    linear_dgrad(recipe, left, right, out, options);
  }
  return out;
}

template <typename Value>
void bind_pass(py::module_& module) {
  module.def("linear_pass", &linear_pass<Value>, py::arg("name"), py::arg("recipe"), py::arg("a"), py::arg("b"),
             py::arg("out").noconvert(), py::arg("bias").noconvert(), py::arg("accumulate"), py::arg("random_bits"),
             py::arg("zero_rule"), py::arg("threads"), py::arg("check_shapes"), py::arg("parallel"));
}

}  // namespace

void bind_linear(py::module_& module) {
  py::class_<LinearGemm>(module, "LinearGemm")
      .def(py::init(&linear_gemm), py::arg("recipe"), py::arg("a"), py::arg("b"))
      .def_property_readonly("bias_format", [](const LinearGemm& gemm) { return format_name(bias_format_of(gemm)); })
      .def_property_readonly("fields", &fields_of_gemm);
  py::class_<LinearRecipe>(module, "LinearRecipe")
      .def(py::init(&linear_recipe), py::arg("fprop"), py::arg("dgrad"), py::arg("wgrad"), py::arg("system"))
      .def_readonly("fprop", &LinearRecipe::fprop)
      .def_readonly("dgrad", &LinearRecipe::dgrad)
      .def_readonly("wgrad", &LinearRecipe::wgrad)
      .def_property_readonly("system", [](const LinearRecipe& recipe) { return std::string(name_of(recipe.system)); })
      .def_property_readonly("description", [](const LinearRecipe& recipe) { return describe(recipe); });
  module.def(
      "override_linear_precision",
      [](const LinearRecipe& recipe, bool fprop, bool dgrad, bool wgrad, const LinearRecipe& other) {
        return override_linear_precision(recipe, {fprop, dgrad, wgrad}, other);
      },
      py::arg("recipe"), py::arg("fprop"), py::arg("dgrad"), py::arg("wgrad"), py::arg("other"));
  module.def("linear_recipes", [] {
    std::vector<std::tuple<std::string, LinearRecipe, std::string>> all;
    for (const NamedLinearRecipe& one : linear_recipes()) all.emplace_back(one.name, one.recipe, one.source);
    return all;
  });
  module.def("find_linear_recipe", [](const std::string& name) { return std::string(find_linear_recipe(name).name); });
  module.def("linear_pass_fp8", &linear_pass_fp8, py::arg("name"), py::arg("recipe"), py::arg("a"), py::arg("b"),
             py::arg("bias").noconvert(), py::arg("random_bits"), py::arg("zero_rule"), py::arg("threads"),
             py::arg("check_shapes"), py::arg("output_scale"));
  bind_pass<float>(module);
  bind_pass<std::uint16_t>(module);
}

}  // namespace fp8lab::bindings
