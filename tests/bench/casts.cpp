// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <memory>

#include "bench.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/random.hpp"
#include "fp8lab/reference/representable.hpp"

namespace fp8lab::bench {
namespace {

/// 64 MiB of normal floats, their codes, and room to copy.
struct Buffers {
  std::vector<float> x = std::vector<float>(1 << 24);
  std::vector<float> y = std::vector<float>(1 << 24);
  std::vector<std::uint8_t> codes = std::vector<std::uint8_t>(1 << 24);
  Buffers() { torch_cuda_normal(1, 0, {}, 0, 1, x); }
};

}  // namespace

std::vector<Row> cast_rows() {
  const auto data = std::make_shared<Buffers>();
  const auto copy = [data] { std::memcpy(data->y.data(), data->x.data(), data->x.size() * sizeof(float)); };
  // memcpy reads and writes 8 bytes an element; a cast to 8 bits, or back, 5.
  constexpr double bytes = 5.0 / 8;
  std::vector<Row> rows;
  for (const NamedFormat& named : {named_formats[0], named_formats[1]}) {
    const Format format = named.format;
    rows.push_back({"encode float32 -> " + std::string(named.name), "memcpy, same bytes",
                    [=] { encode(format, {}, std::span<const float>(data->x), data->codes); }, copy, bytes,
                    [=] {
                      encode(format, {}, std::span<const float>(data->x), data->codes);
                      for (std::size_t i = 0; i < data->x.size(); i += 97) {
                        if (data->codes[i] != encode(format, {}, data->x[i])) return false;
                      }
                      return true;
                    }});
    rows.push_back({"decode " + std::string(named.name) + " -> float32", "memcpy, same bytes",
                    [=] { decode(format, data->codes, data->y); }, copy, bytes,
                    [=] {
                      decode(format, data->codes, data->y);
                      for (std::size_t i = 0; i < data->y.size(); i += 97) {
                        if (data->y[i] != decode(format, data->codes[i])) return false;
                      }
                      return true;
                    }});
  }
  rows.push_back({"cast_to_representable float32, e4m3", "memcpy",
                  [=] { cast_to_representable(e4m3, {}, std::span<const float>(data->x), 1, std::span(data->y)); },
                  copy, 1,
                  [=] {
                    cast_to_representable(e4m3, {}, std::span<const float>(data->x), 1, std::span(data->y));
                    for (std::size_t i = 0; i < data->y.size(); i += 97) {
                      if (data->y[i] != decode(e4m3, encode(e4m3, {}, data->x[i]))) return false;
                    }
                    return true;
                  }});
  return rows;
}

}  // namespace fp8lab::bench
