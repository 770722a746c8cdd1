// SPDX-License-Identifier: Apache-2.0
// The part of {fmt} that its headers leave to a library, of which Debian has a shared one alone.
#include <fmt/format-inl.h>

template fmt::detail::thousands_sep_result<char> fmt::detail::thousands_sep_impl<char>(locale_ref);
template char fmt::detail::decimal_point_impl<char>(locale_ref);
