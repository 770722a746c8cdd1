// SPDX-License-Identifier: Apache-2.0
// Tiles against loops over their elements: amaxes by comparisons of integers, codes by the scalar encode of the product
// and values by the scalar decode, both of which other tests hold against exact arithmetic; on every target.
#include "formats/simd/tiles.hpp"

#include <cmath>

#include "formats/simd/memory.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/memory.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/formats/targets.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

float as_float(float x) { return x; }
float as_float(BFloat16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }
float as_float(Half x) {
  const std::uint32_t sign = std::uint32_t{x.bits} >> 15 << 31;
  const std::uint32_t fraction = x.bits & 0x3FFU;
  const int field = x.bits >> 10 & 0x1F;
  if (field == 31) return std::bit_cast<float>(sign | 0x7F800000U | (fraction == 0 ? 0 : 0x00400000U) | fraction << 13);
  const float size = std::ldexp(static_cast<float>(field == 0 ? fraction : fraction + 1024), std::max(field, 1) - 25);
  return sign == 0 ? size : -size;
}

/// Which elements are among the others.
enum class Among { numbers, subnormals, infinities, nans };

/// Seeded numbers from 2^-20 to 2^12, and among them what is asked for.
template <typename Source>
std::vector<Source> some_values(std::size_t count, std::uint64_t seed, Among among) {
  std::vector<Source> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t random = random_bits(seed, i);
    auto word = static_cast<std::uint32_t>(random & 0x807FFFFFU) | static_cast<std::uint32_t>(107 + (random >> 32) % 32)
                                                                       << 23;
    if (among == Among::subnormals && random >> 60 == 0) word &= 0x807FFFFFU;
    if (among == Among::infinities && random >> 59 == 0) word = (word & 0x80000000U) | 0x7F800000U;
    if (among == Among::nans && random >> 59 == 0) word |= 0x7FC00000U;
    if constexpr (std::is_same_v<Source, float>) {
      values[i] = std::bit_cast<float>(word);
    } else if constexpr (std::is_same_v<Source, Half>) {
      const auto exponent = static_cast<std::uint32_t>(1 + (random >> 32) % 26);
      const std::uint32_t field = (word & 0x7F800000U) == 0 ? 0 : (word & 0x7F800000U) == 0x7F800000U ? 31 : exponent;
      const std::uint32_t fraction = field == 31 ? word >> 22 & 1U : word & 0x3FFU;  // of an infinity or a quiet NaN
      values[i].bits = static_cast<std::uint16_t>(word >> 31 << 15 | field << 10 | fraction << (field == 31 ? 9 : 0));
    } else {
      values[i].bits = static_cast<std::uint16_t>(word >> 16);
    }
  }
  return values;
}

struct Shape {
  std::size_t rows, width, tile;
};
/// Tiles of one element, of a part of a vector, of one and some vectors, with and without a shorter last one.
constexpr std::array shapes{Shape{1, 1, 1},     Shape{3, 77, 1},    Shape{2, 256, 1},   Shape{1, 300, 7},
                            Shape{2, 512, 4},   Shape{3, 520, 8},   Shape{2, 1024, 16}, Shape{1, 1000, 16},
                            Shape{3, 2048, 32}, Shape{1, 1000, 32}, Shape{2, 1024, 64}, Shape{2, 1408, 128},
                            Shape{1, 700, 128}, Shape{2, 900, 96},  Shape{1, 777, 900}, Shape{2, 640, 640}};

template <typename Source>
void check_amaxes(const Shape& shape, NanInAmax rule, Among among, bool shared) {
  const std::size_t stride = shape.width + 5;
  const auto values = some_values<Source>(shape.rows * stride, 17 * shape.width + shape.tile, among);
  const TileRows<Source> x{values.data(), shape.rows, shape.width, stride, shape.tile};
  const std::size_t amax_stride = shared ? 0 : x.across();
  // Not all begin at 0; and none behind the last is touched.
  std::vector<std::uint32_t> expected(shape.rows * x.across() + 3, bits(0.5F));
  expected[0] = 0;
  auto amaxes = expected;
  bool finite = true;
  std::uint32_t largest = 0;
  for (std::size_t r = 0; r < shape.rows; ++r) {
    for (std::size_t i = 0; i < shape.width; ++i) {
      const std::uint32_t magnitude = bits(as_float(values[r * stride + i])) & 0x7FFFFFFFU;
      finite = finite && magnitude < bits(inf);
      if (magnitude > bits(inf) && rule == NanInAmax::dropped) continue;
      std::uint32_t& amax = expected[r * amax_stride + i / shape.tile];
      amax = std::max(amax, magnitude);
      largest = std::max(largest, magnitude);
    }
  }
  const AmaxSeen seen = add_amax(x, rule, amaxes.data(), amax_stride);
  REQUIRE(seen.finite == finite);
  REQUIRE(seen.largest == largest);
  REQUIRE(amaxes == expected);
}

struct CastTo {
  Format format;
  CastPolicy policy;
};

