// SPDX-License-Identifier: Apache-2.0
#include "kit/json.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace fp8lab::experiments {
namespace {

std::string as_json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// A number, or null, as nlohmann writes it.
std::string number(double x) { return nlohmann::json(x).dump(); }

void new_line(std::string& out, std::size_t depth) {
  out += '\n';
  out.append(depth, ' ');
}

/// Values between brackets, one a line; append(value) writes one.
template <typename Values, typename Append>
void append_all(std::string& out, char open, const Values& values, char close, std::size_t depth,
                const Append& append) {
  out += open;
  bool is_first = true;
  for (const auto& value : values) {
    if (!std::exchange(is_first, false)) out += ',';
    new_line(out, depth + 1);
    append(value);
  }
  if (!is_first) new_line(out, depth);
  out += close;
}

}  // namespace

Json::Json(const Json& other) {
  std::visit(
      [this]<typename T>(const T& value) {
        if constexpr (requires { *value; }) {
          value_ = std::make_unique<typename T::element_type>(*value);
        } else {
          value_ = value;
        }
      },
      other.value_);
}

Json& Json::operator[](std::string_view key) {
  if (std::holds_alternative<std::monostate>(value_)) value_ = std::make_unique<Object>();
  Object& members = *std::get<std::unique_ptr<Object>>(value_);
  const auto found = std::ranges::find(members, key, &Member::first);
  return found != members.end() ? found->second : members.emplace_back(key, Json()).second;
}

void Json::push_back(Json value) {
  if (std::holds_alternative<std::monostate>(value_)) value_ = std::make_unique<Array>();
  std::get<std::unique_ptr<Array>>(value_)->push_back(std::move(value));
}

std::string Json::text() const {
  std::string out;
  append_to(out, 0);
  return out;
}

void Json::append_to(std::string& out, std::size_t depth) const {
  struct Append {
    std::string& out;
    std::size_t depth;

    void operator()(std::monostate /*null*/) const { out += "null"; }
    void operator()(bool value) const { out += value ? "true" : "false"; }
    void operator()(std::int64_t value) const { out += std::to_string(value); }
    void operator()(std::uint64_t value) const { out += std::to_string(value); }
    void operator()(double value) const { out += number(value); }
    void operator()(const std::unique_ptr<std::string>& text) const { out += as_json_text(*text); }
    void operator()(const std::unique_ptr<Array>& values) const {
      append_all(out, '[', *values, ']', depth, [&](const Json& value) { value.append_to(out, depth + 1); });
    }
    void operator()(const std::unique_ptr<Object>& members) const {
      append_all(out, '{', *members, '}', depth, [&](const Member& member) {
        out += as_json_text(member.first);
        out += ": ";
        member.second.append_to(out, depth + 1);
      });
    }
  };
  std::visit(Append{out, depth}, value_);
}

}  // namespace fp8lab::experiments
