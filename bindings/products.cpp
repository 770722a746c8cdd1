// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <optional>
#include <utility>

#include "fp8lab/formats/targets.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "fp8lab/reference/tensor_core/scale_shapes.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

using MaybeFormat = std::optional<NamedOrOwnFormat>;

/// A (rows, depth) array, or (depth, rows) if transposed, of codes (uint8, or uint16 for formats of more than 8 bits)
/// or of float32 or float64 values where there is no format. Of packed codes, two a byte, the array has half as many
/// columns.
Operand operand_from(const py::array& array, const MaybeFormat& format, bool transposed, bool packed) {
  const auto high = static_cast<std::size_t>(array.shape(0));
  const auto wide = static_cast<std::size_t>(array.shape(1)) * (packed ? 2 : 1);
  Operand result = Operand::floats({}, transposed ? wide : high, transposed ? high : wide);
  result.transposed = transposed;
  result.packed = packed;
  if (!format && array.itemsize() == sizeof(double)) {
    result.elements = elements_of<double>(array);
    result.format = binary64;
    return result;
  }
  if (!format) {
    result.elements = elements_of<float>(array);
    return result;
  }
  result.format = format->format;
  if (format->format.bits() > 8) {
    result.elements = elements_of<std::uint16_t>(array);
  } else {
    result.elements = elements_of<std::uint8_t>(array);
  }
  return result;
}

/// `format` and `block` tell what the codes are; left out: what the model takes.
void set_codes(Operand& operand, const Array<std::uint8_t>& codes, bool swizzled,
               const std::optional<std::string>& format, const std::optional<int>& block) {
  operand.scales = {.codes = view(codes), .layout = swizzled ? ScaleLayout::swizzled : ScaleLayout::compact};
  if (format && block) operand.scales.type = BlockScales{find_format(*format).format, *block};
}
/// Gives the operand the scales of its tiles or rows. Whether they have a shape of these.
bool set_scales(Operand& operand, const Array<float>& scales) {
  const std::vector<std::uint64_t> shape(scales.shape(), scales.shape() + scales.ndim());
  return set_float_scales(operand, view(scales), shape);
}

/// A shape as Python has it.
std::pair<std::size_t, std::size_t> as_pair(const ScaleShape& shape) { return {shape.down, shape.along}; }

/// The shapes of scales of 1 x 128 elements, of 128 x 128, and of rows.
std::array<std::pair<std::size_t, std::size_t>, 3> scale_shapes(const Operand& operand) {
  const FloatScaleShapes shapes = float_scale_shapes(operand);
  return {as_pair(shapes.fine), as_pair(shapes.coarse), as_pair(shapes.rows)};
}

/// `Value` is float or double.
template <typename Value>
void mma_array(const MmaModel& model, const Operand& left, const Operand& right, const Array<Value>& c,
               Array<Value> out, const std::string& zero_rule) {
  const auto accumulators = view(c);
  const auto results = mutable_view(out);
  const py::gil_scoped_release release;
  mma(model, left, right, accumulators, results, find_value<ZeroRule>("zero_rule", zero_rule));
}
void mma_half_array(const MmaModel& model, const Operand& left, const Operand& right, const Array<std::uint16_t>& c,
                    Array<std::uint16_t> out, const std::string& zero_rule) {
  const auto accumulators = view_as<Half>(c);
  const auto results = mutable_view_as<Half>(out);
  const py::gil_scoped_release release;
  mma(model, left, right, accumulators, results, find_value<ZeroRule>("zero_rule", zero_rule));
}

}  // namespace

void bind_products(py::module_& module) {
  py::class_<Operand>(module, "Operand", "An operand's arrays, which must outlive it.")
      .def(py::init(&operand_from), py::arg("elements"), py::arg("format"), py::arg("transposed"), py::arg("packed"),
           py::keep_alive<1, 2>())
      .def("set_codes", &set_codes, py::arg("codes").noconvert(), py::arg("swizzled"), py::arg("format"),
           py::arg("block"), py::keep_alive<1, 2>())
      .def("set_float_scales", &set_scales, py::arg("scales").noconvert(), py::keep_alive<1, 2>())
      .def("float_scale_shapes", &scale_shapes)
      .def(
          "block_scale_shape",
          [](const Operand& operand, std::size_t block) { return as_pair(block_scale_shape(operand, block)); },
          py::arg("block"))
      .def_readonly("depth", &Operand::depth)
      .def(
          "set_tf32_rounding",
          [](Operand& operand, const std::string& name) {
            operand.tf32_rounding = find_value<Rounding>("rounding", name);
          },
          py::arg("name"))
      .def("set_tensor", [](Operand& operand, float scale) { operand.tensor_scale = {scale}; }, py::arg("scale"));
  module.def("mma", &mma_array<float>, py::arg("model"), py::arg("a"), py::arg("b"), py::arg("c").noconvert(),
             py::arg("out").noconvert(), py::arg("zero_rule"));
  module.def("mma", &mma_array<double>, py::arg("model"), py::arg("a"), py::arg("b"), py::arg("c").noconvert(),
             py::arg("out").noconvert(), py::arg("zero_rule"));
  module.def("mma", &mma_half_array, py::arg("model"), py::arg("a"), py::arg("b"), py::arg("c").noconvert(),
             py::arg("out").noconvert(), py::arg("zero_rule"));
  module.def("targets", [] {
    std::vector<std::string> names;
    for (const std::string_view name : targets()) names.emplace_back(name);
    return names;
  });
  module.def(
      "force_target", [](const std::string& name) { force_target(name); }, py::arg("name"),
      "Makes all vector code run on one of targets(); \"\" lifts that. Not while other threads run fp8lab.");
}

}  // namespace fp8lab::bindings
