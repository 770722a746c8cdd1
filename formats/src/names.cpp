// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/formats/refuse.hpp"

namespace fp8lab {

namespace {

const char* words(Overflow overflow) {
  switch (overflow) {
    case Overflow::saturate: return "the largest finite value, sign kept";
    case Overflow::to_special: return "infinity where the format has it, else NaN, sign kept";
    case Overflow::to_infinity: return "infinity where the format has it, else the largest finite value, sign kept";
    case Overflow::to_infinity_or_sole_nan:
      return "infinity where the format has it, else NaN where a single code means it, else the largest finite value, "
             "sign kept";
  }
  return "";
}

const char* words(NanCode nan) {
  switch (nan) {
    case NanCode::positive_all_ones: return "the NaN of all ones, sign dropped";
    case NanCode::sign_all_ones: return "the NaN of all ones, sign kept";
    case NanCode::sign_quiet: return "the quiet NaN without payload, sign kept";
    case NanCode::sign_and_payload: return "a quiet NaN with the topmost payload bits, sign kept";
    case NanCode::largest: return "the largest finite value, sign dropped";
    case NanCode::negative_largest: return "the largest finite value with the sign set";
  }
  return "";
}

const char* words(MissingNan nan) {
  switch (nan) {
    case MissingNan::largest: return "the largest value";
    case MissingNan::opposite_zero: return "zero with the opposite sign";
    case MissingNan::positive_zero: return "+0";
    case MissingNan::negative_zero: return "-0";
  }
  return "";
}

/// Says what zero and negative values become in formats that cannot hold them.
std::string describe_missing(const CastPolicy& policy) {
  std::string text = "; formats without a sign ";
  switch (policy.negative) {
    case NegativeInput::magnitude: text += "drop it"; break;
    case NegativeInput::nan: text += "give NaN for negative values"; break;
    case NegativeInput::smallest: text += "give the smallest value for negative ones but infinity"; break;
  }
  text += ", formats without zero give ";
  switch (policy.zero) {
    case ZeroCode::smallest: text += "the smallest value"; break;
    case ZeroCode::second: text += "the second smallest value"; break;
    case ZeroCode::nan: text += "NaN"; break;
  }
  text += " for it";
  if (policy.smallest == SmallestCode::zero)
    text += ", and round what lies below the second as if the smallest were zero";
  return text;
}

}  // namespace

std::string describe(const CastPolicy& policy) {
  std::string text = "rounds " + std::string(name_of(policy.rounding)) + "; finite overflow gives " +
                     words(policy.overflow) + "; infinity gives " + words(policy.infinity) + "; NaN gives " +
                     words(policy.nan);
  if (policy.nan_of_double != policy.nan) text += std::string(" (from double: ") + words(policy.nan_of_double) + ")";
  text += std::string(", ") + words(policy.missing_nan) + " in formats without NaN; zero " +
          (policy.zero_sign == ZeroSign::kept ? "keeps its sign" : "has no sign") + describe_missing(policy);
  return text + "; float64 is rounded " + (policy.float64_via_float32 ? "to float32 first." : "once.");
}

std::string format_name(const Format& format) {
  for (const NamedFormat& named : named_formats) {
    if (named.format == format) return std::string(named.name);
  }
  if (format == binary64) return "float64";
  if (format == tf32 || format == binary32) return "float32";  // tensor cores read TF32 from float32
  return std::string("E") + std::to_string(format.exponent_bits) + "M" + std::to_string(format.mantissa_bits) +
         " with bias " + std::to_string(format.bias);
}

void check_format(const Format& format) {
  const int exponent_bits = format.exponent_bits;
  if (exponent_bits < 1 || exponent_bits > 8) {
    refuse("format must have 1 to 8 exponent bits, not ", exponent_bits);
  }
  if (format.mantissa_bits < 0 || format.bits() > 16) {
    refuse("format must have at most 16 bits, sign included, not ", format.mantissa_bits, " mantissa bits with ",
           exponent_bits, " exponent bits");
  }
  if (format.specials == Specials::ieee && format.mantissa_bits < 1) {
    refuse("format with specials 'ieee' must have a mantissa bit, to tell NaN from infinity");
  }
  if (format.specials == Specials::nan_at_negative_zero && !(format.is_signed && format.has_subnormals)) {
    refuse("format with specials 'nan_at_negative_zero' must have a sign and a zero");
  }
  if (format.bias < -300 || format.bias > 300) refuse("format must have a bias from -300 to 300");
  const int smallest = format.min_exponent() - (format.has_subnormals ? format.mantissa_bits : 0);
  const int largest = static_cast<int>(format.max_code() >> format.mantissa_bits) - format.bias;
  if (smallest < -149 || largest > 127) {
    refuse("format must have values that float32 holds, 2^-149 to below 2^128; a bias of ", format.bias,
           " makes them 2^", smallest, " to below 2^", largest + 1);
  }
}

const NamedFormat& find_format(std::string_view name) { return find_named(named_formats, "format", name); }
const Profile& find_profile(std::string_view name) { return find_named(profiles, "profile", name); }

}  // namespace fp8lab
