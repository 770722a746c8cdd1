// SPDX-License-Identifier: Apache-2.0
// Departures of the code: what becomes of scaled elements.
#include <algorithm>
#include <array>
#include <cmath>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "quantize/departures/shared.hpp"

namespace fp8lab::doctor {
namespace {

template <Narrowing narrowing>
void narrow_products(std::span<float> x, const Recipe& /*recipe*/) {
  narrow(narrowing, x);
}

void clamp_to_240(std::span<float> x, const Recipe& /*recipe*/) {
  for (float& value : x) value = std::clamp(value, -240.0F, 240.0F);
}

/// What is below the least normal number of the format becomes 0.
void flush_products(std::span<float> x, const Recipe& recipe) {
  const float least = decode(recipe.format, std::uint32_t{1} << recipe.format.mantissa_bits);
  for (float& value : x) value = std::abs(value) < least ? std::copysign(0.0F, value) : value;
}

std::uint8_t sign_of(const CodesOfPiece& piece) { return static_cast<std::uint8_t>(piece.recipe.format.sign_mask()); }
std::uint8_t magnitude_of(const CodesOfPiece& piece) {
  return static_cast<std::uint8_t>(piece.recipe.format.magnitude_mask());
}

/// Replaces each code by what f(code, product) makes of it.
template <typename F>
void change_codes_by(const CodesOfPiece& piece, const F& f) {
  for (std::size_t i = 0; i < piece.codes.size(); ++i) {
    piece.codes[i] = static_cast<std::uint8_t>(f(piece.codes[i], piece.products[i]));
  }
}

/// What is too large becomes the low bits of a code with more exponents.
void wrap_overflow(const CodesOfPiece& piece, const Deviation& /*own*/) {
  Format wide = piece.recipe.format;
  ++wide.exponent_bits;
  wide.specials = Specials::none;
  change_codes_by(piece, [&](std::uint8_t code, float product) -> int {
    if (std::isnan(product)) return code;
    return (code & sign_of(piece)) | (encode(wide, piece.recipe.cast, product) & magnitude_of(piece));
  });
}

/// They keep their sign.
void flush_subnormals(const CodesOfPiece& piece, const Deviation& /*own*/) {
  const int subnormals = (1 << piece.recipe.format.mantissa_bits) - 1;
  change_codes_by(piece, [&](std::uint8_t code, float) -> int {
    return (code & magnitude_of(piece)) <= subnormals ? code & sign_of(piece) : code;
  });
}

/// Where rounding carries out of the mantissa, the exponent is ORed with 1, as where it is even is right; or where
/// `place` is 1 it stays.
void lose_carry(const CodesOfPiece& piece, const Deviation& own) {
  const Format& format = piece.recipe.format;
  const CastPolicy down{.rounding = Rounding::toward_zero};
  change_codes_by(piece, [&](std::uint8_t code, float product) -> int {
    if (!std::isfinite(product)) return code;
    const int cut = static_cast<int>(encode(format, down, product)) & magnitude_of(piece);
    const int rounded = code & magnitude_of(piece);
    const int before = cut >> format.mantissa_bits;
    const bool carries = rounded >> format.mantissa_bits == before + 1 && (own.place == 1 || before % 2 == 1);
    return carries ? before << format.mantissa_bits | (code & sign_of(piece)) : code;
  });
}

void zero_nan(const CodesOfPiece& piece, const Deviation& /*own*/) {
  change_codes_by(piece, [](std::uint8_t code, float product) -> int { return std::isnan(product) ? 0 : code; });
}

void lose_negative_zero(const CodesOfPiece& piece, const Deviation& /*own*/) {
  change_codes_by(piece, [&](std::uint8_t code, float) -> int { return code == sign_of(piece) ? 0 : code; });
}

void lose_sign(const CodesOfPiece& piece, const Deviation& /*own*/) {
  change_codes_by(piece, [&](std::uint8_t code, float) -> int { return code & magnitude_of(piece); });
}

void invert_sign(const CodesOfPiece& piece, const Deviation& /*own*/) {
  change_codes_by(piece, [&](std::uint8_t code, float) -> int { return code ^ sign_of(piece); });
}

void zero_negatives(const CodesOfPiece& piece, const Deviation& /*own*/) {
  change_codes_by(piece, [&](std::uint8_t code, float product) -> int {
    return (code & sign_of(piece)) != 0 && !std::isnan(product) ? 0 : code;
  });
}

constexpr auto code_table = of_stage(
    KernelStage::code,
    std::array{
        Departure{.name = "product_float16",
                  .words = "scaled elements are rounded to float16 before they become codes",
                  .cost = 1.0599,
                  .product = narrow_products<Narrowing::float16>},
        Departure{.name = "product_bfloat16",
                  .words = "scaled elements are rounded to bfloat16 before they become codes",
                  .cost = 1.0606,
                  .product = narrow_products<Narrowing::bfloat16>},
        Departure{.name = "clamped_to_240",
                  .words = "scaled elements are clamped to 240",
                  .cost = 1.0620,
                  .is_searched =
                      [](const SearchCase& one) { return one.recipe().format == e4m3 || one.recipe().format == e5m2; },
                  .product = clamp_to_240},
        Departure{.name = "product_flushed",
                  .words = "scaled elements below the least normal number become 0 before they are rounded",
                  .cost = 1.0634,
                  .product = flush_products},
        Departure{.name = "overflow_wraps",
                  .words = "what is too large wraps around instead of saturating",
                  .cost = 1.0613,
                  .code = wrap_overflow,
                  .plant = {.recipe = "vllm_static"}},
        Departure{.name = "subnormals_flushed",
                  .words = "subnormal codes are flushed to zero",
                  .cost = 1.0627,
                  .code = flush_subnormals},
        Departure{.name = "carry_lost",
                  .words = "the carry of a full mantissa is",
                  .cost = 1.0672,
                  .numbers = [](const SearchCase&) { return std::vector<Deviation>{{.place = 0}, {.place = 1}}; },
                  .details =
                      [](TextStream& text, const Deviation& own, const Hypothesis&) {
                        text << (own.place == 1 ? " lost"
                                                : " ORed into the exponent, which loses it where that is odd");
                      },
                  .code = lose_carry},
        Departure{.name = "nan_is_zero", .words = "NaN becomes 0", .cost = 1.0669, .code = zero_nan},
        Departure{.name = "negative_zero_lost", .words = "-0 becomes 0", .cost = 1.0641, .code = lose_negative_zero},
        Departure{.name = "sign_lost", .words = "the sign is lost", .cost = 1.0648, .code = lose_sign},
        Departure{.name = "sign_inverted", .words = "the sign is inverted", .cost = 1.0655, .code = invert_sign},
        Departure{
            .name = "negatives_zeroed", .words = "negative elements become 0", .cost = 1.0662, .code = zero_negatives},
    });

}  // namespace

std::span<const Departure> code_departures() { return code_table; }

}  // namespace fp8lab::doctor
