// SPDX-License-Identifier: Apache-2.0
// The fields of a format and of a cast's policy by their names, and the names of what they may be.
#pragma once

#include <concepts>
#include <span>
#include <string_view>
#include <type_traits>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/policy.hpp"

namespace fp8lab {

/// The values of a field, with their names: find_value<Overflow>("overflow", "saturate") and name_of(policy.overflow)
/// follow from them.
[[nodiscard]] std::span<const Named<Specials>> named_values(Specials of_type);
[[nodiscard]] std::span<const Named<Overflow>> named_values(Overflow of_type);
[[nodiscard]] std::span<const Named<NanCode>> named_values(NanCode of_type);
[[nodiscard]] std::span<const Named<MissingNan>> named_values(MissingNan of_type);
[[nodiscard]] std::span<const Named<ZeroSign>> named_values(ZeroSign of_type);
[[nodiscard]] std::span<const Named<ZeroCode>> named_values(ZeroCode of_type);
[[nodiscard]] std::span<const Named<SmallestCode>> named_values(SmallestCode of_type);
[[nodiscard]] std::span<const Named<NegativeInput>> named_values(NegativeInput of_type);

/// Calls f(name, field) for each field of a Format, in order.
template <typename AnyFormat, typename Function>
  requires std::same_as<std::remove_const_t<AnyFormat>, Format>
void for_fields(AnyFormat& format, const Function& f) {
  f("exponent_bits", format.exponent_bits);
  f("mantissa_bits", format.mantissa_bits);
  f("bias", format.bias);
  f("is_signed", format.is_signed);
  f("has_subnormals", format.has_subnormals);
  f("specials", format.specials);
}

/// Calls f(name, field) for each field of a CastPolicy, in order.
template <typename AnyPolicy, typename Function>
  requires std::same_as<std::remove_const_t<AnyPolicy>, CastPolicy>
void for_fields(AnyPolicy& policy, const Function& f) {
  f("rounding", policy.rounding);
  f("overflow", policy.overflow);
  f("infinity", policy.infinity);
  f("nan", policy.nan);
  f("nan_of_double", policy.nan_of_double);
  f("missing_nan", policy.missing_nan);
  f("zero", policy.zero);
  f("smallest", policy.smallest);
  f("negative", policy.negative);
  f("zero_sign", policy.zero_sign);
  f("float64_via_float32", policy.float64_via_float32);
}

/// The policy with the value called `value` in the field called `field`; a flag is "true" or "false". Throws
/// std::invalid_argument that lists the fields, or the values of the field.
[[nodiscard]] CastPolicy policy_with(CastPolicy policy, std::string_view field, std::string_view value);

}  // namespace fp8lab
