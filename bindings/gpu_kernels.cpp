// SPDX-License-Identifier: Apache-2.0
// The kernels on arrays that Python has, on a device or on the host: addresses and sizes, which Python has checked.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "fp8lab/gpu/device.hpp"
#include "fp8lab/gpu/quantize.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/recipe_names.hpp"
#include "gpu_places.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

/// codes, scale_inv, scale_codes, amax.
using ArrayPlaces = std::tuple<Place, MaybePlace, MaybePlace, MaybePlace>;

constexpr Named<gpu::ElementType> element_names[] = {{"float32", gpu::ElementType::float32},
                                                     {"float16", gpu::ElementType::float16},
                                                     {"bfloat16", gpu::ElementType::bfloat16}};
constexpr Named<ScaleLayout> layout_names[] = {{"compact", ScaleLayout::compact}, {"swizzled", ScaleLayout::swizzled}};

gpu::ElementMatrix matrix_at(const MaybePlace& x, const std::string& dtype, std::size_t rows, std::size_t columns) {
  return {span_at<const std::byte>(x), find_named(element_names, "x", dtype).value, rows, columns};
}

std::optional<gpu::QuantizedArrays> arrays_at(const Team& team, const std::optional<ArrayPlaces>& places) {
  if (!places) return std::nullopt;
  const auto& [own_codes, scale_inv, scale_codes, amax] = *places;
  const MaybePlace codes = own_codes;
  check_places(team, {&codes, &scale_inv, &scale_codes, &amax});
  return gpu::QuantizedArrays{span_at<std::uint8_t>(codes), span_at<float>(scale_inv),
                              span_at<std::uint8_t>(scale_codes), pointer_at<float>(amax)};
}

void quantize_at(const MaybePlace& x, const std::string& dtype, std::size_t rows, std::size_t columns,
                 const Recipe& recipe, const std::optional<ArrayPlaces>& rowwise,
                 const std::optional<ArrayPlaces>& columnwise, const std::string& layout, const MaybePlace& scale,
                 const std::optional<std::pair<std::uint64_t, std::uint64_t>>& philox, const TeamFields& fields) {
  const Team team = team_of(fields);
  check_places(team, {&x, &scale});
  gpu::QuantizeCall call{.x = matrix_at(x, dtype, rows, columns),
                         .recipe = recipe,
                         .rowwise = arrays_at(team, rowwise),
                         .columnwise = arrays_at(team, columnwise),
                         .layout = find_named(layout_names, "layout", layout).value,
                         .scale = pointer_at<const float>(scale)};
  if (philox) call.random = gpu::PhiloxState{philox->first, philox->second};
  const py::gil_scoped_release release;
  if (team.on_device) return gpu::quantize_on_device(call, team.stream);
  gpu::quantize_on_host(call, team.order);
}

void amax_at(const MaybePlace& x, const std::string& dtype, std::size_t count, const std::string& nan,
             const MaybePlace& out, const TeamFields& fields) {
  const Team team = team_of(fields);
  check_places(team, {&x, &out});
  const gpu::ElementMatrix matrix = matrix_at(x, dtype, 1, count);
  const auto counts = find_value<NanInAmax>("nan", nan);
  const py::gil_scoped_release release;
  if (team.on_device) return gpu::amax_on_device(matrix, counts, pointer_at<float>(out), team.stream);
  gpu::amax_on_host(matrix, counts, pointer_at<float>(out), team.order);
}

void dequantize_at(const Recipe& recipe, const std::string& direction, std::size_t rows, std::size_t columns,
                   const ArrayPlaces& places, const std::string& layout, const MaybePlace& out,
                   const TeamFields& fields) {
  const Team team = team_of(fields);
  check_places(team, {&out});
  const auto arrays = arrays_at(team, places);
  const gpu::QuantizedView view{recipe,
                                find_value<Direction>("direction", direction),
                                rows,
                                columns,
                                arrays->codes,
                                arrays->scale_inv,
                                arrays->scale_codes,
                                find_named(layout_names, "layout", layout).value,
                                arrays->amax};
  const py::gil_scoped_release release;
  if (team.on_device) return gpu::dequantize_on_device(view, span_at<float>(out), team.stream);
  gpu::dequantize_on_host(view, span_at<float>(out), team.order);
}

void update_scales_at(const Delayed& recipe, bool backward, const MaybePlace& amaxes, const MaybePlace& scale,
                      const MaybePlace& scale_inv, const TeamFields& fields) {
  const Team team = team_of(fields);
  check_places(team, {&amaxes, &scale, &scale_inv});
  const gpu::DelayedStates states{span_at<float>(amaxes), span_at<float>(scale), span_at<float>(scale_inv)};
  const Pass pass = backward ? Pass::backward : Pass::forward;
  const py::gil_scoped_release release;
  if (team.on_device) return gpu::update_scales_on_device(recipe, pass, states, team.stream);
  gpu::update_scales_on_host(recipe, pass, states, team.order);
}

/// How many elements the codes, scale_inv and scale_codes have.
std::tuple<std::size_t, std::size_t, std::size_t> sizes_of(const Recipe& recipe, const std::string& direction,
                                                           std::size_t rows, std::size_t columns,
                                                           const std::string& layout) {
  const gpu::QuantizedSizes sizes = gpu::quantized_sizes(recipe, find_value<Direction>("direction", direction), rows,
                                                         columns, find_named(layout_names, "layout", layout).value);
  return {sizes.codes, sizes.scale_inv, sizes.scale_codes};
}

}  // namespace

void bind_gpu_kernels(py::module_& module) {
  module.def("gpu_require_device", &gpu::require_device);
  module.def("gpu_recipes", [] {
    const auto names = gpu::recipes_with_kernel();
    return std::vector<std::string>(names.begin(), names.end());
  });
  module.def("gpu_sizes", &sizes_of, py::arg("recipe"), py::arg("direction"), py::arg("rows"), py::arg("columns"),
             py::arg("layout"));
  module.def("gpu_quantize", &quantize_at, py::arg("x"), py::arg("dtype"), py::arg("rows"), py::arg("columns"),
             py::arg("recipe"), py::arg("rowwise"), py::arg("columnwise"), py::arg("layout"), py::arg("scale"),
             py::arg("philox"), py::arg("team"));
  module.def("gpu_amax", &amax_at, py::arg("x"), py::arg("dtype"), py::arg("count"), py::arg("nan"), py::arg("out"),
             py::arg("team"));
  module.def("gpu_dequantize", &dequantize_at, py::arg("recipe"), py::arg("direction"), py::arg("rows"),
             py::arg("columns"), py::arg("arrays"), py::arg("layout"), py::arg("out"), py::arg("team"));
  module.def("gpu_update_scales", &update_scales_at, py::arg("recipe"), py::arg("backward"), py::arg("amaxes"),
             py::arg("scale"), py::arg("scale_inv"), py::arg("team"));
}

}  // namespace fp8lab::bindings
