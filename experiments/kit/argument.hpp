// SPDX-License-Identifier: Apache-2.0
// The arguments of an experiment, each described once. The command line's options and their help, Python's signatures,
// docstrings and checks, and the arguments in a document come from this description.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "files/amax_trace.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "fp8lab/reference/scaling/delayed_scaling.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "kit/chosen.hpp"
#include "kit/json.hpp"
#include "kit/tensor_source.hpp"

namespace fp8lab::experiments {

/// A value as the command line (a text) or Python (a number, a name or a record) gives it.
using Entry = std::variant<std::string, bool, std::int64_t, std::uint64_t, double, ChosenFormat, ChosenProfile,
                           MmaModel, Distribution, DelayedVersion, ChosenRecipe, ChosenLinearRecipe, ChosenGemmRecipe,
                           Delayed, HeldTensor, OutlierLines, AmaxTrace>;

/// The kind of an entry, by which Python checks its type.
enum class Kind : std::uint8_t {
  flag,
  integer,
  number,
  name,
  path,
  format,
  profile,
  model,
  distribution,
  version,
  recipe,
  linear_recipe,
  gemm_recipe,
  delayed,   ///< ALGORITHM:LENGTH
  tensor,    ///< an array; Python alone gives one
  outliers,  ///< COUNT,FACTOR
  trace,     ///< amaxes: a path, or in Python a mapping, too
  amax       ///< a magnitude, or "auto"
};
[[nodiscard]] std::span<const Named<Kind>> named_values(Kind of_type);

/// A number that is written in `text` and nothing else; whole numbers also as 1e6 and 1.5e3. Throws
/// std::invalid_argument where it is none or does not fit.
[[nodiscard]] std::int64_t parse_integer(const std::string& text);
[[nodiscard]] std::uint64_t parse_unsigned(const std::string& text);
[[nodiscard]] double parse_real(const std::string& text);
/// COUNT,FACTOR, two such numbers.
[[nodiscard]] OutlierLines parse_outliers(const std::string& text);

/// How a value of type T is made of an entry, and told in a document. Others may be added beside these.
template <typename T>
struct ArgumentType;

template <>
struct ArgumentType<bool> {
  static constexpr Kind kind = Kind::flag;
  static bool from(const Entry& entry) { return std::get<bool>(entry); }
  static Json json(bool value) { return value; }
};
template <std::integral T>
struct ArgumentType<T> {
  static constexpr Kind kind = Kind::integer;
  static T from(const Entry& entry) {
    if (const auto* text = std::get_if<std::string>(&entry)) {
      if constexpr (std::is_signed_v<T>) {
        return narrowed(parse_integer(*text));
      } else {
        return narrowed(parse_unsigned(*text));
      }
    }
    if (const auto* number = std::get_if<std::uint64_t>(&entry)) return narrowed(*number);
    return narrowed(std::get<std::int64_t>(entry));
  }
  static Json json(T value) { return value; }

