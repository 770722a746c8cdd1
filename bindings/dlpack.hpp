// SPDX-License-Identifier: Apache-2.0
// The part of DLPack that an array's capsule has before version 1.0: data structures whose layout is fixed for good.
#pragma once

#include <cstdint>
#include <string>

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

/// The name of an element type as NumPy or ml_dtypes has it; otherwise its numbers. Codes: DLDataTypeCode of
/// DLPack 1.1.
inline std::string name_of(const DataType& type) {
  if (type.lanes == 1) {
    if (type.code == 2 && (type.bits == 16 || type.bits == 32 || type.bits == 64)) {
      return "float" + std::to_string(type.bits);
    }
    if (type.code == 1 && type.bits <= 64) return "uint" + std::to_string(type.bits);
    if (type.code == 4 && type.bits == 16) return "bfloat16";
    if (type.code == 10 && type.bits == 8) return "float8_e4m3fn";
    if (type.code == 12 && type.bits == 8) return "float8_e5m2";
  }
  return "type " + std::to_string(type.code) + " of " + std::to_string(type.bits) + " bits";
}

}  // namespace fp8lab::bindings::dlpack
