// SPDX-License-Identifier: Apache-2.0
// A GEMM recipe's record in Python: a dict of its fields by name.
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/gemm/gemm_activation.hpp"
#include "fp8lab/reference/gemm/named_gemm_recipes.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "record.hpp"

namespace fp8lab::bindings {
namespace {

GemmRecipe gemm_recipe_of(const py::dict& fields) {
  const GemmRecipe recipe = record_of<GemmRecipe>(fields);
  check_gemm_recipe(recipe);
  return recipe;
}

GemmCall gemm_call(const Array<float>& c, const Array<float>& bias, const Array<float>& activation_input,
                   Array<float> bias_gradient, float scale_out, int threads) {
  return {.c = view(c),
          .bias = view(bias),
          .activation_input = view(activation_input),
          .bias_gradient = mutable_view(bias_gradient),
          .scale_out = scale_out,
          .threads = threads};
}

/// Multiplies operands or quantized matrices: `Side` is Operand or Quantized, `Value` what the recipe's output is.
template <typename Side, typename Value>
void gemm_array(const GemmRecipe& recipe, const Side& left, const Side& right, Array<Value> out, const GemmCall& call) {
  const auto results = mutable_view(out);
  const py::gil_scoped_release release;
  gemm(recipe, left, right, results, call);
}
template <typename Side, typename Value>
void bind_gemm(py::module_& module) {
  module.def("gemm", &gemm_array<Side, Value>, py::arg("recipe"), py::arg("a"), py::arg("b"),
             py::arg("out").noconvert(), py::arg("call"));
}

/// Whether an array is a matrix of bytes that can be read in place.
bool is_matrix_of_bytes(const py::array& x) {
  constexpr int in_place = py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_ | py::detail::npy_api::NPY_ARRAY_ALIGNED_;
  return x.ndim() == 2 && x.size() != 0 && (x.flags() & in_place) == in_place &&
         x.dtype().num() == py::dtype::num_of<std::uint8_t>();
}

/// A product of E4M3 codes without scales that takes microseconds, to float32: it would take longer to make operands in
/// Python. None where a or b are anything else, or large; `layout` as gemm() in Python has it.
py::object small_gemm(const GemmRecipe& recipe, const py::array& a, const py::array& b, const std::string& layout) {
  constexpr std::size_t most_products = std::size_t{1} << 18;  // from there on, more threads than one are faster
  if (!is_matrix_of_bytes(a) || !is_matrix_of_bytes(b)) return py::none();
  const auto operand = [](const py::array& codes, bool transposed) {
    const auto high = static_cast<std::size_t>(codes.shape(0));
    const auto wide = static_cast<std::size_t>(codes.shape(1));
    Operand made = Operand::floats({}, transposed ? wide : high, transposed ? high : wide);
    made.elements = elements_of<std::uint8_t>(codes);
    made.format = e4m3;
    made.transposed = transposed;
    return made;
  };
  const Operand left = operand(a, layout.front() == 't');
  const Operand right = operand(b, layout.back() == 'n');
  if (left.rows * right.rows * left.depth >= most_products) return py::none();
  Array<float> out({left.rows, right.rows});
  GemmCall call;
  call.threads = 1;
  gemm_array(recipe, left, right, out, call);
  return std::move(out);
}

}  // namespace

void bind_gemm_recipes(py::module_& module) {
  py::class_<GemmRecipe>(module, "GemmRecipe")
      .def(py::init(&gemm_recipe_of), py::arg("fields"))
      .def_property_readonly("description", [](const GemmRecipe& recipe) { return describe(recipe); })
      .def_property_readonly("fields", &fields_of<GemmRecipe>)
      .def_property_readonly("has_bias_gradient",
                             [](const GemmRecipe& recipe) { return recipe.bias_gradient != BiasGradient::none; })
      .def("slow_because", &slow_because, py::arg("a"), py::arg("b"));
  module.def("gemm_recipe_choices", &choices_of<GemmRecipe>);
  module.def("wide_formats", [] { return std::vector{named_or_own(binary32), named_or_own(binary64)}; });
  module.def("gemm_recipes", [] {
    std::vector<std::tuple<std::string, GemmRecipe, std::string>> all;
    for (const NamedGemmRecipe& one : gemm_recipes()) all.emplace_back(one.name, one.recipe, one.source);
    return all;
  });
  module.def(
      "gemm_activation",
      [](const std::string& name, const Array<float>& x, const Array<float>& input, Array<float> out, int threads) {
        const auto to = mutable_view(out);
        const py::gil_scoped_release release;
        apply_gemm_activation(find_value<GemmActivation>("name", name), view(x), view(input), to, threads);
      },
      py::arg("name"), py::arg("x").noconvert(), py::arg("activation_input").noconvert(), py::arg("out").noconvert(),
      py::arg("threads"));
  module.def("find_gemm", [](const std::string& name) { return find_gemm(name); });
  module.def("find_gemm_model", [](const std::string& name) { return find_gemm_model(name); });
  py::class_<GemmCall>(module, "GemmCall", "What a GEMM is given beside its operands, which must outlive it.")
      .def(py::init(&gemm_call), py::arg("c").noconvert(), py::arg("bias").noconvert(),
           py::arg("activation_input").noconvert(), py::arg("bias_gradient").noconvert(), py::arg("scale_out"),
           py::arg("threads"), py::keep_alive<1, 2>(), py::keep_alive<1, 3>(), py::keep_alive<1, 4>(),
           py::keep_alive<1, 5>());
  module.def("small_gemm", &small_gemm, py::arg("recipe"), py::arg("a"), py::arg("b"), py::arg("layout"));
  bind_gemm<Operand, float>(module);
  bind_gemm<Operand, double>(module);
  bind_gemm<Operand, std::uint8_t>(module);
  bind_gemm<Operand, std::uint16_t>(module);
  bind_gemm<Quantized, float>(module);
  bind_gemm<Quantized, std::uint8_t>(module);
  bind_gemm<Quantized, std::uint16_t>(module);
}

}  // namespace fp8lab::bindings
