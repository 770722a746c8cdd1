// SPDX-License-Identifier: Apache-2.0
// The elementary functions for arguments whose value is too near to a tie of float32 for float64 to decide.
#pragma once

namespace fp8lab {

/// e^x for least_exp <= x <= most_exp.
float exp_in_pairs(float x);
/// tanh(x) for |x| <= most_tanh.
float tanh_in_pairs(float x);

}  // namespace fp8lab
