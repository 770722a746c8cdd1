// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace fp8lab::experiments {

/// A .npy file, version 1.0, of elements in C order; `descr` is NumPy's name of their type, such as "<f4" or "|u1".
[[nodiscard]] std::string npy_of(std::string_view descr, std::initializer_list<std::size_t> shape,
                                 std::span<const std::byte> elements);

}  // namespace fp8lab::experiments
