// SPDX-License-Identifier: Apache-2.0
// An include of a sub-room that lies above this one, which the check has to find.
#include "fp8lab/reference/gemm/gemm.hpp"
