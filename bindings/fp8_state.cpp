// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/linear/fp8_state.hpp"

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/linear/fp8_layer.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

/// An array of two dimensions and the name of its source type.
MatrixView matrix_in(const py::object& pair) {
  const auto both = pair.cast<py::tuple>();
  return matrix_of(both[0].cast<py::array>(), both[1].cast<std::string>());
}

/// An array of float32 or of 16-bit codes; None: nothing is wanted.
LinearOutput output_in(const py::object& out) {
  if (out.is_none()) return std::span<float>();
  if (py::isinstance<py::array_t<float>>(out)) {
    auto floats = out.cast<Array<float>>();
    return mutable_view(floats);
  }
  auto codes = out.cast<Array<std::uint16_t>>();
  return mutable_view(codes);
}

Autocast region_of(const LinearRecipe& recipe, const Delayed& delayed, bool enabled, const std::string& group) {
  return {.enabled = enabled, .recipe = recipe, .delayed = delayed, .group = group};
}

LinearCall run_forward(Fp8State& state, std::size_t layer, const py::object& x, const py::object& w,
                       const py::object& out, const Array<float>& bias, std::optional<bool> is_first_microbatch,
                       bool training, bool requires_grad, const std::string& recompute, const std::string& zero_rule,
                       int threads, bool check_shapes) {
  const ForwardOptions options{.bias = view(bias),
                               .is_first_microbatch = is_first_microbatch,
                               .training = training,
                               .requires_grad = requires_grad,
                               .recompute = find_value<Recompute>("recompute", recompute),
                               .zero_rule = find_value<ZeroRule>("zero_rule", zero_rule),
                               .threads = threads,
                               .check_shapes = check_shapes};
  const MatrixView input = matrix_in(x);
  const std::optional<MatrixView> weight = w.is_none() ? std::nullopt : std::optional(matrix_in(w));
  const LinearOutput y = output_in(out);
  const py::gil_scoped_release release;
  return forward(state, layer, input, weight, y, options);
}

void run_backward(Fp8State& state, const LinearCall& call, const py::object& dy, const py::object& dx,
                  const py::object& dw, bool accumulate, const std::optional<Array<std::uint8_t>>& random_bits,
                  const std::string& zero_rule, int threads, bool check_shapes) {
  BackwardOptions options{.accumulate = accumulate,
                          .zero_rule = find_value<ZeroRule>("zero_rule", zero_rule),
                          .threads = threads,
                          .check_shapes = check_shapes};
  if (random_bits) options.random = RandomSource{view(*random_bits), 8};
  const MatrixView gradient = matrix_in(dy);
  const LinearOutput input_gradient = output_in(dx);
  const LinearOutput weight_gradient = output_in(dw);
  const py::gil_scoped_release release;
  backward(state, call, gradient, input_gradient, weight_gradient, options);
}

void run_write_weight(Fp8State& state, std::size_t layer, const py::object& w, const LinearRecipe& recipe,
                      const Delayed& delayed, int threads) {
  const MatrixView weight = matrix_in(w);
  const Autocast region = region_of(recipe, delayed, true, "");
  const py::gil_scoped_release release;
  write_weight(state, layer, weight, region, threads);
}

void run_reduce_and_update(const std::vector<Fp8State*>& states) {
  std::vector<Fp8State> ranks;
  for (const Fp8State* state : states) ranks.push_back(*state);
  reduce_and_update(ranks);
  for (std::size_t i = 0; i < states.size(); ++i) *states[i] = std::move(ranks[i]);
}

AmaxHistory& history_of(Fp8State& state, std::size_t layer, const std::string& tensor) {
  LayerState& one = state.layers.at(layer);
  if (tensor == "x") return one.forward.x;
  return tensor == "w" ? one.forward.w : one.backward;
}

/// Amaxes, scale and scale_inv of a history.
py::tuple history_parts(Fp8State& state, std::size_t layer, const std::string& tensor) {
  const AmaxHistory& history = history_of(state, layer, tensor);
  return py::make_tuple(py::array_t<float>(static_cast<py::ssize_t>(history.amaxes.size()), history.amaxes.data()),
                        history.scale, history.scale_inv);
}

void set_history(Fp8State& state, std::size_t layer, const std::string& tensor, const Array<float>& amaxes, float scale,
                 float scale_inv) {
  const auto values = view(amaxes);
  AmaxHistory& history = history_of(state, layer, tensor);
  history.amaxes.assign(values.begin(), values.end());
  history.scale = scale;
  history.scale_inv = scale_inv;
}

/// Layers begin with the histories of a recipe, without codes and what is put aside.
void begin_layer(Fp8State& state, std::size_t layer, const Delayed& recipe) {
  LayerState& one = state.layers.at(layer);
  LayerState begun;
  begun.recipe = recipe;
  begun.buffer = one.buffer;
  one = std::move(begun);
}

py::list trace_of(const Fp8State& state) {
  py::list events;
  for (const StateEvent& event : state.trace) {
    events.append(py::make_tuple(event.call, event.name, event.layer, event.tensor, event.action, event.amax,
                                 event.scale, event.scale_inv));
  }
  return events;
}

