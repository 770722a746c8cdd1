// SPDX-License-Identifier: Apache-2.0
// A defect that the tests must find: device code that counts bits by the standard library.
#pragma once

#include <bit>
#include <cstdint>

#include "fp8lab/formats/host_device.hpp"

namespace fp8lab {

FP8LAB_HD constexpr int width(std::uint64_t word) { return 64 - std::countl_zero(word); }

}  // namespace fp8lab

namespace fp8lab {

template <typename T>
struct Planted;
template <>
struct Planted<int> {};

namespace {

struct Unnamed {};

}  // namespace

}  // namespace fp8lab
