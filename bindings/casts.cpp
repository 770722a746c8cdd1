// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <utility>

#include "fp8lab/formats/chain.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/formats/stochastic.hpp"
#include "fp8lab/formats/text.hpp"
#include "fp8lab/reference/scaling/representable.hpp"
#include "from_python.hpp"
#include "record.hpp"

namespace fp8lab::bindings {
namespace {

using OwnFormat = NamedOrOwnFormat;
using OwnProfile = NamedOrOwnProfile;

/// With another rounding, where one is given.
CastPolicy policy_of(const OwnProfile& profile, const std::optional<std::string>& rounding) {
  CastPolicy policy = profile.policy;
  if (rounding) policy.rounding = find_value<Rounding>("rounding", *rounding);
  return policy;
}

/// Calls run(span) for an array of codes of one or two bytes.
template <typename Run>
void with_codes(py::array& codes, const Run& run) {
  if (codes.itemsize() == 1) return run(mutable_elements_of<std::uint8_t>(codes));
  run(mutable_elements_of<std::uint16_t>(codes));
}

RandomSource random_of(const Format& format, const py::array& words, std::optional<int> count, bool ptx) {
  if (ptx) return ptx_random(format, view(py::cast<Array<std::uint32_t>>(words)));
  const auto source = [&]<typename Word>(Word /*word*/) {
    const auto width = static_cast<int>(8 * sizeof(Word));
    return RandomSource{view(py::cast<Array<Word>>(words)), count.value_or(width)};
  };
  if (words.itemsize() == 1) return source(std::uint8_t{});
  if (words.itemsize() == 2) return source(std::uint16_t{});
  return source(std::uint32_t{});
}

void encode_array(const py::array& x, const std::string& source, py::array out, const OwnFormat& format,
                  const OwnProfile& profile, const std::optional<std::string>& rounding,
                  const std::optional<py::array>& random_bits, std::optional<int> count, bool ptx, int threads) {
  const CastPolicy policy = policy_of(profile, rounding);
  std::optional<RandomSource> random;
  if (random_bits) random = random_of(format.format, *random_bits, count, ptx);
  with_source(x, source, [&](auto in) {
    with_codes(out, [&](auto codes) {
      const py::gil_scoped_release release;
      if (random) return encode(format.format, policy, in, *random, codes, threads);
      encode(format.format, policy, in, codes, threads);
    });
  });
}

void decode_array(const py::array& codes, Array<float> out, const OwnFormat& format, int threads) {
  const auto values = mutable_view(out);
  const auto run = [&]<typename Code>(Code /*code*/) {
    const auto in = elements_of<Code>(codes);
    const py::gil_scoped_release release;
    decode(format.format, in, values, threads);
  };
  if (codes.itemsize() == 1) return run(std::uint8_t{});
  run(std::uint16_t{});
}

void cast_array(const py::array& x, const std::string& source, py::array out, const OwnFormat& format, double scale,
                const OwnProfile& profile, const std::optional<std::string>& rounding, int threads) {
  const CastPolicy policy = policy_of(profile, rounding);
  const auto run = [&](auto in, auto result) {
    const py::gil_scoped_release release;
    cast_to_representable(format.format, policy, in, scale, result, threads);
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

/// float32 or float64 by way of another format: codes, or where they differ from the direct ones.
void encode_via_array(const py::array& x, const std::string& source, Array<std::uint8_t> out, const OwnFormat& format,
                      const OwnProfile& profile, const std::optional<std::string>& rounding, const OwnFormat& via,
                      const OwnProfile& via_profile, const std::optional<std::string>& via_rounding, int threads) {
  const CastStep step{via.format, policy_of(via_profile, via_rounding)};
  const CastPolicy policy = policy_of(profile, rounding);
  const auto codes = mutable_view(out);
  const auto run = [&](auto in) {
    const py::gil_scoped_release release;
    encode_via(step, format.format, policy, in, codes, threads);
  };
  if (source == "float32") return run(view(py::cast<Array<float>>(x)));
  run(view(py::cast<Array<double>>(x)));
}

std::pair<std::size_t, std::vector<std::size_t>> differences(const py::array& x, const std::string& source,
                                                             const OwnFormat& format, const OwnProfile& profile,
                                                             const std::optional<std::string>& rounding,
                                                             const OwnFormat& via, const OwnProfile& via_profile,
                                                             const std::optional<std::string>& via_rounding,
                                                             std::size_t most, int threads) {
  const CastStep step{via.format, policy_of(via_profile, via_rounding)};
  const CastPolicy policy = policy_of(profile, rounding);
  const auto run = [&](auto in) {
    const py::gil_scoped_release release;
    const ChainDifferences found = chain_differences(step, format.format, policy, in, most, threads);
    return std::pair(found.count, found.indices);
  };
  if (source == "float32") return run(view(py::cast<Array<float>>(x)));
  return run(view(py::cast<Array<double>>(x)));
}

OwnFormat make_format(int exponent_bits, int mantissa_bits, int bias, bool is_signed, bool has_subnormals,
                      const std::string& specials, const std::optional<std::string>& name) {
  const Format format{exponent_bits, mantissa_bits,  bias,
                      is_signed,     has_subnormals, find_value<Specials>("specials", specials)};
  check_format(format);
  OwnFormat own = named_or_own(format);
  if (name && *name != own.name) own = {*name, "made up by the user", format};
  return own;
}

/// A profile of keywords: a name, and the fields of its policy. Doubles give the NaN of the others where they are not
/// asked for.
OwnProfile make_profile(const py::args& positional, const py::kwargs& given) {
  if (!positional.empty()) throw py::type_error("Profile takes keyword arguments only");
  const py::dict fields = given.attr("copy")();
  std::string name = "own";
  if (fields.contains("name")) {
    const py::object own = fields.attr("pop")("name");
    if (!py::isinstance<py::str>(own)) throw py::type_error("name must be a str");
    try {
      name = own.cast<std::string>();
    } catch (const py::cast_error&) {  // half of a pair of surrogates
      throw py::value_error("name must have characters that UTF-8 has");
    }
  }
  if (!fields.contains("nan_of_double") || fields["nan_of_double"].is_none()) {
    fields["nan_of_double"] = fields.contains("nan") ? py::object(fields["nan"]) : fields_of(CastPolicy{})["nan"];
  }
  return {name, "made up by the user", record_of<CastPolicy>(fields)};
}

OwnFormat own(const NamedFormat& named) {
  return {std::string(named.name), std::string(named.description), named.format};
}
OwnProfile own(const Profile& named) { return {std::string(named.name), std::string(named.source), named.policy}; }

void bind_formats(py::module_& module) {
  py::class_<OwnFormat> bound(module, "Format");
  bound
      .def(py::init(&make_format), py::arg("exponent_bits"), py::arg("mantissa_bits"), py::arg("bias"), py::kw_only(),
           py::arg("is_signed") = true, py::arg("has_subnormals") = true, py::arg("specials") = "ieee",
           py::arg("name") = py::none(),
           "A format of one's own, of at most 16 bits, whose values float32 can hold; ValueError otherwise.\n\n"
           "specials: ieee, nan_at_all_ones, nan_at_negative_zero or none.")
      .def_readonly("name", &OwnFormat::name)
      .def_readonly("description", &OwnFormat::description)
      .def_property_readonly("bits", [](const OwnFormat& f) { return f.format.bits(); })
      .def_property_readonly("max", [](const OwnFormat& f) { return max_value(f.format); })
      .def(
          "__eq__", [](const OwnFormat& f, const OwnFormat& g) { return f.format == g.format; }, py::is_operator())
      .def("__hash__", [](const OwnFormat& f) { return py::hash(py::str(format_name(f.format))); })
      .def("__str__", [](const OwnFormat& f) { return f.name + ": " + f.description; })
      .def("_repr_html_", &html_by_python)
      .def("__repr__", [](const OwnFormat& f) { return "<fp8lab.Format " + f.name + ">"; });
  bind_record<Format>(bound, &OwnFormat::format);
  module.def("formats", [] {
    std::vector<OwnFormat> list;
    for (const NamedFormat& named : named_formats) list.push_back(own(named));
    return list;
  });
  module.def("find_format", [](const std::string& name) { return own(find_format(name)); }, py::arg("name"));
}

void bind_profiles(py::module_& module) {
  py::class_<OwnProfile> bound(module, "Profile");
  {
    py::options options;
    options.disable_function_signatures();
    const std::string words =
        "A profile of one's own; describe it with str(). ValueError for unknown names, which lists the known ones.";
    bound.def(py::init(&make_profile),
              (signature_of<CastPolicy>("Profile", ", name: str = 'own'", "nan_of_double") + "\n\n" + words).c_str());
  }
  bind_record<CastPolicy>(bound, &OwnProfile::policy);
  bound.def_readonly("name", &OwnProfile::name)
      .def_property_readonly("description", [](const OwnProfile& p) { return describe(p.policy); })
      .def_readonly("source", &OwnProfile::source)
      .def(
          "__eq__", [](const OwnProfile& p, const OwnProfile& q) { return p.name == q.name && p.policy == q.policy; },
          py::is_operator())
      .def("__hash__", [](const OwnProfile& p) { return py::hash(py::str(p.name + describe(p.policy))); })
      .def("__str__", [](const OwnProfile& p) { return p.name + ": " + describe(p.policy) + " [" + p.source + "]"; })
      .def("__repr__", [](const OwnProfile& p) { return "<fp8lab.Profile " + p.name + ">"; });
  module.def("profiles", [] {
    std::vector<OwnProfile> list;
    for (const Profile& named : profiles) list.push_back(own(named));
    return list;
  });
  module.def("find_profile", [](const std::string& name) { return own(find_profile(name)); }, py::arg("name"));
}

}  // namespace

NamedOrOwnProfile named_or_own(const CastPolicy& policy) {
  for (const Profile& named : profiles) {
    if (named.policy == policy) return own(named);
  }
  return {"own", "made up by the user", policy};
}

NamedOrOwnFormat named_or_own(const Format& format) {
  for (const NamedFormat& named : named_formats) {
    if (named.format == format) return own(named);
  }
  return {format_name(format), "made up by the user", format};
}

void bind_casts(py::module_& module) {
  bind_formats(module);
  bind_profiles(module);
  module.def(
      "refuse_name",
      [](const std::string& kind, const std::string& name, const std::vector<std::string>& known) {
        refuse_name(kind, name, std::vector<std::string_view>(known.begin(), known.end()));
      },
      py::arg("kind"), py::arg("name"), py::arg("known"));
  module.def("roundings", [] {
    std::vector<std::string> names;
    for (const Named<Rounding>& named : named_roundings) names.emplace_back(named.name);
    return names;
  });
  module.def("encode", &encode_array, py::arg("x"), py::arg("source"), py::arg("out"), py::arg("format"),
             py::arg("profile"), py::arg("rounding"), py::arg("random_bits"), py::arg("count"), py::arg("ptx"),
             py::arg("threads"));
  module.def("decode", &decode_array, py::arg("codes"), py::arg("out").noconvert(), py::arg("format"),
             py::arg("threads"));
  module.def("cast_to_representable", &cast_array, py::arg("x"), py::arg("source"), py::arg("out"), py::arg("format"),
             py::arg("scale"), py::arg("profile"), py::arg("rounding"), py::arg("threads"));
  module.def("encode_via", &encode_via_array, py::arg("x"), py::arg("source"), py::arg("out").noconvert(),
             py::arg("format"), py::arg("profile"), py::arg("rounding"), py::arg("via"), py::arg("via_profile"),
             py::arg("via_rounding"), py::arg("threads"));
  module.def("chain_differences", &differences, py::arg("x"), py::arg("source"), py::arg("format"), py::arg("profile"),
             py::arg("rounding"), py::arg("via"), py::arg("via_profile"), py::arg("via_rounding"), py::arg("most"),
             py::arg("threads"));
  module.def(
      "pack_pairs",
      [](const Array<std::uint8_t>& codes, Array<std::uint8_t> out) {
        const auto bytes = mutable_view(out);
        const py::gil_scoped_release release;
        pack_pairs(view(codes), bytes);
      },
      py::arg("codes").noconvert(), py::arg("out").noconvert());
  module.def(
      "unpack_pairs",
      [](const Array<std::uint8_t>& packed, Array<std::uint8_t> out) {
        const auto codes = mutable_view(out);
        const py::gil_scoped_release release;
        unpack_pairs(view(packed), codes);
      },
      py::arg("packed").noconvert(), py::arg("out").noconvert());
}

}  // namespace fp8lab::bindings
