// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>

#include "bench.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/stochastic.hpp"
#include "fp8lab/formats/targets.hpp"
#include "fp8lab/gpu/host_header.hpp"
#include "fp8lab/reference/measure/random.hpp"
#include "fp8lab/reference/scaling/representable.hpp"

namespace fp8lab::bench {
namespace {

constexpr std::size_t bytes = std::size_t{1} << 26;  // 64 MiB of input
constexpr std::size_t floats = bytes / sizeof(float);
constexpr std::size_t halves = bytes / sizeof(Half);

/// Normal numbers as floats, halves and bfloat16s, random bits, room for codes and for copies.
struct Buffers {
  std::vector<float> x = std::vector<float>(floats);
  std::vector<float> y = std::vector<float>(floats);
  std::vector<std::uint16_t> half = std::vector<std::uint16_t>(halves);
  std::vector<std::uint16_t> bfloat = std::vector<std::uint16_t>(halves);
  std::vector<std::uint8_t> random = std::vector<std::uint8_t>(floats);
  std::vector<std::uint8_t> codes = std::vector<std::uint8_t>(halves);
  Buffers() {
    torch_cuda_normal(1, 0, {}, 0, 1, x);
    for (std::size_t part = 0; part < 2; ++part) {
      encode(binary16, {}, std::span<const float>(x), std::span(half).subspan(part * floats, floats));
      encode(bfloat16, {}, std::span<const float>(x), std::span(bfloat).subspan(part * floats, floats));
    }
    std::uint32_t state = 1;
    for (std::uint8_t& word : random) {  // MINSTD: any bits will do
      state = static_cast<std::uint32_t>(std::uint64_t{state} * 48271 % 2147483647);
      word = static_cast<std::uint8_t>(state >> 8);
    }
  }
  [[nodiscard]] std::span<const Half> as_halves() const { return {reinterpret_cast<const Half*>(half.data()), halves}; }
  [[nodiscard]] std::span<const BFloat16> as_bfloats() const {
    return {reinterpret_cast<const BFloat16*>(bfloat.data()), halves};
  }
  [[nodiscard]] std::span<std::uint8_t> codes_of_floats() { return std::span(codes).first(floats); }
};

/// Rows for the best target of the machine and, where that is wider, for AVX2.
class Rows {
 public:
  explicit Rows(std::shared_ptr<Buffers> data) : data_(std::move(data)) {
    const auto names = targets();
    targets_.emplace_back(names.front());
    if (names.front().starts_with("AVX3")) targets_.emplace_back("AVX2");
  }
  /// `moved`: bytes that the work reads and writes; memcpy of 64 MiB moves twice as many.
  void add(const std::string& name, double moved, const std::function<void()>& work,
           const std::function<bool()>& right) {
    for (const std::string& target : targets_) {
      const auto forced = [work, target] {
        force_target(target);
        work();
        force_target(wanted_target());
      };
      add_row(name + ", " + target, moved, forced, right);
    }
  }
  /// A peer, as it comes.
  void add_row(const std::string& name, double moved, const std::function<void()>& work,
               const std::function<bool()>& right) {
    const auto copy = [data = data_] { std::memcpy(data->y.data(), data->x.data(), bytes); };
    rows.push_back({name, "memcpy, same bytes", work, copy, moved / (2.0 * bytes), [work, right] {
                      work();
                      return right();
                    }});
  }
  std::vector<Row> rows;

 private:
  std::shared_ptr<Buffers> data_;
  std::vector<std::string> targets_;
};

/// Whether equal(i) holds for a sample of the elements.
template <typename Equal>
bool sampled(std::size_t count, const Equal& equal) {
  for (std::size_t i = 0; i < count; i += 97) {
    if (!equal(i)) return false;
  }
  return true;
}

void add_float_casts(Rows& rows, const std::shared_ptr<Buffers>& data) {
  for (const NamedFormat& named : {find_format("e4m3"), find_format("e5m2")}) {
    const Format format = named.format;
    const std::string name(named.name);
    rows.add(
        "encode float32 -> " + name, 5.0 * floats,
        [=] { encode(format, {}, std::span<const float>(data->x), data->codes_of_floats()); },
        [=] { return sampled(floats, [&](auto i) { return data->codes[i] == encode(format, {}, data->x[i]); }); });
    if (const auto header = gpu::host_conversion(format, {})) {
      rows.add_row(
          "  peer: cuda_fp8.h on the host, " + name, 5.0 * floats, [=] { (*header)(data->x, data->codes_of_floats()); },
          [=] { return sampled(floats, [&](auto i) { return data->codes[i] == encode(format, {}, data->x[i]); }); });
    }
    rows.add(
        "decode " + name + " -> float32", 5.0 * floats, [=] { decode(format, data->codes_of_floats(), data->y); },
        [=] { return sampled(floats, [&](auto i) { return data->y[i] == decode(format, data->codes[i]); }); });
  }
  rows.add(
      "cast_to_representable float32, e4m3", 8.0 * floats,
      [=] { cast_to_representable(e4m3, {}, std::span<const float>(data->x), 1, std::span(data->y)); },
      [=] {
        return sampled(floats, [&](auto i) { return data->y[i] == decode(e4m3, encode(e4m3, {}, data->x[i])); });
      });
}

void add_other_casts(Rows& rows, const std::shared_ptr<Buffers>& data) {
  rows.add(
      "encode float16 -> e4m3", 3.0 * halves, [=] { encode(e4m3, {}, data->as_halves(), data->codes); },
      [=] {
        return sampled(halves, [&](auto i) { return data->codes[i] == encode(e4m3, {}, data->as_halves()[i]); });
      });
  rows.add(
      "encode bfloat16 -> e4m3", 3.0 * halves, [=] { encode(e4m3, {}, data->as_bfloats(), data->codes); },
      [=] {
        return sampled(halves, [&](auto i) { return data->codes[i] == encode(e4m3, {}, data->as_bfloats()[i]); });
      });
  constexpr CastPolicy stochastic{.rounding = Rounding::stochastic};
  const RandomSource random{std::span<const std::uint8_t>(data->random), 8};
  rows.add(
      "stochastic float32 -> e4m3, 8 bits each", 6.0 * floats,
      [=] { encode(e4m3, stochastic, std::span<const float>(data->x), random, data->codes_of_floats()); },
      [=] {
        return sampled(floats, [&](auto i) {
          return data->codes[i] == encode(e4m3, stochastic, data->x[i], random_bits_of(e4m3, random, i));
        });
      });
  rows.add(
      "upward float32 -> e4m3", 5.0 * floats,
      [=] { encode(e4m3, {.rounding = Rounding::upward}, std::span<const float>(data->x), data->codes_of_floats()); },
      [=] {
        return sampled(
            floats, [&](auto i) { return data->codes[i] == encode(e4m3, {.rounding = Rounding::upward}, data->x[i]); });
      });
}

}  // namespace

std::vector<Row> cast_rows() {
  const auto data = std::make_shared<Buffers>();
  Rows rows(data);
  add_float_casts(rows, data);
  add_other_casts(rows, data);
  return std::move(rows.rows);
}

}  // namespace fp8lab::bench
