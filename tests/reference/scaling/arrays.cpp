// SPDX-License-Identifier: Apache-2.0
// Functions that write an array, with every input at every distance from it: refused, or the result that they give
// where both lie apart. And codes with bits beyond their format's width, at every function that takes codes.
#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/chain.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/formats/stochastic.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/gemm/trace.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/representable.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

template <typename T>
std::vector<T> seeded(std::size_t count, std::uint64_t seed = 1) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t word = random_bits(seed, i);
    if constexpr (std::is_floating_point_v<T>) {
      values[i] = static_cast<T>(static_cast<int>(word % 4096) - 2048) / 64;
    } else if constexpr (std::is_integral_v<T>) {
      values[i] = static_cast<T>(word);
    } else {
      values[i] = T{static_cast<std::uint16_t>(0x3C00 + word % 2048)};
    }
  }
  return values;
}
std::vector<std::uint8_t> seeded_codes(std::size_t count, unsigned most, std::uint64_t seed = 1) {
  auto codes = seeded<std::uint8_t>(count, seed);
  for (auto& code : codes) code = static_cast<std::uint8_t>(code % (most + 1));
  return codes;
}

template <typename T>
bool same_bytes(std::span<const T> a, std::span<const T> b) {
  return std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

template <typename In, typename Out>
using ArrayCall = std::function<void(std::span<const In>, std::span<Out>)>;

/// Moves an output of `count` elements past the input, from before it to behind it. `elementwise`: the very elements of
/// the input may be the output.
template <typename In, typename Out>
void check_every_distance(const std::vector<In>& in, std::size_t count, const ArrayCall<In, Out>& run,
                          bool elementwise) {
  std::vector<Out> expected(count);
  run(in, expected);
  const std::size_t in_bytes = in.size() * sizeof(In);
  const std::size_t out_bytes = count * sizeof(Out);
  const std::size_t step = std::max(alignof(In), alignof(Out));
  const std::size_t start = (out_bytes + step - 1) / step * step;  // of the input
  int refused = 0;
  int right = 0;
  for (std::size_t place = 0; place <= start + in_bytes; place += step) {
    std::vector<std::uint64_t> room((start + in_bytes + out_bytes) / 8 + 2);
    auto* bytes = reinterpret_cast<std::byte*>(room.data());
    std::memcpy(bytes + start, in.data(), in_bytes);
    const auto before = room;
    const std::span<const In> from(reinterpret_cast<const In*>(bytes + start), in.size());
    const std::span<Out> out(reinterpret_cast<Out*>(bytes + place), count);
    const bool apart = place + out_bytes <= start || place >= start + in_bytes;
    const bool same = place == start && sizeof(In) == sizeof(Out) && count == in.size();
    INFO("input at " << start << ", " << in_bytes << " bytes; output at " << place << ", " << out_bytes << " bytes");
    if (apart || (same && elementwise)) {
      run(from, out);
      REQUIRE(same_bytes<Out>(out, expected));
      ++right;
    } else {
      REQUIRE_THROWS_AS(run(from, out), std::invalid_argument);
      REQUIRE(room == before);
      ++refused;
    }
  }
  REQUIRE(refused > 0);
  REQUIRE(right > 0);
}

constexpr std::size_t element_count = 70;  // vectors and a tail

template <typename Source, typename Code>
void check_encode(const Format& format) {
  const CastPolicy plain;
  check_every_distance<Source, Code>(
      seeded<Source>(element_count), element_count, [&](auto in, auto out) { encode(format, plain, in, out); }, true);
  const CastPolicy stochastic{.rounding = Rounding::stochastic};
  const auto check_words = [&]<typename Word>(Word /*word*/) {
    const auto words = seeded<Word>(element_count, 2);
    const auto x = seeded<Source>(element_count);
    constexpr int bits = 8 * sizeof(Word);
    const auto cast = [&](std::span<const Source> in, std::span<const Word> random, std::span<Code> out) {
      encode(format, stochastic, in, RandomSource{random, bits}, out);
    };
    check_every_distance<Source, Code>(x, element_count, [&](auto in, auto out) { cast(in, words, out); }, true);
    check_every_distance<Word, Code>(words, element_count, [&](auto in, auto out) { cast(x, in, out); }, true);
  };
  check_words(std::uint8_t{});
  check_words(std::uint16_t{});
  check_words(std::uint32_t{});
  const auto words = seeded<std::uint32_t>(sizeof(Code) == 1 ? (element_count + 3) / 4 : element_count / 2, 3);
  check_every_distance<std::uint32_t, Code>(
      words, element_count,
      [&](auto in, auto out) {
        encode(format, stochastic, std::span<const Source>(seeded<Source>(element_count)), ptx_random(format, in), out);
      },
      false);
}

}  // namespace

