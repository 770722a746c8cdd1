// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/representable.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

CastPolicy policy_of(const std::string& profile, const std::string& rounding) {
  CastPolicy policy = find_profile(profile).policy;
  policy.rounding = find_rounding(rounding);
  return policy;
}

/// `source` says what the elements are: 16-bit words may be halves or bfloat16s.
void encode_array(const py::array& x, const std::string& source, Array<std::uint8_t> out, const std::string& format,
                  const std::string& profile, const std::string& rounding, int threads) {
  const Format target = find_format(format).format;
  const CastPolicy policy = policy_of(profile, rounding);
  const auto codes = mutable_view(out);
  const auto run = [&](auto in) {
    const py::gil_scoped_release release;
    encode(target, policy, in, codes, threads);
  };
  if (source == "float32") return run(view(py::cast<Array<float>>(x)));
  if (source == "float64") return run(view(py::cast<Array<double>>(x)));
  const auto words = py::cast<Array<std::uint16_t>>(x);
  if (source == "float16") return run(view_as<Half>(words));
  run(view_as<BFloat16>(words));
}

void decode_array(const Array<std::uint8_t>& codes, Array<float> out, const std::string& format, int threads) {
  const Format source = find_format(format).format;
  const auto in = view(codes);
  const auto values = mutable_view(out);
  const py::gil_scoped_release release;
  decode(source, in, values, threads);
}

void cast_array(const py::array& x, const std::string& source, py::array out, const std::string& format, double scale,
                const std::string& profile, const std::string& rounding, int threads) {
  const Format target = find_format(format).format;
  const CastPolicy policy = policy_of(profile, rounding);
  const auto run = [&](auto in, auto result) {
    const py::gil_scoped_release release;
    cast_to_representable(target, policy, in, scale, result, threads);
  };
  const auto run_words = [&]<typename T>(T /*element*/) {
    const auto in = py::cast<Array<std::uint16_t>>(x);
    auto result = py::cast<Array<std::uint16_t>>(out);
    run(view_as<T>(in), mutable_view_as<T>(result));
  };
  const auto run_floats = [&]<typename T>(T /*element*/) {
    const auto in = py::cast<Array<T>>(x);
    auto result = py::cast<Array<T>>(out);
    run(view(in), mutable_view(result));
  };
  if (source == "float32") return run_floats(float{});
  if (source == "float64") return run_floats(double{});
  if (source == "float16") return run_words(Half{});
  run_words(BFloat16{});
}

const char* name_of(Specials specials) {
  switch (specials) {
    case Specials::ieee: return "ieee";
    case Specials::nan_at_all_ones: return "nan_at_all_ones";
    case Specials::nan_at_negative_zero: return "nan_at_negative_zero";
    case Specials::none: return "none";
  }
  return "";
}

}  // namespace

void bind_casts(py::module_& module) {
  py::class_<NamedFormat>(module, "Format")
      .def_property_readonly("name", [](const NamedFormat& f) { return std::string(f.name); })
      .def_property_readonly("description", [](const NamedFormat& f) { return std::string(f.description); })
      .def_property_readonly("exponent_bits", [](const NamedFormat& f) { return f.format.exponent_bits; })
      .def_property_readonly("mantissa_bits", [](const NamedFormat& f) { return f.format.mantissa_bits; })
      .def_property_readonly("bias", [](const NamedFormat& f) { return f.format.bias; })
      .def_property_readonly("is_signed", [](const NamedFormat& f) { return f.format.is_signed; })
      .def_property_readonly("has_subnormals", [](const NamedFormat& f) { return f.format.has_subnormals; })
      .def_property_readonly("specials", [](const NamedFormat& f) { return name_of(f.format.specials); })
      .def_property_readonly(
          "max", [](const NamedFormat& f) { return decode(f.format, static_cast<std::uint32_t>(f.format.max_code())); })
      .def("__str__", [](const NamedFormat& f) { return std::string(f.name) + ": " + std::string(f.description); })
      .def("__repr__", [](const NamedFormat& f) { return "<fp8lab.Format " + std::string(f.name) + ">"; });
  py::class_<Profile>(module, "Profile")
      .def_property_readonly("name", [](const Profile& p) { return std::string(p.name); })
      .def_property_readonly("description", [](const Profile& p) { return describe(p.policy); })
      .def_property_readonly("source", [](const Profile& p) { return std::string(p.source); })
      .def("__str__",
           [](const Profile& p) {
             return std::string(p.name) + ": " + describe(p.policy) + " [" + std::string(p.source) + "]";
           })
      .def("__repr__", [](const Profile& p) { return "<fp8lab.Profile " + std::string(p.name) + ">"; });
  module.def("formats", [] { return std::vector<NamedFormat>(named_formats.begin(), named_formats.end()); });
  module.def("profiles", [] { return std::vector<Profile>(profiles.begin(), profiles.end()); });
  module.def("encode", &encode_array, py::arg("x"), py::arg("source"), py::arg("out"), py::arg("format"),
             py::arg("profile"), py::arg("rounding"), py::arg("threads"));
  module.def("decode", &decode_array, py::arg("codes").noconvert(), py::arg("out").noconvert(), py::arg("format"),
             py::arg("threads"));
  module.def("cast_to_representable", &cast_array, py::arg("x"), py::arg("source"), py::arg("out"), py::arg("format"),
             py::arg("scale"), py::arg("profile"), py::arg("rounding"), py::arg("threads"));
}

}  // namespace fp8lab::bindings
