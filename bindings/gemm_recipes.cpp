// SPDX-License-Identifier: Apache-2.0
// A GEMM recipe's record in Python: a dict of its fields by name.
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/gemm/gemm_recipe_names.hpp"
#include "fp8lab/reference/gemm/named_gemm_recipes.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

template <typename Field>
struct IsOptional : std::false_type {};
template <typename Value>
struct IsOptional<std::optional<Value>> : std::true_type {};

py::object object_of(const KOrder& order) {
  if (order.ways == 1) return py::none();
  return py::make_tuple(order.ways, order.granule, order.window);
}
py::object object_of(const MmaModel& model) { return py::cast(model); }
/// float32 and float64 are names, for there are no codes of them.
py::object object_of(const Format& format) {
  if (format.bits() > 16) return py::cast(format_name(format));
  return py::cast(named_or_own(format));
}
py::object object_of(const CastPolicy& policy) { return py::cast(named_or_own(policy)); }
py::object object_of(const std::vector<std::size_t>& sizes) { return py::tuple(py::cast(sizes)); }
template <typename Field>
py::object object_of(const Field& field) {
  if constexpr (IsOptional<Field>::value) {
    return field ? object_of(*field) : py::object(py::none());
  } else if constexpr (std::is_enum_v<Field>) {
    return py::cast(std::string(name_of(field)));
  } else {
    return py::cast(field);
  }
}

template <typename Field>
Field field_of(const char* name, const py::object& value) {
  if constexpr (IsOptional<Field>::value) {
    if (value.is_none()) return std::nullopt;
    return field_of<typename Field::value_type>(name, value);
  } else if constexpr (std::is_same_v<Field, ZeroRule>) {
    return find_zero_rule(value.cast<std::string>());
  } else if constexpr (std::is_enum_v<Field>) {
    return find_value<Field>(name, value.cast<std::string>());
  } else if constexpr (std::is_same_v<Field, Format>) {
    if (!py::isinstance<py::str>(value)) return value.cast<NamedOrOwnFormat>().format;
    return value.cast<std::string>() == "float64" ? binary64 : binary32;
  } else if constexpr (std::is_same_v<Field, CastPolicy>) {
    return value.cast<NamedOrOwnProfile>().policy;
  } else if constexpr (std::is_same_v<Field, KOrder>) {
    if (value.is_none()) return {};
    const auto [ways, granule, window] = value.cast<std::tuple<std::size_t, std::size_t, std::size_t>>();
    return {ways, granule, window};
  } else {
    return value.cast<Field>();
  }
}

GemmRecipe gemm_recipe_of(const py::dict& fields) {
  GemmRecipe recipe;
  for_fields(recipe, [&](const char* name, auto& field) {
    field = field_of<std::decay_t<decltype(field)>>(name, fields[name]);
  });
  check_gemm_recipe(recipe);
  return recipe;
}

py::dict fields_of_gemm_recipe(const GemmRecipe& recipe) {
  py::dict fields;
  for_fields(recipe, [&](const char* name, const auto& field) { fields[name] = object_of(field); });
  return fields;
}

template <typename Field>
void add_choices(py::dict& all, const char* name, const Field& field) {
  if constexpr (IsOptional<Field>::value) {
    add_choices(all, name, typename Field::value_type{});
  } else if constexpr (std::is_enum_v<Field> && !std::is_same_v<Field, ZeroRule>) {
    std::vector<std::string> names;
    for (const auto& one : named_values(field)) names.emplace_back(one.name);
    all[name] = names;
  }
}

/// The names that fields of names may have.
py::dict choices() {
  py::dict all;
  const GemmRecipe any;
  for_fields(any, [&](const char* name, const auto& field) { add_choices(all, name, field); });
  return all;
}

GemmCall gemm_call(const Array<float>& c, const Array<float>& bias, const Array<float>& activation_input,
                   float scale_out, int threads) {
  return {.c = view(c),
          .bias = view(bias),
          .activation_input = view(activation_input),
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

}  // namespace

void bind_gemm_recipes(py::module_& module) {
  py::class_<GemmRecipe>(module, "GemmRecipe")
      .def(py::init(&gemm_recipe_of), py::arg("fields"))
      .def_property_readonly("description", [](const GemmRecipe& recipe) { return describe(recipe); })
      .def_property_readonly("fields", &fields_of_gemm_recipe)
      .def("slow_because", &slow_because, py::arg("a"), py::arg("b"));
  module.def("gemm_recipe_choices", &choices);
  module.def("gemm_recipes", [] {
    std::vector<std::tuple<std::string, GemmRecipe, std::string>> all;
    for (const NamedGemmRecipe& one : gemm_recipes()) all.emplace_back(one.name, one.recipe, one.source);
    return all;
  });
  module.def("find_gemm", [](const std::string& name) { return find_gemm(name); });
  module.def("find_gemm_model", [](const std::string& name) { return find_gemm_model(name); });
  py::class_<GemmCall>(module, "GemmCall", "What a GEMM is given beside its operands, which must outlive it.")
      .def(py::init(&gemm_call), py::arg("c").noconvert(), py::arg("bias").noconvert(),
           py::arg("activation_input").noconvert(), py::arg("scale_out"), py::arg("threads"), py::keep_alive<1, 2>(),
           py::keep_alive<1, 3>(), py::keep_alive<1, 4>());
  bind_gemm<Operand, float>(module);
  bind_gemm<Operand, double>(module);
  bind_gemm<Operand, std::uint8_t>(module);
  bind_gemm<Operand, std::uint16_t>(module);
  bind_gemm<Quantized, float>(module);
  bind_gemm<Quantized, std::uint8_t>(module);
  bind_gemm<Quantized, std::uint16_t>(module);
}

}  // namespace fp8lab::bindings
