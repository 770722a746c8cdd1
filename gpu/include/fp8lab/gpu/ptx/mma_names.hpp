// SPDX-License-Identifier: Apache-2.0
// The types of matrix instructions as parts of their names.
#pragma once

#include "fp8lab/gpu/fragments.hpp"

namespace fp8lab::gpu {

/// PTX's names, as parts of an instruction.
template <MmaType kType>
struct MmaTypeName {
  static constexpr char text[] = "e4m3";
};
template <>
struct MmaTypeName<MmaType::e5m2> {
  static constexpr char text[] = "e5m2";
};
template <>
struct MmaTypeName<MmaType::f16> {
  static constexpr char text[] = "f16";
};
template <>
struct MmaTypeName<MmaType::bf16> {
  static constexpr char text[] = "bf16";
};
template <>
struct MmaTypeName<MmaType::tf32> {
  static constexpr char text[] = "tf32";
};
template <>
struct MmaTypeName<MmaType::f64> {
  static constexpr char text[] = "f64";
};

}  // namespace fp8lab::gpu
