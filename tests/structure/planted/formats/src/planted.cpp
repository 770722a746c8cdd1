// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/width.hpp"

namespace fp8lab {
namespace {

struct Unnamed {};

}  // namespace

template <>
struct Planted<int> final : Unnamed {
  struct Within {};
};

class Planted<char>;

}  // namespace fp8lab