/// What a tile's factor may be: in range, it takes no element to where the format overflows.
enum class Factors { any, in_range, powers };

/// Codes of the rows, with factors that take their elements anywhere, or, with the hint, into the format's range; past
/// the caches, where each row is to have `lines` of its own.
template <typename Source>
void check_codes(const Shape& shape, const CastTo& cast, TileOperation operation, Among among, Factors kind, bool pairs,
                 bool lines) {
  const std::size_t stride = shape.width + 3;
  const auto values = some_values<Source>(shape.rows * stride, 31 * shape.width + shape.tile, among);
  const TileRows<Source> x{values.data(), shape.rows, shape.width, stride, shape.tile};
  std::vector<float> factors(shape.rows * x.across());
  for (std::size_t t = 0; t < factors.size(); ++t) {
    const float spread = static_cast<float>(random_bits(5, t) % 1000) / 999;
    const float largest = overflow_from(cast.format) / 4097;
    switch (kind) {
      case Factors::any: factors[t] = std::ldexp(1 + spread, static_cast<int>(t % 24) - 12); break;
      case Factors::in_range: factors[t] = largest * spread; break;
      case Factors::powers: factors[t] = std::exp2(std::floor(std::log2(largest * (spread + 0x1p-9F)))); break;
    }
  }
  Buffer<std::uint8_t> expected;
  for (std::size_t r = 0; r < shape.rows; ++r) {
    std::vector<std::uint8_t> row;
    for (std::size_t i = 0; i < shape.width; ++i) {
      const float factor = factors[r * x.across() + i / shape.tile];
      const float value = as_float(values[r * stride + i]);
      const float scaled = operation == TileOperation::divide ? value / factor : value * factor;
      row.push_back(static_cast<std::uint8_t>(encode(cast.format, cast.policy, scaled)));
    }
    std::vector<std::uint8_t> packed((shape.width + 1) / 2);
    if (pairs) pack_pairs(row, packed);
    const auto& bytes = pairs ? packed : row;
    expected.insert(expected.end(), bytes.begin(), bytes.end());
    const std::size_t between = lines ? cache_line - bytes.size() % cache_line : 1;
    expected.insert(expected.end(), between, 0xA5);  // and untouched
  }
  Buffer<std::uint8_t> codes(expected.size(), 0xA5);
  const TileEncoder encoder(cast.format, cast.policy);
  encoder(x, operation, factors.data(), x.across(), pairs, codes.data(), expected.size() / shape.rows,
          {.in_range = kind != Factors::any, .stream = true, .ahead = 64, .out_ahead = 64});
  TileEncoder::flush();
  REQUIRE(codes == expected);
}

/// All bfloat16s whose product with the factor does not overflow, by size, with a zero among every few.
std::vector<BFloat16> in_range_of(const Format& format, float factor) {
  std::vector<BFloat16> values;
  for (std::uint16_t word = 0; word < 0x7F80U; ++word) {
    const BFloat16 x{word};
    if (as_float(x) * factor >= overflow_from(format)) break;
    const auto negative = static_cast<std::uint16_t>(word | 0x8000U);
    values.insert(values.end(), {x, BFloat16{negative}});
    if (word % 5 == 0) values.push_back({static_cast<std::uint16_t>(word % 2 == 0 ? 0x0000U : 0x8000U)});
  }
  return values;
}

/// The last factor makes NaN of zeros or infinities, the others of nothing.
void check_values(const Format& format, std::size_t count, std::size_t tile, float last_factor) {
  std::vector<std::uint8_t> codes(count);
  for (std::size_t i = 0; i < count; ++i) {
    codes[i] = static_cast<std::uint8_t>(random_bits(3, i) & (format.sign_mask() | format.magnitude_mask()));
  }
  std::vector<float> factors((count + tile - 1) / tile);
  for (std::size_t t = 0; t < factors.size(); ++t) factors[t] = 0.37F * static_cast<float>(t + 1);
  factors.back() = last_factor;
  std::vector<float> values(count + 1, 0.25F);
  TileDecoder{format}(codes, tile, factors, std::span(values).first(count));
  Mismatches wrong;
  for (std::size_t i = 0; i < count; ++i) {
    const float value = decode(format, codes[i]);
    const float product = value * factors[i / tile];
    const std::uint32_t expected = !std::isnan(product) ? bits(product) : std::isnan(value) ? bits(value) : 0x7FC00000U;
    wrong.compare(i, codes[i], bits(values[i]), expected);
  }
  REQUIRE_NO(wrong);
  REQUIRE(values[count] == 0.25F);
}

}  // namespace

TEST_CASE("amaxes of tiles of any size, in rows of their own or shared by rows, are the largest magnitudes") {
  const UnforceTarget at_end;
  for (const std::string_view target : targets()) {
    force_target(target);
    for (const Shape& shape : shapes) {
      for (const Among among : {Among::numbers, Among::infinities, Among::nans}) {
        for (const NanInAmax rule : {NanInAmax::dropped, NanInAmax::counted}) {
          for (const bool shared : {false, true}) {
            CAPTURE(target, shape.rows, shape.width, shape.tile, static_cast<int>(among), static_cast<int>(rule),
                    shared);
            check_amaxes<float>(shape, rule, among, shared);
            check_amaxes<BFloat16>(shape, rule, among, shared);
            check_amaxes<Half>(shape, rule, among, shared);
          }
        }
      }
    }
  }
}

