// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <variant>

#include "files/tensor_file.hpp"
#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/formats/memory.hpp"
#include "fp8lab/formats/widen.hpp"

namespace fp8lab::experiments {

/// The name of the element type T.
template <typename T>
inline constexpr ElementType element_type = ElementType::uint8;
template <>
inline constexpr ElementType element_type<float> = ElementType::float32;
template <>
inline constexpr ElementType element_type<double> = ElementType::float64;
template <>
inline constexpr ElementType element_type<Half> = ElementType::float16;
template <>
inline constexpr ElementType element_type<BFloat16> = ElementType::bfloat16;

/// A whole tensor in memory, row-major, as a matrix: the last dimension gives the columns, all others together the
/// rows. It owns its values or views those of a caller, who keeps them. It moves, but is not copied.
class Tensor {
 public:
  Tensor() = default;
  /// A view of the caller's values.
  explicit Tensor(const MatrixView& held) : view_(held), has_values_(true) {}
  Tensor(Tensor&&) = default;
  Tensor& operator=(Tensor&&) = default;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() = default;

  /// Makes it a tensor that owns its values, which are not initialised. Memory that it has for this type is used again.
  template <typename T>
  std::span<T> allocate(std::size_t rows, std::size_t columns) {
    if (!std::holds_alternative<Buffer<T>>(own_)) own_.emplace<Buffer<T>>();
    auto& room = std::get<Buffer<T>>(own_);
    room.resize(rows * columns);
    view_ = MatrixView(std::span<const T>(room), rows, columns);
    has_values_ = true;
    return room;
  }

  /// Gives it other rows and columns, as many elements in all.
  void reshape(std::size_t rows, std::size_t columns) { view_ = MatrixView(view_.values(), rows, columns); }

  /// Whether it has values, or is known to have none. A tensor by default has not, and has no rows.
  [[nodiscard]] bool has_values() const { return has_values_; }
  [[nodiscard]] const MatrixView& view() const { return view_; }
  /// Rows [first, first + count).
  [[nodiscard]] MatrixView view(std::size_t first, std::size_t count) const;
  [[nodiscard]] std::size_t rows() const { return view_.rows(); }
  [[nodiscard]] std::size_t columns() const { return view_.columns(); }
  [[nodiscard]] std::size_t size() const { return view_.size(); }
  [[nodiscard]] ElementType type() const;

  /// Elements [first, first + count) in float32, to which float64 is rounded (to nearest even); the other types lose
  /// nothing. float32 is viewed where it lies, and the others are written into `room`.
  [[nodiscard]] std::span<const float> floats(std::size_t first, std::size_t count, Buffer<float>& room) const;

  /// Widens the elements into `out`.
  void widen(std::size_t first, std::span<float> out) const;

 private:
  std::variant<Buffer<float>, Buffer<double>, Buffer<Half>, Buffer<BFloat16>> own_;
  MatrixView view_{std::span<const float>(), 0, 0};
  bool has_values_ = false;
};

/// An element in float32: float64 is rounded to nearest even, the other types lose nothing.
template <typename T>
[[nodiscard]] float as_float32(T x) {
  if constexpr (std::is_same_v<T, double>) {
    return static_cast<float>(x);
  } else {
    return widened(x);
  }
}

/// Rounds float32 values to the type (to nearest even) and back; float32 and float64 leave them as they are.
void round_to(ElementType type, std::span<float> values);

/// The type that a dequantized value is rounded to before it is compared with the value that was cast.
enum class OutDtype : std::uint8_t {
  float32,  ///< float32, as a tensor core sees it; float64 where the cast is computed in float64
  source,   ///< the type of the source, as a module of that type gets it
};
[[nodiscard]] std::span<const Named<OutDtype>> named_values(OutDtype of_type);

}  // namespace fp8lab::experiments
