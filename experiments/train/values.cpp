// SPDX-License-Identifier: Apache-2.0
#include "train/values.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/widen.hpp"

namespace fp8lab::experiments {
namespace {

/// An element's word, and what the words of its type look like.
template <typename T>
struct WordsOf;
template <>
struct WordsOf<float> {
  using Word = std::uint32_t;
  static constexpr Word magnitude = 0x7FFFFFFF, infinity = 0x7F800000;
  static Word of(float x) { return std::bit_cast<Word>(x); }
};
template <>
struct WordsOf<BFloat16> {
  using Word = std::uint16_t;
  static constexpr Word magnitude = 0x7FFF, infinity = 0x7F80;
  static Word of(BFloat16 x) { return x.bits; }
};

template <typename T>
TensorStats facts_of_elements(std::span<const T> x) {
  using Words = WordsOf<T>;
  typename Words::Word largest = 0;
  std::uint32_t not_finite = 0;
  std::uint32_t zeros = 0;
  in_pieces(x.size(), [&](std::size_t first, std::size_t last) {
    for (const T one : x.subspan(first, last - first)) {
      const auto word = static_cast<Words::Word>(Words::of(one) & Words::magnitude);
      const typename Words::Word number = word > Words::infinity ? 0 : word;  // not a NaN
      largest = std::max(largest, number);
      not_finite += word >= Words::infinity ? 1 : 0;
      zeros += word == 0 ? 1 : 0;
    }
  });
  const float amax = widened(std::bit_cast<T>(largest));
  const auto size = static_cast<std::uint32_t>(x.size());
  return {.amax = amax, .nonzero = size - zeros, .not_finite = not_finite};
}

/// f(elements) for the types that tensors of a network have.
template <typename Function>
auto visit_floats(const MatrixView& x, const Function& f) {
  if (const auto* floats = std::get_if<std::span<const float>>(&x.values())) return f(*floats);
  return f(std::get<std::span<const BFloat16>>(x.values()));
}

}  // namespace

MatrixView Values::view() const {
  return std::visit([&](const auto& all) { return MatrixView(std::span(all), rows, columns); }, elements);
}

std::vector<float> Values::floats() const {
  std::vector<float> result(rows * columns);
  std::visit([&](const auto& all) { std::ranges::transform(all, result.begin(), [](auto x) { return widened(x); }); },
             elements);
  return result;
}

Values values_of(std::vector<float> numbers, std::size_t rows, std::size_t columns, const Format& format) {
  if (format == binary32) return {std::move(numbers), rows, columns};
  if (format != bfloat16) refuse("a recipe's products must be float32 or bfloat16");
  std::vector<std::uint16_t> codes(numbers.size());
  encode(bfloat16, cuda_nosat_policy, numbers, codes);
  std::vector<BFloat16> all(codes.size());
  std::ranges::transform(codes, all.begin(), [](std::uint16_t code) { return BFloat16{code}; });
  return {std::move(all), rows, columns};
}

void apply_relu(Values& x) {
  if (auto* floats = std::get_if<std::vector<float>>(&x.elements)) {
    for (float& one : *floats) one = one <= 0 ? 0 : one;
    return;
  }
  for (BFloat16& one : std::get<std::vector<BFloat16>>(x.elements)) {
    const bool is_negative = one.bits >= 0x8000 && one.bits <= 0xFF80;  // to -inf
    one.bits = is_negative ? std::uint16_t{0} : one.bits;
  }
}

void apply_relu_gradient(Values& dy, const Values& activation) {
  const auto pass = [&](const auto& a) {
    std::visit(
        [&](auto& all) {
          using T = std::remove_cvref_t<decltype(all.front())>;
          for (std::size_t i = 0; i < all.size(); ++i) all[i] = widened(a[i]) == 0 ? T{} : all[i];
        },
        dy.elements);
  };
  std::visit(pass, activation.elements);
}

std::vector<float> column_sums(const Values& x) {
  std::vector<float> sums(x.columns, 0);
  const auto add = [&](const auto& all) {
    for (std::size_t row = 0; row < x.rows; ++row) {
      checkpoint();
      for (std::size_t i = 0; i < x.columns; ++i) sums[i] += widened(all[row * x.columns + i]);
    }
  };
  std::visit(add, x.elements);
  return sums;
}

TensorStats facts_of(const MatrixView& x) {
  return visit_floats(x, [](auto all) { return facts_of_elements(all); });
}

std::uint32_t count_above(const MatrixView& x, float limit) {
  return visit_floats(x, [&](auto all) {
    std::uint32_t count = 0;
    for (const auto one : all) {
      const float value = widened(one);
      count += value > limit || value < -limit ? 1 : 0;
    }
    return count;
  });
}

}  // namespace fp8lab::experiments