TEST_CASE("codes of scaled tiles are those of their products, hints or not") {
  const UnforceTarget at_end;
  std::vector<CastTo> casts;
  for (const Format& format : {e4m3, e5m2, e2m1, e3m2, e2m3}) casts.push_back({format, CastPolicy{}});
  casts.push_back({e4m3, find_profile("torch_2_13").policy});
  casts.push_back({e5m2, find_profile("ml_dtypes").policy});
  casts.push_back({e4m3fnuz, CastPolicy{}});  // by the general steps
  for (const std::string_view target : targets()) {
    force_target(target);
    for (const Shape& shape : shapes) {
      for (const CastTo& cast : casts) {
        CAPTURE(target, shape.rows, shape.width, shape.tile, cast.format.mantissa_bits, cast.format.exponent_bits);
        const bool even = shape.width % 2 == 0 && (shape.tile % 2 == 0 || shape.tile == 1);
        for (const bool pairs : {false, true}) {
          if (pairs && (!even || cast.format.bits() != 4)) continue;
          for (const Among among : {Among::subnormals, Among::infinities, Among::nans}) {
            for (const TileOperation operation : {TileOperation::multiply, TileOperation::divide}) {
              check_codes<float>(shape, cast, operation, among, Factors::any, pairs, false);
              check_codes<BFloat16>(shape, cast, operation, among, Factors::any, pairs, true);
              check_codes<Half>(shape, cast, operation, among, Factors::any, pairs, false);
            }
          }
          for (const Factors kind : {Factors::in_range, Factors::powers}) {
            for (const bool lines : {false, true}) {
              check_codes<float>(shape, cast, TileOperation::multiply, Among::subnormals, kind, pairs, lines);
              check_codes<BFloat16>(shape, cast, TileOperation::multiply, Among::subnormals, kind, pairs, lines);
            }
          }
        }
      }
    }
  }
}

TEST_CASE(
    "bfloat16s times 0 and powers of two have the codes of the products, zeros and subnormals among them or not") {
  const UnforceTarget at_end;
  for (const Format& format : {e4m3, e5m2}) {
    for (const float factor : {0.0F, 0x1p-127F, 0x1p-126F, 0x1p-119F, 0x1p-111F, 0x1p-17F, 0x1p-1F, 1.0F, 0x1p8F,
                               0x1p30F, 0x1p77F, 0x1p118F, 0x1p119F, 0x1p120F, 0x1p121F, 0x1p126F, 0x1p127F}) {
      const std::vector<BFloat16> values = in_range_of(format, factor);
      std::vector<std::uint8_t> expected;
      for (const BFloat16 x : values) {
        expected.push_back(static_cast<std::uint8_t>(encode(format, CastPolicy{}, as_float(x) * factor)));
      }
      for (const std::string_view target : targets()) {
        force_target(target);
        const TileEncoder encoder(format, CastPolicy{});
        for (const std::size_t tile : {1U, 16U, 32U, 128U, 8192U}) {
          CAPTURE(target, format.mantissa_bits, factor, tile);
          const TileRows<BFloat16> x{values.data(), 1, values.size(), values.size(), tile};
          const std::vector<float> factors(x.across(), factor);
          std::vector<std::uint8_t> codes(values.size());
          encoder(x, TileOperation::multiply, factors.data(), 0, false, codes.data(), 0, {.in_range = true});
          REQUIRE(codes == expected);
        }
      }
    }
  }
}

TEST_CASE("values of scaled tiles are those of their codes times the factor, NaN where the product is") {
  const UnforceTarget at_end;
  for (const std::string_view target : targets()) {
    force_target(target);
    for (const NamedFormat& named : byte_formats()) {
      for (const std::size_t tile : {1U, 7U, 16U, 32U, 128U, 600U}) {
        for (const float last : {1.0F, 0.0F, -2.0F, 0x1p-127F, inf, nan}) {
          CAPTURE(target, named.name, tile, last);
          check_values(named.format, 384, tile, last);
          check_values(named.format, 391, tile, last);
        }
      }
    }
  }
}

TEST_CASE("overflow begins half a spacing above the largest value") {
  CHECK(overflow_from(e4m3) == 464);    // 448 + 32 / 2
  CHECK(overflow_from(e5m2) == 61440);  // 57344 + 8192 / 2
  CHECK(overflow_from(e2m1) == 7);      // 6 + 2 / 2
  CHECK(overflow_from(e3m2) == 30);     // 28 + 4 / 2
  CHECK(overflow_from(e2m3) == 7.75F);  // 7.5 + 0.5 / 2
}

}  // namespace fp8lab::tests