 private:
  template <typename Number>
  static T narrowed(Number number) {
    if (!std::in_range<T>(number)) {
      throw std::invalid_argument(std::to_string(number) + " is out of range");
    }
    return static_cast<T>(number);
  }
};
template <std::floating_point T>
struct ArgumentType<T> {
  static constexpr Kind kind = Kind::number;
  static T from(const Entry& entry) {
    if (const auto* text = std::get_if<std::string>(&entry)) return static_cast<T>(parse_real(*text));
    if (const auto* number = std::get_if<std::int64_t>(&entry)) return static_cast<T>(*number);
    return static_cast<T>(std::get<double>(entry));
  }
  static Json json(T value) { return value; }
};
template <>
struct ArgumentType<std::string> {
  static constexpr Kind kind = Kind::name;
  static std::string from(const Entry& entry) { return std::get<std::string>(entry); }
  static Json json(const std::string& value) { return value; }
};
template <>
struct ArgumentType<std::filesystem::path> {
  static constexpr Kind kind = Kind::path;
  static std::filesystem::path from(const Entry& entry) { return std::get<std::string>(entry); }
  static Json json(const std::filesystem::path& value) { return value.native(); }
};
/// An enumerator is its name; `field` is the argument, for the message about a name that is none.
template <NamedEnum T>
struct ArgumentType<T> {
  static constexpr Kind kind = Kind::name;
  static T from(const Entry& entry, const std::string& field) {
    return find_value<T>(field, std::get<std::string>(entry));
  }
  static Json json(T value) { return name_of(value); }
};
/// A rounding that needs no random bits, which no experiment draws.
template <>
struct ArgumentType<Rounding> {
  static constexpr Kind kind = Kind::name;
  static Rounding from(const Entry& entry) { return choose_rounding(std::get<std::string>(entry)); }
  static Json json(Rounding value) { return name_of(value); }
};
/// A record with a name, found by it, or given as it is.
template <typename T, Kind its_kind, auto find>
struct NamedArgument {
  static constexpr Kind kind = its_kind;
  static T from(const Entry& entry) {
    if (const auto* name = std::get_if<std::string>(&entry)) return find(*name);
    return std::get<T>(entry);
  }
  static Json json(const T& value) { return value.name; }
};
template <>
struct ArgumentType<ChosenFormat> : NamedArgument<ChosenFormat, Kind::format, choose_format> {};
template <>
struct ArgumentType<ChosenProfile> : NamedArgument<ChosenProfile, Kind::profile, choose_profile> {};
template <>
struct ArgumentType<MmaModel> : NamedArgument<MmaModel, Kind::model, find_model> {};
template <>
struct ArgumentType<Distribution> : NamedArgument<Distribution, Kind::distribution, find_distribution> {};
template <>
struct ArgumentType<DelayedVersion> : NamedArgument<DelayedVersion, Kind::version, find_delayed_version> {};
template <>
struct ArgumentType<ChosenRecipe> : NamedArgument<ChosenRecipe, Kind::recipe, choose_recipe> {};
template <>
struct ArgumentType<ChosenLinearRecipe> : NamedArgument<ChosenLinearRecipe, Kind::linear_recipe, choose_linear_recipe> {
};
template <>
struct ArgumentType<ChosenGemmRecipe> : NamedArgument<ChosenGemmRecipe, Kind::gemm_recipe, choose_gemm_recipe> {};
template <>
struct ArgumentType<ChosenDelayed> {
  static constexpr Kind kind = Kind::delayed;
  static ChosenDelayed from(const Entry& entry) {
    if (const auto* text = std::get_if<std::string>(&entry)) return {*text, choose_delayed(*text)};
    return {"", std::get<Delayed>(entry)};
  }
  static Json json(const ChosenDelayed& value) { return value.text.empty() ? describe(value.recipe) : value.text; }
};
template <>
struct ArgumentType<HeldTensor> {
  static constexpr Kind kind = Kind::tensor;
  static HeldTensor from(const Entry& entry) { return std::get<HeldTensor>(entry); }
  static Json json(const HeldTensor& value) {
    return {{"type", name_of(Tensor(value.values).type())},
            {"rows", value.values.rows()},
            {"columns", value.values.columns()}};
  }
};
template <>
struct ArgumentType<ChosenAmax> {
  static constexpr Kind kind = Kind::amax;
  static ChosenAmax from(const Entry& entry) {
    if (const auto* text = std::get_if<std::string>(&entry); text != nullptr && *text == "auto") return {};
    return {ArgumentType<double>::from(entry)};
  }
  static Json json(const ChosenAmax& value) { return value.amax ? Json(*value.amax) : Json("auto"); }
};
template <>
struct ArgumentType<OutlierLines> {
  static constexpr Kind kind = Kind::outliers;
  static OutlierLines from(const Entry& entry) {
    const auto* text = std::get_if<std::string>(&entry);
    return text != nullptr ? parse_outliers(*text) : std::get<OutlierLines>(entry);
  }
  static Json json(const OutlierLines& value) { return {{"count", value.count}, {"factor", value.factor}}; }
};

/// One argument: what it is called, what it takes, and where its value goes.
struct Argument {
  std::string name;  ///< Python's; the command line's option is the same with dashes
  Kind kind;
  bool is_list = false;
  bool is_optional = false;  ///< None in Python, and null in a document, where it is not given
  std::string help;
  std::string metavar = {};                ///< stands for the value in --help; by default it follows from the kind
  std::string otherwise = {};              ///< what happens where it is not given, in words; empty: `value` tells
  std::vector<std::string> excludes = {};  ///< arguments that may not be given with it
  std::vector<std::string> needs = {};     ///< arguments without which it may not be given
  bool repeats = false;                    ///< a list may have an entry twice
  bool takes_none = false;                 ///< a list may be empty: the text "none"
  bool words = false;                      ///< a list's entries are words at the command line, not separated by commas
  std::string other_option = {};           ///< a second name of the command line's option, or empty
  std::int64_t least = 0;                  ///< of integers: what the type has
  std::uint64_t most = 0;
  bool python = true, command_line = true;  ///< who offers it
  std::string spelling = {};                ///< the option, where it is not the name with dashes
  std::string option_help = {};             ///< what the option does, where it is not `help`
  bool sets = true;                         ///< what the option of a flag sets it to
  bool is_positional = false;               ///< it may be given without its name: at the command line as its metavar
  std::function<void(const std::vector<Entry>&)> set = {};
  std::function<Json()> value = {};

