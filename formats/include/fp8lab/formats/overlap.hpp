// SPDX-License-Identifier: Apache-2.0
// Checks that the arrays of a call do not share memory in ways that would change its result.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fp8lab {

// One rule for every function that writes an array: its inputs lie apart from it. An input of which element i alone
// makes element i of the output may also be the very elements of the output, of the same size, first to last. Anything
// else is refused, for its result would depend on what is written before what is read.

/// Whether two arrays share a byte.
template <typename T, typename U>
[[nodiscard]] bool overlap(std::span<T> a, std::span<U> b) {
  const auto x = std::as_bytes(a);
  const auto y = std::as_bytes(b);
  if (x.empty() || y.empty()) return false;
  const std::less<> before;  // a total order of all pointers
  return before(x.data(), y.data() + y.size()) && before(y.data(), x.data() + x.size());
}

/// Throws std::invalid_argument where the input `in`, called `name`, overlaps the output `out`.
template <typename In, typename Out>
void check_apart(std::string_view name, std::span<In> in, std::string_view out_name, std::span<Out> out) {
  if (!overlap(in, out)) return;
  throw std::invalid_argument(std::string(name) + " and " + std::string(out_name) +
                              " overlap; they must lie apart in memory");
}

/// Throws likewise, but accepts arrays that are the very same elements.
template <typename In, typename Out>
void check_apart_or_same(std::string_view name, std::span<In> in, std::string_view out_name, std::span<Out> out) {
  const auto x = std::as_bytes(in);
  const auto y = std::as_bytes(std::span<const Out>(out));
  const bool same = sizeof(In) == sizeof(Out) && x.data() == y.data() && x.size() == y.size();
  if (same || !overlap(in, out)) return;
  throw std::invalid_argument(std::string(name) + " and " + std::string(out_name) +
                              " overlap; they must lie apart in memory, or be the same elements");
}

}  // namespace fp8lab
