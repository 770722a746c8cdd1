// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/linear/linear.hpp"

#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "parallel.hpp"
#include "record.hpp"

namespace fp8lab::bindings {

template <>
struct PythonField<GemmRecipe> {
  using Type = GemmRecipe;
  static constexpr const char* words = "a GemmRecipe";
  static bool is(const py::handle& value) { return py::isinstance<GemmRecipe>(value); }
  static const GemmRecipe& told(const GemmRecipe& field) { return field; }
  static const GemmRecipe& made(const char* /*name*/, const GemmRecipe& value) { return value; }
};
/// A recipe, or the name of the type that is left unquantized: binary32 is called float32.
template <>
struct PythonField<LinearCast> {
  using Type = std::variant<Recipe, std::string>;
  static constexpr const char* words = "a Recipe or a name (str)";
  static bool is(const py::handle& value) { return py::isinstance<Recipe>(value) || py::isinstance<py::str>(value); }
  static Type told(const LinearCast& field) {
    if (const auto* recipe = std::get_if<Recipe>(&field)) return *recipe;
    return format_name(std::get<Format>(field));
  }
  static LinearCast made(const char* /*name*/, const Type& value) {
    if (const auto* recipe = std::get_if<Recipe>(&value)) return *recipe;
    const auto& name = std::get<std::string>(value);
    return name == "float32" ? binary32 : find_format(name).format;
  }
};

namespace {

LinearRecipe linear_recipe(const LinearGemm& fprop, const LinearGemm& dgrad, const LinearGemm& wgrad,
                           const std::string& system) {
  const LinearRecipe recipe{fprop, dgrad, wgrad, find_value<LinearSystem>("system", system)};
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
                        .zero_rule = find_value<ZeroRule>("zero_rule", zero_rule),
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
                        .zero_rule = find_value<ZeroRule>("zero_rule", zero_rule),
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
      .def(py::init([](const py::dict& fields) { return record_of<LinearGemm>(fields); }), py::arg("fields"))
      .def_property_readonly("bias_format", [](const LinearGemm& gemm) { return format_name(bias_format_of(gemm)); })
      .def_property_readonly("fields", &fields_of<LinearGemm>);
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
