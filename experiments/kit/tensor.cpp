// SPDX-License-Identifier: Apache-2.0
#include "kit/tensor.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/named.hpp"

namespace fp8lab::experiments {

ElementType Tensor::type() const {
  return view_.visit([]<typename T>(std::span<const T> /*values*/) { return element_type<T>; });
}

std::span<const float> Tensor::floats(std::size_t first, std::size_t count, Buffer<float>& room) const {
  if (const auto* floats = std::get_if<std::span<const float>>(&view_.values())) return floats->subspan(first, count);
  room.resize(count);
  widen(first, room);
  return room;
}

MatrixView Tensor::view(std::size_t first, std::size_t count) const {
  return view_.visit(
      [&](auto all) { return MatrixView(all.subspan(first * columns(), count * columns()), count, columns()); });
}

void Tensor::widen(std::size_t first, std::span<float> out) const {
  view_.visit([&]<typename T>(std::span<const T> all) {
    std::ranges::transform(all.subspan(first, out.size()), out.begin(), [](T x) { return as_float32(x); });
  });
}

void round_to(ElementType type, std::span<float> values) {
  if (type != ElementType::float16 && type != ElementType::bfloat16) return;
  const Format& format = type == ElementType::float16 ? binary16 : bfloat16;
  CastPolicy ieee = ieee_policy;
  ieee.nan = NanCode::sign_and_payload;
  std::vector<std::uint16_t> words(std::min(values.size(), std::size_t{1} << 14));
  for (std::size_t first = 0; first < values.size(); first += words.size()) {
    const std::span<float> some = values.subspan(first, std::min(words.size(), values.size() - first));
    const std::span<std::uint16_t> codes = std::span(words).first(some.size());
    encode(format, ieee, std::span<const float>(some), codes);
    decode(format, std::span<const std::uint16_t>(codes), some);
  }
}

namespace {
constexpr std::array out_dtypes{Named{"float32", OutDtype::float32, "float32, or float64 of float64 values"},
                                Named{"source", OutDtype::source, "the type of the values"}};
static_assert(is_in_order(out_dtypes));
}  // namespace

std::span<const Named<OutDtype>> named_values(OutDtype /*any*/) { return out_dtypes; }

}  // namespace fp8lab::experiments
