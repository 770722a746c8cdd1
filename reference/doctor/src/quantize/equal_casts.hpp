// SPDX-License-Identifier: Apache-2.0
// Casts of tiles that make the same of one tensor.
#pragma once

#include "quantize/kernel_model.hpp"

namespace fp8lab::doctor {

/// Writes casts that make the same codes of these elements in one way: as far as no element is NaN, no product is too
/// large or zero, or factors are powers of two. Precondition: the amaxes are those of the tiles of the cast, and known.
void simplify(CastOfTiles& cast, const Amaxes& amaxes);

}  // namespace fp8lab::doctor
