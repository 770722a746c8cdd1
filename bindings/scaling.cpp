// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/hadamard.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "history.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

using OwnFormat = NamedOrOwnFormat;

py::tuple tuple_of(std::vector<Quantized> parts) {
  py::tuple result(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) result[i] = py::cast(std::move(parts[i]));
  return result;
}

/// A view of a vector that `owner` has.
template <typename Values, typename T = typename Values::value_type>
py::array_t<T> view_of(Values& values, std::size_t rows, const py::object& owner) {
  const std::size_t columns = rows == 0 ? 0 : values.size() / rows;
  return {{rows, columns}, {columns * sizeof(T), sizeof(T)}, values.data(), owner};
}

RandomWords words_of(const py::array& words) {
  if (words.itemsize() == 1) return view(py::cast<Array<std::uint8_t>>(words));
  if (words.itemsize() == 2) return view(py::cast<Array<std::uint16_t>>(words));
  return view(py::cast<Array<std::uint32_t>>(words));
}

QuantizeOptions options_of(const std::optional<OwnFormat>& input_type, bool amax_before_rounding,
                           const std::optional<py::array>& random_bits, int count, int threads) {
  QuantizeOptions options{.amax_before_rounding = amax_before_rounding, .threads = threads};
  if (input_type) options.input_type = input_type->format;
  if (random_bits) options.random = RandomSource{words_of(*random_bits), count};
  return options;
}

/// The scales and amaxes that a caller gives: arrays by name, in the order of GivenScales, and numbers.
struct GivenArrays {
  std::optional<Array<float>> amaxes, scales, scales_inv;
  std::optional<float> tensor_amax;
  float tensor_scale, tensor_scale_inv;
  std::optional<Array<float>> row_amaxes;

  [[nodiscard]] GivenScales views() const {
    const auto of = [](const std::optional<Array<float>>& array) {
      return array ? view(*array) : std::span<const float>{};
    };
    return {of(amaxes), of(scales), of(scales_inv), tensor_amax, tensor_scale, tensor_scale_inv, of(row_amaxes)};
  }
};

template <typename Vector, typename T>
void assign(Vector& to, const Array<T>& from) {
  const auto values = view(from);
  to.assign(values.begin(), values.end());
}

/// The Quantized of a state; throws where the state is none.
Quantized restored(const Recipe& recipe, const std::string& direction, std::size_t rows, std::size_t columns,
                   bool transposed, const Array<std::uint8_t>& codes, const Array<float>& scale_inv,
                   const Array<std::uint8_t>& scale_codes, float amax, const Array<float>& row_amaxes,
                   float tensor_scale, float tensor_scale_inv) {
  Quantized q;
  q.recipe = recipe;
  q.direction = find_value<Direction>("direction", direction);
  q.rows = rows;
  q.columns = columns;
  q.format = recipe.format;
  q.transposed = transposed;
  const py::array& scales = scale_codes.size() != 0 ? static_cast<const py::array&>(scale_codes) : scale_inv;
  q.scale_rows = static_cast<std::size_t>(scales.shape(0));
  q.scale_columns = static_cast<std::size_t>(scales.shape(1));
  assign(q.codes, codes);
  assign(q.scale_inv, scale_inv);
  assign(q.scale_codes, scale_codes);
  q.amax = amax;
  assign(q.row_amaxes, row_amaxes);
  q.tensor_scale = tensor_scale;
  q.tensor_scale_inv = tensor_scale_inv;
  check_quantized(q);
  return q;
}

void bind_quantized(py::module_& module) {
  py::class_<GivenArrays>(module, "GivenScales")
      .def(py::init<std::optional<Array<float>>, std::optional<Array<float>>, std::optional<Array<float>>,
                    std::optional<float>, float, float, std::optional<Array<float>>>(),
           py::arg("amaxes"), py::arg("scales"), py::arg("scales_inv"), py::arg("tensor_amax"), py::arg("tensor_scale"),
           py::arg("tensor_scale_inv"), py::arg("row_amaxes"));
  const auto shape = [](const Quantized& q) { return std::pair(q.rows, q.columns); };
  py::class_<Quantized>(module, "Quantized")
      .def_property_readonly("shape", shape)
      .def(py::init(&restored), py::arg("recipe"), py::arg("direction"), py::arg("rows"), py::arg("columns"),
           py::arg("transposed"), py::arg("codes").noconvert(), py::arg("scale_inv").noconvert(),
           py::arg("scale_codes").noconvert(), py::arg("amax"), py::arg("row_amaxes").noconvert(),
           py::arg("tensor_scale"), py::arg("tensor_scale_inv"))
      .def(py::init<const Quantized&>(), py::arg("other"))
      .def_property_readonly("format", [](const Quantized& q) { return format_name(q.format); })
      .def_property_readonly("given_scale", [](const Quantized& q) { return q.recipe.given_scale; })
      .def_property_readonly("tile",
                             [](const Quantized& q) {
                               const TileShape tile = tile_shape(q);
                               return std::pair(tile.rows, tile.columns);
                             })
      .def_property_readonly("scale_format", [](const Quantized& q) { return format_name(scale_format_of(q.recipe)); })
      .def_property_readonly("factor", &tensor_factor)
      .def("tile_scales_inv",
           [](const Quantized& q) {
             const TileShape tile = tile_shape(q);
             const std::vector<float> scales = tile_scales_inv(q);
             const std::size_t across = (q.columns + tile.columns - 1) / tile.columns;
             return py::array_t<float>({scales.size() / across, across}, scales.data());
           })
      .def("scale_inv_at", &scale_inv_at, py::arg("row"), py::arg("column"))
      .def_readonly("transposed", &Quantized::transposed)
      .def_readonly("amax", &Quantized::amax)
      .def_readonly("tensor_scale", &Quantized::tensor_scale)
      .def_readonly("tensor_scale_inv", &Quantized::tensor_scale_inv)
      .def_property_readonly("recipe", [](const Quantized& q) { return q.recipe; })
      .def_property_readonly("row_amaxes",
                             [](const py::object& self) {
                               auto& q = self.cast<Quantized&>();
                               return view_of(q.row_amaxes, q.row_amaxes.empty() ? 0 : 1, self);
                             })
      .def_property_readonly("codes",
                             [](const py::object& self) {
                               auto& q = self.cast<Quantized&>();
                               return view_of(q.codes, q.code_rows(), self);
                             })
      .def_property_readonly("scale_inv",
                             [](const py::object& self) {
                               auto& q = self.cast<Quantized&>();
                               return view_of(q.scale_inv, q.scale_inv.empty() ? 0 : q.scale_rows, self);
                             })
      .def_property_readonly("scale_codes", [](const py::object& self) {
        auto& q = self.cast<Quantized&>();
        return view_of(q.scale_codes, q.scale_codes.empty() ? 0 : q.scale_rows, self);
      });
}

}  // namespace