void bind_state(py::module_& module) {
  py::class_<Fp8State>(module, "Fp8State")
      .def(py::init([](std::size_t layers, const std::string& rules, int ranks, const LinearRecipe& high_precision) {
             Fp8State state = start_fp8_state(layers, find_state_rules(rules), ranks);
             state.high_precision = high_precision;
             return state;
           }),
           py::arg("layers"), py::arg("rules"), py::arg("ranks"), py::arg("high_precision"))
      .def(py::init<const Fp8State&>(), py::arg("other"))
      .def_property_readonly("layers", [](const Fp8State& state) { return state.layers.size(); })
      .def_property_readonly("rules", [](const Fp8State& state) { return std::string(state.rules.name); })
      .def_readonly("ranks", &Fp8State::ranks)
      .def_property_readonly("regions", [](const Fp8State& state) { return state.regions.size(); })
      .def_property_readonly("is_due",
                             [](const Fp8State& state) { return state.forward_is_due || state.backward_is_due; })
      .def_readwrite("grad_enabled", &Fp8State::grad_enabled)
      .def_readwrite("is_traced", &Fp8State::is_traced)
      .def_property_readonly("trace", &trace_of)
      .def(
          "enter_autocast",
          [](Fp8State& state, const LinearRecipe& recipe, const Delayed& delayed, bool enabled,
             const std::string& group) { enter_autocast(state, region_of(recipe, delayed, enabled, group)); },
          py::arg("recipe"), py::arg("delayed"), py::arg("enabled"), py::arg("group"))
      .def("exit_autocast", &exit_autocast)
      .def("forward", &run_forward, py::arg("layer"), py::arg("x"), py::arg("w"), py::arg("out"),
           py::arg("bias").noconvert(), py::arg("is_first_microbatch"), py::arg("training"), py::arg("requires_grad"),
           py::arg("recompute"), py::arg("zero_rule"), py::arg("threads"), py::arg("check_shapes"))
      .def("backward", &run_backward, py::arg("call"), py::arg("dy"), py::arg("dx"), py::arg("dw"),
           py::arg("accumulate"), py::arg("random_bits"), py::arg("zero_rule"), py::arg("threads"),
           py::arg("check_shapes"))
      .def("write_weight", &run_write_weight, py::arg("layer"), py::arg("w"), py::arg("recipe"), py::arg("delayed"),
           py::arg("threads"))
      .def(
          "is_started", [](const Fp8State& state, std::size_t i) { return state.layers.at(i).recipe.has_value(); },
          py::arg("layer"))
      .def(
          "weight_shape",
          [](const Fp8State& state, std::size_t i) -> std::optional<std::pair<std::size_t, std::size_t>> {
            const auto& weight = state.layers.at(i).parameter;
            if (weight == nullptr) return std::nullopt;
            return std::pair{weight->rowwise.rows, weight->rowwise.columns};
          },
          py::arg("layer"))
      .def(
          "recipe_of_forward",
          [](const Fp8State& state, std::size_t layer, const std::string& recompute) {
            return recipe_of_forward(state, layer, find_value<Recompute>("recompute", recompute));
          },
          py::arg("layer"), py::arg("recompute"))
      .def("history", &history_parts, py::arg("layer"), py::arg("tensor"))
      .def("set_history", &set_history, py::arg("layer"), py::arg("tensor"), py::arg("amaxes").noconvert(),
           py::arg("scale"), py::arg("scale_inv"))
      .def("begin_layer", &begin_layer, py::arg("layer"), py::arg("recipe"))
      .def("equals", &equal_states, py::arg("other"));
}

}  // namespace

void bind_fp8_state(py::module_& module) {
  py::class_<LinearCall>(module, "LinearCall")
      .def_readonly("layer", &LinearCall::layer)
      .def_readonly("updates_backward", &LinearCall::updates_backward)
      .def_readonly("has_grad", &LinearCall::has_grad)
      .def_readonly("recipe", &LinearCall::recipe)
      .def_property_readonly("wants_random_bits",
                             [](const LinearCall& call) {
                               const auto wants = [](const LinearCast& cast) {
                                 const auto* recipe = std::get_if<Recipe>(&cast);
                                 return recipe != nullptr && is_stochastic(*recipe);
                               };
                               return wants(call.recipe.dgrad.a) || wants(call.recipe.wgrad.a);
                             })
      .def_property_readonly("weight_scale_inv", [](const LinearCall& call) -> std::optional<float> {
        if (call.weight == nullptr || call.weight->rowwise.scale_inv.size() != 1) return std::nullopt;
        return call.weight->rowwise.scale_inv.front();
      });
  bind_state(module);
  module.def(
      "linear_bias_gradient",
      [](const py::object& dy, Array<float> out) { linear_bias_gradient(matrix_in(dy), mutable_view(out)); },
      py::arg("dy"), py::arg("out").noconvert());
  module.def(
      "default_fp8_format",
      [](const LinearRecipe& recipe) { return std::string(name_of(default_delayed(recipe).fp8_format)); },
      py::arg("recipe"));
  module.def("reduce_and_update", &run_reduce_and_update, py::arg("states"));
  module.def("state_rules", [] {
    std::vector<std::tuple<std::string, std::string, std::string>> all;
    for (const StateRules& rules : state_rules()) all.emplace_back(rules.name, rules.description, rules.source);
    return all;
  });
}

}  // namespace fp8lab::bindings