  // Chained behind ArgumentList::add().
  Argument& excluding(std::initializer_list<const char*> names) {
    return excludes.assign(names.begin(), names.end()), *this;
  }
  Argument& needing(std::initializer_list<const char*> names) {
    return needs.assign(names.begin(), names.end()), *this;
  }
  Argument& called(std::string text) { return metavar = std::move(text), *this; }
  Argument& by_default(std::string text) { return otherwise = std::move(text), *this; }
  Argument& as_words() { return words = true, *this; }
  Argument& also_called(std::string option) { return other_option = std::move(option), *this; }
  Argument& with_repeats() { return repeats = true, *this; }
  Argument& or_none();
  Argument& only_python() { return command_line = false, *this; }
  Argument& only_command_line() { return python = false, *this; }

  /// An option of another name, and what it does where that is not `help`.
  Argument& spelled(std::string option, std::string text = {}) {
    spelling = std::move(option);
    option_help = std::move(text);
    return *this;
  }
  /// A flag that is on by default has an option that sets it off: its name, and what it does.
  Argument& switched_off_by(std::string option, std::string text) {
    sets = false;
    return spelled(std::move(option), std::move(text));
  }
  Argument& positional() { return is_positional = true, *this; }

  /// The option of the command line, such as "--via-roundings".
  [[nodiscard]] std::string option() const;
};

/// The arguments of an experiment, bound to the values of one call.
class ArgumentList {
 public:
  /// Adds an argument whose value, by default what it is now, is made of an entry by ArgumentType. Help is a phrase.
  template <typename T>
  Argument& add(std::string name, T& value, std::string help) {
    using Type = ArgumentType<T>;
    const auto from = maker<T>(name);
    return ranged<T>(bind(std::move(name), Type::kind, std::move(help), value, from, Type::json));
  }
  template <typename T>
  Argument& add(std::string name, std::vector<T>& values, std::string help) {
    using Type = ArgumentType<T>;
    const auto from = maker<T>("entry of " + name);
    return ranged<T>(add_list(std::move(name), Type::kind, std::move(help), values, from, Type::json));
  }
  template <typename T>
  Argument& add(std::string name, std::optional<T>& value, std::string help) {
    using Type = ArgumentType<T>;
    const auto from = maker<T>(name);
    Argument& argument = bind(std::move(name), Type::kind, std::move(help), value, from,
                              [](const std::optional<T>& one) { return one ? Type::json(*one) : Json(nullptr); });
    argument.is_optional = true;
    return ranged<T>(argument);
  }
  /// The same for values with names of their own: choose(name) gives one, name_of(value) its name.
  template <typename T, typename Find, typename NameOf>
  Argument& add_named(std::string name, T& value, std::string help, Find choose, NameOf name_of) {
    return bind(std::move(name), Kind::name, std::move(help), value, by_name(choose),
                [name_of](const T& one) { return Json(std::string(name_of(one))); });
  }
  template <typename T, typename Find, typename NameOf>
  Argument& add_named(std::string name, std::vector<T>& values, std::string help, Find choose, NameOf name_of) {
    return add_list(std::move(name), Kind::name, std::move(help), values, by_name(choose),
                    [name_of](const T& one) { return Json(std::string(name_of(one))); });
  }
  /// The argument `threads`: the command line takes all that the machine has.
  void add_threads(int& threads);