void bind_scaling(py::module_& module) {
  module.def(
      "cast_recipe",
      [](const Delayed& recipe, const OwnFormat& format, float scale) {
        Recipe one = cast_recipe(recipe, Pass::forward, scale);
        one.format = format.format;
        return one;
      },
      py::arg("recipe"), py::arg("format"), py::arg("scale"));
  bind_quantized(module);
  module.def(
      "quantize",
      [](const py::array& x, const std::string& source, const Recipe& recipe, const std::string& direction,
         const std::optional<OwnFormat>& input_type, bool amax_before_rounding, const GivenArrays& given,
         const std::optional<py::array>& random_bits, int count, int threads) {
        const MatrixView values = matrix_of(x, source);
        QuantizeOptions options = options_of(input_type, amax_before_rounding, random_bits, count, threads);
        options.given = given.views();
        std::vector<Quantized> out(direction == "both" ? 2 : 1);
        {
          const py::gil_scoped_release release;
          if (direction == "both") {
            quantize_both(values, recipe, out[0], out[1], options);
          } else {
            quantize(values, recipe, find_value<Direction>("direction", direction), out[0], options);
          }
        }
        return tuple_of(std::move(out));
      },
      py::arg("x"), py::arg("source"), py::arg("recipe"), py::arg("direction"), py::arg("input_type"),
      py::arg("amax_before_rounding"), py::arg("given"), py::arg("random_bits"), py::arg("count"), py::arg("threads"));
  module.def(
      "quantize_delayed",
      [](const py::array& x, const std::string& source, OwnedHistory& history, const std::string& direction,
         const std::optional<OwnFormat>& input_type, int threads) {
        const MatrixView values = matrix_of(x, source);
        const QuantizeOptions options = options_of(input_type, false, std::nullopt, 0, threads);
        std::vector<Quantized> out(direction == "both" ? 2 : 1);
        OwnedHistory own = history;  // other threads may change it while the interpreter's lock is released
        {
          const py::gil_scoped_release release;
          if (direction == "both") {
            quantize_both(values, own.recipe, own.pass, own.state, out[0], out[1], options);
          } else {
            quantize(values, own.recipe, own.pass, own.state, find_value<Direction>("direction", direction), out[0],
                     options);
          }
        }
        history.state = std::move(own.state);
        return tuple_of(std::move(out));
      },
      py::arg("x"), py::arg("source"), py::arg("history"), py::arg("direction"), py::arg("input_type"),
      py::arg("threads"));
  module.def(
      "dequantize",
      [](const Quantized& q, Array<float> out, int threads) {
        const auto values = mutable_view(out);
        const py::gil_scoped_release release;
        dequantize(q, values, threads);
      },
      py::arg("q"), py::arg("out").noconvert(), py::arg("threads"));
  module.def(
      "hadamard_columns",
      [](const py::array& x, const std::string& source, bool rounds, Array<float> out, int threads) {
        const MatrixView values = matrix_of(x, source);
        const auto turned = mutable_view(out);
        const py::gil_scoped_release release;
        std::ranges::copy(hadamard_columns(values, rounds, threads), turned.begin());
      },
      py::arg("x"), py::arg("source"), py::arg("rounds"), py::arg("out").noconvert(), py::arg("threads"));
  const auto laid_out = [&](const char* name, auto function) {
    module.def(
        name,
        [function](const Array<std::uint8_t>& scales, std::size_t rows, std::size_t columns) {
          const std::vector<std::uint8_t> bytes = [&] {
            const py::gil_scoped_release release;
            return function(view(scales), rows, columns);
          }();
          return py::array_t<std::uint8_t>(static_cast<py::ssize_t>(bytes.size()), bytes.data());
        },
        py::arg("scales").noconvert(), py::arg("rows"), py::arg("columns"));
  };
  laid_out("pad_scales", &pad_scales);
  laid_out("unpad_scales", &unpad_scales);
  laid_out("swizzle_scales", &swizzle_scales);
  laid_out("unswizzle_scales", &unswizzle_scales);
}

}  // namespace fp8lab::bindings
