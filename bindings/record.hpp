// SPDX-License-Identifier: Apache-2.0
// Records in Python, by for_fields(): each field becomes a property, a keyword of the constructor and an entry of a
// dict under the name that for_fields() gives it.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/policy_names.hpp"
#include "fp8lab/reference/gemm/gemm_recipe_names.hpp"
#include "fp8lab/reference/scaling/recipe_names.hpp"
#include "module.hpp"

namespace fp8lab::bindings {

/// How Python has a field: its Type here, its name in a signature and in a message, and how each is made of the other.
/// A field of a type that has no such record gets no property. Specialise it for others.
template <typename Field>
struct PythonField;

template <typename Field>
concept HasPythonType = requires { typename PythonField<Field>::Type; };
/// False for an enumeration whose names this unit has not seen: its fields would be left out without a word.
template <typename Field>
inline constexpr bool sees_names = !std::is_enum_v<Field> || HasPythonType<Field>;
template <typename Field>
concept IsMadeByPython = HasPythonType<Field> && requires(const typename PythonField<Field>::Type& value) {
  { PythonField<Field>::made("", value) } -> std::convertible_to<Field>;
};

template <>
struct PythonField<bool> {
  using Type = bool;
  static constexpr const char* type = "bool";
  static constexpr const char* words = "a bool";
  static bool is(const py::handle& value) { return py::isinstance<py::bool_>(value); }
  static bool told(bool field) { return field; }
  static bool made(const char* /*name*/, bool value) { return value; }
  static std::string text(bool field) { return field ? "True" : "False"; }
};
template <typename Number>
  requires std::integral<Number> && (!std::same_as<Number, bool>)
struct PythonField<Number> {
  using Type = Number;
  static constexpr const char* type = "int";
  static constexpr const char* words = "an int that fits";
  static bool is(const py::handle& value) {
    return py::isinstance<py::int_>(value) && !py::isinstance<py::bool_>(value);
  }
  static Number told(Number field) { return field; }
  static Number made(const char* /*name*/, Number value) { return value; }
  static std::string text(Number field) { return std::to_string(field); }
};
template <std::floating_point Number>
struct PythonField<Number> {
  using Type = Number;
  static constexpr const char* type = "float";
  static constexpr const char* words = "a float";
  static bool is(const py::handle& value) { return py::isinstance<py::float_>(value) || PythonField<int>::is(value); }
  static Number told(Number field) { return field; }
  static Number made(const char* /*name*/, Number value) { return value; }
  static std::string text(Number field) { return std::string(py::str(py::repr(py::cast(field)))); }
};
/// A name that is not for Python to make: it would have to outlive the record.
template <>
struct PythonField<std::string_view> {
  using Type = std::string;
  static std::string told(std::string_view field) { return std::string(field); }
};
/// An enumerator is its name.
template <NamedEnum Value>
struct PythonField<Value> {
  using Type = std::string;
  static constexpr const char* type = "str";
  static constexpr const char* words = "a name (str)";
  static bool is(const py::handle& value) { return py::isinstance<py::str>(value); }
  static std::string told(Value field) { return std::string(name_of(field)); }
  static Value made(const char* name, const std::string& value) { return find_value<Value>(name, value); }
  static std::string text(Value field) { return "'" + told(field) + "'"; }
};
template <>
struct PythonField<Format> {
  using Type = NamedOrOwnFormat;
  static constexpr const char* type = "fp8lab._core.Format";
  static constexpr const char* words = "a Format";
  static bool is(const py::handle& value) { return py::isinstance<NamedOrOwnFormat>(value); }
  static NamedOrOwnFormat told(const Format& field) { return named_or_own(field); }
  static Format made(const char* /*name*/, const NamedOrOwnFormat& value) { return value.format; }
  static std::string text(const Format& /*field*/) { return "..."; }
};
template <>
struct PythonField<CastPolicy> {
  using Type = NamedOrOwnProfile;
  static constexpr const char* type = "fp8lab._core.Profile";
  static constexpr const char* words = "a Profile";
  static bool is(const py::handle& value) { return py::isinstance<NamedOrOwnProfile>(value); }
  static NamedOrOwnProfile told(const CastPolicy& field) { return named_or_own(field); }
  static CastPolicy made(const char* /*name*/, const NamedOrOwnProfile& value) { return value.policy; }
  static std::string text(const CastPolicy& /*field*/) { return "..."; }
};

template <>
struct PythonField<MmaModel> {
  using Type = MmaModel;
  static constexpr const char* type = "fp8lab._core.MmaModel";
  static constexpr const char* words = "an MmaModel";
  static bool is(const py::handle& value) { return py::isinstance<MmaModel>(value); }
  static const MmaModel& told(const MmaModel& field) { return field; }
  static const MmaModel& made(const char* /*name*/, const MmaModel& value) { return value; }
  static std::string text(const MmaModel& /*field*/) { return "..."; }
};
/// (ways, granule, window), or None where K ascends.
template <>
struct PythonField<KOrder> {
  using Sizes = std::tuple<std::size_t, std::size_t, std::size_t>;
  using Type = std::optional<Sizes>;
  static constexpr const char* type = "tuple[int, int, int] | None";
  static constexpr const char* words = "three ints, (ways, granule, window), or None";
  static bool is(const py::handle& value) { return value.is_none() || py::isinstance<py::tuple>(value); }
  static Type told(const KOrder& field) {
    if (field.ways == 1) return std::nullopt;
    return Sizes{field.ways, field.granule, field.window};
  }
  static KOrder made(const char* /*name*/, const Type& value) {
    return value ? std::make_from_tuple<KOrder>(*value) : KOrder{};
  }
  static std::string text(const KOrder& /*field*/) { return "None"; }
};
template <>
struct PythonField<std::vector<std::size_t>> {
  using Type = py::tuple;
  static constexpr const char* type = "tuple[int, ...]";
  static constexpr const char* words = "a tuple of ints";
  static bool is(const py::handle& value) { return py::isinstance<py::tuple>(value); }
  static py::tuple told(const std::vector<std::size_t>& field) { return py::tuple(py::cast(field)); }
  static std::vector<std::size_t> made(const char* /*name*/, const py::tuple& value) {
    return value.cast<std::vector<std::size_t>>();
  }
  static std::string text(const std::vector<std::size_t>& /*field*/) { return "()"; }
};
/// None where there is no value.
template <HasPythonType Value>
struct PythonField<std::optional<Value>> {
  using Field = std::optional<Value>;
  using Python = PythonField<Value>;
  using Type = std::optional<typename Python::Type>;
  static constexpr const char* words = Python::words;
  static bool is(const py::handle& value) { return value.is_none() || Python::is(value); }
  static Type told(const Field& field) { return field ? Type(Python::told(*field)) : std::nullopt; }
  static Field made(const char* name, const Type& value) { return value ? Field(Python::made(name, *value)) : Field(); }
};

/// The name of an object's type, without its module.
inline std::string kind_of(const py::handle& value) {
  const std::string_view name = Py_TYPE(value.ptr())->tp_name;
  return std::string(name.substr(name.rfind('.') + 1));  // npos + 1 is 0
}

/// Gives a Python class a read-only property for each field of the record in an object of it: record_in is a member of
/// the object, or a function of it; by default the object itself is the record.
template <typename Record, typename Class, typename RecordIn = std::identity>
void bind_record(Class& bound, const RecordIn& record_in = {}) {
  using Bound = typename Class::type;
  const Record any{};
  for_fields(any, [&]<typename Field>(const char* name, const Field& /*of_any*/) {
    static_assert(sees_names<Field>);
    if constexpr (HasPythonType<Field>) {
      using Python = PythonField<Field>;
      bound.def_property_readonly(name, [name, record_in](const Bound& object) {
        const Record& record = std::invoke(record_in, object);
        const Field* found = nullptr;
        for_fields(record, [&]<typename Other>(const char* other, const Other& field) {
          if constexpr (std::same_as<Other, Field>) {
            if (std::string_view(other) == name) found = &field;
          }
        });
        return typename Python::Type(Python::told(*found));
      });
    }
  });
}

/// The fields of a record by name, as the properties have them.
template <typename Record>
py::dict fields_of(const Record& record) {
  py::dict fields;
  for_fields(record, [&]<typename Field>(const char* name, const Field& field) {
    static_assert(sees_names<Field>);
    if constexpr (HasPythonType<Field>) fields[name] = PythonField<Field>::told(field);
  });
  return fields;
}

/// `record` with the fields of a dict in place of its own. Throws std::invalid_argument for a value that a field cannot
/// have, and TypeError for a field that there is not and for a value of another type; the message names the field.
template <typename Record>
Record record_of(const py::dict& fields, Record record = {}) {
  std::size_t used = 0;
  for_fields(record, [&]<typename Field>(const char* name, Field& field) {
    static_assert(sees_names<Field>);
    if constexpr (IsMadeByPython<Field>) {
      if (!fields.contains(name)) return;
      ++used;
      using Python = PythonField<Field>;
      const py::object value = fields[name];
      try {
        if (!Python::is(value)) throw py::cast_error();
        field = Python::made(name, value.cast<typename Python::Type>());
      } catch (const py::cast_error&) {
        throw py::type_error(std::string(name) + " must be " + Python::words + ", not " + kind_of(value));
      }
    }
  });
  if (used == fields.size()) return record;
  for (const auto& entry : fields) {
    const std::string given = std::string(py::str(entry.first));
    bool is_known = false;
    for_fields(record, [&]<typename Field>(const char* name, const Field& /*field*/) {
      is_known = is_known || (IsMadeByPython<Field> && given == name);
    });
    if (!is_known) throw py::type_error("unexpected keyword argument '" + given + "'");
  }
  return record;
}

/// The signature of a constructor whose keywords are the fields of a record, with their defaults, behind `first`. It is
/// for the docstring of one that takes py::kwargs, of whose keywords pybind11 knows nothing. `follows` is a field that
/// follows from others where it is None.
template <typename Record>
std::string signature_of(const std::string& class_name, const std::string& first = "", std::string_view follows = "") {
  std::string text = "__init__(self: fp8lab._core." + class_name + ", *" + first;
  const Record any{};
  for_fields(any, [&]<typename Field>(const char* name, const Field& field) {
    if constexpr (IsMadeByPython<Field>) {
      using Python = PythonField<Field>;
      text += std::string(", ") + name + ": " + Python::type;
      text += follows == name ? " | None = None" : " = " + Python::text(field);
    }
  });
  return text + ") -> None";
}

/// The names that each field of names may have, by field.
template <typename Record>
py::dict choices_of() {
  py::dict all;
  const Record any{};
  const auto add = [&]<NamedEnum Value>(const char* name, Value value) {
    std::vector<std::string> names;
    for (const auto& one : named_values(value)) names.emplace_back(one.name);
    all[name] = names;
  };
  for_fields(any, [&]<typename Field>(const char* name, const Field& /*field*/) {
    if constexpr (NamedEnum<Field>) {
      add(name, Field{});
    } else if constexpr (requires { requires NamedEnum<typename Field::value_type>; }) {  // std::optional
      add(name, typename Field::value_type{});
    }
  });
  return all;
}

}  // namespace fp8lab::bindings
