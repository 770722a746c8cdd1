// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/policy_names.hpp"

#include <string_view>

#include "support.hpp"

namespace fp8lab::tests {

/// Finds every enumerator of the fields of a record by its name; how many fields have names.
template <typename Record>
std::size_t found_by_name(const Record& record) {
  std::size_t fields = 0;
  for_fields(record, [&]<typename Field>(std::string_view name, const Field& field) {
    if constexpr (NamedEnum<Field>) {
      ++fields;
      for (const Named<Field>& one : named_values(field)) {
        INFO(name << " " << one.name);
        CHECK(find_value<Field>(name, one.name) == one.value);
        CHECK(name_of(one.value) == one.name);
      }
    }
  });
  return fields;
}

TEST_CASE("names: each enumerator of a format's or a policy's fields is found by its name") {
  CHECK(found_by_name(e4m3) == 1);
  CHECK(found_by_name(CastPolicy{}) == 10);
  CHECK(find_value<Overflow>("infinity", "to_special") == Overflow::to_special);
  CHECK_THROWS_WITH(find_value<ZeroSign>("zero_sign", "lost"), "unknown zero_sign 'lost'; known: kept, dropped");
}

TEST_CASE("names: a policy is changed by the names of a field and of its value") {
  CHECK(policy_with(ieee_policy, "nan", "positive_all_ones").nan == NanCode::positive_all_ones);
  CHECK(policy_with(policy_with(ieee_policy, "overflow", "saturate"), "overflow", "to_special") == ieee_policy);
  CHECK(policy_with({}, "float64_via_float32", "true").float64_via_float32);
  CHECK_THROWS_WITH(policy_with({}, "float64_via_float32", "yes"),
                    "unknown float64_via_float32 'yes'; known: false, true");
  CHECK_THROWS_WITH(policy_with({}, "colour", "red"),
                    "unknown field of a profile 'colour'; known: rounding, overflow, infinity, nan, nan_of_double, "
                    "missing_nan, zero, smallest, negative, zero_sign, float64_via_float32");
}

}  // namespace fp8lab::tests
