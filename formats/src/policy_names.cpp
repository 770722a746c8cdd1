// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/policy_names.hpp"

#include <array>
#include <string>
#include <vector>

namespace fp8lab {
namespace {

constexpr std::array all_specials{Named{"ieee", Specials::ieee}, Named{"nan_at_all_ones", Specials::nan_at_all_ones},
                                  Named{"nan_at_negative_zero", Specials::nan_at_negative_zero},
                                  Named{"none", Specials::none}};
constexpr std::array overflows{Named{"saturate", Overflow::saturate}, Named{"to_special", Overflow::to_special},
                               Named{"to_infinity", Overflow::to_infinity},
                               Named{"to_infinity_or_sole_nan", Overflow::to_infinity_or_sole_nan}};
constexpr std::array nan_codes{Named{"positive_all_ones", NanCode::positive_all_ones},
                               Named{"sign_all_ones", NanCode::sign_all_ones},
                               Named{"sign_quiet", NanCode::sign_quiet},
                               Named{"sign_and_payload", NanCode::sign_and_payload},
                               Named{"largest", NanCode::largest},
                               Named{"negative_largest", NanCode::negative_largest}};
constexpr std::array missing_nans{
    Named{"largest", MissingNan::largest}, Named{"opposite_zero", MissingNan::opposite_zero},
    Named{"positive_zero", MissingNan::positive_zero}, Named{"negative_zero", MissingNan::negative_zero}};
constexpr std::array zero_signs{Named{"kept", ZeroSign::kept}, Named{"dropped", ZeroSign::dropped}};
constexpr std::array zero_codes{Named{"smallest", ZeroCode::smallest}, Named{"second", ZeroCode::second},
                                Named{"nan", ZeroCode::nan}};
constexpr std::array smallest_codes{Named{"value", SmallestCode::value}, Named{"zero", SmallestCode::zero}};
constexpr std::array negative_inputs{Named{"magnitude", NegativeInput::magnitude}, Named{"nan", NegativeInput::nan},
                                     Named{"smallest", NegativeInput::smallest}};
static_assert(is_in_order(all_specials) && is_in_order(overflows) && is_in_order(nan_codes) &&
              is_in_order(missing_nans) && is_in_order(zero_signs) && is_in_order(zero_codes) &&
              is_in_order(smallest_codes) && is_in_order(negative_inputs) && is_in_order(named_roundings));

constexpr std::array flag_names{Named{"false", false}, Named{"true", true}};

}  // namespace

std::span<const Named<Rounding>> named_values(Rounding /*any*/) { return named_roundings; }
std::span<const Named<Specials>> named_values(Specials /*any*/) { return all_specials; }
std::span<const Named<Overflow>> named_values(Overflow /*any*/) { return overflows; }
std::span<const Named<NanCode>> named_values(NanCode /*any*/) { return nan_codes; }
std::span<const Named<MissingNan>> named_values(MissingNan /*any*/) { return missing_nans; }
std::span<const Named<ZeroSign>> named_values(ZeroSign /*any*/) { return zero_signs; }
std::span<const Named<ZeroCode>> named_values(ZeroCode /*any*/) { return zero_codes; }
std::span<const Named<SmallestCode>> named_values(SmallestCode /*any*/) { return smallest_codes; }
std::span<const Named<NegativeInput>> named_values(NegativeInput /*any*/) { return negative_inputs; }

CastPolicy policy_with(CastPolicy policy, std::string_view field, std::string_view value) {
  std::vector<std::string_view> known;
  bool is_found = false;
  for_fields(policy, [&]<typename Value>(std::string_view name, Value& member) {
    known.push_back(name);
    if (name != field) return;
    is_found = true;
    if constexpr (NamedEnum<Value>) {
      member = find_value<Value>(field, value);
    } else {
      member = find_named(flag_names, field, value).value;
    }
  });
  if (!is_found) refuse_name("field of a profile", field, known);
  return policy;
}

}  // namespace fp8lab
