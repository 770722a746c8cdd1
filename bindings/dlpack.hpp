// SPDX-License-Identifier: Apache-2.0
// The data structures of DLPack in an array's capsule: of versions before 1.0, and of 1.0 and later. Their layout is
// fixed for good.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace fp8lab::bindings::dlpack {

struct Device {
  std::int32_t type;
  std::int32_t id;
};
struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct Tensor {
  void* data;
  Device device;
  std::int32_t dimensions;
  DataType type;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; null: C-contiguous
  std::uint64_t byte_offset;
};
struct ManagedTensor {
  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};
struct VersionedTensor {
  Version version;
  void* context;
  void (*deleter)(VersionedTensor*);
  std::uint64_t flags;
  Tensor tensor;
};
/// Bits of VersionedTensor::flags.
inline constexpr std::uint64_t read_only = 1, is_copied = 2, padded = 4;

/// The names of their capsules.
inline constexpr const char* old_name = "dltensor";
inline constexpr const char* versioned_name = "dltensor_versioned";

/// A float of at most 8 bits: DLDataTypeCode of DLPack 1.1, its bits, the name of ml_dtypes and that of fp8lab.
struct SmallFloat {
  std::uint8_t code;
  std::uint8_t bits;
  std::string_view name;
  std::string_view format;
};
inline constexpr std::array small_floats{
    SmallFloat{7, 8, "float8_e3m4", "e3m4"},          SmallFloat{10, 8, "float8_e4m3fn", "e4m3"},
    SmallFloat{11, 8, "float8_e4m3fnuz", "e4m3fnuz"}, SmallFloat{12, 8, "float8_e5m2", "e5m2"},
    SmallFloat{13, 8, "float8_e5m2fnuz", "e5m2fnuz"}, SmallFloat{14, 8, "float8_e8m0fnu", "e8m0"},
    SmallFloat{15, 6, "float6_e2m3fn", "e2m3"},       SmallFloat{16, 6, "float6_e3m2fn", "e3m2"},
    SmallFloat{17, 4, "float4_e2m1fn", "e2m1"},
};

/// The name of an element type as NumPy or ml_dtypes has it, two codes of E2M1 in a byte as torch has them; otherwise
/// its numbers. Codes: DLDataTypeCode of DLPack 1.1.
inline std::string name_of(const DataType& type) {
  if (type.lanes == 1) {
    if (type.code == 2 && (type.bits == 16 || type.bits == 32 || type.bits == 64)) {
      return "float" + std::to_string(type.bits);
    }
    if (type.code == 1 && type.bits <= 64) return "uint" + std::to_string(type.bits);
    if (type.code == 4 && type.bits == 16) return "bfloat16";
    if (type.code == 0 && type.bits <= 64) return "int" + std::to_string(type.bits);
    for (const SmallFloat& one : small_floats) {
      if (one.code == type.code && one.bits == type.bits && one.bits != 4) return std::string(one.name);
    }
  }
  if (type.code == 17 && type.bits == 4 && type.lanes == 2) return "float4_e2m1fn_x2";
  return "type " + std::to_string(type.code) + " of " + std::to_string(type.bits) + " bits";
}

}  // namespace fp8lab::bindings::dlpack

namespace fp8lab::bindings {

void bind_dlpack(pybind11::module_& module);

}  // namespace fp8lab::bindings
