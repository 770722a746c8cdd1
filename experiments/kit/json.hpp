// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace fp8lab::experiments {

/// A value of JSON that is to be written; an object has its keys in the order in which they came. (nlohmann's own takes
/// memory to destroy an array or object, and so ends the program where there is none.)
class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;  // null
  Json(std::nullptr_t /*null*/) {}
  template <std::same_as<bool> T>
  Json(T value) : value_(value) {}
  template <typename T>
    requires std::integral<T> && (!std::same_as<T, bool>)
  Json(T value) {
    if constexpr (std::is_signed_v<T>) {
      value_ = static_cast<std::int64_t>(value);
    } else {
      value_ = static_cast<std::uint64_t>(value);
    }
  }
  template <std::floating_point T>
  Json(T value) : value_(static_cast<double>(value)) {}
  Json(const char* text) : Json(std::string_view(text)) {}
  Json(std::string_view text) : value_(std::make_unique<std::string>(text)) {}
  Json(const std::string& text) : Json(std::string_view(text)) {}
  /// An array of all its values.
  template <std::ranges::input_range Values>
    requires(!std::convertible_to<Values, std::string_view> && !std::same_as<std::remove_cvref_t<Values>, Json>)
  Json(const Values& values) : value_(std::make_unique<Array>()) {
    for (const auto& value : values) push_back(Json(value));
  }
  /// An object.
  Json(std::initializer_list<Member> members) : value_(std::make_unique<Object>(members)) {}

  Json(const Json& other);
  Json(Json&&) noexcept = default;
  Json& operator=(Json other) noexcept {
    value_ = std::move(other.value_);
    return *this;
  }
  ~Json() = default;

  // NOLINTBEGIN(modernize-return-braced-init-list): braces would be a list of values
  [[nodiscard]] static Json array() { return Json(Array{}); }
  [[nodiscard]] static Json object() { return Json(std::initializer_list<Member>{}); }
  // NOLINTEND(modernize-return-braced-init-list)

  /// The value of a key of an object, or of nothing yet; null where it is new.
  Json& operator[](std::string_view key);
  /// Appends to an array, or to nothing yet.
  void push_back(Json value);

  /// A value a line, indented by a blank a level. What is not UTF-8 is replaced; what is no number becomes null.
  [[nodiscard]] std::string text() const;

 private:
  void append_to(std::string& out, std::size_t depth) const;

  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::unique_ptr<std::string>,
               std::unique_ptr<Array>, std::unique_ptr<Object>>
      value_;
};

}  // namespace fp8lab::experiments
