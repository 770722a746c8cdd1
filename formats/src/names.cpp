// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <string>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/policy.hpp"

namespace fp8lab {

namespace {

const char* words(Overflow overflow) {
  switch (overflow) {
    case Overflow::saturate: return "the largest finite value, sign kept";
    case Overflow::to_special: return "infinity where the format has it, else NaN, sign kept";
    case Overflow::to_infinity: return "infinity where the format has it, else the largest finite value, sign kept";
  }
  return "";
}

const char* words(NanCode nan) {
  switch (nan) {
    case NanCode::positive_all_ones: return "the NaN of all ones, sign dropped";
    case NanCode::sign_all_ones: return "the NaN of all ones, sign kept";
    case NanCode::sign_quiet: return "the quiet NaN without payload, sign kept";
    case NanCode::sign_and_payload: return "a quiet NaN with the topmost payload bits, sign kept";
  }
  return "";
}

}  // namespace

std::string describe(const CastPolicy& policy) {
  std::string text = std::string("finite overflow gives ") + words(policy.overflow) + "; infinity gives " +
                     words(policy.infinity) + "; NaN gives " + words(policy.nan);
  if (policy.nan_of_double != policy.nan) text += std::string(" (from double: ") + words(policy.nan_of_double) + ")";
  return text +
         "; zero keeps its sign. Formats without NaN give the largest value for it, formats without a sign drop it.";
}

const NamedFormat& find_format(std::string_view name) { return find_named(named_formats, "format", name); }
const Profile& find_profile(std::string_view name) { return find_named(profiles, "profile", name); }
Rounding find_rounding(std::string_view name) { return find_named(named_roundings, "rounding", name).rounding; }

}  // namespace fp8lab