TEST_CASE("Casts refuse arrays that overlap, or give the result of arrays that do not", "[arrays]") {
  check_encode<float, std::uint8_t>(e4m3);
  check_encode<double, std::uint8_t>(e4m3);
  check_encode<Half, std::uint8_t>(e5m2);
  check_encode<BFloat16, std::uint8_t>(e2m1);
  check_encode<float, std::uint16_t>(binary16);
  check_encode<double, std::uint16_t>(binary16);
  check_encode<Half, std::uint16_t>(binary16);
  check_encode<BFloat16, std::uint16_t>(binary16);
  const CastPolicy policy;
  check_every_distance<float, std::uint8_t>(
      seeded<float>(element_count), element_count, [&](auto in, auto out) { encode_via({}, e4m3, policy, in, out); },
      false);
  check_every_distance<double, std::uint8_t>(
      seeded<double>(element_count), element_count, [&](auto in, auto out) { encode_via({}, e4m3, policy, in, out); },
      false);
  check_every_distance<std::uint8_t, float>(
      seeded<std::uint8_t>(element_count), element_count, [](auto in, auto out) { decode(e4m3, in, out); }, false);
  check_every_distance<std::uint16_t, float>(
      seeded<std::uint16_t>(element_count), element_count, [](auto in, auto out) { decode(binary16, in, out); }, false);
  const auto check_cast = [&]<typename T>(T /*element*/) {
    check_every_distance<T, T>(
        seeded<T>(element_count), element_count,
        [&](auto in, auto out) { cast_to_representable(e4m3, policy, in, 3, out); }, true);
  };
  check_cast(float{});
  check_cast(double{});
  check_cast(Half{});
  check_cast(BFloat16{});
}

TEST_CASE("Packing refuses arrays that overlap, or gives the result of arrays that do not", "[arrays]") {
  for (const std::size_t count : {element_count, element_count + 1}) {
    check_every_distance<std::uint8_t, std::uint8_t>(
        seeded_codes(count, 15), (count + 1) / 2, [](auto in, auto out) { pack_pairs(in, out); }, false);
    check_every_distance<std::uint8_t, std::uint8_t>(
        seeded<std::uint8_t>((count + 1) / 2), count, [](auto in, auto out) { unpack_pairs(in, out); }, false);
  }
}

TEST_CASE("mma refuses arrays that overlap, or gives the result of arrays that do not", "[arrays]") {
  constexpr std::size_t n = 9;
  const auto a = seeded_codes(n * 32, 0x7E);
  const auto b = seeded_codes(n * 32, 0x7E, 2);
  const auto scales = seeded_codes(n, 0x85, 3);
  const auto c = seeded<float>(n);
  const auto operand = [](std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scale = {}) {
    return Operand::codes(codes, e4m3, n, 32, scale);
  };
  check_every_distance<std::uint8_t, float>(
      a, n, [&](auto in, auto out) { mma(hopper_wgmma_fp8, operand(in), operand(b), c, out); }, false);
  check_every_distance<std::uint8_t, float>(
      b, n, [&](auto in, auto out) { mma(hopper_wgmma_fp8, operand(a), operand(in), c, out); }, false);
  check_every_distance<float, float>(
      c, n, [&](auto in, auto out) { mma(hopper_wgmma_fp8, operand(a), operand(b), in, out); }, true);
  const MmaModel& scaled = find_model("blackwell_mxf8");
  check_every_distance<std::uint8_t, float>(
      scales, n, [&](auto in, auto out) { mma(scaled, operand(a, in), operand(b, scales), c, out); }, false);
  check_every_distance<std::uint8_t, float>(
      scales, n, [&](auto in, auto out) { mma(scaled, operand(a, scales), operand(b, in), c, out); }, false);
  const auto values = seeded<float>(n * 7);
  check_every_distance<float, float>(
      values, n,
      [&](auto in, auto out) {
        mma(exact, Operand::floats(in, n, 7), Operand::floats(values, n, 7), std::span<const float>(), out);
      },
      false);
}

