// SPDX-License-Identifier: Apache-2.0
// An include against the direction, which the check has to find.
#include "fp8lab/reference/tensor_core/mma.hpp"
