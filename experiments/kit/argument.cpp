// SPDX-License-Identifier: Apache-2.0
#include "kit/argument.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text.hpp"

namespace fp8lab::experiments {
namespace {

/// The number that std::from_chars reads from the whole text; none where it is not one.
template <typename T>
std::errc read(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return end == text.data() + text.size() && !text.empty() ? error : std::errc::invalid_argument;
}

/// CLI11 would read 010 as octal, and "" as 0.
template <typename T>
T parse_whole(const std::string& text) {
  T value{};
  std::errc error = read(text, value);
  if (error == std::errc{}) return value;
  double real = 0;
  if (read(text, real) == std::errc{} && real == std::trunc(real)) {
    error = std::errc::result_out_of_range;
    constexpr double exact = 0x1p53;  // up to here a float64 is the number that was written
    if (std::abs(real) <= exact && std::in_range<T>(static_cast<long long>(real))) {
      return static_cast<T>(static_cast<long long>(real));
    }
  }
  if (error == std::errc::result_out_of_range) {
    constexpr int bits = std::numeric_limits<T>::digits;
    constexpr bool is_signed = std::is_signed_v<T>;
    throw std::invalid_argument(in_quotes(text) + " is not from " + (is_signed ? "-2^" + std::to_string(bits) : "0") +
                                " to 2^" + std::to_string(bits) +
                                " - 1; from 2^53 on, write all digits, without an exponent");
  }
  throw std::invalid_argument(in_quotes(text) + " is not a whole number, such as 1000 or 1e6");
}

}  // namespace

std::span<const Named<Kind>> named_values(Kind /*any*/) {
  static constexpr std::array kinds{Named{"flag", Kind::flag},
                                    Named{"integer", Kind::integer},
                                    Named{"number", Kind::number},
                                    Named{"name", Kind::name},
                                    Named{"path", Kind::path},
                                    Named{"format", Kind::format},
                                    Named{"profile", Kind::profile},
                                    Named{"model", Kind::model},
                                    Named{"distribution", Kind::distribution},
                                    Named{"version", Kind::version},
                                    Named{"recipe", Kind::recipe},
                                    Named{"linear_recipe", Kind::linear_recipe},
                                    Named{"gemm_recipe", Kind::gemm_recipe},
                                    Named{"delayed", Kind::delayed},
                                    Named{"tensor", Kind::tensor},
                                    Named{"outliers", Kind::outliers},
                                    Named{"trace", Kind::trace},
                                    Named{"amax", Kind::amax}};
  static_assert(is_in_order(kinds));
  return kinds;
}

std::int64_t parse_integer(const std::string& text) { return parse_whole<std::int64_t>(text); }
std::uint64_t parse_unsigned(const std::string& text) { return parse_whole<std::uint64_t>(text); }
double parse_real(const std::string& text) {
  double value = 0;
  const std::errc error = read(text, value);
  if (error == std::errc{}) return value;
  throw std::invalid_argument(in_quotes(text) +
                              (error == std::errc::result_out_of_range ? " is out of range" : " is not a number"));
}

OutlierLines parse_outliers(const std::string& text) {
  const std::size_t comma = text.find(',');
  if (comma == std::string::npos) refuse(in_quotes(text), " must be two numbers, COUNT,FACTOR");
  return {parse_integer(text.substr(0, comma)), parse_real(text.substr(comma + 1))};
}

std::string Argument::option() const {
  if (!spelling.empty()) return spelling;
  std::string option = "--" + name;
  std::ranges::replace(option, '_', '-');
  return option;
}

Argument& Argument::or_none() {
  takes_none = true;
  set = [set = std::move(set)](const std::vector<Entry>& entries) {
    const auto* text = entries.size() == 1 ? std::get_if<std::string>(entries.data()) : nullptr;
    set(text != nullptr && *text == "none" ? std::vector<Entry>{} : entries);
  };
  return *this;
}

void ArgumentList::add_threads(int& threads) {
  add("threads", threads, "threads; they change nothing but the time").only_python();
}

Argument& ArgumentList::find(std::string_view name) {
  const auto found = std::ranges::find(all_, name, &Argument::name);
  if (found != all_.end()) return *found;
  std::vector<std::string_view> names;
  std::ranges::transform(all_, std::back_inserter(names),
                         [](const Argument& one) { return std::string_view(one.name); });
  refuse_name("argument", name, names);
}

Json ArgumentList::json() const {
  Json json = Json::object();
  for (const Argument& argument : all_) {
    const bool is_recorded = argument.name != "threads" && argument.name != "scheduler";  // they change no result
    if (is_recorded) json[argument.name] = argument.value();
  }
  return json;
}

std::string ArgumentList::conditions(const Argument& argument,
                                     const std::function<std::string(const Argument&)>& spelled) const {
  const auto listed = [&](const std::string& before, const std::vector<std::string>& names) {
    std::string text;
    for (const Argument& other : all_) {
      if (std::ranges::find(names, other.name) == names.end() || spelled(other).empty()) continue;
      text += (text.empty() ? before : ", ") + spelled(other);
    }
    return text;
  };
  const std::string excluded = listed("not with ", argument.excludes);
  const std::string needed = listed("only with ", argument.needs);
  return excluded + (excluded.empty() || needed.empty() ? "" : "; ") + needed;
}

void ArgumentList::check_given(const std::vector<std::string>& given,
                               const std::function<std::string(const std::string&)>& spelled) const {
  const auto is_given = [&](const std::string& name) { return std::ranges::find(given, name) != given.end(); };
  for (const Argument& argument : all_) {
    if (!is_given(argument.name)) continue;
    for (const std::string& other : argument.excludes) {
      if (is_given(other))
        throw std::invalid_argument(spelled(argument.name) + " cannot be given with " + spelled(other));
    }
    for (const std::string& other : argument.needs) {
      if (!is_given(other))
        throw std::invalid_argument(spelled(argument.name) + " can be given only with " + spelled(other));
    }
  }
}

}  // namespace fp8lab::experiments
