// SPDX-License-Identifier: Apache-2.0
// Corner values of each format, checked by the compiler. Figures: OCP OFP8 1.0 table 1, OCP MX 1.0 section 5.4.1.
#include <limits>

#include "fp8lab/formats/bits.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"

namespace fp8lab {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr CastPolicy satfinite = profiles[0].policy;
constexpr CastPolicy nosat = profiles[1].policy;

static_assert(leading_zeros(std::uint64_t{0}) == 64 && leading_zeros(std::uint64_t{1}) == 63);
static_assert(leading_zeros(~std::uint64_t{0}) == 0 && leading_zeros(std::uint64_t{1} << 40) == 23);
static_assert(leading_zeros(std::uint32_t{0}) == 32 && leading_zeros(std::uint32_t{1} << 30) == 1);
static_assert(trailing_zeros(0) == 32 && trailing_zeros(1) == 0 && trailing_zeros(0x80000000U) == 31);
static_assert(trailing_zeros(0b10100) == 2 && count_ones(0) == 0 && count_ones(0xF0F0F0F1U) == 17);
static_assert(topmost_one(0) == 0 && topmost_one(1) == 1 && topmost_one(0xFFFFFFFFU) == 0x80000000U);
static_assert(topmost_one(0b10100) == 0b10000);

static_assert(e4m3.bits() == 8 && e5m2.bits() == 8 && e8m0.bits() == 8);
static_assert(decode(e4m3, 0x7E) == 448 && decode(e4m3, 0x08) == 0x1p-6F && decode(e4m3, 0x01) == 0x1p-9F);
static_assert(decode(e5m2, 0x7B) == 57344 && decode(e5m2, 0x04) == 0x1p-14F && decode(e5m2, 0x01) == 0x1p-16F);
static_assert(decode(e8m0, 0x00) == 0x1p-127F && decode(e8m0, 0x7F) == 1 && decode(e8m0, 0xFE) == 0x1p127F);
static_assert(decode(e4m3, 0x7F) != decode(e4m3, 0x7F) && decode(e8m0, 0xFF) != decode(e8m0, 0xFF));
static_assert(decode(e5m2, 0x7C) == inf && decode(e5m2, 0xFC) == -inf && decode(e5m2, 0x7D) != decode(e5m2, 0x7D));

static_assert(decode(e2m1, 0x7) == 6 && decode(e2m1, 0x1) == 0.5F && decode(e2m3, 0x1F) == 7.5F &&
              decode(e3m2, 0x1F) == 28);
static_assert(decode(e4m3fnuz, 0x7F) == 240 && decode(e4m3fnuz, 0x01) == 0x1p-10F && decode(e5m2fnuz, 0x7F) == 57344);
static_assert(decode(e4m3fnuz, 0x80) != decode(e4m3fnuz, 0x80) && encode(e4m3fnuz, satfinite, -0.0F) == 0);
static_assert(decode(e3m4, 0x6F) == 15.5F && decode(e3m4, 0x70) == inf && encode(e2m1, satfinite, -5.0F) == 0xE);

// Ties at the top: 464 is the last float that rounds to 448, 61440 the first that E5M2 cannot hold.
static_assert(encode(e4m3, nosat, 464.0F) == 0x7E && encode(e4m3, nosat, 464.00003F) == 0x7F);
static_assert(encode(e5m2, nosat, 61439.996F) == 0x7B && encode(e5m2, nosat, 61440.0F) == 0x7C);
static_assert(encode(e4m3, satfinite, 1e30F) == 0x7E && encode(e4m3, satfinite, -inf) == 0xFE);
static_assert(encode(e5m2, satfinite, inf) == 0x7B && encode(e5m2, nosat, -inf) == 0xFC);
static_assert(encode(e4m3, satfinite, nan) == 0x7F && encode(e5m2, satfinite, -nan) == 0x7F);
// Subnormals: half the smallest is a tie that goes to zero, keeping its sign; the carry into the normals works.
static_assert(encode(e4m3, satfinite, 0x1p-10F) == 0x00 && encode(e4m3, satfinite, -0x1p-10F) == 0x80);
static_assert(encode(e4m3, satfinite, 0x1.000002p-10F) == 0x01 && encode(e4m3, satfinite, 7.5F * 0x1p-9F) == 0x08);
// From double there is one rounding: via float this would tie and give 38 (CUDA 13.0 cuda_fp8.h, host code).
static_assert(encode(e4m3, satfinite, 1.0625 + 0x1p-52) == 0x39 && encode(e4m3, satfinite, 1.0625) == 0x38);
// E8M0 has no zero and no sign.
static_assert(encode(e8m0, satfinite, 0.0F) == 0x00 && encode(e8m0, satfinite, -2.0F) == 0x80);
static_assert(encode(e8m0, {.rounding = Rounding::upward}, 1.0000001F) == 0x80);
static_assert(encode(e8m0, {.rounding = Rounding::upward, .overflow = Overflow::to_special}, 0x1.8p127F) == 0xFF);
static_assert(encode(e4m3, satfinite, Half{0x3C00}) == 0x38 && encode(e4m3, satfinite, BFloat16{0x3F80}) == 0x38);

}  // namespace
}  // namespace fp8lab