  [[nodiscard]] std::vector<Argument>& all() { return all_; }
  [[nodiscard]] const std::vector<Argument>& all() const { return all_; }
  [[nodiscard]] Argument& find(std::string_view name);
  /// The values as an object; without `threads`, which changes no result.
  [[nodiscard]] Json json() const;
  /// Says which arguments an argument excludes and needs, such as "not with --grid; only with --file"; `spelled` gives
  /// the name that the user knows, or an empty text for an argument that this user is not offered.
  [[nodiscard]] std::string conditions(const Argument& argument,
                                       const std::function<std::string(const Argument&)>& spelled) const;
  /// Throws std::invalid_argument where one of the arguments of these names excludes or needs another; `spelled` gives
  /// the name that the user knows.
  void check_given(const std::vector<std::string>& given,
                   const std::function<std::string(const std::string&)>& spelled) const;

 private:
  /// The function that makes a value of an entry; `field` is for a message.
  template <typename T>
  static auto maker(const std::string& field) {
    using Type = ArgumentType<T>;
    if constexpr (requires(const Entry& entry) { Type::from(entry, field); }) {
      return [field](const Entry& entry) { return Type::from(entry, field); };
    } else {
      return Type::from;
    }
  }
  template <typename T>
  static Argument& ranged(Argument& argument) {
    if constexpr (std::integral<T>) {
      argument.least = static_cast<std::int64_t>(std::numeric_limits<T>::min());
      argument.most = static_cast<std::uint64_t>(std::numeric_limits<T>::max());
    }
    return argument;
  }
  template <typename Find>
  static auto by_name(Find choose) {
    return [choose](const Entry& entry) {
      std::string name;
      if (const auto* model = std::get_if<MmaModel>(&entry)) {
        name = model->name;
      } else if (const auto* distribution = std::get_if<Distribution>(&entry)) {
        name = distribution->name;
      } else {
        name = std::get<std::string>(entry);
      }
      return choose(name);
    };
  }
  template <typename T, typename From, typename ToJson>
  Argument& bind(std::string name, Kind kind, std::string help, T& value, const From& from, ToJson to_json) {
    Argument& added = all_.emplace_back(Argument{.name = std::move(name), .kind = kind, .help = std::move(help)});
    added.set = [&value, from](const std::vector<Entry>& entries) { value = from(entries.front()); };
    added.value = [&value, to_json] { return to_json(value); };
    return added;
  }
  template <typename T, typename From, typename ToJson>
  Argument& add_list(std::string name, Kind kind, std::string help, std::vector<T>& values, const From& from,
                     ToJson to_json) {
    Argument& added =
        all_.emplace_back(Argument{.name = std::move(name), .kind = kind, .is_list = true, .help = std::move(help)});
    added.set = [&values, from](const std::vector<Entry>& entries) {
      values.clear();
      for (const Entry& entry : entries) values.push_back(from(entry));
    };
    added.value = [&values, to_json] {
      Json list = Json::array();
      for (const T& value : values) list.push_back(to_json(value));
      return list;
    };
    return added;
  }

  std::vector<Argument> all_;
};

}  // namespace fp8lab::experiments