TEST_CASE("gemm refuses arrays that overlap, or gives the result of arrays that do not", "[arrays]") {
  constexpr std::size_t m = 5, n = 6, k = 128;
  const auto a = seeded_codes(m * k, 0x7E);
  const auto b = seeded_codes(n * k, 0x7E, 2);
  const auto tiles = seeded<float>(m);
  const auto c = seeded<float>(m * n);
  const auto bias = seeded<float>(n);
  const auto left = Operand::codes(a, e4m3, m, k);
  const auto right = Operand::codes(b, e4m3, n, k);
  const auto with_tiles = [&](std::span<const float> values) {
    Operand operand = left;
    operand.tile_scales = {values, 1, 128};
    return operand;
  };
  const auto with_rows = [&](std::span<const float> values) {
    Operand operand = left;
    operand.row_scales = values;
    return operand;
  };
  const MmaModel& model = hopper_wgmma_fp8;
  check_every_distance<std::uint8_t, float>(
      a, m * n, [&](auto in, auto out) { gemm({.model = model}, Operand::codes(in, e4m3, m, k), right, out); }, false);
  check_every_distance<std::uint8_t, float>(
      b, m * n, [&](auto in, auto out) { gemm({.model = model}, left, Operand::codes(in, e4m3, n, k), out); }, false);
  check_every_distance<float, float>(
      tiles, m * n, [&](auto in, auto out) { gemm({.model = model}, with_tiles(in), right, out); }, false);
  check_every_distance<float, float>(
      tiles, m * n, [&](auto in, auto out) { gemm({.model = model}, with_rows(in), right, out); }, false);
  check_every_distance<float, float>(
      c, m * n, [&](auto in, auto out) { gemm({.model = model}, left, right, out, {.c = in, .threads = 2}); }, true);
  check_every_distance<float, float>(
      c, m * n,
      [&](auto in, auto out) {
        gemm({.model = model, .promote_k = 32, .c_enters = CEntry::accumulator}, left, right, out,
             {.c = in, .threads = 2});
      },
      true);
  check_every_distance<float, float>(
      bias, m * n, [&](auto in, auto out) { gemm({.model = model}, left, right, out, {.bias = in}); }, false);
  const CastPolicy policy;
  check_every_distance<float, std::uint8_t>(
      c, m * n,
      [&](auto in, auto out) { gemm({.model = model, .output = e4m3, .cast = policy}, left, right, out, {.c = in}); },
      false);
  check_every_distance<std::uint8_t, std::uint16_t>(
      a, m * n,
      [&](auto in, auto out) {
        gemm({.model = model, .output = binary16, .cast = policy}, Operand::codes(in, e4m3, m, k), right, out);
      },
      false);
}

TEST_CASE("quantize and dequantize refuse arrays of a Quantized that overlap theirs", "[arrays]") {
  constexpr std::size_t rows = 4, columns = 32;
  const auto x = seeded<float>(rows * columns);
  const Recipe ones = Block{.columns = 1, .force_pow_2_scales = false};
  Quantized q;
  quantize({x, rows, columns}, ones, Direction::rowwise, q);
  REQUIRE_THROWS_AS(dequantize(q, q.scale_inv), std::invalid_argument);
  REQUIRE_THROWS_AS(quantize({q.scale_inv, rows, columns}, ones, Direction::rowwise, q), std::invalid_argument);
  Quantized other;
  REQUIRE_THROWS_AS(quantize_both({q.scale_inv, rows, columns}, ones, other, q), std::invalid_argument);
  quantize({q.scale_inv, rows, columns}, ones, Direction::rowwise, other);  // another's are what any array is
  Quantized large;
  quantize({seeded<float>(4 * rows * columns), 4 * rows, columns}, GivenScale{}, Direction::rowwise, large);
  const std::span<float> of_codes(reinterpret_cast<float*>(large.codes.data()), rows * columns);
  large.rows = rows;
  large.codes.resize(rows * columns);  // the room stays
  REQUIRE_THROWS_AS(dequantize(large, of_codes), std::invalid_argument);
  const NvFp4 stochastic{.stochastic_rounding = true};
  const auto words = seeded<std::uint8_t>(rows * columns);
  QuantizeOptions options{.random = RandomSource{std::span(words), 8}};
  quantize({x, rows, columns}, stochastic, Direction::rowwise, q, options);
  q.codes.resize(rows * columns);
  options.random = RandomSource{std::span<const std::uint8_t>(q.codes), 8};
  REQUIRE_THROWS_AS(quantize({x, rows, columns}, stochastic, Direction::rowwise, q, options), std::invalid_argument);
  const Delayed delayed{.amax_history_len = 8};
  AmaxHistory history = start_history(delayed);
  REQUIRE_THROWS_AS(quantize({history.amaxes, 1, 8}, delayed, Pass::forward, history, Direction::rowwise, q),
                    std::invalid_argument);
}

