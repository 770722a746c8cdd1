// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <string>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/policy.hpp"

namespace fp8lab {

const NamedFormat& find_format(std::string_view name) { return find_named(named_formats, "format", name); }
const Profile& find_profile(std::string_view name) { return find_named(profiles, "profile", name); }
Rounding find_rounding(std::string_view name) { return find_named(named_roundings, "rounding", name).rounding; }

}  // namespace fp8lab