TEST_CASE("Codes with bits beyond their format's width are refused, with the first of them", "[arrays]") {
  const auto message = [](const auto& run) -> std::string {
    try {
      run();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "not refused";
  };
  const auto refused = [&](const std::string& name, std::size_t index, unsigned code, const auto& run) {
    std::ostringstream start;
    start << "element " << index << " of " << name << " is " << std::hex << std::uppercase << code << " ";
    const std::string text = message(run);
    INFO(text);
    CHECK(text.starts_with(start.str()));
  };
  for (const NamedFormat& named : byte_formats()) {
    const Format& format = named.format;
    std::vector<std::uint8_t> codes(5000, 1);
    std::vector<float> out(codes.size(), 7);
    for (int bit = format.bits(); bit < 8; ++bit) {
      const auto wide = static_cast<std::uint8_t>(1U << bit);
      codes[4999] = wide;
      codes[3001] = wide;
      for (const int threads : {1, 3}) {
        refused("codes", 3001, wide, [&] { decode(format, codes, out, threads); });
        CHECK(std::ranges::count(out, 7.0F) == 5000);
      }
      codes[4999] = codes[3001] = 1;
    }
    decode(format, codes, out);
  }
  const Format own{.exponent_bits = 6, .mantissa_bits = 4, .bias = 31};  // eleven bits
  std::vector<std::uint16_t> words(70, 0x7FF);
  std::vector<float> out(words.size());
  decode(own, words, out);
  words[69] = 0x800;
  refused("codes", 69, 0x800, [&] { decode(own, words, out); });

  std::vector<std::uint8_t> pairs(33, 0xF);
  std::vector<std::uint8_t> packed(17);
  pack_pairs(pairs, packed);
  for (const std::size_t index : {0, 7, 31, 32}) {
    pairs[index] = 0x1F;
    refused("codes", index, 0x1F, [&] { pack_pairs(pairs, packed); });
    pairs[index] = 0xF;
  }

  const MmaModel& model = find_model("blackwell_tcgen05_fp8");
  std::vector<std::uint8_t> good(32, 0x3F);
  std::vector<std::uint8_t> bad = good;
  bad[31] = 0x40;
  const auto operands = [](std::span<const std::uint8_t> codes) { return Operand::codes(codes, e3m2, 1, 32); };
  std::vector<float> one(1);
  mma(model, operands(good), operands(good), std::span<const float>(), one);
  refused("a", 31, 0x40, [&] { mma(model, operands(bad), operands(good), std::span<const float>(), one); });
  refused("b", 31, 0x40, [&] { gemm({.model = model}, operands(good), operands(bad), one); });
  refused("a", 31, 0x40, [&] { (void)trace_dot(model, operands(bad), operands(good)); });

  Quantized q = quantize({seeded<float>(64), 2, 32}, MxBlock{.format = e2m3});
  std::vector<float> values(64);
  q.codes[33] = 0x80;
  refused("codes", 33, 0x80, [&] { dequantize(q, values); });
  q = quantize({seeded<float>(64), 2, 32}, NvFp4{});
  q.scale_codes[3] = 0x80;
  refused("scale_codes", 3, 0x80, [&] { dequantize(q, values); });
}

TEST_CASE("gemm refuses options that nothing would read", "[arrays]") {
  const std::vector<std::uint8_t> codes(32, 1);
  const auto operands = Operand::codes(codes, e4m3, 1, 32);
  std::vector<float> out(1);
  const auto run = [&](GemmRecipe recipe) {
    recipe.model = hopper_wgmma_fp8;
    gemm(recipe, operands, operands, out);
  };
  REQUIRE_THROWS_WITH(run({.scale_order = ScaleOrder::accumulator_first}),
                      "scale_order goes with scales of tiles or rows, which neither a nor b has");
  REQUIRE_THROWS_WITH(run({.c_enters = CEntry::accumulator}), "c_enters goes with c, which is left out");
}

}  // namespace fp8lab::tests
